"""Load per-rank files the way the managers' load_checkpoint does (verl 0.9.1 and EasyR1 b44b311), into
models and optimizers that hold something else, several in one launch:

    torchrun --nproc_per_node=N ranks_load.py OUT CASE=DIR...

CASE as ranks.py's, on a mesh of N ranks whatever the files came from. What is in the model and the
optimizer afterwards goes to OUT/CASE/{model,optim}.safetensors, the rest to OUT/CASE/rest.json.
"said:NAME:CASE=DIR" loads, then gathers the optimizer's states by name, as EasyR1's next save does:
OUT/NAME-RANK.txt is the error of that, or "nothing". The last job of a launch, if it fails.
"""

import json
import os
import random
import sys

import numpy
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_state_dict,
                                                     set_state_dict)
from torch.distributed.fsdp import (FullyShardedDataParallel, ShardedOptimStateDictConfig,
                                    ShardedStateDictConfig, StateDictType)

import oracle
import ranks
from leaving import leave


def load(manager, model, optimizer, scheduler, where):
    rank, world = dist.get_rank(), dist.get_world_size()
    weights, optim, extra = (
        torch.load(f"{where}/{kind}_world_size_{world}_rank_{rank}.pt", weights_only=False)
        for kind in ("model", "optim", "extra_state"))
    if manager == "easyr1":
        set_state_dict(model=model, optimizers=optimizer, model_state_dict=weights,
                       optim_state_dict=optim, options=StateDictOptions(cpu_offload=True))
    elif isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.state_dict_type(
                model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(),
                ShardedOptimStateDictConfig()):
            model.load_state_dict(weights)
            optimizer.load_state_dict(optim)
    else:
        model.load_state_dict(weights)
        optimizer.load_state_dict(optim)
    scheduler.load_state_dict(extra["lr_scheduler"])
    if "rng" in extra:
        torch.set_rng_state(extra["rng"]["cpu"])
        numpy.random.set_state(extra["rng"]["numpy"])
        random.setstate(extra["rng"]["random"])
    return "rng" in extra


def run(case, where, out):
    manager, fsdp, kind, dtype = ranks.parse(case)
    model, optimizer, scheduler = ranks.trained(manager, fsdp, "st" if kind == "st" else "", dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.125)
    optimizer.param_groups[0].update(weight_decay=0.75, lr=0.5)
    has_rng = load(manager, model, optimizer, scheduler, where)
    full = oracle.full_tensors(model)
    live = ranks.moments(model, optimizer, full, dist.get_world_size())
    if dist.get_rank() == 0:
        ranks.write_live(full, live, out)
        group = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
        with open(f"{out}/rest.json", "w") as f:
            json.dump({"group": group, "schedule": scheduler.state_dict(), "has_rng": has_rng}, f)
    dist.barrier()


def said(case, where, out):
    manager, fsdp, kind, dtype = ranks.parse(case)
    model, optimizer, scheduler = ranks.trained(manager, fsdp, kind, dtype)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    try:
        load(manager, model, optimizer, scheduler, where)
        get_state_dict(model, optimizer, options=StateDictOptions(cpu_offload=False))
        text = "nothing"
    except Exception as e:
        text = f"{type(e).__name__}: {e}"
    with open(f"{out}-{dist.get_rank()}.txt", "w") as f:
        f.write(text)
    if text != "nothing":  # the other ranks may wait for this one in a collective, and must fail too
        os._exit(0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for one in sys.argv[2:]:
        name, directory = one.split("=", 1)
        if name.startswith("said:"):
            _, to, case = name.split(":")
            said(case, directory, f"{sys.argv[1]}/{to}")
            continue
        run(name, directory, f"{sys.argv[1]}/{name}")
    leave()

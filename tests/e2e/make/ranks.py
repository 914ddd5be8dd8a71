"""Per-rank files as veRL and EasyR1 write them, made with torch itself in their checkpoint managers' way
(verl 0.9.1 and EasyR1 b44b311, fsdp_checkpoint_manager.py), several in one launch:

    torchrun --nproc_per_node=W ranks.py OUT CASE...

CASE is MANAGER-FSDP[-MORE][-bf16]: verl or easyr1; f1 (flat units), f1orig, f2. MORE is hsdp = (W/2, 2)
ranks, st = FSDP1 without a mesh (ShardedTensors), or another model: llava (its vision tower frozen), tied,
critic, lora (only the adapters are saved). Each makes OUT/CASE/run/global_step_2/actor and
OUT/CASE/live/{model,optim}.safetensors, which no checkpoint code has seen; flat units also
OUT/CASE/units.json, as docs/flat-units.md says.
"""

import json
import os
import random
import re
import sys

import numpy
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (FullyShardedDataParallel, ShardedOptimStateDictConfig,
                                    ShardedStateDictConfig, ShardingStrategy, StateDictType,
                                    fully_shard)
from torch.distributed.fsdp.wrap import CustomPolicy

import models
import oracle
from leaving import leave


def mesh_of(kind):
    world = dist.get_world_size()
    if kind == "hsdp":
        return init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("ddp", "fsdp"))
    return init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))


def layers_of(model):
    names = ("LlamaDecoderLayer", "CLIPEncoderLayer")
    return [m for m in model.modules() if type(m).__name__ in names] or list(model.layers)


def shard(model, fsdp, kind):
    mesh = None if kind == "st" else mesh_of(kind)
    layers = layers_of(model)
    if fsdp == "f2":
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    strategy = ShardingStrategy.HYBRID_SHARD if kind == "hsdp" else ShardingStrategy.FULL_SHARD
    return FullyShardedDataParallel(
        model, auto_wrap_policy=CustomPolicy(lambda m: m in set(layers)),
        sharding_strategy=strategy,
        device_mesh=mesh, use_orig_params=fsdp == "f1orig", device_id=torch.device("cpu"))


def odd(fsdp, dtype):
    model = models.Odd(dtype)
    model.register_parameter("tiny", torch.nn.Parameter(torch.randn(2, dtype=dtype)))
    if fsdp == "f1":  # a flat unit is trained whole or not at all, and shares nothing
        model.frozen.requires_grad_(True)
        model.head.weight = torch.nn.Parameter(model.emb.weight.detach().clone())
    return model


def vision(dtype):
    model = models.llava(dtype)
    for name, p in model.named_parameters():
        if "vision_tower" in name:
            p.requires_grad_(False)
    return model


def build(fsdp, kind, dtype):
    other = {"llava": vision, "critic": models.value_head, "tied": models.small_llama,
             "lora": models.Lora}
    return other[kind](dtype) if kind in other else odd(fsdp, dtype)


def logits(model):
    def forward(ids):
        out = model(ids)
        return getattr(out, "logits", out)
    return forward


def train(model, optimizer, kind):
    """A real step, then some with gradients that differ everywhere but between replicas: what is in the
    moments is known by its place."""
    models.train(logits(model), optimizer, steps=1)
    optimizer.zero_grad()
    torch.manual_seed(7 + dist.get_rank() % (2 if kind == "hsdp" else dist.get_world_size()))
    for _ in range(2):
        for p in model.parameters():
            if p.requires_grad and p.numel():
                p.grad = torch.empty_like(p)
                local = getattr(p.grad, "_local_tensor", p.grad)
                local.copy_(torch.randn(local.shape))
        optimizer.step()
        optimizer.zero_grad()


def states(manager, model, optimizer, kind):
    if manager == "easyr1":
        return get_state_dict(model, optimizer, options=StateDictOptions(cpu_offload=False))
    if not isinstance(model, FullyShardedDataParallel):
        return model.state_dict(), optimizer.state_dict()
    with FullyShardedDataParallel.state_dict_type(
            model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=False),
            ShardedOptimStateDictConfig(offload_to_cpu=False)):
        return model.state_dict(), optimizer.state_dict()


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


def units_of(model):
    """The lines of docs/flat-units.md, up to where they write the file."""
    with open(os.path.join(os.path.dirname(__file__), "../../../docs/flat-units.md"), encoding="utf-8") as f:
        block = re.search(r"```python\n(.*?)^json\.dump\(", f.read(), re.S | re.M).group(1)
    said = {}
    exec(block, said)
    return {"unshard_fsdp_units": 1, "units": list(said["units"](model))}


def flat_moments(model, optimizer, shards):
    """The same of flat units: cut out of what all ranks hold of each, one behind the other."""
    mine = [{k: v for k, v in optimizer.state[p].items()} for p in model.parameters()]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    out = {}
    for i, unit in enumerate(units_of(model)["units"]):
        for key, first in every[0][i].items():
            flat = first if first.dim() == 0 else torch.cat([one[i][key] for one in every[:shards]])
            at = 0
            for p in unit["params"]:
                n = torch.Size(p["shape"]).numel()
                out[f"{p['name']} {key}"] = flat if first.dim() == 0 else \
                    flat[at:at + n].view(p["shape"])
                at += n
    return out


def is_flat(model):
    return isinstance(model, FullyShardedDataParallel) and not model._use_orig_params


def moments(model, optimizer, full, shards):
    """"name exp_avg" -> full tensor, from every rank's live state."""
    if is_flat(model):
        return flat_moments(model, optimizer, shards)
    out = {}
    for name, p in model.named_parameters():
        for key, value in optimizer.state.get(p, {}).items():
            if hasattr(value, "full_tensor"):
                value = value.full_tensor()
            out[f"{clean(name)} {key}"] = value
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, out)
    if not isinstance(model, FullyShardedDataParallel):
        return every[0]
    names = {n for one in every for n in one}
    whole = {n: [one[n] for one in every[:shards] if n in one] for n in names}
    return {n: v[0] if v[0].dim() == 0 else torch.cat(v).view(full[n.split()[0]].shape)
            for n, v in whole.items()}


def random_states():
    return {"cpu": torch.get_rng_state(), "numpy": numpy.random.get_state(),
            "random": random.getstate()}


def write_family(manager, fsdp, where, world):
    run = os.path.dirname(os.path.dirname(where))
    if manager == "verl":
        with open(f"{where}/fsdp_config.json", "w") as f:
            json.dump({"FSDP_version": int(fsdp[1]), "world_size": world}, f, indent=4)
        with open(f"{run}/latest_checkpointed_iteration.txt", "w") as f:
            f.write("2")
    else:
        with open(f"{run}/checkpoint_tracker.json", "w") as f:
            json.dump({"best_global_step": 2, "last_global_step": 2}, f, indent=2)


def write_config(model, where):
    model = getattr(model, "_fsdp_wrapped_module", model)
    if not hasattr(model, "config"):
        return
    model.config.architectures = [type(model).__name__.removeprefix("FSDP")]  # as fully_shard calls it
    model.config.save_pretrained(f"{where}/huggingface")


def parse(case):
    manager, fsdp, *rest = case.split("-")
    kind = next((r for r in rest if r != "bf16"), "")
    return manager, fsdp, kind, torch.bfloat16 if "bf16" in rest else torch.float32


def trained(manager, fsdp, kind, dtype):
    model = shard(build(fsdp, kind, dtype), fsdp, kind)
    params = [p for p in model.parameters() if manager == "verl" or p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-2, foreach=False)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return model, optimizer, scheduler


def run(case, out):
    manager, fsdp, kind, dtype = parse(case)
    rank, world = dist.get_rank(), dist.get_world_size()
    model, optimizer, scheduler = trained(manager, fsdp, kind, dtype)
    train(model, optimizer, kind)
    scheduler.step()
    weights, optim = states(manager, model, optimizer, kind)
    where = f"{out}/run/global_step_2/actor"
    os.makedirs(where, exist_ok=True)
    if kind == "lora":
        weights = {k: v for k, v in weights.items() if "lora_" in k}
    torch.save(weights, f"{where}/model_world_size_{world}_rank_{rank}.pt")
    torch.save(optim, f"{where}/optim_world_size_{world}_rank_{rank}.pt")
    torch.save({"lr_scheduler": scheduler.state_dict(), "rng": random_states()},
               f"{where}/extra_state_world_size_{world}_rank_{rank}.pt")
    full = oracle.full_tensors(model)
    live = moments(model, optimizer, full, 2 if kind == "hsdp" else world)
    if rank == 0:
        if is_flat(model):
            with open(f"{out}/units.json", "w") as f:
                json.dump(units_of(model), f)
        write_family(manager, fsdp, where, world)
        write_config(model, where)
        write_live(full, live, f"{out}/live")
    dist.barrier()


def write_live(full, live, out):
    oracle.write({clean(n): t for n, t in full.items()}, f"{out}/model.safetensors")
    oracle.write(live, f"{out}/optim.safetensors")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        run(one, f"{base}/{one}")
    leave()

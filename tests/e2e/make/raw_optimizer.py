"""Scripts that pass optimizer.state_dict() itself to torch.distributed.checkpoint, several in one launch:

    torchrun --nproc_per_node=W raw_optimizer.py OUT CASE...

CASE is fsdp1, fsdp2 or plain (the same model on each rank), then one of small_nets.py's OPTIMIZERS or `groups`: AdamW with a
group of matrices and one of vectors, which is not the model's order. Each trains two steps on the same data on all
ranks, makes OUT/CASE/run/ckpt, trains one more step, and leaves OUT/CASE/live.safetensors: what the weights and the
optimizer's states, keyed "NUMBER|STATE", are then.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard

import oracle
from leaving import leave
from small_nets import OPTIMIZERS, Net, batches


def in_groups(params):
    return torch.optim.AdamW([{"params": [p for p in params if p.dim() > 1]},
                              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}], lr=1e-3)


def optimizer_of(name, model):
    return {**OPTIMIZERS, "groups": in_groups}[name](list(model.parameters()))


def one_step(model, optimizer, batch):
    optimizer.zero_grad()
    model(batch).backward()
    optimizer.step()


def held(optimizer):
    return {f"{number}|{name}": torch.as_tensor(oracle.full(value))
            for number, states in optimizer.state_dict()["state"].items() for name, value in states.items()}


def sharded(kind, model):
    if kind == "fsdp1":
        model = FullyShardedDataParallel(model, use_orig_params=False, device_id=torch.device("cpu"))
        FullyShardedDataParallel.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    elif kind == "fsdp2":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in (model.first, model.last, model):
            fully_shard(part, mesh=mesh)
    return model


def run(case, out):
    kind, name = case.split("-")
    model = sharded(kind, Net())
    optimizer = optimizer_of(name, model)
    *before, after = batches(each=False)
    for batch in before:
        one_step(model, optimizer, batch)
    dist_cp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=f"{out}/run/ckpt")
    one_step(model, optimizer, after)
    if kind == "fsdp1":
        return
    live = {**oracle.full_tensors(model), **held(optimizer)}
    if dist.get_rank() == 0:
        oracle.write(live, f"{out}/live.safetensors")
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("cpu:gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        run(one, f"{base}/{one}")
    leave()

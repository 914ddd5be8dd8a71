"""dcp.load by unshard.Reader into DTensors on so many ranks: load_by_reader.py CHECKPOINT LIVE [PREFIX]."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import unshard

checkpoint, live, *prefix = sys.argv[1:]
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
want = {name: t for name, t in load_file(live).items()}
with unshard.open(checkpoint, settle_seconds=0) as session:
    held = set(session.tensors("", "weights"))
want = {name: t for name, t in want.items() if name in held}
assert want and held <= set(want)
state = {(prefix[0] if prefix else "") + name: distribute_tensor(torch.zeros_like(t), mesh, [Shard(0)]) if t.dim() else
         torch.zeros_like(t) for name, t in want.items()}
dcp.load(state, storage_reader=unshard.Reader(checkpoint, prefix=prefix[0] if prefix else ""))
for name, t in want.items():
    got = state[(prefix[0] if prefix else "") + name]
    got = got.full_tensor() if hasattr(got, "full_tensor") else got
    assert torch.equal(got.flatten().view(torch.uint8), t.flatten().view(torch.uint8)), name
dist.barrier()
dist.destroy_process_group()

"""dcp.load by unshard.Reader into DTensors on so many ranks: load_by_reader.py PREFIX {CHECKPOINT LIVE}..."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

sys.path.insert(0, str(Path(__file__).parents[3] / "python"))
import unshard  # noqa: E402


def load(mesh, prefix, checkpoint, live):
    want = load_file(live)
    with unshard.open(checkpoint, settle_seconds=0) as session:
        held = set(session.tensors("", "weights"))
    want = {name: t for name, t in want.items() if name in held}
    assert want and held <= set(want), checkpoint
    state = {prefix + name: distribute_tensor(torch.zeros_like(t), mesh, [Shard(0)]) if t.dim() else
             torch.zeros_like(t) for name, t in want.items()}
    dcp.load(state, storage_reader=unshard.Reader(checkpoint, prefix=prefix))
    for name, t in want.items():
        got = state[prefix + name]
        got = got.full_tensor() if hasattr(got, "full_tensor") else got
        assert torch.equal(got.flatten().view(torch.uint8), t.flatten().view(torch.uint8)), (checkpoint, name)


dist.init_process_group("gloo")
devices = init_device_mesh("cpu", (dist.get_world_size(),))
for pair in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
    load(devices, sys.argv[1], *pair)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # Python's own end can abort: github.com/pytorch/pytorch/issues/190489

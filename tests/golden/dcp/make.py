"""Make the small DCP directories beside this file (not torch2.2.2_lightning, which Lightning 2.2.0 with
torch 2.2.2 wrote: its param groups are one item).

    python make.py zstd DIR                           one process, zstd items, {"app": {model, optim}}
    torchrun --nproc_per_node=2 make.py ranks DIR     no collectives: one metadata file per rank
    python make.py expected DIR                       what torch itself reads of DIR: a line a tensor,
                                                      key, dtype, shape, chunks that hold elements
"""
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict


def model():
    torch.manual_seed(3)
    m = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    opt = torch.optim.AdamW(m.parameters(), lr=0.5)
    m(torch.ones(1, 3)).sum().backward()
    opt.step()
    return m, opt


def zstd(out):
    from torch.distributed.checkpoint._extension import ZStandard

    weights, states = get_state_dict(*model())
    dcp.save({"app": {"model": weights, "optim": states}}, no_dist=True,
             storage_writer=FileSystemWriter(out, _extensions=[ZStandard()]))


def ranks(out):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(15, dtype=torch.float32).reshape(5, 3)
    dcp.save({"w": distribute_tensor(whole, mesh, [Shard(0)]), "same": torch.ones(2)},
             use_collectives=False, storage_writer=FileSystemWriter(out))
    dist.destroy_process_group()


def expected(out):
    import math
    import pickle
    from pathlib import Path

    chunks, head = {}, {}
    for path in sorted(Path(out).glob("*.metadata")):
        for key, t in pickle.loads(path.read_bytes()).state_dict_metadata.items():
            if not hasattr(t, "chunks"):
                continue
            dtype = str(t.properties.dtype).removeprefix("torch.")
            head[key] = f"{key} {dtype} {list(t.size)}"
            full = {tuple(c.offsets) for c in t.chunks if math.prod(c.sizes)}
            chunks.setdefault(key, set()).update(full)
    for key in sorted(head):
        print(head[key], len(chunks[key]))


if __name__ == "__main__":
    {"zstd": zstd, "ranks": ranks, "expected": expected}[sys.argv[1]](sys.argv[2])

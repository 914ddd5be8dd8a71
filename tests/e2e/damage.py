"""Damage to per-rank files, on copies: what is in a file changed by torch itself, or its zip rewritten."""

import io
import re
import zipfile
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore


def name_of(kind, world, rank):
    return f"{kind}_world_size_{world}_rank_{rank}.pt"


def world_and_rank(path):
    return tuple(int(n) for n in re.search(r"_world_size_(\d+)_rank_(\d+)\.pt$", path.name).groups())


@contextmanager
def as_rank(world, rank):
    """Wrappers need a process group to be loaded."""
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def edit(path, change):
    """Change the object of one rank's file in place."""
    world, rank = world_and_rank(path)
    with as_rank(world, rank):
        state = torch.load(path, weights_only=False)
        change(state)
        torch.save(state, path)


def local(tensor, change):
    """The local part of a wrapper, which goes on declaring what it did."""
    if hasattr(tensor, "_local_tensor"):
        tensor._local_tensor = change(tensor._local_tensor)
    else:
        shard = tensor.local_shards()[0]
        shard.tensor = change(shard.tensor)


def rewrap(tensor, change=lambda t: t, mesh=None, placements=None, shape=None):
    """A DTensor that declares what it holds."""
    from torch.distributed.tensor import DTensor

    part = change(tensor._local_tensor)
    return DTensor.from_local(part, mesh or tensor.device_mesh, placements or tensor.placements,
                              run_check=False, shape=shape or tensor.shape, stride=tensor.stride())


def rezip(path, change):
    """Change the zip's records (name without its directory -> bytes), CRCs made anew."""
    with zipfile.ZipFile(path) as old:
        top = old.namelist()[0].split("/")[0]
        records = {n[len(top) + 1:]: old.read(n) for n in old.namelist()}
    change(records)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name, content in records.items():
            new.writestr(f"{top}/{name}", content)
    path.write_bytes(out.getvalue())


def flip(path, record):
    """One bit of a record, its CRC left."""
    with zipfile.ZipFile(path) as z:
        info = next(i for i in z.infolist() if i.filename.endswith("/" + record))
    data = bytearray(path.read_bytes())
    at = info.header_offset
    start = at + 30 + int.from_bytes(data[at + 26:at + 28], "little") + \
        int.from_bytes(data[at + 28:at + 30], "little")
    data[start + info.file_size // 2] ^= 1
    path.write_bytes(data)


def swap(a, b):
    spare = a.with_name("spare")
    a.rename(spare)
    b.rename(a)
    spare.rename(b)


def cut(path, keep_bytes):
    path.write_bytes(path.read_bytes()[:keep_bytes])

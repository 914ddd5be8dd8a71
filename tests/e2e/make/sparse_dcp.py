"""A DCP checkpoint of any size that takes no space: metadata and items are written by torch itself,
then each item is put into its shard with a hole where the tensor's bytes would be.

Written by one process: how many ranks there were is only a matter of chunks and files."""

import contextlib
import gc
import hashlib
import os
import pickle
import tempfile
import zipfile

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex,
                                                   TensorProperties, TensorStorageMetadata)


class Item:
    """One torch.save file of a tensor of this shape: the bytes before and behind the data."""

    def __init__(self, shape, dtype):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/item"
            with torch.serialization.skip_data():
                torch.save(torch.empty(shape, dtype=dtype), path)
            self.size = os.path.getsize(path)
            with zipfile.ZipFile(path) as z, open(path, "rb") as f:
                data = next(i for i in z.infolist() if i.filename.endswith("/data/0"))
                f.seek(data.header_offset + 26)
                name, extra = (int.from_bytes(f.read(2), "little") for _ in "12")
                self.data = data.header_offset + 30 + name + extra
                self.data_end = self.data + data.file_size
                f.seek(0)
                self.head = f.read(self.data)
                f.seek(self.data_end)
                self.tail = f.read()

    def put(self, fd, at, first=b""):
        os.pwrite(fd, self.head + first, at)
        os.pwrite(fd, self.tail, at + self.data_end)


def entries(tensors, states, dtype):
    """(path, shape, dtype) of each weight, then of each of the optimizer's states."""
    for name, shape in tensors.items():
        yield ("model", name), shape, dtype
    for name, shape in tensors.items():
        for state in states:
            yield ("optimizer", "state", name, state), shape, torch.float32


@contextlib.contextmanager
def uncollected():
    """Without the collector, which walks all objects again and again while millions are made: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@uncollected()
def write(folder, tensors, ranks, dtype=torch.bfloat16, states=(), holes=False):
    """tensors: name -> shape, cut along rows into `ranks` chunks. Each chunk of a weight begins with 16 bytes
    that tell which it is (mark); the rest are zeros. states: "exp_avg".. of the optimizer. Returns the number
    of items. holes: the shards are as long as their items, and one hole: of use to what reads metadata alone."""
    os.makedirs(folder)
    files = [os.open(f"{folder}/__{r}_0.distcp", os.O_RDWR | os.O_CREAT, 0o644)
             for r in range(ranks)]
    end = [0] * ranks
    known, described, stored, planner, n = {}, {}, {}, {}, 0
    for path, shape, of in entries(tensors, states, dtype):
        chunks = []
        rows = -(-shape[0] // ranks)
        for rank, low in enumerate(range(0, shape[0], rows)):
            size = (min(rows, shape[0] - low), *shape[1:])
            offset = (low, *(0,) * (len(shape) - 1))
            item = known.get((size, of))
            if item is None:
                item = known[size, of] = Item(size, of)
            if not holes:
                item.put(files[rank], end[rank], mark(path[1], rank) if path[0] == "model" else b"")
            chunks.append(ChunkStorageMetadata(torch.Size(offset), torch.Size(size)))
            # A string for each item: every rank names its own, so the pickle has none of them once.
            index = MetadataIndex(".".join(path), torch.Size(offset), rank)
            stored[index] = _StorageInfo(f"__{rank}_0.distcp", end[rank], item.size)
            end[rank] += item.size
            n += 1
        key = ".".join(path)
        described[key] = TensorStorageMetadata(TensorProperties(dtype=of), torch.Size(shape), chunks)
        planner[key] = path
    for fd, size in zip(files, end):
        os.truncate(fd, size)
        os.close(fd)
    with open(f"{folder}/.metadata", "wb") as f:
        pickle.dump(Metadata(described, planner, stored), f)
    return n


def mark(name, rank):
    """16 bytes, none of them zero."""
    return bytes(b | 1 for b in hashlib.md5(f"{name} {rank}".encode()).digest())


def llama(hidden, inter, layers, kv=1024, vocab=128256):
    layer = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
             "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
             "mlp.gate_proj": (inter, hidden), "mlp.up_proj": (inter, hidden),
             "mlp.down_proj": (hidden, inter), "input_layernorm": (hidden,),
             "post_attention_layernorm": (hidden,)}
    out = {"model.embed_tokens.weight": (vocab, hidden)}
    for i in range(layers):
        out.update({f"model.layers.{i}.{k}.weight": v for k, v in layer.items()})
    out["model.norm.weight"] = (hidden,)
    out["lm_head.weight"] = (vocab, hidden)
    return out


def llama_70b():
    return llama(8192, 28672, 80)


def llama_405b():
    return llama(16384, 53248, 126)

#!/usr/bin/env python3
"""Writes seeds for the fuzz targets beside it (made with torch 2.13)."""
import collections
import os
import pathlib
import pickle
import shutil
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
    TensorProperties, TensorStorageMetadata)

here = os.path.dirname(os.path.abspath(__file__))


def put(name, data):
    with open(os.path.join(here, name), "wb") as f:
        f.write(data)


class Thing:
    def __init__(self):
        self.a, self.b = 1, [2]


class Keyed(dict):
    pass


everything = [None, True, False, 0, 255, 65535, -1, 2**31, 2**63, -2**63, 2**100, 1.5, "a\u00e4",
              b"bytes", bytearray(b"array"), (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1],
              [1, 2], {}, {"k": "v"}, {"a": 1, "b": 2}, set(), {1, 2}, frozenset([3]),
              collections.OrderedDict(a=1), collections.defaultdict(int, {"x": 1}), Thing(),
              Keyed(a=1), torch.Size([2, 3]), torch.float32, pathlib.PurePosixPath("a/b")]
for protocol in (2, 3, 4, 5):
    put(f"pickle/protocol{protocol}", pickle.dumps(everything, protocol))
loop = []
loop.append(loop)
put("pickle/loop", pickle.dumps(loop, 4))
put("pickle/cut", pickle.dumps(everything, 4)[:100])
put("pickle/evil", b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
put("pickle/lists", b"\x80\x02(" + b"]" * 200 + b"t.")


def metadata(rank=None, version="1.0.0"):
    def tensor(dtype, size, *chunks):
        return TensorStorageMetadata(TensorProperties(dtype), torch.Size(size), [
            ChunkStorageMetadata(torch.Size(lo), torch.Size(n)) for lo, n in chunks])

    chunks = [([0, 0], [2, 3]), ([2, 0], [1, 3])]
    described = {
        "model.w": tensor(torch.bfloat16, [3, 3], *(chunks if rank is None else [chunks[rank]])),
        "model.b": tensor(torch.float32, [], ([], [])),
        "optimizer.param_groups.0.lr": BytesStorageMetadata(),
    }
    stored = {MetadataIndex("model.b", torch.Size([]), 0): _StorageInfo("__0_0.distcp", 0, 1500),
              MetadataIndex("optimizer.param_groups.0.lr"): _StorageInfo("__0_0.distcp", 1500, 1261)}
    for i, (lo, _) in enumerate(chunks):
        if rank in (None, i):
            stored[MetadataIndex("model.w", torch.Size(lo), i)] = _StorageInfo(
                f"__{i}_0.distcp", 2761, 1540, ["stream.zstd/1"] if i else None)
    paths = {"model.w": ("model", "w"), "model.b": ("model", "b"),
             "optimizer.param_groups.0.lr": ("optimizer", "param_groups", 0, "lr")}
    return Metadata(described, paths, stored, StorageMeta(pathlib.PurePosixPath("/runs/x")),
                    version=version)


put("dcp_metadata/whole", pickle.dumps(metadata(), 4))
put("dcp_metadata/rank0", pickle.dumps(metadata(0), 4))
put("dcp_metadata/rank1", pickle.dumps(metadata(1), 4))
plain = metadata()
plain.planner_data = None
put("dcp_metadata/no_paths", pickle.dumps(plain, 4))
outside = metadata()
for info in outside.storage_data.values():
    info.relative_path = "../secret"
put("dcp_metadata/outside", pickle.dumps(outside, 4))


def safetensors(text, data):
    return len(text).to_bytes(8, "little") + text + data


put("safetensors/small", safetensors(
    b'{"__metadata__":{"format":"pt"},"a\\u00e4\\ud83d\\ude00":{"dtype":"F32","shape":[1,2],'
    b'"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}  ', bytes(10)))
put("safetensors/hole", safetensors(
    b'{"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}', bytes(10)))
put("safetensors/skipped", safetensors(
    b'{"b":{"extra":{"x":[1,-2.5e3,null,true,"s"]},"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    b""))
put("json/object", b'{"a":1,"b":[true,false,null,1.5e3,"x\\n\\u00e4\\ud83d\\ude00"],"a":{"c":{}}}')
put("json/python", b'{"a":NaN,"b":[Infinity,-Infinity,-1],"c":"NaN \\\\u0000"}')
put("json/nul", b'{"a\\u0000":1}')
put("json/deep", b"[" * 2000)

for seed, config in (("accelerate", "fsdp2_torch.bad.yaml"), ("aliases", "aliases.yaml"),
                     ("lightning", "lightning_sharded_weights_only.bad.yaml"),
                     ("arguments", "load_universal_groups.bad.json")):
    put(f"yaml/{seed}", (pathlib.Path(here).parents[1] / "golden/check" / config).read_bytes())
put("yaml/deep", b"- " * 300 + b"[{a: [" * 60)
torch.save({"w": torch.arange(4.0), "v": torch.zeros(0, 2), "n": 1}, os.path.join(here, "torchfile/small"))
shutil.copy(os.path.join(here, "torchfile/small"), os.path.join(here, "zip/small"))
with open(os.path.join(here, "zip/small"), "rb") as f:
    whole = f.read()
put("zip/cut", whole[:-30])
put("zip/end", whole[-98:])

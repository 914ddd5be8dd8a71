#!/usr/bin/env python3
"""Writes seeds into the archives of the fuzz targets beside it (made with torch 2.13)."""
import collections
import io
import pathlib
import pickle
import sqlite3
import zipfile

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
    TensorProperties, TensorStorageMetadata)

import archive

golden = pathlib.Path(__file__).resolve().parents[2] / "golden"
seeds = collections.defaultdict(dict)  # target -> name -> bytes


def put(name, data):
    target, seed = name.split("/")
    seeds[target][seed] = data


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
    put(f"yaml/{seed}", (golden / "check" / config).read_bytes())


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def pickles(*names):
    """data.pkl of golden files, one behind the other."""
    def one(name):
        with zipfile.ZipFile(golden / name) as z:
            return z.read(next(n for n in z.namelist() if n.endswith("/data.pkl")))
    return b"".join(map(one, names))


old = "rank_files/torch2.1.2/model_world_size_3_rank_1.pt"
older = "rank_files/torch2.0.1/model_world_size_2_rank_%d.pt"
put("dtensor/new", pickles("rank_files/model_rank_0.pt"))
put("dtensor/old", pickles(old))
put("dtensor/older", pickles(older % 1))
for seed, names in (("new", ["rank_files/model_rank_%d.pt"]), ("older", [older]), ("types", ["rank_files/types_rank_%d.pt"]),
                    ("fsdp2", ["ranks/fsdp2/model_world_size_2_rank_%d.pt"]), ("orig", ["ranks/orig/model_world_size_2_rank_%d.pt"])):
    put(f"rank_model/{seed}", pickles(*(names[0] % rank for rank in (0, 1))))
for seed, name in (("new", "rank_files/optim_rank_%d.pt"), ("fsdp2", "ranks/fsdp2/optim_world_size_2_rank_%d.pt"),
                   ("orig", "ranks/orig/optim_world_size_2_rank_%d.pt")):
    put(f"rank_optim/{seed}", pickles(*(name % rank for rank in (0, 1))))


def optim(sizes, params=None):
    """data.pkl of an optimizer's state dict whose states are flat tensors of these sizes."""
    state = {k: {"step": torch.tensor(2.0), "exp_avg": torch.zeros(n), "exp_avg_sq": torch.zeros(n)} for k, n in sizes.items()}
    file = io.BytesIO()
    torch.save({"state": state, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": params or list(sizes)}]}, file)
    with zipfile.ZipFile(file) as z:
        return z.read(next(n for n in z.namelist() if n.endswith("/data.pkl")))


# Of the parameters that fuzz_rank_optim.c has: 12, 5 and 6 elements; flat units of one, and of the two others.
put("rank_optim/units", optim({0: 6, 1: 6}) * 2)
put("rank_optim/one_unit", optim({0: 12}) * 2)
put("rank_optim/stretches", optim({0: 12, 1: 2}, [0, 1, 2]) + optim({1: 3, 2: 6}, [0, 1, 2]))
put("rank_optim/named", optim({"a": 12, "b.c": 5}, ["a", "b.c", "d"]) * 2)

extra = {"lr_scheduler": {"base_lrs": [0.1], "last_epoch": 3, "_last_lr": [0.05]}, "rng": {"cpu": 1, "numpy": ("MT19937", [1, 2])}}
other = {**extra, "lr_scheduler": {**extra["lr_scheduler"], "last_epoch": 4}}
put("rank_extra/alike", pickle.dumps(extra, 2))
put("rank_extra/other", pickle.dumps(extra, 2) + pickle.dumps(other, 2))
put("rank_tracker/verl", b"12")
put("rank_tracker/easyr1", b'{"last_global_step": 12, "best_global_step": 1}')
zero = "zero/%s/global_step2/%szero_pp_rank_%d_mp_rank_00_%s_states.pt"
one = "zero/%s/global_step2/mp_rank_00_model_states.pt"
put("zero/stage0", pickles(one % "z0_w1"))
put("zero/stage1", pickles(one % "z1_bf16_optimizer_w2", *(zero % ("z1_bf16_optimizer_w2", "bf16_", r, "optim") for r in (0, 1))))
put("zero/stage2", pickles(one % "z2_w3", *(zero % ("z2_w3", "bf16_", r, "optim") for r in (0, 1))))
put("zero/stage3", pickles(zero % ("z3_w2", "", 0, "model"), *(zero % ("z3_w2", "bf16_", r, "optim") for r in (0, 1)),
                           zero % ("z3_w2", "", 1, "model")))
for i in range(4):
    put(f"catalog_pack/{i}", bytes([i]))
put("dcp_item/value", pickle.dumps({"betas": [0.9, 0.95], "lr": 1e-4}, 2))
put("dcp_item/number", pickles("zero/z2_w3/global_step2_universal/zero/scale/step.pt"))
put("dcp_item/empty", b"")
put("dcp_item/frame", bytes.fromhex("28b52ffd2001090000" "78"))
common = {"args": Thing(), "iteration": 2, "content_metadata": {"singleton_local_shards": True},
          "optimizer": {0: {"grad_scaler": {"scale": torch.ones(1)}}, 1: {}}}
put("common_pickle/file", saved(common))
put("common_pickle/pickle", pickle.dumps({"args": Thing(), "optimizer": {"grad_scaler": 1}}, 2))
put("common_pickle/object", saved(2.5))
put("common_pickle/golden", (golden / "dcp/megatron/iter_0000010/common.pt").read_bytes())
put("dcp_names/fsdp", b"model/layers.0.weight\noptimizer/state/layers.0.weight/exp_avg\noptimizer/param_groups/#0/lr\n"
    b"optimizer/param_groups/#0/betas/#1")
put("dcp_names/flat", b"=model.a.b\n=optimizer.state.a.b.exp_avg\n=optimizer.param_groups.0.lr")
put("dcp_names/others", b"app/model/w\nopt/state.w.exp_avg\nopt/param_groups.w.lr\nlr_scheduler/last_epoch\nstate/optimizers/Adam/"
    b"state/w/step\nstate/#0/exp_avg\nparam_groups")
for i, name in enumerate(("zero_pp_rank_3_mp_rank_00_model_states.pt", "layer_02-model_00-model_states.pt",
                          "model_world_size_4_rank_2.pt")):
    put(f"names/{i}", name.encode())
for i, text in enumerate((
        "llama\n\nb 2\na 2", "mixtral\n\nx.mlp.experts.gate_up_proj 2 4 3\nx.mlp.gate.weight 2 3\nx.mlp.experts.down_proj 2 3 2",
        "internvl\nqwen3_moe\nmodel.language_model.layers.0.mlp.experts.down_proj 2 4 3",
        "qwen3_moe\n\nmlp.experts.gate_up_proj 2 5 3\nmlp.experts.down_proj", "qwen2_vl\n\nmodel.visual.w 2\nvisual.w 2",
        "llava\n\nmodel.vision_tower.w 2\n=vision_tower.w", "llava\n\nmodel.vision_tower.w 2\n=vision_tower.vision_model.w\n=mtp.w",
        "qwen3_vl_moe\n\nmlp.experts.gate_up_proj 2 6 4\nmlp.experts.down_proj 2 4 3\n=mlp.experts.gate_up_proj 2 4 6\n"
        "=mlp.experts.down_proj 2 3 4")):
    put(f"published_names/{i}", text.encode())
put("options/all", b"view=weights,mem=5GiB,settle=0\nfact=epoch=2,fact=train_batch_size=4,rng=hide\nmodel=/tmp,follow=/tmp,crc=exact,"
    b"strip=model.,root=model,names=memory,assume=fsdp-units,store=none,noatime,x-a,max_threads=3,cache_dir=/tmp,cache_size=1MB")


def row(how, *columns):
    return bytes([how]) + b"".join(bytes([len(c)]) + c for c in columns)


put("store/facts", row(0, b"", b"train_batch_size", b"4", b"set by the user", b"\1") +
    row(0, b"/", b"epoch", b"2.5", b"", b"") + row(0, b"", b"log_history", b'[{"loss": 1.5}]', b"", b"") + row(2, b"\7"))
put("store/damaged", b"\xffSQLite format 3\0" + bytes(100))
put("store/empty", b"\xff")
put("store/memo", row(1, b"catalog", b"", b"\1", b"\1", bytes.fromhex("28b52ffd200109000078")) +
    row(1, b"crc", b"\1", b"\1", b"\3", b"abc"))
for name, pragma in ("another", "application_id=7"), ("newer", "application_id=1970172776; PRAGMA user_version=99"):
    made = sqlite3.connect(":memory:")
    made.executescript(f"PRAGMA page_size=512; PRAGMA {pragma}; CREATE TABLE t (a)")
    put(f"store/{name}", b"\xff" + made.serialize())
for family, n in (("zero", 9), ("dcp", 6), ("ranks", 7), ("files", 4), ("cut", 4), ("plain", 3),
                  ("engine", 7), ("saved", 8)):
    for i in range(n):
        put(f"serve_{family}/{i}", bytes([i]))
        put(f"serve_{family}/{i}-options", bytes([7 * n + i]))
put("yaml/deep", b"- " * 300 + b"[{a: [" * 60)
small = io.BytesIO()
torch.save({"w": torch.arange(4.0), "v": torch.zeros(0, 2), "n": 1}, small)
put("torchfile/small", small.getvalue())
put("zip/small", small.getvalue())
put("zip/cut", small.getvalue()[:-30])
put("zip/end", small.getvalue()[-98:])
nothing = "0" * 64
put("seal/small", ("# unshard-seal 1\n# checkpoint c\n# made 1\n"
                   f"\\{nothing}  a\\nb\n#file 60 -5 0123456789abcdef weights\n#piece 0 0 24 deadbeef 0:2,4:3 a\n"
                   "#piece - 24 36 00000007 17+9 b\\\\c\n#piece 3 24 0 00000000 . step\n").encode())
put("seal/newer", b"# unshard-seal 2\n")
for target, files in seeds.items():
    archive.add(target, files)

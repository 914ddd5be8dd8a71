"""Plain torch.distributed.checkpoint in all its varieties, several in one launch:

    torchrun --nproc_per_node=W plain_dcp.py OUT CASE[-bf16]...

Each makes OUT/CASE/run/ckpt and OUT/CASE/live-0.safetensors (everything that was saved, by flat key).
"""

import sys
from collections import OrderedDict

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint import FileSystemWriter, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.fsdp import ShardedOptimStateDictConfig, ShardedStateDictConfig
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

import models
import oracle
from leaving import leave


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def with_fsdp1(model):
    model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    optimizer = adamw(model)
    models.train(model, optimizer)
    with FullyShardedDataParallel.state_dict_type(
            model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=False),
            ShardedOptimStateDictConfig(offload_to_cpu=False)):
        state = {"model": model.state_dict(),
                 "optim": FullyShardedDataParallel.optim_state_dict(model, optimizer)}
    return model, state


def with_fsdp2(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return trained(model)


def with_mesh2d(model):
    """FSDP over tensor parallelism: 2-D blocks, and strided shards that are not in rank order."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {
        "layers.0": ColwiseParallel(output_layouts=Replicate()),
        "layers.1": RowwiseParallel(input_layouts=Replicate())})
    fully_shard(model, mesh=mesh["dp"])
    return trained(model)


def trained(model):
    optimizer = adamw(model)
    models.train(model, optimizer)
    weights, optim = get_state_dict(model, optimizer)
    return model, {"model": weights, "optim": optim}


def without_processes(model):
    optimizer = adamw(model)
    models.train(model, optimizer)
    return model, {"model": model.state_dict(), "optim": optimizer.state_dict()}


def all_sorts():
    """Values and tensors of every kind that a trainer might put beside the model."""
    return {"step": 2, "lr": 0.125, "name": "x" * 300, "flags": [True, None, (1, 2, 3)],
            "nested": {"od": OrderedDict(a=1), "shape": torch.Size([3, 4]),
                       "dtype": torch.bfloat16},
            "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 4),
            "i8": torch.arange(5, dtype=torch.int8), "bool": torch.tensor([True, False]),
            "f64": torch.ones(2, 2, dtype=torch.float64),
            "noncontig": torch.arange(12.).reshape(3, 4).t(),
            "cplx": torch.ones(2, dtype=torch.complex64),
            "f8": torch.arange(3.).to(torch.float8_e4m3fn)}


def save(case, state, path):
    if case == "zstd":
        from torch.distributed.checkpoint._extension import ZStandard
        dist_cp.save(state, storage_writer=FileSystemWriter(path, _extensions=[ZStandard()]))
    elif case == "threads":
        dist_cp.save(state, storage_writer=FileSystemWriter(path, thread_count=3))
    elif case == "filepertensor":
        dist_cp.save(state, storage_writer=FileSystemWriter(path, single_file_per_rank=False))
    elif case == "hf":
        dist_cp.save(state, storage_writer=HuggingFaceStorageWriter(path, save_distributed=True))
    elif case == "hfconsolidated":
        index = {k: 1 + i % 2 for i, k in enumerate(state)}
        dist_cp.save(state, storage_writer=HuggingFaceStorageWriter(
            path, save_distributed=True, enable_consolidation=True, fqn_to_index_mapping=index))
    elif case == "async":
        dist_cp.async_save(state, storage_writer=FileSystemWriter(path)).result()
    elif case == "nocollect":
        dist_cp.save(state, storage_writer=FileSystemWriter(path), use_collectives=False)
    else:
        dist_cp.save(state, storage_writer=FileSystemWriter(path))


def for_safetensors(case, weights):
    """HuggingFaceStorageWriter refuses shared tensors, and integers when it consolidates."""
    drop = ["head.weight"] + (["norm.num_batches_tracked"] if case == "hfconsolidated" else [])
    return {k: v for k, v in weights.items() if k not in drop}


def run(case, out):
    case, _, dtype = case.partition("-")
    shard = {"fsdp1": with_fsdp1, "mesh2d": with_mesh2d, "nodist": without_processes}
    model, state = shard.get(case, with_fsdp2)(models.Odd(models.DTYPES[dtype or "fp32"]))
    live = {"model": oracle.full_tensors(model)}
    if case.startswith("hf"):
        state = for_safetensors(case, state["model"])
        live = for_safetensors(case, live["model"])
    else:
        state["extra"] = all_sorts()
        live["extra"] = state["extra"]
        if case != "fsdp1":
            live["optim"] = oracle.full(state["optim"])
    save(case, state, f"{out}/run/ckpt")
    if dist.get_rank() == 0:
        oracle.write(oracle.flat(live), f"{out}/live-0.safetensors")
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("cpu:gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        run(one, f"{base}/{one}")
    leave()

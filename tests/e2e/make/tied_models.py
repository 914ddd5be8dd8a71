"""Models of transformers in which several names share one tensor, in two ranks' shards, and as save_pretrained writes
them:

    torchrun --nproc_per_node=2 tied_models.py OUT CASE...

CASE is FAMILY-WRAPPER, WRAPPER one of f1, f2 (FSDP) and z2, z3 (DeepSpeed): OUT/CASE/run/ckpt, OUT/CASE/native."""

import os
import sys

import cpu_deepspeed  # noqa: F401: before deepspeed
import deepspeed
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import tied_families
from leaving import leave


def saved_by_deepspeed(model, stage, run):
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False})[0]
    engine.save_checkpoint(run, tag="ckpt")


def saved_by_fsdp(model, kind, run):
    if kind == "f1":
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=f"{run}/ckpt/pytorch_model_fsdp_0")


def make(case, out):
    name, kind = case.split("-")
    torch.manual_seed(5)
    model, run = tied_families.build(name), f"{out}/{case}/run"
    if dist.get_rank() == 0:
        os.makedirs(run)
        model.save_pretrained(f"{out}/{case}/native")
        model.config.save_pretrained(run)
    dist.barrier()
    if kind[0] == "z":
        saved_by_deepspeed(model, int(kind[1]), run)
    else:
        saved_by_fsdp(model, kind, run)
    dist.barrier()


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    for case in sys.argv[2:]:
        make(case, sys.argv[1])
    leave()

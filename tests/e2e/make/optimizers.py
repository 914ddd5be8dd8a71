"""Optimizers other than Adam, several in one launch:

    torchrun --nproc_per_node=W optimizers.py OUT CASE...

CASE is dcp-NAME (FSDP2, saved by torch.distributed.checkpoint; adafactor, which does not know DTensors, without FSDP)
or z2-NAME (a plain DeepSpeed engine at ZeRO stage 2); NAME is a key of small_nets.py's OPTIMIZERS. Each trains three steps and makes OUT/CASE/run/ckpt or OUT/CASE/run/{latest,global_step3},
OUT/CASE/live.safetensors and OUT/CASE/states.safetensors: "NAME|STATE" -> the whole tensor.
"""

import os
import sys

import cpu_deepspeed
import deepspeed
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import oracle
from leaving import leave
from small_nets import OPTIMIZERS, Net, batches


def write(out, live, states):
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        oracle.write(live, f"{out}/live.safetensors")
        oracle.write(states, f"{out}/states.safetensors")
    dist.barrier()


def by_dcp(name, out):
    model = Net()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sharded = name != "adafactor"
    for part in (model.first, model.last, model) if sharded else ():
        fully_shard(part, mesh=mesh)
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    if name == "schedulefree":
        optimizer.train()
    for x in batches(sharded):
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    dist_cp.save({"model": weights, "optimizer": states}, checkpoint_id=f"{out}/run/ckpt")
    held = {f"{n}|{k}": oracle.full(v) for n, p in model.named_parameters()
            for k, v in optimizer.state.get(p, {}).items() if torch.is_tensor(v)}
    write(out, oracle.full_tensors(model), held)


def by_zero(name, out):
    model = Net()
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    config = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 2, "reduce_bucket_size": 100000}}
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    for x in batches():
        engine.backward(engine(x.bfloat16()))
        engine.step()
    engine.save_checkpoint(f"{out}/run")
    zero = engine.optimizer
    zero._link_all_hp_params()
    zero._hp_optimizer_states_linked = False
    zero._lazy_init_hp_params_optimizer_state()
    held = {}
    for n, p in model.named_parameters():
        held[f"{n}|fp32"] = safe_get_full_fp32_param(p).detach().clone()
        keys = [None] * dist.get_world_size()
        dist.all_gather_object(keys, p._hp_mapping.get_optim_state_keys() if p._hp_mapping else [])
        for key in sorted(set(sum(map(list, keys), []))):
            held[f"{n}|{key}"] = safe_get_full_optimizer_state(p, key).detach().clone()
    write(out, cpu_deepspeed.tensors(engine.module), held)


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        how, name = one.split("-")
        {"dcp": by_dcp, "z2": by_zero}[how](name, f"{base}/{one}")
    leave()

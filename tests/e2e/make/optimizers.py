"""Optimizers other than Adam, several in one launch:

    torchrun --nproc_per_node=W optimizers.py OUT CASE...

CASE is dcp-NAME (FSDP2, saved by torch.distributed.checkpoint; adafactor, which does not know DTensors, without FSDP)
or zN-NAME (a plain DeepSpeed engine at ZeRO stage N); NAME is a key of small_nets.py's OPTIMIZERS. Each trains three steps and makes OUT/CASE/run/ckpt or OUT/CASE/run/{latest,global_step3},
OUT/CASE/live.safetensors and OUT/CASE/states.safetensors: "NAME|STATE" -> the whole tensor. zN-NAME:DIRECTORY loads that
checkpoint instead, leaves both files in OUT/CASE/loaded, takes one step and leaves them in OUT/CASE.
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


def flat_states(zero):
    """Names of the states of stage 3's flat partitions that have an element for each of theirs."""
    held = zero.optimizer.state
    return {key for flat in zero.fp32_partitioned_groups_flat for key, value in held.get(flat, {}).items()
            if torch.is_tensor(value) and value.numel() == flat.numel()}


def linked_states(zero, p):
    """Names of the parameter's states at stages 1 and 2, on whatever rank."""
    keys = [None] * dist.get_world_size()
    dist.all_gather_object(keys, p._hp_mapping.get_optim_state_keys() if p._hp_mapping else [])
    return set(sum(map(list, keys), []))


def engine_of(name, stage):
    model = Net()
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    config = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9, "bf16": {"enabled": True},
              "zero_optimization": {"stage": stage, "reduce_bucket_size": 100000,
                                    "stage3_param_persistence_threshold": 0}}
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    if name == "schedulefree":
        optimizer.train()
    return engine


def one_step(engine, batch):
    engine.backward(engine(batch.bfloat16()))
    engine.step()


def write_engine(engine, stage, out):
    zero = engine.optimizer
    if stage < 3:
        zero._link_all_hp_params()
        zero._hp_optimizer_states_linked = False
        zero._lazy_init_hp_params_optimizer_state()
    held = {}
    for n, p in engine.module.named_parameters():
        held[f"{n}|fp32"] = safe_get_full_fp32_param(p).detach().clone()
        for key in sorted(linked_states(zero, p) if stage < 3 else flat_states(zero)):
            held[f"{n}|{key}"] = safe_get_full_optimizer_state(p, key).detach().clone()
    write(out, cpu_deepspeed.tensors(engine.module), held)


def by_zero(name, out, stage, source):
    engine = engine_of(name, stage)
    if source:
        assert engine.load_checkpoint(os.path.dirname(source), os.path.basename(source))[0]
        write_engine(engine, stage, f"{out}/loaded")
        one_step(engine, batches()[0])
    else:
        for x in batches():
            one_step(engine, x)
        engine.save_checkpoint(f"{out}/run")
    write_engine(engine, stage, out)


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        case, _, source = one.partition(":")
        how, name = case.split("-")
        if how == "dcp":
            by_dcp(name, f"{base}/{case}")
        else:
            by_zero(name, f"{base}/{case}", int(how[1:]), source)
    leave()

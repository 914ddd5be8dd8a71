"""Lets DeepSpeed run on CPU over gloo without compiling anything. Import before deepspeed is used. What
it writes is not changed by it."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

# Its collectives over shared memory are a C++ extension, built at the first run.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
get_accelerator().is_fp16_supported = lambda: True  # slow, but it is
torch.set_num_threads(1)

STATES = ("fp32", "exp_avg", "exp_avg_sq")


def unsharded_states(engine):
    """Of stage 0: fp32 copies are the optimizer's own parameters then, or the model's themselves."""
    out = {}
    held = getattr(engine.optimizer, "optimizer", engine.optimizer)
    copies = getattr(engine.optimizer, "fp32_groups", None)
    copy_of = {id(p): c for ps, cs in zip(engine.optimizer.fp16_groups, copies)
               for p, c in zip(ps, cs)} if copies else {}
    for name, p in engine.module.named_parameters():
        if p.requires_grad:
            exact = copy_of.get(id(p), p)
            out[f"{name}|fp32"] = exact.detach().clone()
            for state in STATES[1:]:
                out[f"{name}|{state}"] = held.state[exact][state].detach().clone()
    return out


def states(engine):
    """"NAME|STATE" -> tensor of every trained parameter, on every rank: what the optimizer holds."""
    if not engine.zero_optimization():
        return unsharded_states(engine)
    out = {}
    optimizer = engine.optimizer
    if hasattr(optimizer, "_lazy_init_hp_params_optimizer_state"):
        # Stages 1 and 2 look states up when they step for the first time, and not again.
        optimizer._link_all_hp_params()
        optimizer._hp_optimizer_states_linked = False
        optimizer._lazy_init_hp_params_optimizer_state()
    for name, p in engine.module.named_parameters():
        if not p.requires_grad:
            continue
        out[f"{name}|fp32"] = safe_get_full_fp32_param(p).detach().clone()
        for state in STATES[1:]:
            out[f"{name}|{state}"] = safe_get_full_optimizer_state(p, state).detach().clone()
    return out


def tensors(module):
    """name -> tensor of everything in the module's state dict, whole also at stage 3."""
    kept = {n: b.detach().clone() for n, b in module.named_buffers()}
    for name, p in module.named_parameters(remove_duplicate=False):
        with deepspeed.zero.GatheredParameters([p]):
            kept[name] = p.detach().clone()
    return {n: kept[n] for n in module.state_dict()}

"""Lets DeepSpeed run on CPU over gloo without compiling anything. Import before deepspeed is used. What
it writes is not changed by it."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))

import deepspeed
import torch
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

# Its collectives over shared memory are a C++ extension, built at the first run.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.set_num_threads(1)

STATES = ("fp32", "exp_avg", "exp_avg_sq")


def states(engine):
    """"NAME|STATE" -> tensor of every trained parameter, on every rank: what the optimizer holds."""
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

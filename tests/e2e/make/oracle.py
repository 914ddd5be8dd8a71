"""What the framework's own live tensors hold, gathered without any checkpoint code."""

import os

import torch


def full_tensors(model):
    """name -> full tensor of an FSDP1, FSDP2 or plain model. Every rank must call it."""
    from torch.distributed.fsdp import (FullStateDictConfig, FullyShardedDataParallel,
                                        StateDictType)

    if isinstance(model, FullyShardedDataParallel):
        config = FullStateDictConfig(offload_to_cpu=False, rank0_only=False)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            return {k: v.clone() for k, v in model.state_dict().items()}
    return {k: full(v) for k, v in model.state_dict().items()}


def full(value):
    if isinstance(value, dict):
        return {k: full(v) for k, v in value.items()}
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def flat(state, prefix=""):
    """Tensors of nested containers by dotted name; everything else is dropped."""
    out = {}
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in items:
        if torch.is_tensor(value):
            out[f"{prefix}{key}"] = value
        elif isinstance(value, (dict, list, tuple)):
            out.update(flat(value, f"{prefix}{key}."))
    return out


def write(tensors, path):
    """Each tensor as a clone: tied ones may be in it twice."""
    from safetensors.torch import save_file

    os.makedirs(os.path.dirname(path), exist_ok=True)
    save_file({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, path,
              metadata={"format": "pt"})

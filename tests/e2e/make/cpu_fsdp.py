"""Lets Accelerate and the Trainer run FSDP on CPU over gloo, which they refuse: a CPU run never
becomes FSDP there. Import before either. What they write is not changed by it."""

import os

os.environ.setdefault("ACCELERATE_USE_CPU", "true")

import torch
import torch.distributed as dist
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from torch.distributed.fsdp import FullyShardedDataParallel


def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
    return "gloo", DistributedType.MULTI_GPU


def _set_device(self):
    self.device = torch.device("cpu")


PartialState._prepare_backend = _prepare_backend
PartialState.set_device = _set_device
if not dist.is_initialized():
    dist.init_process_group("gloo")

_state_dict_type = FullyShardedDataParallel.state_dict_type


def _without_offload(module, kind, config=None, optim_config=None):
    """Offloading to the CPU where the tensors are already there frees live storage."""
    for c in (config, optim_config):
        if getattr(c, "offload_to_cpu", False):
            c.offload_to_cpu = False
    return _state_dict_type(module, kind, config, optim_config)


FullyShardedDataParallel.state_dict_type = staticmethod(_without_offload)

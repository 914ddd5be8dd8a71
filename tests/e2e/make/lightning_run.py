"""Lightning under FSDP on CPU over gloo, several jobs in one launch:

    torchrun --nproc_per_node=W lightning_run.py OUT JOB...       (or without torchrun, for "one")

JOB is save:STRATEGY[:weights] (OUT/STRATEGY[-weights]/step=2.ckpt, step=3.ckpt and live.safetensors),
or resume:STRATEGY:NAME:PATH, which goes on from PATH to step 4 and writes OUT/NAME.safetensors.
STRATEGY is fsdp (sharded), fsdpfull, mp (ModelParallelStrategy) or one (a single device).
"""

import os
import sys

import lightning.pytorch as pl
import lightning.pytorch.strategies.fsdp as of_fsdp
import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import (FullOptimStateDictConfig, FullStateDictConfig,
                                    FullyShardedDataParallel, ShardedOptimStateDictConfig,
                                    ShardedStateDictConfig, StateDictType, fully_shard)

import oracle
from lightning_net import Module


class Accelerator(CUDAAccelerator):
    """Lightning refuses FSDP without one of these; this one works on the CPU."""

    def setup_device(self, device):
        pass

    def setup(self, trainer):
        pass

    def teardown(self):
        pass

    def get_device_stats(self, device):
        return {}

    @staticmethod
    def parse_devices(devices):
        return devices

    @staticmethod
    def get_parallel_devices(devices):
        return [torch.device("cpu")] * int(devices)

    @staticmethod
    def auto_device_count():
        return 1

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def name():
        return "cuda"


class OnCpu:
    root_device = property(lambda self: torch.device("cpu"))

    def _get_process_group_backend(self):
        return "gloo"

    def barrier(self, name=None):
        if dist.is_initialized():
            dist.barrier()


class Fsdp(OnCpu, FSDPStrategy):
    def _setup_model(self, model):
        return FullyShardedDataParallel(
            module=model, sharding_strategy=self.sharding_strategy,
            device_id=torch.device("cpu"), **self.kwargs)


class Parallel(OnCpu, ModelParallelStrategy):
    pass


class Sharded(Module):
    def configure_model(self):
        if getattr(self, "is_sharded", False):
            return
        for layer in self.net.fc:
            fully_shard(layer, mesh=self.device_mesh["data_parallel"])
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])
        self.is_sharded = True


def on_cpu():
    """Offloading to the CPU where the tensors are already there frees live storage."""
    of_fsdp._get_sharded_state_dict_context = lambda m: FullyShardedDataParallel.state_dict_type(
        m, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=False),
        ShardedOptimStateDictConfig(offload_to_cpu=False))
    of_fsdp._get_full_state_dict_context = (
        lambda m, world_size, rank0_only=True: FullyShardedDataParallel.state_dict_type(
            m, StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(offload_to_cpu=False, rank0_only=False),
            FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False)))
    init = device_mesh.init_device_mesh
    device_mesh.init_device_mesh = lambda device_type="cpu", *a, **k: init("cpu", *a, **k)


def strategy_of(name):
    if name.startswith("fsdp"):
        return Fsdp(state_dict_type="full" if name == "fsdpfull" else "sharded",
                    use_orig_params=True, auto_wrap_policy={torch.nn.Linear})
    return Parallel(save_distributed_checkpoint=True) if name == "mp" else "auto"


def fit(strategy, steps, callbacks=(), path=None):
    world = int(os.environ.get("WORLD_SIZE", 1))
    one = strategy == "one"
    trainer = pl.Trainer(
        accelerator="cpu" if one else Accelerator(), devices=1 if one else world,
        strategy=strategy_of(strategy), max_steps=steps, callbacks=list(callbacks),
        enable_checkpointing=bool(callbacks), enable_progress_bar=False, logger=False,
        enable_model_summary=False)
    torch.manual_seed(3)
    module = (Sharded if strategy == "mp" else Module)(hidden=10)
    trainer.fit(module, ckpt_path=path)
    assert trainer.global_step == steps
    if strategy.startswith("fsdp"):
        with of_fsdp._get_full_state_dict_context(trainer.strategy.model, world):
            return {k: v.clone() for k, v in trainer.strategy.model.state_dict().items()}
    return {k: oracle.full(v) for k, v in module.state_dict().items()}


def write(tensors, path):
    if not dist.is_initialized() or dist.get_rank() == 0:
        oracle.write(tensors, path)
    if dist.is_initialized():
        dist.barrier()


def save(out, strategy, weights=""):
    where = f"{out}/{strategy}{'-' if weights else ''}{weights}"
    keep = ModelCheckpoint(dirpath=f"{where}/run", filename="{step}", every_n_train_steps=1,
                           save_top_k=-1, save_weights_only=bool(weights))
    write(fit(strategy, 3, [keep]), f"{where}/live.safetensors")


def resume(out, strategy, name, path):
    write(fit(strategy, 5, path=path), f"{out}/{name}.safetensors")


if __name__ == "__main__":
    on_cpu()
    for job in sys.argv[2:]:
        kind, *rest = job.split(":", 3)
        (save if kind == "save" else resume)(sys.argv[1], *rest)
    if dist.is_initialized():
        dist.destroy_process_group()

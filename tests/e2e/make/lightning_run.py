"""Lightning on CPU over gloo, several jobs in one launch:

    torchrun --nproc_per_node=W lightning_run.py OUT JOB...       (or without torchrun, for "one")

JOB is one of
    save:STRATEGY[:weights]      three batches; OUT/STRATEGY[-weights]/run/step=N.ckpt after each, and
                                 OUT/STRATEGY[-weights]/live.safetensors as it was after the last
    resume:STRATEGY:NAME:PATH    goes on from PATH to the fifth batch: OUT/NAME.safetensors, and
                                 OUT/NAME.json, which tells what was restored besides tensors. It saves after
                                 the fourth; what is resumed once more from that must hold the same, and ends
                                 (Lightning begins a data set from its beginning then: not alike)
    once:STRATEGY:NAME:PATH      the same, but it does not save
    fail:STRATEGY:NAME:PATH      the same, which must not work: OUT/NAME.txt, the error

STRATEGY is fsdp (sharded), fsdpfull, mp (ModelParallelStrategy) or one (a single device); with "-rich",
the rich module in bf16-mixed precision; with "-published" a model of transformers. A path may hold "=",
but no ":".
"""

import functools
import json
import os
import sys

import lightning.pytorch as pl
import lightning.pytorch.strategies.fsdp as of_fsdp
import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import (FullOptimStateDictConfig, FullStateDictConfig,
                                    FullyShardedDataParallel, ShardedOptimStateDictConfig,
                                    ShardedStateDictConfig, StateDictType, fully_shard)

import oracle
from lightning_net import Layer, Module, Published
from leaving import leave


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
        def sharded(module):
            return FullyShardedDataParallel(module, sharding_strategy=self.sharding_strategy,
                                            device_id=torch.device("cpu"), **self.kwargs)

        if model.automatic_optimization:
            return sharded(model)
        # Manual optimization runs backward inside training_step, the module's own forward: what
        # is sharded must have left its forward by then.
        model.net = sharded(model.net)
        return model


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
                    use_orig_params=True, auto_wrap_policy={Layer})
    return Parallel(save_distributed_checkpoint=True) if name == "mp" else "auto"


def precision_of(name, rich):
    if not rich:
        return {}
    if name == "mp":
        return {"plugins": [MixedPrecision("bf16-mixed", "cpu")]}
    return {"precision": "bf16-mixed"}


class Tally(Callback):
    """A callback with a state of its own, a tensor among it."""

    def __init__(self):
        self.batches, self.sum = 0, torch.zeros(3)

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.batches += 1
        self.sum = self.sum + batch.sum()

    def state_dict(self):
        return {"batches": self.batches, "sum": self.sum}

    def load_state_dict(self, state):
        self.batches, self.sum = state["batches"], state["sum"]


class Witness(Callback):
    """What a Trainer has restored when training goes on."""

    def __init__(self):
        self.seen = None

    def callbacks(self, trainer):
        """Of the others; where ModelCheckpoint writes to is the run's own."""
        return repr([{k: v for k, v in c.state_dict().items() if k != "dirpath"}
                     for c in trainer.callbacks if c is not self])

    def on_train_start(self, trainer, module):
        self.seen = {"step": trainer.global_step, "epoch": trainer.current_epoch,
                     "loops": trainer.fit_loop.state_dict(), "callbacks": self.callbacks(trainer),
                     "groups": [[{k: v for k, v in g.items() if k != "params"}
                                 for g in o.param_groups] for o in trainer.optimizers],
                     "schedules": [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs],
                     "steps": [sorted({float(oracle.full(s["step"])) for s in o.state.values()
                                       if "step" in s}) for o in trainer.optimizers]}


def held(trainer):
    """This rank's part of model and optimizers."""
    out = {n: t for n, t in (*trainer.model.named_parameters(), *trainer.model.named_buffers())}
    for i, optimizer in enumerate(trainer.optimizers):
        of = [p for g in optimizer.param_groups for p in g["params"]]
        out |= {f"{i}.{k}.{name}": t for k, p in enumerate(of)
                for name, t in optimizer.state.get(p, {}).items() if torch.is_tensor(t)}
    return {n: getattr(t, "to_local", lambda t=t: t)().detach().clone() for n, t in out.items()}


class SaveAgain(Callback):
    """After that batch; without a path it does not. It is there all the same: Witness counts callbacks."""

    def __init__(self, path, batch, look=held):
        self.path, self.batch, self.look, self.held = path, batch, look, None

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if self.path and index + 1 == self.batch:
            self.held = self.look(trainer)
            trainer.save_checkpoint(self.path)


class Looking(Callback):
    """At what was restored."""

    def __init__(self, look=held):
        self.look, self.held = look, None

    def on_train_start(self, trainer, module):
        self.held = self.look(trainer)


def module_of(name, kind):
    torch.manual_seed(3)
    if kind == "published":
        return Published()
    return (Sharded if name == "mp" else Module)(hidden=10, rich=kind == "rich")


def fit(strategy, batches, callbacks, path=None):
    """The full tensors of the module in the end."""
    name, _, kind = strategy.partition("-")
    world = int(os.environ.get("WORLD_SIZE", 1))
    one = name == "one"
    trainer = pl.Trainer(
        accelerator="cpu" if one else Accelerator(), devices=1 if one else world,
        strategy=strategy_of(name), max_steps=batches * (2 if kind == "rich" else 1),
        callbacks=[Tally(), *callbacks], enable_progress_bar=False, logger=False,
        enable_model_summary=False, **precision_of(name, kind == "rich"))
    module = module_of(name, kind)
    trainer.fit(module, ckpt_path=path)
    assert trainer.global_step == trainer.max_steps
    if name.startswith("fsdp"):
        with of_fsdp._get_full_state_dict_context(trainer.strategy.model, world):
            return {k: v.clone() for k, v in trainer.strategy.model.state_dict().items()}
    return module.state_dict()


def checkpoints(where, **settings):
    return ModelCheckpoint(dirpath=where, filename="{step}", every_n_train_steps=1, monitor="loss",
                           **settings)


def is_first():
    return not dist.is_initialized() or dist.get_rank() == 0


def write(tensors, path):
    full = {k: oracle.full(v) for k, v in tensors.items()}
    if is_first():
        oracle.write(full, path)
    if dist.is_initialized():
        dist.barrier()


def save(out, strategy, weights=""):
    where = f"{out}/{strategy}{'-' if weights else ''}{weights}"
    keep = checkpoints(f"{where}/run", save_top_k=-1, save_weights_only=bool(weights))
    write(fit(strategy, 3, [keep]), f"{where}/live.safetensors")


def must_be_alike(name, one, other):
    assert one and one.keys() == other.keys(), f"{name}, resumed again: {one.keys() ^ other.keys()}"
    for key, tensor in one.items():
        assert torch.equal(tensor, other[key]), f"{name}, resumed again: {key}"


def resume(out, strategy, name, path, once=False):
    witness, saved, looking = Witness(), SaveAgain(None if once else f"{out}/saved/{name}.ckpt", 4), Looking()

    def keep():
        return checkpoints(f"{out}/none", save_top_k=0)  # to be restored, not to save

    write(fit(strategy, 5, [witness, saved, keep()], path), f"{out}/{name}.safetensors")
    if not once:
        fit(strategy, 5, [looking, keep()], saved.path)
        must_be_alike(name, saved.held, looking.held)
    if is_first():
        with open(f"{out}/{name}.json", "w") as f:
            json.dump(witness.seen, f)


def said(out, name, run):
    """OUT/NAME.txt: what kept `run` from working."""
    try:
        run()
        text = "nothing"
    except BaseException as e:  # as CheckpointException is
        text = f"{type(e).__name__}: {e}"
    if is_first():
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/{name}.txt", "w") as f:
            f.write(text)


def fail(out, strategy, name, path):
    said(out, name, lambda: fit(strategy, 5, [], path))


KINDS = {"save": save, "resume": resume, "once": functools.partial(resume, once=True), "fail": fail}

if __name__ == "__main__":
    on_cpu()
    for job in sys.argv[2:]:
        kind, *rest = job.split(":", 3)
        KINDS[kind](sys.argv[1], *rest)
    leave()

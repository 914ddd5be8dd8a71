"""Lightning's DeepSpeedStrategy on CPU over gloo, several jobs in one launch:

    torchrun --nproc_per_node=W lightning_deepspeed.py OUT JOB...

JOB is one of
    save:STAGE                   three batches; OUT/STAGE/run/step=N.ckpt after each, and
                                 OUT/STAGE/live.safetensors as it was after the last
    resume:STAGE:NAME:PATH       goes on from PATH to the fifth batch: OUT/NAME.safetensors, what the
                                 optimizer held when training went on, and OUT/NAME.json, the rest of it. It
                                 saves after the fourth; what is resumed once more from that, without
                                 load_universal, must hold the same, and ends
    once:STAGE:NAME:PATH         the same, but it does not save
    fail:STAGE:NAME:PATH         the same, which must not work: OUT/NAME.txt, the error
    engine:STAGE:NAME:PATH       a plain engine loads PATH into the network itself: OUT/NAME.safetensors. It
                                 steps, saves, and another that loads that must step alike

STAGE is z2 or z3, with "u" behind it to load PATH as a universal checkpoint. A path holds no ":".
"""

import functools
import json
import sys

import cpu_deepspeed
import deepspeed
import lightning.pytorch as pl
import lightning.pytorch.strategies.deepspeed as of_deepspeed
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DeepSpeedStrategy

import lightning_run
from lightning_net import Module, Net
from leaving import leave


class Strategy(lightning_run.OnCpu, DeepSpeedStrategy):
    root_device = property(lambda self: torch.device("cpu", 0))


def config(stage):
    out = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True,
           "zero_force_ds_cpu_optimizer": False,
           "zero_optimization": {"stage": int(stage[1]), "reduce_bucket_size": 100000,
                                 "stage3_param_persistence_threshold": 0}}
    if stage.endswith("u"):
        out["checkpoint"] = {"load_universal": True}
    return out


class Witness(lightning_run.Witness):
    """Also what the engine's optimizer holds."""

    def __init__(self):
        super().__init__()
        self.held = None

    def on_train_start(self, trainer, module):
        self.held = cpu_deepspeed.states(trainer.strategy.deepspeed_engine)
        self.seen = {"step": trainer.global_step, "loops": trainer.fit_loop.state_dict(),
                     "callbacks": self.callbacks(trainer),
                     "schedules": [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs]}


def fit(stage, batches, callbacks, seed, path=None):
    trainer = pl.Trainer(
        accelerator=lightning_run.Accelerator(), devices=dist.get_world_size(),
        strategy=Strategy(config=config(stage)), max_steps=batches,
        callbacks=[lightning_run.Tally(), *callbacks], enable_progress_bar=False, logger=False,
        enable_model_summary=False)
    torch.manual_seed(seed)
    module = Module(hidden=10)
    trainer.fit(module, ckpt_path=path)
    assert trainer.global_step == batches
    return cpu_deepspeed.tensors(module)


def save(out, stage):
    keep = lightning_run.checkpoints(f"{out}/{stage}/run", save_top_k=-1)
    lightning_run.write(fit(stage, 3, [keep], 3), f"{out}/{stage}/live.safetensors")


def held(trainer):
    engine = trainer.strategy.deepspeed_engine
    return cpu_deepspeed.states(engine) | cpu_deepspeed.tensors(engine.module)


def resume(out, stage, name, path, once=False):
    """From weights that are initialised otherwise."""
    witness = Witness()
    saved = lightning_run.SaveAgain(None if once else f"{out}/saved/{name}.ckpt", 4, held)
    looking = lightning_run.Looking(held)

    def keep():
        return lightning_run.checkpoints(f"{out}/none", save_top_k=0)

    fit(stage, 5, [witness, saved, keep()], 4, path)
    if not once:
        fit(stage[:2], 5, [looking, keep()], 6, saved.path)
        lightning_run.must_be_alike(name, saved.held, looking.held)
    lightning_run.write(witness.held, f"{out}/{name}.safetensors")
    if lightning_run.is_first():
        with open(f"{out}/{name}.json", "w") as f:
            json.dump(witness.seen, f)


def fail(out, stage, name, path):
    lightning_run.said(out, name, lambda: fit(stage, 5, [], 4, path))


def loaded(stage, seed, path):
    torch.manual_seed(seed)
    net = Net(10, False)
    trained = [p for p in net.parameters() if p.requires_grad]
    made = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(trained), config=config(stage))[0]
    assert made.load_checkpoint(path)[0]
    return made


def step(made):
    made.backward(made(torch.arange(8).reshape(2, 4) + dist.get_rank()).square().mean())
    made.step()
    return cpu_deepspeed.tensors(made.module)


def engine(out, stage, name, path):
    made = loaded(stage, 4, path)
    lightning_run.write(cpu_deepspeed.states(made), f"{out}/{name}.safetensors")
    step(made)
    made.save_checkpoint(f"{out}/saved/{name}")
    again = loaded(stage[:2], 6, f"{out}/saved/{name}")
    trained = [n for n, p in made.module.named_parameters() if p.requires_grad]  # universal: these alone
    ends = [step(e) for e in (made, again)]
    lightning_run.must_be_alike(name, *({n: end[n] for n in trained} for end in ends))


KINDS = {"save": save, "resume": resume, "once": functools.partial(resume, once=True), "fail": fail, "engine": engine}

if __name__ == "__main__":
    of_deepspeed._validate_device_index_selection = lambda devices: None
    deepspeed.init_distributed("gloo")
    for job in sys.argv[2:]:
        kind, *rest = job.split(":", 3)
        KINDS[kind](sys.argv[1], *rest)
    leave()

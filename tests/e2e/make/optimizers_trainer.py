"""A Trainer with optimizers other than AdamW: optimizers_trainer.py OUT CASE...

CASE is HOW:NAME: four steps with a save after each two, in OUT/NAME; or HOW:NAME:DIRECTORY, which goes on from that checkpoint
and writes OUT/HOW-NAME-K.json: the losses of steps 3 and 4, or the error's text; K is the number of the case. HOW: sharded, full
(FSDP2 with that state dict), plain (one process, no group).

Not Adafactor, which torch 2.13 cannot save: transformers' one does not know DTensors, and FSDP1 refuses its RMS, which is
another number on each rank.
"""

import json
import os
import sys

PLAIN = "RANK" not in os.environ
if not PLAIN:
    import cpu_fsdp  # noqa: F401

import torch
import torch.distributed as dist
from lion_pytorch import Lion
from schedulefree import AdamWScheduleFree
from transformers import Trainer, TrainingArguments

import models
from leaving import leave
from resume_run import Tokens, forget_last_run


class Muon(torch.optim.Muon):
    """Of matrices alone: torch's Muon takes nothing else."""

    def __init__(self, groups, **settings):
        groups = [{**g, "params": [p for p in g["params"] if p.dim() == 2]} for g in groups]
        super().__init__([g for g in groups if g["params"]], **settings)


class ScheduleFree(AdamWScheduleFree):
    """In train mode when it steps: FSDP2's loader takes a step before the Trainer sets the mode."""

    def step(self, closure=None):
        self.train()
        return super().step(closure)


OPTIMIZERS = {"lion": (Lion, {"lr": 1e-3}), "sgd": (torch.optim.SGD, {"lr": 1e-2}),
              "momentum": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
              "amsgrad": (torch.optim.AdamW, {"lr": 1e-3, "amsgrad": True}),
              "muon": (Muon, {"lr": 1e-3}), "schedulefree": (ScheduleFree, {"lr": 1e-3})}


def run(how, name, out, source):
    forget_last_run()
    sharding = {} if PLAIN else {"fsdp": True, "fsdp_config": {
        "version": 2, "state_dict_type": f"{how.upper()}_STATE_DICT", "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}
    args = TrainingArguments(
        f"{out}/{name}", use_cpu=True, per_device_train_batch_size=1, max_steps=4, save_steps=2, logging_steps=1,
        report_to="none", disable_tqdm=True, seed=7, save_strategy="no" if source else "steps", **sharding)
    torch.manual_seed(1)
    trainer = Trainer(model=models.llama(torch.float32, tie=False), args=args, train_dataset=Tokens(),
                      optimizer_cls_and_kwargs=OPTIMIZERS[name])
    trainer.train(resume_from_checkpoint=source)
    return [e["loss"] for e in trainer.state.log_history if "loss" in e and e["step"] > 2]


if __name__ == "__main__":
    base, cases = sys.argv[1], sys.argv[2:]
    for number, case in enumerate(cases):
        kind, optimizer, *source = case.split(":")
        try:
            result = run(kind, optimizer, base, *source or [None])
        except Exception as e:
            if not source:
                raise
            result = f"{type(e).__name__}: {e}"
        if source and (PLAIN or dist.get_rank() == 0):
            with open(f"{base}/{kind}-{optimizer}-{number}.json", "w") as file:
                json.dump(result, file)
    leave()

"""What Lightning and DeepSpeed print when they are given the wrong thing of a mount, on one rank:

    torchrun --nproc_per_node=1 messages_strategies.py OUT MOUNT SOURCE

MOUNT shows what lightning_run.py saved into SOURCE. OUT becomes {case: "Type: message", PATH in place of the path}. Where
DeepSpeed only warns, the warning is the message, and nothing was loaded."""

import json
import logging
import os
import sys

import deepspeed
import lightning.pytorch.strategies.deepspeed as of_deepspeed
import torch
from deepspeed.utils import logger
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as zero_to_fp32

import lightning_deepspeed
import lightning_run
from lightning_net import Net

out, mnt, source = sys.argv[1:]
SAVED, WEIGHTS = "fsdp/run/step=2.ckpt", "fsdp/run/step=2"


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        self.seen.append(record.getMessage())


def one_device(path):
    lightning_run.fit("one", 5, [], path)


def fsdp(path):
    lightning_run.fit("fsdp", 5, [], path)


def strategy(path):
    lightning_deepspeed.fit("z2", 5, [], 4, path)


def engine(stage, path):
    """-> what DeepSpeed warns of, if it goes on."""
    net, warnings = Net(10, False), Warnings()
    trained = [p for p in net.parameters() if p.requires_grad]
    made = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(trained), config=lightning_deepspeed.config(stage))[0]
    logger.addHandler(warnings)
    try:
        assert made.load_checkpoint(path)[0] is None
    finally:
        logger.removeHandler(warnings)
    return warnings.seen[-1]


def plain(path):
    return engine("z2", path)


def universal(path):
    return engine("z2u", path)


CASES = {
    "one device, no path": (one_device, f"{mnt}/full/absent/run/step=2.ckpt"),
    "one device, the source": (one_device, f"{source}/{SAVED}"),
    "one device, dcp": (one_device, f"{mnt}/dcp/{SAVED}"),
    "FSDP, no path": (fsdp, f"{mnt}/dcp/absent/run/step=2.ckpt"),
    "FSDP, weights": (fsdp, f"{mnt}/weights/{WEIGHTS}"),
    "FSDP, universal": (fsdp, f"{mnt}/universal/{SAVED}"),
    "DeepSpeedStrategy, weights": (strategy, f"{mnt}/weights/{WEIGHTS}"),
    "DeepSpeedStrategy, dcp": (strategy, f"{mnt}/dcp/{SAVED}"),
    "DeepSpeedStrategy, full": (strategy, f"{mnt}/full/{SAVED}"),
    "DeepSpeedStrategy, universal": (strategy, f"{mnt}/universal/{SAVED}"),
    "engine, no path": (plain, f"{mnt}/universal/absent"),
    "engine, weights": (plain, f"{mnt}/weights/{WEIGHTS}"),
    "engine, universal": (plain, f"{mnt}/universal/{SAVED}"),
    "load_universal, weights": (universal, f"{mnt}/weights/{WEIGHTS}"),
    "load_universal, full": (universal, f"{mnt}/full/{SAVED}"),
    "zero_to_fp32, universal": (zero_to_fp32, f"{mnt}/universal/{SAVED}"),
    "zero_to_fp32, weights": (zero_to_fp32, f"{mnt}/weights/{WEIGHTS}"),
}

if __name__ == "__main__":
    lightning_run.on_cpu()
    of_deepspeed._validate_device_index_selection = lambda devices: None
    deepspeed.init_distributed("gloo")
    printed = {}
    for name, (run, path) in CASES.items():
        try:
            text = run(path) or "nothing"
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        printed[name] = text.replace(path, "PATH")
    with open(out, "w", encoding="utf-8") as file:
        json.dump(printed, file)
    os._exit(0)

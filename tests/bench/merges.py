"""A base model and a LoRA on it, and what reading `merged` costs beside reading the base model's `weights`."""

import json
import os
import time
from pathlib import Path

import peft
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import checkpoints
import mounts

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make(work, size, rank, in_fp32=False):
    """in_fp32: the adapter, as PEFT makes it unless told otherwise."""
    config, tensors = checkpoints.llama(size)
    noise = torch.randn(1 << 24, generator=torch.Generator().manual_seed(0)).mul(0.02).bfloat16()  # as trained weights are
    tensors = {n: noise.repeat(-(-t.numel() // len(noise)))[:t.numel()].view(t.shape) for n, t in tensors.items()}
    (work / "base").mkdir(parents=True)
    (work / "base/config.json").write_text(json.dumps(config))
    save_file({n: t.contiguous() for n, t in tensors.items()}, work / "base/model.safetensors", metadata={"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(work / "base", dtype="auto")
    model = peft.get_peft_model(model, peft.LoraConfig(r=rank, target_modules=MODULES), autocast_adapter_dtype=in_fp32)
    for name, tensor in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(tensor, std=0.01)
    model.save_pretrained(work / "run/checkpoint-1")


def read_seconds(programs, work, path):
    """Of one file of a mount, the base model's pages dropped: by the clock; processor seconds of the mount, and its memory."""
    fd = os.open(work / "base/model.safetensors", os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    with mounts.unshard(programs, work, work / "mount", f"model={work}/base") as daemon:
        with open(work / "mount" / path, "rb", buffering=0) as f:
            began, used = time.monotonic(), mounts.cpu_seconds(daemon)
            while f.read(1 << 20):
                pass
            return time.monotonic() - began, mounts.cpu_seconds(daemon) - used, mounts.status_bytes(daemon, "VmHWM")


def computed_bytes(work):
    with safe_open(work / "base/model.safetensors", framework="pt") as file:
        shapes = [file.get_slice(n).get_shape() for n in file.keys() if n.split(".")[-2] in MODULES]
    return 2 * sum(a * b for a, b in shapes)


def read_rounds(programs, work, n_rounds):
    """Of each round (weights, merged), in this order, one after the other."""
    return [[read_seconds(programs, work, path) for path in ("weights/base/model.safetensors",
                                                             "merged/run/checkpoint-1/model.safetensors")]
            for _ in range(n_rounds)]

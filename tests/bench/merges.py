"""The view merged against merge_and_unload and save_pretrained; and what computing costs beside reading the base model."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import peft
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import checkpoints
import mounts

WAYS = {"peft": "merge_and_unload, save_pretrained, from_pretrained", "mount": "mount, from_pretrained of `merged`"}
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make(work, size, rank):
    """Returns the bytes of the base model."""
    config, tensors = checkpoints.llama(size)
    (work / "base").mkdir(parents=True)
    (work / "base/config.json").write_text(json.dumps(config))
    save_file({n: t.contiguous() for n, t in tensors.items()}, work / "base/model.safetensors", metadata={"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(work / "base", dtype="auto")
    model = peft.get_peft_model(model, peft.LoraConfig(r=rank, target_modules=MODULES), autocast_adapter_dtype=False)
    for name, tensor in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(tensor, std=0.01)
    model.save_pretrained(work / "run/checkpoint-1")
    return sum(t.nbytes for t in tensors.values())


def once(programs, work, way):
    done = subprocess.run([sys.executable, Path(__file__).with_name("merge_once.py"), way, programs, work], check=True,
                          capture_output=True, text=True)
    shutil.rmtree(work / "merged", ignore_errors=True)
    return json.loads(done.stdout.splitlines()[-1])


def read_seconds(programs, work, path):
    """Of one file of a mount, the base model's pages dropped."""
    fd = os.open(work / "base/model.safetensors", os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    with mounts.unshard(programs, work, work / "mount", f"model={work}/base"), \
            open(work / "mount" / path, "rb", buffering=0) as f:
        began = time.monotonic()
        while f.read(1 << 20):
            pass
        return time.monotonic() - began


def measure(programs, work, size, n_rounds):
    for rank in 16, 256:
        folder = work / f"merge-{rank}"
        size_bytes = make(folder, size, rank)
        results = {way: [] for way in WAYS}
        ratios = []
        for _ in range(n_rounds):
            for way in WAYS:
                results[way].append(once(programs, folder, way))
            ratios.append(read_seconds(programs, folder, "merged/run/checkpoint-1/model.safetensors")
                          / read_seconds(programs, folder, "weights/base/model.safetensors"))
        print(f"\n### A LoRA of rank {rank} on a model of {size_bytes / 1e6:.0f} MB, bf16\n")
        print("| | all tensors touched | peak memory | written |\n|---|---:|---:|---:|")
        for way, label in WAYS.items():
            median = {k: statistics.median(r[k] for r in results[way]) for k in results[way][0]}
            print(f"| {label} | {median['seconds']:.2f} s | {median['peak_bytes'] / 1e6:.0f} MB "
                  f"| {median['written_bytes'] / 1e6:.0f} MB |")
        print(f"\nReading all of `merged` takes {statistics.median(ratios):.1f} times as long as all of `weights` of the "
              f"base model, the base model's pages dropped before both.", flush=True)
        shutil.rmtree(folder)

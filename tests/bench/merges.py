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
from safetensors import safe_open
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
    """Of one file of a mount, the base model's pages dropped: by the clock, and processor seconds of the mount."""
    fd = os.open(work / "base/model.safetensors", os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    with mounts.unshard(programs, work, work / "mount", f"model={work}/base") as daemon:
        with open(work / "mount" / path, "rb", buffering=0) as f:
            began, used = time.monotonic(), mounts.cpu_seconds(daemon)
            while f.read(1 << 20):
                pass
            return time.monotonic() - began, mounts.cpu_seconds(daemon) - used


def computed_bytes(work):
    with safe_open(work / "base/model.safetensors", framework="pt") as file:
        shapes = [file.get_slice(n).get_shape() for n in file.keys() if n.split(".")[-2] in MODULES]
    return 2 * sum(a * b for a, b in shapes)


def measure(programs, work, size, n_rounds):
    for rank in 16, 64, 256:
        folder = work / f"merge-{rank}"
        size_bytes = make(folder, size, rank)
        results = {way: [] for way in WAYS}
        merged, weights = [], []
        for _ in range(n_rounds):
            for way in WAYS:
                results[way].append(once(programs, folder, way))
            merged.append(read_seconds(programs, folder, "merged/run/checkpoint-1/model.safetensors"))
            weights.append(read_seconds(programs, folder, "weights/base/model.safetensors"))
        used = statistics.median(m[1] for m in merged) - statistics.median(w[1] for w in weights)
        ratio = statistics.median(m[0] / w[0] for m, w in zip(merged, weights))
        print(f"\n### A LoRA of rank {rank} on a model of {size_bytes / 1e6:.0f} MB, bf16\n")
        print("| | all tensors touched | peak memory | written |\n|---|---:|---:|---:|")
        for way, label in WAYS.items():
            median = {k: statistics.median(r[k] for r in results[way]) for k in results[way][0]}
            print(f"| {label} | {median['seconds']:.2f} s | {median['peak_bytes'] / 1e6:.0f} MB "
                  f"| {median['written_bytes'] / 1e6:.0f} MB |")
        print(f"\nReading all of `merged` takes {ratio:.1f} times as long as all of `weights` of the base model, the base "
              f"model's pages dropped before both, and {used:.2f} processor seconds more: "
              f"{computed_bytes(folder) / used / 1e6:.0f} MB of computed tensors for each.", flush=True)
        shutil.rmtree(folder)

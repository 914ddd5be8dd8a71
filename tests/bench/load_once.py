"""One load in a process of its own: load_once.py WAY LOADER PROGRAMS RUN WORK. RUN holds checkpoint-1;
WORK is made and removed. Prints one line of JSON."""

import json
import os
import resource
import shutil
import sys
import time
from pathlib import Path

import torch
from accelerate.utils import merge_fsdp_weights
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

import mounts


def load(loader, folder):
    """Every byte of every tensor is read."""
    if loader == "load_file":
        tensors = load_file(folder / "model.safetensors")
    else:
        tensors = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict()
    for tensor in tensors.values():
        tensor.view(-1).view(torch.int64).sum()


def warm_up(work):
    """What from_pretrained imports when it is first called."""
    config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, vocab_size=8,
                         num_attention_heads=1, num_key_value_heads=1)
    AutoModelForCausalLM.from_config(config).save_pretrained(work / "tiny")
    for loader in "load_file", "from_pretrained":
        load(loader, work / "tiny")


def merge(run, out):
    """In a process of its own, so that its memory is free when the result is loaded. Returns the most
    it had. What it writes is counted as the parent's once it has been waited for."""
    if os.fork() == 0:
        merge_fsdp_weights(run / "checkpoint-1/pytorch_model_fsdp_0", out)
        os._exit(0)
    assert os.wait()[1] == 0
    shutil.copy(run / "checkpoint-1/config.json", out)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def by_merging(loader, _programs, run, work):
    began = time.monotonic()
    peak = merge(run, work)
    first = time.monotonic() - began
    load(loader, work)
    return {"seconds": time.monotonic() - began, "first_seconds": first,
            "peak_bytes": max(peak, mounts.status_bytes("self", "VmHWM")),
            "written_bytes": mounts.written_bytes("self")}


def by_mounting(loader, programs, run, work, store="none"):
    began = time.monotonic()
    with mounts.unshard(programs, run, work / "mount", store=store) as daemon:
        folder = work / "mount/weights/checkpoint-1"
        (folder / "model.safetensors").stat()
        first = time.monotonic() - began
        load(loader, folder)
        return {"seconds": time.monotonic() - began, "first_seconds": first,
                "peak_bytes": mounts.status_bytes(daemon, "VmHWM")
                + mounts.status_bytes("self", "VmHWM"),
                "written_bytes": mounts.written_bytes(daemon) + mounts.written_bytes("self")}


def by_mounting_with_store(loader, programs, run, work):
    return by_mounting(loader, programs, run, work, work / "store.db")


def main():
    way, loader, programs, run, work = sys.argv[1:]
    work = Path(work)
    work.mkdir()
    try:
        warm_up(work)
        (work / "mount").mkdir()
        before = mounts.written_bytes("self")
        ways = {"merge": by_merging, "mount": by_mounting, "mount_store": by_mounting_with_store}
        found = ways[way](loader, Path(programs), Path(run), work)
    finally:
        shutil.rmtree(work)
    found["written_bytes"] -= before
    print(json.dumps(found))


main()

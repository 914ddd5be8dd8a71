"""One adapter merged, in a process of its own: merge_once.py WAY PROGRAMS WORK. WORK holds base/ and run/checkpoint-1,
which is its adapter. Prints one line of JSON."""

import json
import sys
import time
from pathlib import Path

import peft
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import mounts


def load(folder):
    """Every byte of every tensor is read."""
    for tensor in AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict().values():
        tensor.view(-1).view(torch.int64).sum()


def warm_up(folder):
    """What from_pretrained, save_pretrained and PEFT import when they are first called."""
    tiny = AutoModelForCausalLM.from_config(LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                                        vocab_size=8, num_attention_heads=1, num_key_value_heads=1))
    peft.get_peft_model(tiny, peft.LoraConfig(target_modules=["q_proj"])).merge_and_unload().save_pretrained(folder)
    load(folder)


def by_peft(_programs, work):
    """Loads, merges, saves, and loads what was saved. peak_bytes: up to what is saved."""
    written, began = mounts.written_bytes("self"), time.monotonic()
    base = AutoModelForCausalLM.from_pretrained(work / "base", dtype="auto")
    model = peft.PeftModel.from_pretrained(base, work / "run/checkpoint-1", autocast_adapter_dtype=False)
    model.merge_and_unload().save_pretrained(work / "merged")
    del base, model
    peak = mounts.status_bytes("self", "VmHWM")
    load(work / "merged")
    return {"seconds": time.monotonic() - began, "peak_bytes": peak,
            "written_bytes": mounts.written_bytes("self") - written}


def by_mounting(programs, work):
    """peak_bytes: of the mount. The program that loads has the model either way."""
    began = time.monotonic()
    with mounts.unshard(programs, work, work / "mount", f"model={work}/base") as daemon:
        load(work / "mount/merged/run/checkpoint-1")
        return {"seconds": time.monotonic() - began, "peak_bytes": mounts.status_bytes(daemon, "VmHWM"),
                "written_bytes": mounts.written_bytes(daemon)}


def main():
    way, programs, work = sys.argv[1:]
    work = Path(work)
    warm_up(work / "tiny")
    print(json.dumps({"peft": by_peft, "mount": by_mounting}[way](Path(programs), work)))


main()

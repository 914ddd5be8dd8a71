"""Views that are computed when they are read: what `merged` costs beside reading the base model; each against the programs
that write a copy (merge_and_unload, mergekit, a script for fp8, stacking); and `unshard export` of each. All of it is the
section "Computed views" of RESULTS.md, which a run that is not --quick writes there."""

import contextlib
import datetime
import io
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig

import checkpoints
import merges

EXPERTS = 32
ADAPTERS = (16, "bf16"), (64, "bf16"), (256, "bf16"), (256, "fp32")
COMPARED_BYTES = 200e6
RESULTS = Path(__file__).with_name("RESULTS.md")
WAYS = {
    "merged": {"peft": "merge_and_unload of rank 16, save_pretrained, from_pretrained",
               "mount": "mount, from_pretrained of `merged`"},
    "mean-3": {"mergekit": "mergekit's linear merge, load_file", "mean": "mount, load_file of `mean-3`"},
    "weights-fp8": {"script": "Fp8Quantize of transformers for each matrix, save_file, load_file",
                    "fp8": "mount, load_file of `weights-fp8`"},
    "experts=fused": {"stack": "torch.stack of each layer's experts, save_file, load_file",
                      "fused": "mount with `experts=fused`, load_file of `weights`"},
}


def write(folder, config, tensors):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def make_mean(work, size):
    config, tensors = checkpoints.llama(size)
    for step in (1, 2, 3):
        write(work / f"run/checkpoint-{step}", config, {n: torch.roll(t, step) for n, t in tensors.items()})


def make_fp8(work, size):
    config, tensors = checkpoints.llama(size)
    write(work / "run/checkpoint-1", config, {n: (t.float().clamp(-4, 4) / 64).to(t.dtype) for n, t in tensors.items()})


def make_experts(work, size):
    config = Qwen3MoeConfig(vocab_size=1000, hidden_size=1024, moe_intermediate_size=512, num_experts=EXPERTS,
                            num_hidden_layers=max(1, round(size / (EXPERTS * 3 * 512 * 1024 * 2))), num_attention_heads=8,
                            num_key_value_heads=2, head_dim=128, architectures=["Qwen3MoeForCausalLM"]).to_dict()
    tensors = {"model.embed_tokens.weight": torch.ones(1000, 1024, dtype=torch.bfloat16)}
    for layer in range(config["num_hidden_layers"]):
        for e in range(EXPERTS):
            for name, shape in ("gate_proj", (512, 1024)), ("up_proj", (512, 1024)), ("down_proj", (1024, 512)):
                tensors[f"model.layers.{layer}.mlp.experts.{e}.{name}.weight"] = torch.randn(shape).bfloat16()
    write(work / "run/checkpoint-1", config, tensors)


def make_merged(work, size):
    merges.make(work, size, 16)


MAKERS = {"merged": make_merged, "mean-3": make_mean, "weights-fp8": make_fp8, "experts=fused": make_experts}
# What `unshard export` is given: the view, and options.
EXPORTS = {"merged": ("merged", ["model={work}/base"]), "mean-3": ("mean-3", []), "weights-fp8": ("weights-fp8", []),
           "experts=fused": ("weights", ["experts=fused"])}


def once(programs, work, way):
    program = "merge_once.py" if way in WAYS["merged"] else "computed_once.py"
    done = subprocess.run([sys.executable, Path(__file__).with_name(program), way, programs, work], check=True,
                          capture_output=True, text=True)
    for made in "made", "merged":
        shutil.rmtree(work / made, ignore_errors=True)
    return json.loads(done.stdout.splitlines()[-1])


def used_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def export(programs, work, view):
    """By the clock, and processor seconds, into memory: so that no disk is waited for."""
    name, options = EXPORTS[view]
    options = ",".join(["store=none", "settle=0", *(o.format(work=work) for o in options)])
    checkpoint = max((work / "run").iterdir())
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as out:
        began, used = time.monotonic(), used_seconds()
        subprocess.run([programs / "unshard", "export", checkpoint, f"{out}/made", "--view", name, "-o", options],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took, used = time.monotonic() - began, used_seconds() - used
        size = sum(f.stat().st_size for f in Path(out, "made").rglob("*") if f.is_file())
    return {"seconds": took, "cpu": used, "bytes": size}


def medians(rows):
    return {k: statistics.median(r[k] for r in rows) for k in rows[0]}


def measure_merged(programs, work, size, n_rounds):
    """Returns what was exported, by its name."""
    exported = {}
    print("| rank | adapter | all of `weights` | all of `merged` | of a round | processor seconds more | computed by one processor "
          "| the mount's memory |\n|---:|---|---:|---:|---:|---:|---:|---:|")
    for rank, dtype in ADAPTERS:
        folder = work / f"computed-{rank}-{dtype}"
        merges.make(folder, size, rank, dtype == "fp32")
        rounds = merges.read_rounds(programs, folder, n_rounds)
        weights, merged = ([r[i] for r in rounds] for i in (0, 1))
        more = statistics.median(m[1] for m in merged) - statistics.median(w[1] for w in weights)
        print(f"| {rank} | {dtype} | {statistics.median(w[0] for w in weights):.2f} s | {statistics.median(m[0] for m in merged):.2f} s "
              f"| **{statistics.median(m[0] / w[0] for w, m in rounds):.2f}x** | {more:.2f} "
              f"| {merges.computed_bytes(folder) / more / 1e6:.0f} MB/s "
              f"| {statistics.median(m[2] for m in merged) / 1e6:.0f} MB |", flush=True)
        exported[f"`merged`, rank {rank}, {dtype}"] = medians([export(programs, folder, "merged") for _ in range(n_rounds)])
        shutil.rmtree(folder)
    return exported


def measure_copies(programs, work, size, n_rounds):
    """Returns what was exported, by its name."""
    exported = {}
    for view, ways in WAYS.items():
        folder = work / f"computed-{view}"
        MAKERS[view](folder, size)
        results = {way: [] for way in ways}
        for _ in range(n_rounds):
            for way in ways:
                results[way].append(once(programs, folder, way))
        print(f"\n| `{view}` | all tensors touched | peak memory | written |\n|---|---:|---:|---:|")
        for way, label in ways.items():
            median = medians(results[way])
            print(f"| {label} | {median['seconds']:.2f} s | {median['peak_bytes'] / 1e6:.0f} MB "
                  f"| {median['written_bytes'] / 1e6:.0f} MB |", flush=True)
        if view != "merged":
            exported[f"`{view}`"] = medians([export(programs, folder, view) for _ in range(n_rounds)])
        shutil.rmtree(folder)
    return exported


def print_exported(exported):
    print("\n| `unshard export` of | seconds | processor seconds | processors at work | MB/s |\n|---|---:|---:|---:|---:|")
    for name, row in exported.items():
        print(f"| {name} | {row['seconds']:.2f} | {row['cpu']:.2f} | {row['cpu'] / row['seconds']:.2f} "
              f"| {row['bytes'] / row['seconds'] / 1e6:.0f} |")


class Both(io.StringIO):
    """What is printed is also kept."""

    def write(self, text):
        sys.__stdout__.write(text)
        return super().write(text)

    def flush(self):
        sys.__stdout__.flush()


def keep(text):
    """In the place of what an earlier run wrote."""
    page = RESULTS.read_text()
    RESULTS.write_text(re.sub(r"(<!-- measured: computed -->\n).*?(<!-- end -->)", lambda m: m[1] + text + m[2], page, flags=re.S))


def measure(programs, work, size, n_rounds, keeps):
    commit = subprocess.run(["git", "-C", RESULTS.parent, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    compared = min(size, int(COMPARED_BYTES))
    with contextlib.redirect_stdout(Both()) as text:
        print(f"{datetime.date.today()}, `tests/bench/run computed` (commit {commit.stdout.strip() or 'unknown'}), "
              f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.0f} when it began. Medians of {n_rounds} interleaved\n"
              f"rounds. The first table: all of a model of {size / 1e6:.0f} MB in bf16 is read through a mount, its pages dropped "
              f"before.\nThe others: models of {compared / 1e6:.0f} MB, and export's of `merged` of {size / 1e6:.0f} MB.\n")
        exported = measure_merged(programs, work, size, n_rounds)
        print("\n" + subprocess.run([programs / "sums"], check=True, capture_output=True, text=True).stdout, end="", flush=True)
        exported |= measure_copies(programs, work, compared, n_rounds)
        print_exported(exported)
    if keeps:
        keep(text.getvalue())

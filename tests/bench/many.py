"""Metadata at scale: one checkpoint with as many items as a 405B has on 512 ranks, and a run of a thousand small
checkpoints. Seconds, and what other work on the machine does not change: the mount's processor time, memory and system
calls."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import mounts
import scale

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e/make"))
import sparse_dcp  # noqa: E402
import sparse_torch_dist  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden/run"
CKPT = sparse_torch_dist.NAME
RECHECK_S = 1.2  # longer than what was looked at is taken for the same


def first_megabyte(folder):
    with open(scale.weights(folder)[0], "rb", buffering=0) as f:
        _, tensors = scale.header(f)
        assert all(n.startswith(("model.", "lm_head.")) for n in tensors)
        assert len(f.read(1_000_000)) == 1_000_000


def llama(tensors, ranks, states=()):
    return lambda source: sparse_dcp.write(source / CKPT, tensors, ranks, states=states)


def megatron(config, ranks, **how):
    return lambda source: sparse_torch_dist.write(source, config, ranks, **how)


def one_checkpoint(programs, work, model, write, ranks):
    """The first megabyte: without a store, with a new one, and from it."""
    source, mount, store = work / f"many_{model.replace(' ', '_')}", work / "many_mount", work / "many.db"
    items = write(source)
    size = (source / CKPT / ".metadata").stat().st_size
    for name, where in (("no store", "none"), ("a new store", store), ("from the store", store)):
        with mounts.unshard(programs, source, mount, store=where) as daemon:
            began = time.monotonic()
            first_megabyte(mount / "weights" / CKPT)
            took = time.monotonic() - began
            peak = mounts.status_bytes(daemon, "VmHWM")
            print(f"| {model}, {ranks} ranks, {items} items, {size / 1e6:.1f} MB | {name} | {took:.2f} s "
                  f"| {mounts.cpu_seconds(daemon):.2f} s | {peak / 1e6:.0f} MB, {peak / size:.1f} times |", flush=True)
    shutil.rmtree(source)
    store.unlink()


def run_of(folder, n):
    folder.mkdir(parents=True)
    for path in GOLDEN.glob("*.json"):
        shutil.copy(path, folder)
    for i in range(1, n + 1):
        shutil.copytree(GOLDEN / "checkpoint-2", folder / f"checkpoint-{i}")
    time.sleep(6)  # of what changed less than five seconds ago no listing is kept

def ls(what, folder, daemon):
    """Seconds, and the daemon's processor time."""
    before, began = mounts.cpu_seconds(daemon), time.monotonic()
    subprocess.run(["ls", what, folder], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began, mounts.cpu_seconds(daemon) - before


def many_checkpoints(programs, work, n):
    source, mount, store = work / "many_run", work / "many_mount", work / "many.db"
    run_of(source / "run", n)
    for name, views, how in (("first", "weights", "-R"), ("after a remount", "weights", "-R"),
                             ("first, all views", "", "-lR")):
        with mounts.unshard(programs, source, mount, store=store if views else "none") as daemon:
            for again in ("", "again, ") if name == "first" else ("",):
                took, cpu = ls(how, mount / views, daemon)
                peak = mounts.status_bytes(daemon, "VmHWM")
                print(f"| `ls {how}` of {views or 'everything'} | {again}{name} | {took:.2f} s | {cpu:.2f} s "
                      f"| {1e3 * cpu / n:.2f} ms | {peak / 1e6:.0f} MB |", flush=True)
                time.sleep(RECHECK_S)
    shutil.rmtree(source)
    store.unlink()


def measure(programs, work, quick, long):
    print("\n## Metadata at scale\n\nUntil the first megabyte of the weights has been read, from the first listing on. Processor "
          "time and memory are the mount's; memory: the most it ever had resident, also as so many times `.metadata`.\n")
    print("| checkpoint | metadata store | first megabyte | processor time | memory |\n|---|---|---:|---:|---:|")
    if quick:
        one_checkpoint(programs, work, "4 layers of a 70B", llama(scale.part(4), 32), 32)
        one_checkpoint(programs, work, "Megatron-Core 30B-A3B", megatron(sparse_torch_dist.QWEN3_30B_A3B, 8), 8)
    else:
        one_checkpoint(programs, work, "70B", llama(sparse_dcp.llama_70b(), 32), 32)
        one_checkpoint(programs, work, "405B", llama(sparse_dcp.llama_405b(), 512), 512)
        one_checkpoint(programs, work, "Megatron-Core 30B-A3B", megatron(sparse_torch_dist.QWEN3_30B_A3B, 8), 8)
        one_checkpoint(programs, work, "Megatron-Core 671B", megatron(sparse_torch_dist.DEEPSEEK_V3_671B, 128), 128)
    if long:
        one_checkpoint(programs, work, "405B with its optimizer",
                       llama(sparse_dcp.llama_405b(), 512, ("exp_avg", "exp_avg_sq")), 512)
        one_checkpoint(programs, work, "Megatron-Core 671B with its optimizer",
                       megatron(sparse_torch_dist.DEEPSEEK_V3_671B, 128, optimizer=True), 128)
        one_checkpoint(programs, work, "Megatron-Core 1T of 403,200 tensors of experts",
                       megatron(sparse_torch_dist.EXPERTS_1T, 64, one_by_one=True), 64)
    n = 20 if quick else 1000
    print(f"\nA run of {n} checkpoints of 250 kB, 2 ranks each, with optimizer and Trainer's files; with a metadata store, new "
          "at first, but for the last row.\n")
    print("| | | took | processor time | for each checkpoint | memory |\n|---|---|---:|---:|---:|---:|")
    many_checkpoints(programs, work, n)

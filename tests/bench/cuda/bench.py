"""A model of bf16, saved as FSDP shards by 8 ranks, into the memory of one GPU: from tmpfs, from the page cache and from
the disk. Each way of loading has a process of its own for each place (load_once.py)."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import save_file

import checkpoints

EXPECTED = """| | tmpfs | page cache | disk |
|---|---|---|---|
| unshard | 0.9 of the best | 0.9 of the best | 0.9 of the best |
| fastsafetensors, InstantTensor | the best of the others | as slow as the disk: they read past the page cache | the disk's rate |
| safetensors, Run:ai's streamer, the mount | a fifth of unshard | a fifth of unshard | the disk's rate |
"""
WAYS = ("unshard", "safetensors", "fastsafetensors", "runai", "instanttensor", "mount")
RANKS = 8


def arguments():
    parser = argparse.ArgumentParser(prog="tests/bench/cuda/run DIR", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="0.1 GB, one round")
    parser.add_argument("--parts", action="store_true", help="where the seconds go, from tmpfs (parts.py); nothing else")
    parser.add_argument("--size", type=float, default=16, help="GB of tensors")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--minutes", type=float, default=8.5, help="nothing is begun later than this")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--programs", type=Path, required=True, help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.quick:
        found.size, found.rounds = 0.1, 1
    return found


def make(folder, size_bytes):
    """folder/run/checkpoint-1 in shards, and folder/model.safetensors; the bytes of all tensors."""
    config, tensors = checkpoints.llama(size_bytes)
    checkpoints.write_run(folder / "run", config, tensors, RANKS)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return sum(t.nbytes for t in tensors.values())


def load(args, way, folder, cold):
    """What load_once.py prints, or {"failed": why}: its last line."""
    command = [sys.executable, Path(__file__).with_name("load_once.py"), way, folder, args.device, str(args.rounds),
               args.programs, *(["--cold"] if cold else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def row(way, found, size, best):
    if "failed" in found:
        return f"| {way} | not measured: {found['failed'].replace('|', '/')} | | | |"
    seconds = statistics.median(found["seconds"])
    beyond = f"{found['device_beyond_bytes'] / 1e6:.0f} MB" if found["device_beyond_bytes"] is not None else ""
    return (f"| {way} | {seconds:.2f} s | {size / seconds / 1e9:.2f} GB/s, **{best / seconds:.2f}** | "
            f"{found['host_bytes'] / 1e6:.0f} MB | {beyond} |")


def measure(args, place, folder, size, ends_at, cold=False):
    found = {way: load(args, way, folder, cold) if time.monotonic() < ends_at else {"failed": "time was up"}
             for way in WAYS}
    measured = {way: x for way, x in found.items() if "failed" not in x}
    best = min((statistics.median(x["seconds"]) for x in measured.values()), default=0)
    print(f"\n## From {place}\n\n| | median of {args.rounds} | bold: of the best | host memory at the peak | device memory "
          "beyond the tensors |\n|---|---:|---:|---:|---:|")
    for way, x in found.items():
        print(row(way, x, size, best))
    sums = {x["checksum"] for x in measured.values()}
    told = {0: "none", 1: "equal"}.get(len(sums), "DIFFERENT")
    print(f"\nChecksums of all tensors, computed on the device: {told}.", flush=True)
    return len(sums) < 2


def main():
    args = arguments()
    ends_at = time.monotonic() + 60 * args.minutes
    fine = True
    with tempfile.TemporaryDirectory(prefix="unshard-", dir=args.tmpfs) as memory, \
            tempfile.TemporaryDirectory(prefix="unshard-", dir=args.disk) as disk:
        memory, disk = Path(memory), Path(disk)
        size = make(memory, args.size * 1e9)
        if args.parts:
            sys.exit(subprocess.run([sys.executable, Path(__file__).with_name("parts.py"), memory, args.device,
                                     str(args.rounds)], check=False).returncode)
        print(f"Expected:\n\n{EXPECTED}")
        print(f"{size / 1e9:.2f} GB in {RANKS} shards; {os.cpu_count()} processors", flush=True)
        fine &= measure(args, "tmpfs", memory, size, ends_at)
        for source in memory.iterdir():
            (shutil.copytree if source.is_dir() else shutil.copy)(source, disk / source.name)
            (shutil.rmtree if source.is_dir() else Path.unlink)(source)
        os.sync()
        fine &= measure(args, "the page cache", disk, size, ends_at)
        fine &= measure(args, "the disk", disk, size, ends_at, cold=True)
    sys.exit(not fine)


main()

"""A Megatron-Core 1T of 403,200 tensors of experts that is described, not stored: how long it takes to list it."""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import mounts

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e/make"))
import sparse_torch_dist  # noqa: E402

RANKS = 64
EXPECTED_S = {"no store": 2.0, "a new store": 2.5, "from the store": 1.0, "unshard ls": 2.5}
SMALL = sparse_torch_dist.EXPERTS_1T | {"n_routed_experts": 64, "num_hidden_layers": 4}


def by_mount(programs, source, work, store):
    """Seconds of `ls -lR weights`; the mount's processor time and memory."""
    mount = work / "listing_mount"
    with mounts.unshard(programs, source, mount, store=store) as daemon:
        began = time.monotonic()
        subprocess.run(["ls", "-lR", mount / "weights"], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began, mounts.cpu_seconds(daemon), mounts.status_bytes(daemon, "VmHWM")


def by_command(programs, source):
    """Seconds of `unshard ls`, and its processor time."""
    began = time.monotonic()
    process = subprocess.Popen([programs / "unshard", "ls", source, "-o", "store=none"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.monotonic() - began, used.ru_utime + used.ru_stime, 0


def one_round(programs, source, work):
    store = work / "listing.db"
    store.unlink(missing_ok=True)
    return {"no store": by_mount(programs, source, work, "none"),
            "a new store": by_mount(programs, source, work, store),
            "from the store": by_mount(programs, source, work, store),
            "unshard ls": by_command(programs, source)}


def measure(programs, work, n_rounds, quick):
    source = work / "listing_source"
    items = sparse_torch_dist.write(source, SMALL if quick else sparse_torch_dist.EXPERTS_1T, RANKS, one_by_one=True)
    rounds = [one_round(programs, source, work) for _ in range(n_rounds)]
    print(f"\n## Listing {items} items of a Megatron-Core 1T\n\n`ls -lR` of `weights` in a fresh mount, and `unshard ls`. "
          f"Medians of {n_rounds} rounds.\n")
    print("| | took | expected | processor time | memory |\n|---|---:|---:|---:|---:|")
    for what, expected in EXPECTED_S.items():
        took, used, peak = (statistics.median(column) for column in zip(*(r[what] for r in rounds)))
        print(f"| {what} | {took:.2f} s | {'' if quick else f'{expected} s'} | {used:.2f} s "
              f"| {f'{peak / 1e6:.0f} MB' if peak else ''} |", flush=True)
    shutil.rmtree(source)

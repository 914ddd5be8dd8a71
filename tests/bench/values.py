"""`unshard show --values` against a copy of the same file to nowhere, and against torch working out the same figures;
`unshard diff` of two such files: processor time for each GB that is read, which other work on the machine changes little,
and seconds."""

import json
import os
import statistics
import subprocess
import sys
import time

import safetensors
import safetensors.torch
import torch

ROW = 4096
# Of each tensor what a row of `--values --json` has. Tensors are finite: torch need not select elements.
BY_TORCH = """
import sys, safetensors, torch
def measured(x):
    y = x.double()
    figures = [y.min(), y.max(), y.mean(), y.norm(), (y == 0).sum(), (y < 0).sum(), y.isnan().sum(), y.isinf().sum()]
    counts = torch.histc(torch.frexp(y.abs()).exponent.float(), 96, -79, 17)
    return [f.item() for f in figures], counts, (y.abs().amax(1) <= 0).sum().item()
with safetensors.safe_open(sys.argv[1], "pt") as f:
    for name in f.keys():
        measured(f.get_tensor(name))
"""


def run(*command, status=0):
    """Seconds of processor time and of a clock."""
    began = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL)
    _, ended, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(ended)
    assert process.returncode == status, command
    return used.ru_utime + used.ru_stime, time.monotonic() - began


def write(folder, size, dtype):
    """And a folder beside it, with other values."""
    rows = size // 8 // ROW // dtype.itemsize
    tensors = {f"model.layers.{i}.weight": (torch.randn(rows, ROW) / 50).to(dtype) for i in range(8)}
    for path, scale in ((folder, 1), (other_of(folder), 1.01)):
        path.mkdir()
        safetensors.torch.save_file({name: x * scale for name, x in tensors.items()}, path / "model.safetensors")
    return folder / "model.safetensors"


def other_of(folder):
    return folder.with_name(folder.name + "-other")


def measure(programs, work, size, n):
    print(f"\n## Values of {size / 1e6:.0f} MB\n")
    print(f"Medians of {n} runs, the file in the page cache; {len(os.sched_getaffinity(0))} processors. torch: without its import.\n")
    print("| dtype | who | processor time for each GB | took |\n|---|---|---:|---:|")
    for dtype in (torch.bfloat16, torch.float32):
        path = write(work / str(dtype), size, dtype)
        values = (programs / "unshard", "show", path.parent, "--values", "-o", "settle=0,store=none")
        shown = json.loads(subprocess.run([*values, "--json"], check=True, capture_output=True).stdout)["values"]
        with safetensors.safe_open(path, "pt") as f:
            for v in shown:  # what is timed is right
                x = f.get_tensor(v["name"]).double()
                assert (v["min"], v["max"], v["negative"]) == (x.min().item(), x.max().item(), (x < 0).sum().item())
        ways = {"`cat`": ("cat", path), "torch": (sys.executable, "-c", BY_TORCH, path), "`unshard show --values`": values}
        nothing = [run(sys.executable, "-c", "import safetensors, torch") for _ in range(n)]
        for who, command in ways.items():
            took = [run(*command) for _ in range(n)]
            cpu, clock = ((statistics.median(t[k] for t in took) - (statistics.median(t[k] for t in nothing) if who == "torch" else 0))
                          for k in (0, 1))
            print(f"| {str(dtype)[6:]} | {who} | {cpu / (path.stat().st_size / 1e9):.2f} s | {clock:.2f} s |", flush=True)
        differing = (programs / "unshard", "diff", path.parent, other_of(path.parent), "-o", "settle=0,store=none")
        took = [run(*differing, status=1) for _ in range(n)]
        cpu, clock = (statistics.median(t[k] for t in took) for k in (0, 1))
        print(f"| {str(dtype)[6:]} | `unshard diff` | {cpu / (2 * path.stat().st_size / 1e9):.2f} s | {clock:.2f} s |", flush=True)

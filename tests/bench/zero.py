"""A DeepSpeed checkpoint until another process has its state: through the mount, and by the tools that
convert it first (zero_to_fp32, ds_to_universal)."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import mounts

RANKS = 2
TAG = "global_step1"
# label -> (tool or view, what has to be loaded then, below which folder)
WAYS = {
    "zero_to_fp32 + load_file": ("zero_to_fp32", "weights"),
    "`weights-fp32` + load_file": ("weights-fp32", "weights"),
    "ds_to_universal + load_checkpoint": ("ds_to_universal", "universal"),
    "`universal` + load_checkpoint": ("universal", "universal"),
    "`world-1` + load_checkpoint": ("world-1", "native"),
}
TOOLS = {"weights": "zero_to_fp32 + load_file", "universal": "ds_to_universal + load_checkpoint",
         "native": "ds_to_universal + load_checkpoint"}


def python(script, *arguments):
    done = subprocess.run([sys.executable, Path(__file__).with_name(script), *map(str, arguments)],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


def save(out, parameters, stages):
    subprocess.run([sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={RANKS}",
                    Path(__file__).with_name("zero_engine.py"), out, str(parameters),
                    *map(str, stages)], check=True,
                   capture_output=True)


def loaded(form, stage, parameters, folder):
    if form == "weights":
        return python("zero_once.py", "weights", folder)
    return python("zero_once.py", "engine", stage, parameters, folder, form)


def by_converting(tool, form, run, stage, parameters, work):
    out = work / "converted"
    try:
        made = python("export_once.py", tool, run, out)
        got = loaded(form, stage, parameters, out)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return {"first": made["seconds"], "seconds": made["seconds"] + got["seconds"],
            "peak": max(made["peak_bytes"], got["peak_bytes"]), "daemon": 0,
            "written": made["written_bytes"] + got["written_bytes"]}


def by_mounting(programs, view, form, run, stage, parameters, work):
    began = time.monotonic()
    with mounts.unshard(programs, run, work / "mount") as daemon:
        folder = work / "mount" / view
        if form != "native":
            folder = folder / TAG
        files = [p for p in folder.rglob("*") if p.stat().st_size >= 0]
        first = time.monotonic() - began
        assert files, folder
        got = loaded(form, stage, parameters, folder)
        daemon_bytes = mounts.status_bytes(daemon, "VmHWM")
        return {"first": first, "seconds": first + got["seconds"],
                "peak": got["peak_bytes"] + daemon_bytes, "daemon": daemon_bytes,
                "written": got["written_bytes"] + mounts.written_bytes(daemon)}


def once(label, programs, run, stage, parameters, work):
    what, form = WAYS[label]
    if what in ("zero_to_fp32", "ds_to_universal"):
        return by_converting(what, form, run, stage, parameters, work)
    return by_mounting(programs, what, form, run, stage, parameters, work)


def ratio(results, label, key):
    tool = results[TOOLS[WAYS[label][1]]]
    return statistics.median(a[key] / b[key] for a, b in zip(tool, results[label]))


def row(results, label):
    median = {k: statistics.median(r[k] for r in results[label]) for k in results[label][0]}
    mounted = label not in TOOLS.values()
    return (f"| {label} | {median['first']:.2f} s"
            + (f", **{ratio(results, label, 'first'):.0f}x less**" if mounted else "")
            + f" | {median['seconds']:.2f} s"
            + (f", **{ratio(results, label, 'seconds'):.1f}x sooner**" if mounted else "")
            + f" | {median['peak'] / 1e6:.0f} MB | {median['written'] / 1e6:.2f} MB | "
            + (f"{median['daemon'] / 1e6:.0f} MB |" if mounted else "|"))


def size_of(folder):
    return sum(p.stat().st_size for p in folder.rglob("*"))


def measure(programs, work, size, n_rounds, stages):
    parameters = int(size / 14)  # fp32 copies, two moments, the weights in bf16
    save(work / "zero", parameters, stages)
    print(f"\n## A DeepSpeed checkpoint of {RANKS} ranks until one process has its state\n")
    print(f"Medians of {n_rounds} interleaved rounds, in fresh processes, imports and the making of the "
          f"engine excluded, sources in the page cache; bold: the median of the rounds' ratios. Peak "
          f"memory is resident memory with its file pages: of the larger of the tool's processes and the "
          f"loading one, or of the loading process and the mount's together.")
    for stage in stages:
        run = work / f"zero/z{stage}"
        results = {label: [] for label in WAYS}
        for r in range(n_rounds):
            for label in list(WAYS)[r % len(WAYS):] + list(WAYS)[:r % len(WAYS)]:
                results[label].append(once(label, programs, run, stage, parameters, work))
        print(f"\nZeRO stage {stage}, {size_of(run) / 1e6:.0f} MB:\n\n| | until loading can begin | until "
              f"the state is there | peak memory | written | the mount's own memory |\n"
              f"|---|---:|---:|---:|---:|---:|")
        for label in WAYS:
            print(row(results, label), flush=True)
        shutil.rmtree(run)


os.environ.setdefault("DS_ACCELERATOR", "cpu")

"""From the first request to all tensors touched: mount and load, against merge_fsdp_weights and load."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import checkpoints

WAYS = {"merge": "merge_fsdp_weights + ", "mount": "mount + ",
        "mount_store": "mount with a new metadata store + "}
LOADERS = {"load_file": "safetensors.torch.load_file", "from_pretrained": "from_pretrained"}
RANKS = 8


def once(programs, work, way, loader):
    done = subprocess.run([sys.executable, Path(__file__).with_name("load_once.py"), way, loader,
                           programs, work / "load", work / "loaded"], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(label, results, merged):
    median = {key: statistics.median(r[key] for r in results) for key in results[0]}
    ratio = statistics.median(a["seconds"] / b["seconds"] for a, b in zip(merged, results))
    return (f"| {label} | {median['seconds']:.2f} s"
            + (f", **{ratio:.1f}x sooner**" if results is not merged else "")
            + f" | {median['first_seconds']:.2f} s | {median['peak_bytes'] / 1e6:.0f} MB "
            f"| {median['written_bytes'] / 1e6:.2f} MB |")


def measure(programs, work, size, n_rounds, loaders):
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work / "load", config, tensors, RANKS)
    size = sum(t.nbytes for t in tensors.values())
    del tensors
    print(f"\n## Loading {size / 1e6:.0f} MB saved by {RANKS} ranks\n")
    print(f"Medians of {n_rounds} interleaved rounds, imports excluded, sources in the page cache; "
          f"bold: the median of the rounds' ratios. Peak memory is resident memory with its file "
          f"pages: of the loading process and the mount's together, or of the larger of merging and "
          f"loading. Mounts have no metadata store unless it says so.\n")
    print("| | all tensors touched | of that until the weights' file is there | peak memory "
          "| written |\n|---|---:|---:|---:|---:|")
    for loader in loaders:
        results = {way: [] for way in WAYS}
        for r in range(n_rounds):
            for way in list(WAYS)[r % len(WAYS):] + list(WAYS)[:r % len(WAYS)]:
                results[way].append(once(programs, work, way, loader))
        for way, label in WAYS.items():
            print(row(label + LOADERS[loader], results[way], results["merge"]), flush=True)

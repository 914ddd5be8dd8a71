"""Memory and first byte follow the metadata: a Llama 70B on 32 ranks, whose tensors are holes, and parts
of it."""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import mounts

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e/make"))
import sparse_dcp  # noqa: E402

RANKS = 32
LAYERS = 80
DELAYS_US = (0, 1000)


def part(layers):
    """The tensors of a 70B of so many layers."""
    return {name: shape for name, shape in sparse_dcp.llama_70b().items()
            if ".layers." not in name or int(name.split(".")[2]) < layers}


def weights(folder):
    return sorted(folder / n for n in os.listdir(folder) if n.endswith(".safetensors"))


def header(f):
    length = int.from_bytes(f.read(8), "little")
    tensors = json.loads(f.read(length))
    tensors.pop("__metadata__", None)
    return 8 + length, tensors


def first_byte(folder):
    """Seconds until the first byte of a tensor has been read; nothing was asked before."""
    began = time.monotonic()
    with open(weights(folder)[0], "rb", buffering=0) as f:
        f.seek(8 + int.from_bytes(f.read(8), "little"))
        assert any(f.read(16))
    return time.monotonic() - began


def touch_all(folder):
    """The first bytes of every item."""
    for path in weights(folder):
        with open(path, "rb", buffering=0) as f:
            start, tensors = header(f)
            for t in tensors.values():
                begin, end = t["data_offsets"]
                rows = -(-t["shape"][0] // RANKS)
                for at in range(begin, end, rows * (end - begin) // t["shape"][0]):
                    f.seek(start + at)
                    assert any(f.read(16))


def one_size(programs, work, source, n_rounds):
    """Seconds by delay, and memory after the first byte and after all items."""
    seconds = {}
    for delay in DELAYS_US:
        took = []
        for _ in range(n_rounds):
            with mounts.unshard(programs, source, work / "sparse_mount",
                                f"delay_read_us={delay}") as daemon:
                took.append(first_byte(work / "sparse_mount/weights/ckpt"))
                first = mounts.status_bytes(daemon, "VmHWM")
        seconds[delay] = statistics.median(took)
    with mounts.unshard(programs, source, work / "sparse_mount") as daemon:
        touch_all(work / "sparse_mount/weights/ckpt")
        return seconds, first, mounts.status_bytes(daemon, "VmHWM")


def empty_bytes(programs, work):
    (work / "nothing").mkdir()
    with mounts.unshard(programs, work / "nothing", work / "sparse_mount") as daemon:
        os.listdir(work / "sparse_mount/weights")
        return mounts.status_bytes(daemon, "VmHWM")


def measure(programs, work, n_rounds, quick):
    empty = empty_bytes(programs, work)
    print(f"\n## Memory and first byte of a 70B on {RANKS} ranks, and of its first layers\n")
    print(f"Medians of {n_rounds} fresh mounts. First byte: from the first listing to the first byte "
          f"of a tensor; also with 1 ms added to every read of a shard. Memory: the most that the "
          f"mount's process ever had resident; it has {empty / 1e6:.0f} MB with nothing to show. "
          f"Bold: what it has beyond that for each item, against the row above (1.0: linear).\n")
    print("| layers | items | .metadata | first byte | with delay | memory at the first byte "
          "| with every item read |\n|---:|---:|---:|---:|---:|---:|---:|")
    above = None
    for layers in (1, 2) if quick else (10, 20, 40, LAYERS):
        source = work / f"sparse{layers}"
        items = sparse_dcp.write(source / "ckpt", part(layers), RANKS)
        seconds, *memory = one_size(programs, work, source, n_rounds)
        each = [(m - empty) / items for m in memory]
        cells = [f"{m / 1e6:.0f} MB" + (f", **{e / a:.2f}**" if above else "")
                 for m, e, a in zip(memory, each, above or each)]
        above = each
        print(f"| {layers} | {items} | {(source / 'ckpt/.metadata').stat().st_size / 1e6:.1f} MB "
              f"| {seconds[0]:.3f} s | {seconds[1000]:.3f} s | {' | '.join(cells)} |", flush=True)

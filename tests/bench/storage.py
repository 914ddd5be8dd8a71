"""One reader of a view over distributed file systems of this machine, against their client alone that reads the same
shards one after the other. The file systems: tests/e2e/storage."""

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import checkpoints
import mounts
import pages
import reads

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e/storage"))
import kinds  # noqa: E402

RANKS = 8


@contextlib.contextmanager
def started(kind, work):
    top = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=work))
    system = kinds.KINDS[kind](top)
    try:
        system.start()
        yield system
    finally:
        system.end()
        shutil.rmtree(top, ignore_errors=True)


def seconds(programs, paths):
    return sum(reads.seconds(programs, "read", path) for path in paths)


def one_kind(programs, work, kind, run, n_rounds):
    with started(kind, work) as system:
        shutil.copytree(run, system.node("a") / "run", copy_function=shutil.copyfile)
        node = system.node("b")
        time.sleep(system.changes_seen_s + 1)  # MooseFS sets a file's time once more after its end
        mount = work / f"{kind}-mount"
        with mounts.unshard(programs, node / "run", mount):
            shards = sorted((node / "run").rglob("*.distcp"))
            view = mount / "weights/checkpoint-1/model.safetensors"
            size, total = view.stat().st_size, sum(path.stat().st_size for path in shards)
            raw, read = [], []
            for i in range(2 * n_rounds):
                for path in (*shards, view):
                    pages.drop(path)
                if i % 2:
                    raw.append(seconds(programs, shards) / total)
                else:
                    read.append(seconds(programs, [view]) / size)
            ratios = sorted(r / v for r, v in zip(raw, read))
            print(f"| {kind} | {1e-6 / statistics.median(raw):.0f} MB/s | {1e-6 / statistics.median(read):.0f} MB/s | "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |", flush=True)


def measure(programs, work, size, n_rounds, names):
    config, tensors = checkpoints.llama(size)
    run = work / "run"
    checkpoints.write_run(run, config, tensors, RANKS)
    del tensors
    print(f"\n## Distributed file systems, one reader\n\n{size / 1e6:.0f} MB in {RANKS} shards; medians of {n_rounds} rounds, "
          f"pages dropped before each; the last column: of one round each.\n")
    print("| file system | its client alone, shard by shard | the view | of it |\n|---|---:|---:|---:|")
    for name in names or kinds.QUICK:
        one_kind(programs, work, name, run, n_rounds)

"""The ways of `-o reads=` on four storages, and what `auto` makes of each: a view of 8 shards read from front to back, none of
it in the page cache. Beside them what a read-ahead into memory of our own could gain: the shards themselves, read through the page
cache by one thread, and past it by eight."""

import contextlib
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import beside
import checkpoints
import mounts
import pages
import reads
import storage

SHARDS, SIZE = 8, 600e6  # `auto` tries ways on files of 512 MiB or more
MINUTES = 6
WAYS = ("cached", "ordered", "direct")
FIRST, AGAIN = "auto, first load", "auto, later"
ALONE = {"shards alone: 1 thread": "read", "8 threads past the page cache": "direct"}
COLUMNS = (*WAYS, FIRST, AGAIN, *ALONE)
MOST = 1.05  # times the seconds of the usual way that `auto` may take


def drop(shards):
    for shard in shards:
        pages.drop(shard)


def by_mount(programs, source, shards, mount, way, store="none"):
    """-> seconds"""
    with mounts.unshard(programs, source, mount, f"reads={way}", store=store):
        path, = mount.glob("weights/**/model.safetensors")
        drop(shards)
        return reads.seconds(programs, "read", path)


def one_round(programs, source, shards, mount, backwards):
    with tempfile.TemporaryDirectory() as top:
        def auto():
            return by_mount(programs, source, shards, mount, "auto", Path(top, "store.db"))
        took = {way: lambda way=way: by_mount(programs, source, shards, mount, way) for way in WAYS}
        took = dict(reversed(took.items())) if backwards else took
        found = {way: read() for way, read in took.items()}
        found |= {FIRST: auto(), AGAIN: auto()}
        for label, how in ALONE.items():
            drop(shards)
            found[label] = sum(reads.seconds(programs, how, shard) for shard in shards)
        return found


@contextlib.contextmanager
def disk(programs, run):
    yield run


@contextlib.contextmanager
def tmpfs(programs, run):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        shutil.copytree(run, Path(top, "run"))
        yield Path(top, "run")


@contextlib.contextmanager
def delayed(programs, run):
    """Each shard behind a server of its own."""
    top = run.parent / "afar"
    shutil.copytree(run, top / "run", ignore=shutil.ignore_patterns("*.distcp"))
    shards = sorted(run.rglob("*.distcp"))
    with beside.behind_servers(programs, shards, top / "servers") as (held, _):
        for shard, path in zip(shards, held):
            (top / shard.relative_to(run.parent)).symlink_to(path)
        yield top


@contextlib.contextmanager
def rclone(programs, run):
    """Over the web, without a cache of its own."""
    with storage.started("rclone", run.parent) as system:
        shutil.copytree(run, system.node("a") / "run", copy_function=shutil.copyfile)
        time.sleep(system.changes_seen_s + 1)
        yield system.node("b") / "run"


# and the way that each has if no option names one
STORAGES = {"local disk": (disk, "cached"), "tmpfs": (tmpfs, "cached"),
            f"{beside.DELAY_US // 1000} ms a read": (delayed, "cached"), "rclone": (rclone, "ordered")}


def row(name, usual, rounds, size):
    cells = []
    for way in COLUMNS:
        if way == usual:
            cells.append(f"{size / 1e6 / statistics.median(r[usual] for r in rounds):.0f} MB/s")
            continue
        ratios = sorted(r[way] / r[usual] for r in rounds)
        cells.append(f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(f"| {name} | {len(rounds)} |", " | ".join(cells), "|", flush=True)


def measure(programs, work, n_rounds, size=SIZE):
    run, mount = work / "ways/run", work / "mount"
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(run, config, tensors, SHARDS)
    size = sum(t.nbytes for t in tensors.values())
    del tensors
    print(f"\n## The ways of `-o reads=`, {size / 1e6:.0f} MB in {SHARDS} shards\n")
    print(f"Rounds are interleaved. The speed is the median of the way that is usual on the storage; the others are multiples of its "
          f"seconds: the median of the rounds' ratios (least to most), below 1.00 sooner. Nothing of the shards is in the page cache. "
          f"`auto` should take at most {MOST} times as long. The last two columns read the shards one after the other, without "
          f"a mount.\n")
    print("| storage | rounds |", " | ".join(COLUMNS), "|\n|---|" + "---:|" * (len(COLUMNS) + 1))
    ends_at = time.monotonic() + 60 * MINUTES
    for name, (of, usual) in STORAGES.items():
        with of(programs, run) as source:
            shards, rounds = sorted(source.rglob("*.distcp")), []
            while len(rounds) < n_rounds and (not rounds or time.monotonic() < ends_at - (60 if name != "rclone" else 0)):
                rounds.append(one_round(programs, source, shards, mount, len(rounds) % 2))
            row(name, usual, rounds, size)
    shutil.rmtree(run.parent)

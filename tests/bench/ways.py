"""The ways of `-o reads=` on four storages, and what `auto` makes of each: a view of 8 shards read from front to back, none of
it in the page cache. Beside them what a read-ahead into memory of our own could gain: the shards themselves, read through the page
cache by one thread, and past it by eight."""

import contextlib
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import beside
import checkpoints
import mounts
import pages
import reads
import storage
from shares import Shares

SHARDS = 8
LARGE, QUICK, SMALL = 2e9, 600e6, 100e6  # `auto` tries ways on files of 512 MiB or more
MINUTES = 5  # then a round that lasts longer than those before it ends within six, and what is read is made
WAYS = ("cached", "threads", "ordered", "direct")
FIRST, AGAIN = "auto, first load", "auto, later"
AUTO = (FIRST, AGAIN)
ALONE = {"shards alone: 1 thread": "read", "8 threads past the page cache": "direct"}
COLUMNS = (*WAYS, *AUTO, *ALONE)
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


def round_of_auto(programs, source, shards, mount, usual, backwards):
    """Beside the usual way."""
    found = {}
    with tempfile.TemporaryDirectory() as top:
        for way in (*AUTO, usual) if backwards else (usual, *AUTO):
            store = Path(top, "store.db") if way in AUTO else "none"
            found[way] = by_mount(programs, source, shards, mount, "auto" if way in AUTO else way, store)
    return found


def round_of_others(programs, source, shards, mount):
    """All that are named, and the shards alone."""
    found = {way: by_mount(programs, source, shards, mount, way) for way in WAYS}
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


class Storage(NamedTuple):
    made: object
    usual: str = "cached"  # the way that `auto` begins with
    size: float = LARGE


STORAGES = {"local disk": Storage(disk), "tmpfs": Storage(tmpfs), f"{beside.DELAY_US // 1000} ms a read": Storage(delayed),
            "rclone": Storage(rclone, "ordered", SMALL)}  # there `auto` tries nothing, and the other ways take long


def cell(way, usual, rounds, size):
    having = [r for r in rounds if way in r]
    if way == usual:
        return f"{size / 1e6 / statistics.median(r[usual] for r in having):.0f} MB/s"
    ratios = sorted(r[way] / r[usual] for r in having)
    spread = f" ({ratios[0]:.2f} to {ratios[-1]:.2f})" if len(ratios) > 1 else ""
    return f"**{statistics.median(ratios):.2f}**{spread}"


@contextlib.contextmanager
def run_of(size, work):
    """-> the directory of a run, its bytes"""
    run = work / "ways/run"
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(run, config, tensors, SHARDS)
    yield run, sum(t.nbytes for t in tensors.values())
    shutil.rmtree(run.parent)


def measure(programs, work, n_rounds, quick):
    shares = Shares(MINUTES, 2 * len(STORAGES))
    print(f"\n## The ways of `-o reads=`, {SHARDS} shards\n")
    print(f"Rounds are interleaved: one of the ways that are named, then as many as the table says of `auto` and the usual way. The "
          f"speed is the median of the way that is usual on the storage; the others are multiples of its seconds: the median of the "
          f"rounds' ratios (least to most), below 1.00 sooner. Nothing of the shards is in the page cache. "
          f"`auto` should take at most {MOST} times as long. The last two columns read the shards one after the other, without "
          f"a mount.\n")
    print("| storage | size | rounds |", " | ".join(COLUMNS), "|\n|---|" + "---:|" * (len(COLUMNS) + 2))
    for name, of in STORAGES.items():
        with run_of(QUICK if quick and of.size == LARGE else of.size, work) as (run, size), of.made(programs, run) as source:
            args = programs, source, sorted(source.rglob("*.distcp")), work / "mount"
            others = shares.rounds(1, lambda _: round_of_others(*args))
            autos = shares.rounds(n_rounds, lambda i: round_of_auto(*args, of.usual, i % 2))
            cells = [cell(way, of.usual, [*others, *autos], size) for way in COLUMNS]
            print(f"| {name} | {size / 1e6:.0f} MB | {len(autos)} |", " | ".join(cells), "|", flush=True)

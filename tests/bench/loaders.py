"""A row for each loader: the mount of 8 shards against the consolidated file, from the page cache, from the disk and from
storage that makes one wait. Seconds, processor seconds, and what the page cache holds afterwards."""

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import checkpoints
import mounts
import pages

RANKS = 8
DELAY_US, READ_AHEAD_KB = 8000, 4096  # of the storage that makes one wait, and of its file system
WEIGHTS, TORCH = "weights", "full-fsdp"
FILES = {WEIGHTS: "model.safetensors", TORCH: "pytorch_model_fsdp.bin"}


class Loader(NamedTuple):
    label: str
    view: str
    waits: bool  # is it measured with storage that makes one wait, too?


LOADERS = {"load_file": Loader("load_file, each tensor copied", WEIGHTS, True),
           "from_pretrained": Loader("from_pretrained", WEIGHTS, False),
           "torch": Loader("torch.load", TORCH, False),
           "workers": Loader("8 processes, as vLLM's workers", WEIGHTS, True)}
CACHED, DISK, AFAR = "page cache", "disk", f"{DELAY_US // 1000} ms a read"
NATIVE, MOUNT = "the file", "the mount"


class Loaders:
    """The process that loads."""

    def __init__(self, *options):
        self.process = subprocess.Popen([sys.executable, Path(__file__).with_name("loader_process.py"), *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def load(self, loader, path):
        self.process.stdin.write(json.dumps([loader, str(path)]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{loader} of {path} failed")
        return json.loads(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


class Place(NamedTuple):
    """Where the bytes are: the same ones consolidated and in shards."""
    native: dict  # view -> file
    shown: dict   # view -> file in the mount
    shards: list
    servers: list  # processes that serve the mount


def sources(place, what, view):
    return [place.native[view]] if what == NATIVE else place.shards


def prepare(place, where, what, view, all_of_machine):
    """Of the page cache: the sources only, or nothing."""
    paths = sources(place, what, view)
    for path in [place.shown[view], *paths]:
        pages.drop(path)
    if where == CACHED:
        for path in paths:
            with open(path, "rb", buffering=0) as f:
                while f.read(1 << 20):
                    pass
    elif where == DISK and all_of_machine:
        pages.drop_all()


def settled(count):
    """Pages go after the loader has ended: the kernel does not wait until a file's closing is answered."""
    before = None
    while (now := count()) != before:
        before = now
        time.sleep(0.2)
    return now


def once(loaders, place, where, what, loader, all_of_machine):
    view = LOADERS[loader].view
    prepare(place, where, what, view, all_of_machine)
    before = sum(map(mounts.cpu_seconds, place.servers))
    found = loaders.load(loader, (place.native if what == NATIVE else place.shown)[view])
    found["source_pages"] = settled(lambda: sum(map(pages.cached_bytes, sources(place, what, view))))
    found["mount_pages"] = settled(lambda: pages.cached_bytes(place.shown[view]))
    found["server_cpu"] = sum(map(mounts.cpu_seconds, place.servers)) - before
    return found


def row(label, where, took, size):
    native, mount = ({key: statistics.median(r[key] for r in took[what]) for key in took[what][0]}
                     for what in (NATIVE, MOUNT))
    ratio = statistics.median(m["seconds"] / n["seconds"] for n, m in zip(took[NATIVE], took[MOUNT]))
    gb = size / 1e9
    print(f"| {label} | {where} | {native['seconds']:.2f} s | {mount['seconds']:.2f} s, **{ratio:.2f}** "
          f"| {native['cpu'] / gb:.2f} | {mount['cpu'] / gb:.2f} + {mount['server_cpu'] / gb:.2f} "
          f"| {native['source_pages'] / 1e6:.0f} MB | {mount['source_pages'] / 1e6:.0f} + "
          f"{mount['mount_pages'] / 1e6:.0f} MB |", flush=True)


@contextlib.contextmanager
def local(programs, work, options):
    """A run, and the views' files copied out of its mount."""
    config, tensors = checkpoints.llama(work.size)
    checkpoints.write_run(work.path / "run", config, tensors, RANKS)
    del tensors
    native = {}
    with mounts.unshard(programs, work.path / "run", work.path / "mount", *options) as server:
        for view, name in FILES.items():
            shutil.copytree(work.path / f"mount/{view}/checkpoint-1", work.path / "native" / view)
            native[view] = work.path / "native" / view / name
        yield Place(native, {v: work.path / f"mount/{v}/checkpoint-1/{n}" for v, n in FILES.items()},
                    sorted((work.path / "run").rglob("*.distcp")), [server])


@contextlib.contextmanager
def afar(programs, work, near, options):
    """The same files, each behind a server of its own."""
    top = work.path / "afar"
    shutil.copytree(work.path / "run", top / "run", ignore=shutil.ignore_patterns("*.distcp"))
    behind = []
    with contextlib.ExitStack() as stack:
        for path in [near.native[WEIGHTS], *near.shards]:
            server = top / "servers" / path.name
            server.mkdir(parents=True)
            stack.enter_context(mounts.one_file(programs, path, server, DELAY_US))
            mounts.read_ahead_file(server).write_text(str(READ_AHEAD_KB))
            behind.append(server / "file")
        for path, shard in zip(behind[1:], near.shards):
            (top / shard.relative_to(work.path)).symlink_to(path)
        server = stack.enter_context(mounts.unshard(programs, top, work.path / "afar_mount", *options))
        yield Place({WEIGHTS: behind[0]},
                    {WEIGHTS: work.path / "afar_mount/weights/run/checkpoint-1" / FILES[WEIGHTS]}, behind[1:], [server])


class Work(NamedTuple):
    path: Path
    size: int


def measure(programs, work, size, n_rounds, names, all_of_machine, options=()):
    all_of_machine = all_of_machine and pages.may_drop_all()
    work = Work(work / "loaders", size)
    work.path.mkdir()
    with contextlib.ExitStack() as stack:
        near = stack.enter_context(local(programs, work, options))
        far = stack.enter_context(afar(programs, work, near, options))
        loaders = stack.enter_context(Loaders(*["--transformers"] * ("from_pretrained" in names)))
        size = near.native[WEIGHTS].stat().st_size
        print(f"\n## A row for each loader, {size / 1e6:.0f} MB\n")
        print(f"Medians of {n_rounds} interleaved rounds, in fresh processes, imports excluded; bold: the median of the rounds' "
              f"ratios, below 1.00 the mount of {RANKS} shards is sooner than the consolidated file. Processor seconds are for "
              f"each GB: of the loading processes, then of the process that serves the mount. Page cache: what is held when "
              f"the load has ended, of the sources and of the mount. From the disk: "
              f"{'the page cache of the machine is' if all_of_machine else 'the pages of these files are'} dropped before. "
              f"{AFAR}: each shard behind a server that takes so much longer, with a read-ahead of {READ_AHEAD_KB} KiB.\n")
        print("| loader | from | the file | the mount | CPU s/GB: file | mount: loader + server | pages: file "
              "| mount: sources + mount |\n|---|---|" + "---:|" * 6)
        for loader in names:
            for where in [CACHED, DISK] + [AFAR] * LOADERS[loader].waits:
                took = {NATIVE: [], MOUNT: []}
                for r in range(n_rounds):
                    for what in list(took)[::1 if r % 2 else -1]:
                        took[what].append(once(loaders, far if where == AFAR else near, where, what, loader,
                                               all_of_machine))
                row(LOADERS[loader].label, where, took, size)
    shutil.rmtree(work.path)

"""A row for each loader: the mount of 8 shards against the consolidated file, from the page cache, from the disk and from
storage that makes one wait. Seconds, processor seconds, and what the page cache holds afterwards. And what the least of
FUSE servers takes that shows the consolidated file (one_file_fs.c): a mount can be no faster from the page cache."""

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
NATIVE, MINIMAL, MOUNT = "the file", "the minimal server", "the mount"


class Loaders:
    """The process that loads."""

    def __init__(self, *options, python=sys.executable):
        self.process = subprocess.Popen([python, Path(__file__).with_name("loader_process.py"), *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def load(self, loader, path, n_processes=1):
        self.process.stdin.write(json.dumps([loader, str(path), n_processes]) + "\n")
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
    native: dict   # view -> file
    minimal: dict  # view -> that file in the minimal server
    shown: dict    # view -> file in the mount
    shards: list
    servers: dict  # what is loaded -> processes that serve it

    def loaded(self, what, view):
        return {NATIVE: self.native, MINIMAL: self.minimal, MOUNT: self.shown}[what][view]

    def sources(self, what, view):
        return self.shards if what == MOUNT else [self.native[view]]


def prepare(place, where, what, view, all_of_machine):
    """Of the page cache: the sources only, or nothing."""
    paths = place.sources(what, view)
    for path in [place.shown[view], place.minimal[view], *paths]:
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
    servers = place.servers[what]
    before = sum(map(mounts.cpu_seconds, servers))
    found = loaders.load(loader, place.loaded(what, view))
    found["source_pages"] = settled(lambda: sum(map(pages.cached_bytes, place.sources(what, view))))
    found["mount_pages"] = settled(lambda: pages.cached_bytes(place.shown[view]))
    found["server_cpu"] = sum(map(mounts.cpu_seconds, servers)) - before
    return found


def row(label, where, took, size):
    native, minimal, mount = ({key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
                              for rounds in took.values())
    least, ratio = (statistics.median(m["seconds"] / n["seconds"] for n, m in zip(took[NATIVE], took[what]))
                    for what in (MINIMAL, MOUNT))
    gb = size / 1e9
    print(f"| {label} | {where} | {native['seconds']:.2f} s | {minimal['seconds']:.2f} s, **{least:.2f}** "
          f"| {mount['seconds']:.2f} s, **{ratio:.2f}** | {native['cpu'] / gb:.2f} "
          f"| {minimal['cpu'] / gb:.2f} + {minimal['server_cpu'] / gb:.2f} "
          f"| {mount['cpu'] / gb:.2f} + {mount['server_cpu'] / gb:.2f} "
          f"| {native['source_pages'] / 1e6:.0f} MB | {mount['source_pages'] / 1e6:.0f} + "
          f"{mount['mount_pages'] / 1e6:.0f} MB |", flush=True)


@contextlib.contextmanager
def minimal(programs, native, at):
    """Each file behind a minimal server, below its name and with what lies beside it -> view -> file, their processes"""
    shown, servers = {}, []
    with contextlib.ExitStack() as stack:
        for view, path in native.items():
            shutil.copytree(path.parent, at / view, ignore=shutil.ignore_patterns(path.name))
            shown[view] = at / view / FILES[view]
            shown[view].symlink_to(at / f"server_{view}/file")
            servers.append(stack.enter_context(mounts.one_file(programs, path, at / f"server_{view}")))
        yield shown, servers


def like_the_mount(files, mount):
    for path in files.values():
        mounts.same_read_ahead(path, mount)


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
        with minimal(programs, native, work.path / "minimal") as (least, servers):
            like_the_mount(least, work.path / "mount")
            yield Place(native, least, {v: work.path / f"mount/{v}/checkpoint-1/{n}" for v, n in FILES.items()},
                        sorted((work.path / "run").rglob("*.distcp")), {NATIVE: [], MINIMAL: servers, MOUNT: [server]})


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
        native = {WEIGHTS: behind[0]}
        least, servers = stack.enter_context(minimal(programs, native, top / "minimal"))
        like_the_mount(least, work.path / "afar_mount")
        yield Place(native, least, {WEIGHTS: work.path / "afar_mount/weights/run/checkpoint-1" / FILES[WEIGHTS]},
                    behind[1:], {NATIVE: [], MINIMAL: servers, MOUNT: [server]})


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
              f"each GB: of the loading processes, then of the process that serves. The minimal server shows the consolidated "
              f"file as it is, and is all that FUSE needs: from the page cache no mount can be faster. Page cache: what is held when "
              f"the load has ended, of the sources and of the mount. From the disk: "
              f"{'the page cache of the machine is' if all_of_machine else 'the pages of these files are'} dropped before. "
              f"{AFAR}: each shard behind a server that takes so much longer, with a read-ahead of {READ_AHEAD_KB} KiB.\n")
        print("| loader | from | the file | the minimal server | the mount | CPU s/GB: file | minimal: loader + server "
              "| mount: loader + server | pages: file | mount: sources + mount |\n|---|---|" + "---:|" * 8)
        for loader in names:
            for where in [CACHED, DISK] + [AFAR] * LOADERS[loader].waits:
                took = {NATIVE: [], MINIMAL: [], MOUNT: []}
                for r in range(n_rounds):
                    for what in list(took)[::1 if r % 2 else -1]:
                        took[what].append(once(loaders, far if where == AFAR else near, where, what, loader,
                                               all_of_machine))
                row(LOADERS[loader].label, where, took, size)
    shutil.rmtree(work.path)

"""One reader of a view over distributed file systems of this machine, against their client alone that reads the same
shards one after the other, and against the least FUSE server over each shard: what any mount over that client costs. Each
reading is by a node of its own, whose client has read nothing before. The file systems: tests/e2e/storage. As root they
have a network of their own, which can be as slow as a cluster's."""

import contextlib
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import checkpoints
import mounts
import reads

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e/storage"))
import kinds  # noqa: E402

RANKS = 8
READ_AHEAD_KB = 4096


class CachingRclone(kinds.Rclone):
    """As docs/clusters.md has it."""

    def client_command(self, name, path):
        command = super().client_command(name, path)
        return [*command[:2], "--vfs-cache-mode", "full", "--cache-dir", self.path("caches", name), *command[2:]]


KINDS = kinds.KINDS | {"rclone-cached": CachingRclone}


@contextlib.contextmanager
def started(kind, work):
    top = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=work))
    system = KINDS[kind](top)
    try:
        if not system.network and os.geteuid() == 0:
            system.begin_network()
        system.start()
        yield system
    finally:
        system.end()
        shutil.rmtree(top, ignore_errors=True)


def processor_s(system, *pids):
    """Of servers and clients, the processes PIDS, and those that have ended here."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for pid in [*(system.processes() if system.network else ()), *pids]:
        with contextlib.suppress(OSError):
            total += mounts.cpu_seconds(pid)
    return total


class Took:
    """Reading so many bytes."""

    def __init__(self, programs, system, paths, *pids):
        self.bytes = sum(path.stat().st_size for path in paths)
        before = processor_s(system, *pids)
        self.s = sum(reads.seconds(programs, "read", path) for path in paths)
        self.processor_s = processor_s(system, *pids) - before

    def per_gb(self, s):
        return s / self.bytes * 1e9


def shards_of(node):
    return sorted((node / "run").rglob("*.distcp"))


def client_alone(programs, system, node, mount):
    return Took(programs, system, shards_of(node))


def least_server(programs, system, node, mount):
    """Each shard behind a server of its own, with the read-ahead of a mount."""
    with contextlib.ExitStack() as stack:
        files, servers = [], []
        for shard in shards_of(node):
            at = mount / shard.name
            at.mkdir(parents=True, exist_ok=True)
            servers.append(stack.enter_context(mounts.one_file(programs, shard, at)))
            mounts.read_ahead_file(at).write_text(str(READ_AHEAD_KB))
            files.append(at / "file")
        return Took(programs, system, files, *servers)


def view_by(way):
    def view(programs, system, node, mount):
        with mounts.unshard(programs, node / "run", mount, f"reads={way}") as daemon:
            return Took(programs, system, [mount / "weights/checkpoint-1/model.safetensors"], daemon)

    return view


def one_network(programs, work, kind, system, gbit, n_rounds, ways):
    readers = {"alone": client_alone, "least": least_server} | {way: view_by(way) for way in ways}
    took = {name: [] for name in readers}
    if gbit:
        system.limit_network(gbit)
    for i in range(n_rounds):
        names = list(readers)
        for name in names[i % len(names):] + names[:i % len(names)]:  # none is always the first
            node = f"{'n' if gbit else 'l'}{i}{name}"
            mounted = system.node(node)
            took[name].append(readers[name](programs, system, mounted, work / f"{kind}-mount-{name}"))
            system.unmount(node)
    for way in ways:
        row(kind, gbit, way, took["alone"], took["least"], took[way])


def row(kind, gbit, way, alone, least, view):
    cells = [kind, f"{gbit} Gbit/s" if gbit else "-", way, f"{1e3 / statistics.median(t.per_gb(t.s) for t in alone):.0f} MB/s",
             speeds(least, alone), speeds(view, alone), speeds(view, least)]
    cells += [f"{statistics.median(t.per_gb(t.processor_s) for t in of):.2f}" for of in (alone, least, view)]
    print(f"| {' | '.join(cells)} |", flush=True)


def speeds(of, to):
    ratios = sorted(b.per_gb(b.s) / a.per_gb(a.s) for a, b in zip(of, to))
    return f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def one_kind(programs, work, kind, run, n_rounds, gbits, ways):
    with started(kind, work) as system:
        shutil.copytree(run, system.node("a") / "run", copy_function=shutil.copyfile)
        time.sleep(system.changes_seen_s + 1)  # MooseFS sets a file's time once more after its end
        for gbit in gbits:
            one_network(programs, work, kind, system, gbit, n_rounds, ways)


def measure(programs, work, size, n_rounds, names, gbits, ways):
    config, tensors = checkpoints.llama(size)
    run = work / "run"
    checkpoints.write_run(run, config, tensors, RANKS)
    del tensors
    print(f"\n## Distributed file systems, one reader\n\n{size / 1e6:.0f} MB in {RANKS} shards; medians of {n_rounds} rounds of all, "
          f"each by a client that has read nothing before. Ratios are of speeds in one round: above 1.00 the first is faster. "
          f"Processor seconds are of servers, clients, unshard or the least FUSE servers, and the reader.\n")
    print("| file system | network | `reads=` | the client alone, shard by shard | least FUSE server / alone | view / alone | "
          "view / least FUSE server | s/GB alone | s/GB, least FUSE server | s/GB, the view |\n|---|---|---|" + "---:|" * 7)
    for name in names or kinds.QUICK:
        one_kind(programs, work, name, run, n_rounds, gbits, ways)

"""Many nodes that list, load and load again one checkpoint of many ranks from one storage: what each of them asks it
for, without and with memos that one of them wrote. Each node has a mount without a metadata store, over a client of its
own (tests/fuse/renumber_fs.c, which counts requests and lets each take its time): none finds what another has read."""

import concurrent.futures
import contextlib
import hashlib
import os
import shutil
import statistics
import struct
import subprocess
import time

import torch

import checkpoints
import mounts

RANKS, LAYERS = 64, 2
DELAYS_US = (1000, 10000)
AT_ONCE = 8  # nodes, as two processors allow
KEPT_S = 1  # for so long a client keeps names and attributes
CHECKPOINT = "weights/checkpoint-1"
WITHOUT, MEMOS = "nothing", "memos"


@contextlib.contextmanager
def client(programs, storage, at, counts, delay_us):
    """A node's client of the storage."""
    at.mkdir()
    server = subprocess.Popen([programs / "renumber_fs", storage, at, f"kept={KEPT_S}", f"counts={counts}",
                               f"every={delay_us}"], stderr=subprocess.DEVNULL)
    try:
        while not mounts.is_mounted(at):
            if server.poll() is not None:
                raise RuntimeError("the client did not start")
            time.sleep(0.01)
        yield
    finally:
        subprocess.run(["fusermount3", "-uz", at], check=True)
        server.wait()


def asked(counts):
    """Names and attributes, links, opens and reads of directories, opens, reads, bytes; see enum request."""
    return struct.unpack_from("7Q", counts.read_bytes())


class Step:
    """What one node did: seconds, requests of each kind, bytes."""

    def __init__(self, counts, what):
        before, began = asked(counts), time.monotonic()
        self.found = what()
        self.s = time.monotonic() - began
        *kinds, self.bytes = (now - was for now, was in zip(asked(counts), before))
        self.requests = sum(kinds)
        self.looks, _, opened, listed, self.opens, self.reads = kinds
        self.listings = opened + listed


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        while data := f.read(1 << 20):
            found.update(data)
    return found.digest()


def three_steps(programs, storage, top, shared, step):
    """Mounts STORAGE/run and lists, loads, and loads again when what the client kept of names is not known any more;
    what `step` makes of each."""
    mount = top / "mount"
    options = [f"memos={storage / 'memos'}"] if shared == MEMOS else []
    with contextlib.ExitStack() as stack:
        def listed():
            stack.enter_context(mounts.unshard(programs, storage / "run", mount, *options))
            return [e.stat().st_size for e in os.scandir(mount / CHECKPOINT)]

        def load():
            return digest(mount / CHECKPOINT / "model.safetensors")

        steps = [step(listed), step(load)]
        time.sleep(KEPT_S + 0.2)
        return [*steps, step(load)]


def node(programs, storage, work, i, delay_us, shared):
    top = work / f"node-{i}"
    top.mkdir()
    counts, at = top / "counts", top / "client"
    with client(programs, storage, at, counts, delay_us):
        steps = three_steps(programs, at, top, shared, lambda what: Step(counts, what))
    shutil.rmtree(top)
    return steps


def on_all(what, n):
    """what(i) of each of n nodes."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(what, range(n)))


def cell(steps):
    n = [step.requests for step in steps]
    took = statistics.median(step.s for step in steps)
    return f"{statistics.median(n):.0f} (at most {max(n)}) | {took:.2f} s"


def must_have(want, of_nodes):
    if any(step.found != want for steps in of_nodes for step in steps[1:]):
        raise RuntimeError("a node got other bytes")


def one_row(programs, storage, work, want, n, delay_us, shared):
    of_nodes = on_all(lambda i: node(programs, storage, work, i, delay_us, shared), n)
    must_have(want, of_nodes)
    listed, loaded, again = zip(*of_nodes)
    kinds = ", ".join(f"{statistics.median(getattr(step, kind) for step in loaded):.0f}"
                      for kind in ("looks", "listings", "opens", "reads"))
    mb = statistics.median(sum(step.bytes for step in steps) for steps in of_nodes) / 1e6
    print(f"| {delay_us / 1000:.0f} ms | {n} | {shared} | {cell(listed)} | {cell(loaded)} | {kinds} | {cell(again)} | "
          f"{mb:.1f} MB |", flush=True)


def tensors():
    """Of each layer a rank has 197 kB of one tensor and few bytes of four others."""
    found = {}
    for i in range(LAYERS):
        found[f"layers.{i}.mlp.weight"] = torch.randn(96 * RANKS, 512)
        found |= {f"layers.{i}.norm_{k}.weight": torch.randn(8 * RANKS) for k in range(4)}
    return found


def write_run(run):
    """A checkpoint that has not changed for two hours."""
    checkpoints.write_run(run, {}, tensors(), RANKS)
    at = time.time() - 2 * 3600
    for path in [*run.rglob("*"), run]:
        os.utime(path, (at, at))
    time.sleep(1)  # a change time cannot be set


def write_memos(programs, storage):
    subprocess.run([programs / "unshard", "warm", storage / "run", "--write", storage / "memos", "--store", "none",
                    "-o", "settle=0"], check=True, stdout=subprocess.DEVNULL)


def shown(programs, storage, mount):
    """What a node is to get -> (digest, bytes)"""
    with mounts.unshard(programs, storage / "run", mount):
        path = mount / CHECKPOINT / "model.safetensors"
        return digest(path), path.stat().st_size


def measure(programs, work, quick):
    storage = work / "nodes"
    write_run(storage / "run")
    write_memos(programs, storage)
    want, size = shown(programs, storage, work / "mount")
    print(f"\n## Nodes that load one checkpoint\n\n{size / 1e6:.1f} MB in {RANKS} shards; {AT_ONCE} nodes at a time, each "
          f"with a client, a mount and no metadata store. Medians of the nodes; bytes: of all three steps.\n")
    print("| a request takes | nodes | shared | mount and list: requests | s | load: requests | s "
          "| names and attributes, listings, opens, reads | load again: requests | s | bytes |\n"
          "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for delay_us in DELAYS_US:
        for n in (1, 2) if quick else (1, 8, 64):
            for shared in (WITHOUT, MEMOS):
                one_row(programs, storage, work, want, n, delay_us, shared)

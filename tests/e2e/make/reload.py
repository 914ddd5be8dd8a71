"""Two ranks save a run again and again while eight processes reload its newest checkpoint through a mount:

    python reload.py RUN SHOWN SAVES LOADS [PAUSE]

RUN is the directory that is saved into, SHOWN where the mount shows it. Every tensor of save N holds N. After each save
the ranks wait until every reader has loaded it, so a reader that stalls stalls all, and then PAUSE seconds. Each reader
loads at least LOADS times: in turns all files of the checkpoint that the link leads to, and one file through the link.

Meanwhile one process more does the same loads of RUN-still, which nobody saves into. What is counted of a load is how
long it waited for the mount: not while the reader ran, or waited for a core. Whatever holds up the mount as a whole, such
as a machine with too few cores, holds up the loads of RUN-still too: a stall is what a load waited beyond the longest of
them that was under way at the same time.

Prints as JSON: {"seen": [[reader, loads, which saves], ...], and in seconds "longest": the longest load, "waited": the
longest wait for the mount, "still": the same of RUN-still, "stall": the longest stall}.
"""

import json
import multiprocessing as mp
import multiprocessing.connection
import os
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import load_file

WORLD, READERS, KEPT = 2, 8, 3
TENSORS, NUMBERS = 6, 40_000
DONE = -1


def tensors_of(n):
    return {"model": {f"layer.{i}": torch.full((NUMBERS,), float(n)) for i in range(TENSORS)}}


def save(rank, run, saves, pause, loaded):
    """`loaded`: what each reader loaded last."""
    dist.init_process_group("gloo", init_method=f"file://{run}.rendezvous", rank=rank, world_size=WORLD)
    for n in range(1, saves + 1):
        dist_cp.save(tensors_of(n), checkpoint_id=f"{run}/step-{n}")
        while rank == 0 and any(0 <= at < n for at in loaded):
            os.sched_yield()
        if rank == 0 and n >= KEPT:
            shutil.rmtree(f"{run}/step-{n - KEPT + 1}")
        time.sleep(pause)
        dist.barrier()
    os._exit(0)


def number(tensors):
    """Of the one save that all of these are of."""
    seen = {float(x) for t in tensors.values() for x in (t.min(), t.max())}
    assert len(seen) == 1, f"torn: {seen}"
    return int(seen.pop())


def load(link, times):
    """All of the checkpoint, by its name; or one file, through the link."""
    if times % 2:
        return number(load_file(link / "model-00001-of-00002.safetensors"))
    folder = Path(os.path.realpath(link))
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    assert len(tensors) == TENSORS
    assert number(tensors) == int(folder.name.removeprefix("step-"))
    return number(tensors)


def not_waiting():
    """Seconds that this process ran or waited for a core (the kernel's sched_info)."""
    ran_ns, queued_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return (int(ran_ns) + int(queued_ns)) / 1e9


def timed_load(link, times, took):
    """Appends when it began and ended, and how much of that it waited."""
    began, busy = time.monotonic(), not_waiting()
    n = load(link, times)
    ended = time.monotonic()
    took.append((began, ended, max(0, ended - began - (not_waiting() - busy))))
    return n


def reload(me, shown, saves, loads, loaded, results):
    link, seen, took = Path(shown) / "latest", [], []
    while loaded[me] < saves or len(took) < loads:
        if took or link.exists():
            n = timed_load(link, len(took), took)
            loaded[me] = n
            if not seen or seen[-1] != n:
                seen.append(n)
    loaded[me] = DONE
    results.put((me, seen, took))


def reload_still(shown, loaded, results):
    link, took = Path(f"{shown}-still") / "latest", []
    while any(at != DONE for at in loaded):
        timed_load(link, len(took), took)
    results.put((READERS, [], took))


def stall_of(load, still):
    began, ended, waited = load
    return waited - max((w for a, b, w in still if a < ended and b > began), default=0)


def report(results):
    *readers, (_, _, still) = sorted(results)
    loads = [one for _, _, took in readers for one in took]
    return {"seen": [(me, len(took), seen) for me, seen, took in readers], "longest": max(b - a for a, b, _ in loads),
            "waited": max(w for _, _, w in loads), "still": max(w for _, _, w in still),
            "stall": max(stall_of(one, still) for one in loads)}


if __name__ == "__main__":
    run, shown, saves, loads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    pause = float(sys.argv[5]) if len(sys.argv) > 5 else 0
    torch.set_num_threads(1)
    dist_cp.save(tensors_of(1), checkpoint_id=f"{run}-still/step-1", no_dist=True)
    fork = mp.get_context("fork")
    loaded, results = fork.Array("i", READERS, lock=False), fork.SimpleQueue()
    ranks = [fork.Process(target=save, args=(rank, run, saves, pause, loaded)) for rank in range(WORLD)]
    readers = [fork.Process(target=reload, args=(me, shown, saves, loads, loaded, results)) for me in range(READERS)]
    readers.append(fork.Process(target=reload_still, args=(shown, loaded, results)))
    for process in ranks + readers:
        process.start()
    collected = []
    waiting = {p.sentinel: p for p in ranks + readers}
    while waiting:
        for ready in multiprocessing.connection.wait([*waiting, results._reader]):
            if ready is results._reader:
                collected.append(results.get())
                continue
            process = waiting.pop(ready)
            process.join()
            if process.exitcode:  # the others would wait for it
                for other in waiting.values():
                    other.terminate()
                sys.exit(f"{process.name} ended with {process.exitcode}")
    while not results.empty():
        collected.append(results.get())
    print(json.dumps(report(collected)))

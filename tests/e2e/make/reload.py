"""Two ranks save a run again and again while eight processes reload its newest checkpoint through a mount:

    python reload.py RUN SHOWN SAVES LOADS

RUN is the directory that is saved into, SHOWN where the mount shows it. Every tensor of save N holds N. After each save
the ranks wait until every reader has loaded it, so a reader that stalls stalls all. Each reader loads at least LOADS
times: in turns all files of the checkpoint that the link leads to, and one file through the link. Prints as JSON, for
each reader, which saves it loaded.
"""

import json
import multiprocessing as mp
import multiprocessing.connection
import os
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import load_file

WORLD, READERS, KEPT = 2, 8, 3
TENSORS, NUMBERS = 6, 40_000
DONE = -1


def save(rank, run, saves, loaded):
    """`loaded`: what each reader loaded last."""
    dist.init_process_group("gloo", init_method=f"file://{run}.rendezvous", rank=rank, world_size=WORLD)
    for n in range(1, saves + 1):
        state = {"model": {f"layer.{i}": torch.full((NUMBERS,), float(n)) for i in range(TENSORS)}}
        dist_cp.save(state, checkpoint_id=f"{run}/step-{n}")
        while rank == 0 and any(0 <= at < n for at in loaded):
            os.sched_yield()
        if rank == 0 and n >= KEPT:
            shutil.rmtree(f"{run}/step-{n - KEPT + 1}")
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


def reload(me, shown, saves, loads, loaded, results):
    link, seen, times = Path(shown) / "latest", [], 0
    while loaded[me] < saves or times < loads:
        if times or link.exists():
            n = load(link, times)
            loaded[me], times = n, times + 1
            if not seen or seen[-1] != n:
                seen.append(n)
    loaded[me] = DONE
    results.put((me, times, seen))


if __name__ == "__main__":
    run, shown, saves, loads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    fork = mp.get_context("fork")
    loaded, results = fork.Array("i", READERS, lock=False), fork.Queue()
    ranks = [fork.Process(target=save, args=(rank, run, saves, loaded)) for rank in range(WORLD)]
    readers = [fork.Process(target=reload, args=(me, shown, saves, loads, loaded, results)) for me in range(READERS)]
    for process in ranks + readers:
        process.start()
    waiting = {p.sentinel: p for p in ranks + readers}
    while waiting:
        for sentinel in multiprocessing.connection.wait(list(waiting)):
            process = waiting.pop(sentinel)
            process.join()
            if process.exitcode:  # the others would wait for it
                for other in waiting.values():
                    other.terminate()
                sys.exit(f"{process.name} ended with {process.exitcode}")
    print(json.dumps([results.get() for _ in readers]))

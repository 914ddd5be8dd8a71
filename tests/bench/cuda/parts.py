"""Where the seconds of a load into GPU memory go: parts.py FOLDER DEVICE ROUNDS. FOLDER has run/checkpoint-1 and model.safetensors.

Parts that take place at the same time are told apart by loads that lack one: a load whose headers are known, and one whose
buffers are pinned too. Reading, copying and pinning are measured alone as well. With DEVICE "cpu" the library must find a
runtime on host memory (tests/cuda): it shows that the script works, and measures nothing."""

import concurrent.futures
import ctypes
import itertools
import os
import statistics
import sys
import threading
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from runtime import cudart
from unshard import device as devices
from unshard import loading

EXPECTED = """8 GB from tmpfs, 16 processors, PCIe 5 x16; "before" is what was found on an H200 with one allocation of 16 buffers of 8 MiB:

| part | before | expected |
|---|---:|---:|
| opening the checkpoint | 0.03 s | 0.03 s |
| CUDA and the first buffer | 0.05 to 0.08 s, all buffers | 0.01 s |
| torch's memory | 0.03 s | 0.03 s, an eighth of it before reading begins |
| headers | 0.05 s | 0.05 s or less |
| the other buffers | | 0.02 s or less: they are pinned while the first are used |
| reading alone | 0.12 to 0.17 s | the same |
| copying alone | 0.15 s | the same |
| waiting | 0.03 s | 0.03 s or less |
| closing | 0.02 s | 0.02 s |
"""
SIZES = ((12, 16, 8), (16, 16, 8), (16, 32, 2), (16, 32, 4), (16, 64, 1), (8, 32, 2))  # threads, buffers, MiB of each


class Load:
    """All tensors of a checkpoint, and memory for them."""

    def __init__(self, folder, device):
        self.device, self.seconds = torch.device(device), {}
        self.session, self.tensors = self.timed("opening the checkpoint",
                                                lambda: loading.open_tensors(folder / "run/checkpoint-1", "weights"))
        self.boxes = [loading.whole(t) for t in self.tensors.values()]
        self.n_bytes = sum(box.size_bytes() for box in self.boxes)
        self.out = self.timed("torch's memory", self.memory)

    def timed(self, part, work):
        begin = time.monotonic()
        found = work()
        self.seconds[part] = time.monotonic() - begin
        return found

    def memory(self):
        out = [box.empty(self.device) for box in self.boxes]
        self.synchronize()
        return out

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def opened(self, n_threads=0):
        return devices.Device(self.device.index or 0, n_threads, loading.way(), self.n_bytes)

    def read(self, gpu):
        stream = loading.current_stream(self.device) if self.device.type == "cuda" else 0
        gpu.begin([(*box, o.data_ptr(), box.size_bytes()) for box, o in zip(self.boxes, self.out)], stream, self.out).wait()

    def close(self):
        self.session.close()


def loads(load):
    """The same tensors three times: with nothing known, with known headers, with known headers and pinned buffers."""
    gpu = load.timed("CUDA and the first buffer", load.opened)
    load.timed("first", lambda: load.read(gpu))
    load.timed("again", lambda: load.read(gpu))
    load.timed("closing", gpu.close)
    gpu = load.opened()
    load.timed("headers known", lambda: load.read(gpu))
    gpu.close()


def read_alone(load):
    """Into ordinary memory, by as many threads and in portions as large as the library's."""
    local = threading.local()
    loading.PART_BYTES = devices.BUFFER_BYTES
    portions = [part for box in load.boxes for _, part in loading.parts(box)]
    most = max((part.size_bytes() for part in portions), default=0)

    def one(part):
        if not hasattr(local, "room"):
            local.room = torch.zeros(most, dtype=torch.uint8)
        loading.read_into(local.room, 0, part)

    with concurrent.futures.ThreadPoolExecutor(threads()) as pool:
        load.timed("reading alone", lambda: list(pool.map(one, portions)))


def threads():
    return min(16, len(os.sched_getaffinity(0)))


def copied_alone(load):
    """From pinned buffers, as many bytes as the tensors have."""
    pinned = load.device.type == "cuda"
    buffers = [torch.zeros(devices.BUFFER_BYTES, dtype=torch.uint8, pin_memory=pinned) for _ in range(devices.MOST_BUFFERS)]
    to = torch.zeros(devices.BUFFER_BYTES, dtype=torch.uint8, device=load.device)

    def copies():
        for _, buffer in zip(range(0, load.n_bytes, devices.BUFFER_BYTES), itertools.cycle(buffers)):
            to.copy_(buffer, non_blocking=True)
        load.synchronize()
    load.timed("copying alone", copies)


def pinned_alone(load):
    runtime = cudart()

    def pin(n, n_bytes):
        found = [ctypes.c_void_p() for _ in range(n)]
        for at in found:
            assert runtime.cudaHostAlloc(ctypes.byref(at), ctypes.c_size_t(n_bytes), 0) == 0
        return found

    for part, n, n_bytes in (("pinning alone, one by one", devices.MOST_BUFFERS, devices.BUFFER_BYTES),
                             ("pinning alone, in one piece", 1, devices.MOST_BUFFERS * devices.BUFFER_BYTES)):
        for at in load.timed(part, lambda n=n, n_bytes=n_bytes: pin(n, n_bytes)):
            runtime.cudaFreeHost(at)


def measured(folder, device):
    load = Load(folder, device)
    loads(load)
    for alone in (read_alone, copied_alone, pinned_alone):
        alone(load)
    must_be_equal(load, folder)
    load.close()
    s = load.seconds
    s["headers"] = s["first"] - s["headers known"]
    s["the other buffers"] = s["headers known"] - s["again"]
    s["waiting"] = s["again"] - max(s["reading alone"], s["copying alone"])
    return s


def must_be_equal(load, folder):
    want = load_file(folder / "model.safetensors")
    for name, out in zip(load.tensors, load.out):
        assert torch.equal(out.cpu(), want[name]), name


def by_sizes(folder, device):
    """Seconds of a second load by other numbers of threads and buffers."""
    load = Load(folder, device)
    usual = devices.BUFFER_BYTES, devices.MOST_BUFFERS
    for n_threads, n_buffers, mib in SIZES:
        devices.BUFFER_BYTES, devices.MOST_BUFFERS = mib << 20, n_buffers
        gpu = load.opened(n_threads)
        load.read(gpu)
        load.timed("again", lambda gpu=gpu: load.read(gpu))
        gpu.close()
        print(f"| {n_threads} | {n_buffers} of {mib} MiB | {load.seconds['again']:.3f} s | "
              f"{load.n_bytes / load.seconds['again'] / 1e9:.1f} GB/s |", flush=True)
    devices.BUFFER_BYTES, devices.MOST_BUFFERS = usual
    load.close()


def main():
    folder, device, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if device != "cpu":
        torch.empty(1, device=device)
    print(f"Expected: {EXPECTED}", flush=True)
    rows = [measured(folder, device) for _ in range(rounds + 1)][1:]  # what a library makes once is made
    print(f"Found, the median of {rounds}; the tensors are equal to the file's:\n\n| part | seconds |\n|---|---:|")
    for part in ("opening the checkpoint", "CUDA and the first buffer", "torch's memory", "first", "headers", "the other buffers",
                 "again", "reading alone", "copying alone", "waiting", "closing", "pinning alone, one by one",
                 "pinning alone, in one piece"):
        print(f"| {part} | {statistics.median(row[part] for row in rows):.3f} s |")
    print("\n\"first\": headers are read and buffers pinned during the load; \"again\": neither. \"waiting\": what \"again\" takes beyond "
          "the longer of reading and copying alone.\n\n| threads | buffers | again | |\n|---:|---:|---:|---:|", flush=True)
    by_sizes(folder, device)


main()

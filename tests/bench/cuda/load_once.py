"""Loads in one way, some rounds, in a process of its own: load_once.py WAY FOLDER DEVICE ROUNDS PROGRAMS [--cold]. FOLDER
holds run/checkpoint-1 and model.safetensors. Prints one line of JSON. The first of the rounds is one more and not
counted, so that what a library makes once is made, and files are in the page cache unless --cold."""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

import mounts


def by_unshard(folder, device, _):
    return importlib.import_module("unshard").load_file(folder / "run/checkpoint-1", device=device)


def by_safetensors(folder, device, _):
    return load_file(folder / "model.safetensors", device=device)


def by_fastsafetensors(folder, device, _):
    f = importlib.import_module("fastsafetensors").fastsafe_open(str(folder / "model.safetensors"), device=device,
                                                                 nogds=True)
    with f:
        return {name: f.get_tensor(name) for name in f.keys()}


def by_runai(folder, device, _):
    with importlib.import_module("runai_model_streamer").SafetensorsStreamer() as streamer:
        streamer.stream_file(str(folder / "model.safetensors"))
        return {name: tensor.to(device) for name, tensor in streamer.get_tensors()}


def by_instanttensor(folder, device, _):
    f = importlib.import_module("instanttensor").safe_open(str(folder / "model.safetensors"), framework="pt",
                                                           device=torch.device(device).index)
    with f:
        return dict(f.tensors())


def by_mount(_, device, mountpoint):
    return load_file(mountpoint / "weights/checkpoint-1/model.safetensors", device=device)


@contextlib.contextmanager
def mounted(way, folder, programs):
    """The mount's process is none of this one: its memory does not count."""
    with tempfile.TemporaryDirectory() as top, contextlib.ExitStack() as stack:
        if way == "mount":
            stack.enter_context(mounts.unshard(programs, folder / "run", Path(top, "mnt")))
        yield Path(top, "mnt")


def drop(folder):
    """The folder's files out of the page cache. They are on the disk: bench.py has called sync. The kernel keeps pages of a
    mount as well."""
    for file in folder.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize(device)


def device_bytes(device):
    """In use, by all."""
    if device == "cpu":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def checksum(tensors):
    """Of every bit at its place, in whole numbers, on the device."""
    total = 0
    for name in sorted(tensors):
        bits = tensors[name].contiguous().view(-1).view(torch.int16)
        for at in range(0, bits.numel(), 1 << 24):
            part = bits[at:at + (1 << 24)].long()
            total = (31 * total + int((part * (torch.arange(part.numel(), device=part.device) % 8191 + 1)).sum())) % (
                1 << 61)
    return total


def main():
    way, folder, device, rounds, programs = sys.argv[1:6]
    folder, cold = Path(folder), "--cold" in sys.argv
    if device != "cpu":
        torch.cuda.set_device(device)
        torch.empty(1, device=device)
    seconds, checked = [], None
    with mounted(way, folder, Path(programs)) as mountpoint:
        for number in range(int(rounds) + 1):
            if cold:
                drop(mountpoint if way == "mount" else folder)
                drop(folder)
            before, host = device_bytes(device), mounts.status_bytes("self", "VmRSS")
            with contextlib.suppress(OSError):  # where it is not supported, the peak is that of the whole process
                Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
            began = time.monotonic()
            tensors = globals()[f"by_{way}"](folder, device, mountpoint)
            synchronize(device)
            seconds.append(time.monotonic() - began)
            if number == 0:
                sizes = sum(t.nbytes for t in tensors.values())
                beyond = device_bytes(device) - before - sizes if device != "cpu" else None
                peak = mounts.status_bytes("self", "VmHWM") - host
                checked = checksum(tensors)
            del tensors
            if device != "cpu":
                torch.cuda.empty_cache()
    print(json.dumps({"seconds": seconds[1:], "checksum": checked, "host_bytes": peak, "device_beyond_bytes": beyond}))


main()

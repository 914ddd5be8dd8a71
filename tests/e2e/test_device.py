"""The Python package and GPUs: on a CUDA runtime that is host memory (tests/cuda/fake_cudart.c), whose memory is what
torch allocates on the CPU. That torch's own memory on a GPU is filled is for a machine with one (tests/bench/cuda)."""

import ctypes
import errno
import gc
import logging
import os
import subprocess
import sys
import types

import numpy
import pytest
import torch

import trees
from conftest import ROOT, must_have_worked
from test_python import GOLDEN, LIBRARY, SOURCES, checkpoint_of, unshard
from unshard import loading

FAKE = ROOT / "build/dev/cudart/whole/libcudart.so.12"
COPIED, PINNED = 1, 2


class Call(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("device", ctypes.c_int), ("stream", ctypes.c_void_p),
                ("from_", ctypes.c_void_p), ("to", ctypes.c_void_p), ("n_bytes", ctypes.c_size_t),
                ("memory_policy", ctypes.c_int), ("memory_nodes", ctypes.c_uint64), ("processors", ctypes.c_uint64)]


class Gpus:
    """Two of them, whose current stream is the default one of each."""

    def __init__(self):
        self.runtime = ctypes.CDLL(str(FAKE))  # libunshard finds what the process has loaded
        self.runtime.fake_calls.restype = ctypes.POINTER(Call)
        self.runtime.fake_alive.restype = ctypes.c_size_t
        self.stream = 0
        self.reset(2)

    def reset(self, n_devices):
        self.runtime.fake_reset(n_devices)

    def fail(self, function, nth, error):
        self.runtime.fake_fail(function.encode(), nth, error)

    def copies(self):
        n = ctypes.c_size_t()
        calls = self.runtime.fake_calls(ctypes.byref(n))
        return [calls[i] for i in range(n.value) if calls[i].kind == COPIED]

    def pinned_bytes(self):
        n = ctypes.c_size_t()
        calls = self.runtime.fake_calls(ctypes.byref(n))
        return sum(calls[i].n_bytes for i in range(n.value) if calls[i].kind == PINNED)

    def copied_bytes(self):
        return sum(call.n_bytes for call in self.copies())

    def alive(self):
        gc.collect()
        return self.runtime.fake_alive()


@pytest.fixture
def gpus(monkeypatch):
    found = Gpus()
    monkeypatch.setattr(loading.Box, "empty", lambda box, device="cpu": torch.empty(
        box.length, dtype=loading.DTYPES[box.tensor.dtype], device="cpu"))
    monkeypatch.setattr(loading, "current_stream", lambda device: found.stream)
    monkeypatch.setattr(loading, "current_device", lambda: 1)
    yield found
    assert found.alive() == 0


@pytest.mark.parametrize("launch,case,path", SOURCES)
def test_load_file_puts_what_safetensors_loads_into_the_gpu(made, mount, gpus, launch, case, path):
    checkpoint = checkpoint_of(made, launch, case, path)
    m = mount(checkpoint.parent, "store=none")
    for view in ("weights", "weights-bf16"):
        want = trees.weights(m / view / checkpoint.name.removesuffix(".ckpt"))
        gpus.reset(2)
        trees.assert_same(unshard.load_file(checkpoint, view, device="cuda:0"), want)
        assert gpus.copied_bytes() == sum(t.nbytes for t in want.values())
        assert {call.device for call in gpus.copies()} == {0}
        trees.assert_same(dict(unshard.iterate(checkpoint, view, device="cuda")), want)
        lazy = unshard.load_file(checkpoint, view, device="cuda:1", lazy=True)
        trees.assert_same({name: lazy[name] for name in lazy}, want)
        del lazy


def test_safe_open_reads_slices_alone(gpus):
    """On torch's current stream, which is not the default one here; each of two GPUs its own columns."""
    stream = ctypes.c_void_p()
    gpus.runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1)
    gpus.stream = stream.value
    want = trees.tensors(GOLDEN / "run.model.safetensors")
    name, halves = "model.layers.0.mlp.down_proj.weight", (slice(0, 15), slice(15, 30))
    with unshard.safe_open(GOLDEN / "run/checkpoint-2", device="cuda:0") as f:
        trees.assert_same({n: f.get_tensor(n) for n in f.keys()}, want)
        gpus.reset(2)
        for index in (slice(3, 7), (slice(None), halves[0]), 2, (-1, slice(4)), slice(5, 2), (2, 2)):
            assert torch.equal(f.get_slice(name)[index], want[name][index])
        assert gpus.copied_bytes() == 2 * (4 * 30 + 20 * 15 + 30 + 4 + 0 + 1)
        assert {call.stream for call in gpus.copies()} == {stream.value}
    gpus.stream = 0
    gpus.runtime.cudaStreamDestroy(stream)
    gpus.reset(2)
    for rank, half in enumerate(halves):
        with unshard.safe_open(GOLDEN / "run/checkpoint-2", device=f"cuda:{rank}") as f:
            assert torch.equal(f.get_slice(name)[:, half], want[name][:, half])
    assert [(call.device, call.n_bytes) for call in gpus.copies()] == [(0, 600), (1, 600)]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_iterate_reads_ahead(gpus, monkeypatch, device):
    want = trees.tensors(GOLDEN / "run.model.safetensors")
    for ahead in (0, 3000, 1 << 20):
        monkeypatch.setattr(loading, "AHEAD_BYTES", ahead)
        got = list(unshard.iterate(GOLDEN / "run/checkpoint-2", device=device))
        assert [name for name, _ in got] == list(unshard.load_file(GOLDEN / "run/checkpoint-2"))
        trees.assert_same(dict(got), want)
        half = unshard.iterate(GOLDEN / "run/checkpoint-2", device=device)
        for _ in range(3):
            next(half)
        half.close()


def test_tensors_go_on_by_dlpack(gpus):
    """Without a copy, as kDLCPU here."""
    tensors = unshard.load_file(GOLDEN / "run/checkpoint-2", "weights-fp32", device="cuda:0")
    want = trees.tensors(GOLDEN / "run.model.safetensors")
    for name, tensor in tensors.items():
        taken = numpy.from_dlpack(tensor)
        assert taken.__array_interface__["data"][0] == tensor.data_ptr()
        assert torch.equal(torch.utils.dlpack.from_dlpack(tensor), want[name].float())


def test_a_transfer_that_has_ended_frees_no_later_one(gpus):
    """Later transfers get the memory, and so the handle, of those that have ended."""
    session, tensors = loading.open_tensors(GOLDEN / "run/checkpoint-2", "weights")
    device = loading.Device(0)
    t = next(iter(tensors.values()))
    room = torch.empty(t.size_bytes, dtype=torch.uint8)
    box = (t, [0] * len(t.shape), list(t.shape), room.data_ptr(), t.size_bytes)
    first = device.begin([box], 0, room)
    handle = first._number
    first.wait()
    device.begun.add(handle)  # as if the next one had it
    first.close()
    assert handle in device.begun
    device.begun.remove(handle)
    device.close()
    session.close()


def test_processes_that_load_together_read_by_the_page_cache(gpus, monkeypatch):
    """Each process would read the same blocks of storage once more: seen by what the library is told."""
    told = []

    class Spy(loading.Device):
        def __init__(self, ordinal, n_threads, way, n_bytes):
            told.append(way)
            super().__init__(ordinal, n_threads, way, n_bytes)

    monkeypatch.setattr(loading, "Device", Spy)
    for ranks in (None, 1, 2):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda ranks=ranks: ranks is not None)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda ranks=ranks: ranks)
        unshard.load_file(GOLDEN / "run/checkpoint-2", device="cuda:0")
    assert told == [loading.WAY_SUITED, loading.WAY_SUITED, loading.WAY_CACHE]


def test_no_more_is_pinned_than_is_read(gpus):
    """All that is going to be is pinned when a transfer has ended."""
    gpus.reset(2)
    unshard.load_file(GOLDEN / "run/checkpoint-2", device="cuda:0")
    assert gpus.pinned_bytes() == 2 << 20
    session, tensors = loading.open_tensors(GOLDEN / "run/checkpoint-2", "weights")
    t = next(iter(tensors.values()))
    room = torch.empty(t.size_bytes, dtype=torch.uint8)
    for n_bytes, buffers in ((0, 1), ((2 << 20) - 1, 1), (2 << 20, 2), (1 << 40, 32), (None, 32)):
        gpus.reset(2)
        device = loading.Device(0, n_bytes=n_bytes)
        device.begin([(t, [0] * len(t.shape), list(t.shape), room.data_ptr(), t.size_bytes)], 0, room).wait()
        assert gpus.pinned_bytes() == buffers * (2 << 20)
        device.close()
    session.close()


def test_the_first_tensors_are_read_while_memory_is_allocated(gpus, monkeypatch):
    """A transfer of the first is begun before memory is asked for the others."""
    order = []
    empty = loading.Box.empty

    class Spy(loading.Device):
        def begin(self, boxes, stream, keep):
            order.extend(("read", box[0].name) for box in boxes)
            return super().begin(boxes, stream, keep)

    def allocate(box, device="cpu"):
        order.append(("memory", box.tensor.name))
        return empty(box, device)

    monkeypatch.setattr(loading, "Device", Spy)
    monkeypatch.setattr(loading.Box, "empty", allocate)
    got = unshard.load_file(GOLDEN / "run/checkpoint-2", device="cuda:0")
    want = trees.tensors(GOLDEN / "run.model.safetensors")
    trees.assert_same(got, want)
    names, sizes = list(got), [t.nbytes for t in got.values()]
    n = next(n for n in range(1, len(sizes)) if sum(sizes[:n]) * 8 >= sum(sizes))
    assert order == [(what, name) for some in (names[:n], names[n:]) for what in ("memory", "read") for name in some]


@pytest.mark.parametrize("sizes,n", [([], 0), ([5], 1), ([0], 1), ([0, 0], 1), ([0, 8], 2), ([1, 7], 1), ([1] * 16, 2), ([7, 1], 1),
                                     ([1, 1, 15], 3)])
def test_an_eighth_is_read_early(sizes, n):
    boxes = [types.SimpleNamespace(size_bytes=lambda size=size: size) for size in sizes]
    assert loading.early(boxes) == (boxes[:n], boxes[n:])


def test_memory_that_is_not_to_be_had_ends_what_was_begun(gpus, monkeypatch):
    """Memory of the first tensors stays until they are read; all buffers are freed (seen by the fixture)."""
    empty = loading.Box.empty

    def allocate(box, device="cpu"):
        if box.tensor.name == last:
            raise torch.OutOfMemoryError("none left")
        return empty(box, device)

    last = list(unshard.load_file(GOLDEN / "run/checkpoint-2"))[-1]
    monkeypatch.setattr(loading.Box, "empty", allocate)
    gpus.reset(2)
    with pytest.raises(torch.OutOfMemoryError, match="none left"):
        unshard.load_file(GOLDEN / "run/checkpoint-2", device="cuda:0")
    assert gpus.copied_bytes() > 0


def test_where_fewer_buffers_can_be_pinned_the_tensors_are_the_same(gpus, monkeypatch):
    monkeypatch.setattr("unshard.device.BUFFER_BYTES", 4096)
    want = trees.tensors(GOLDEN / "run.model.safetensors")
    for n in (1, 2, 3):
        gpus.reset(2)
        gpus.fail("cudaHostAlloc", n + 1, 2)
        trees.assert_same(unshard.load_file(GOLDEN / "run/checkpoint-2", device="cuda:0"), want)
        assert gpus.pinned_bytes() == n * 4096


def test_the_library_knows_no_other_way_into_a_gpu():
    """Neither GPUDirect Storage nor managed memory, nor any memory of the GPU: by the names of what it can call, which
    are looked up by dlsym. libcudart itself is not linked."""
    library = ROOT / "build/dev/lib/libunshard.so.0"
    names = library.read_bytes()
    assert b"cudaMemcpyAsync" in names and b"cudaHostAlloc" in names
    for absent in (b"cuFile", b"libcufile", b"cudaMalloc", b"cuMem", b"cudaMemPool"):
        assert absent not in names, absent
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" in needed and "cuda" not in needed


@pytest.mark.long  # a benchmark
def test_the_script_of_parts_runs_on_host_memory(tmp_path):
    """tests/bench/cuda/run DIR --parts: each part has a figure, and the tensors are equal."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests/bench/cuda/bench.py", "--parts", "--size", "0.01", "--rounds", "1", "--device", "cpu",
         "--tmpfs", tmp_path, "--disk", tmp_path, "--programs", ROOT / "build/dev/bin"], capture_output=True, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(FAKE.parent), "UNSHARD_LIBRARY": str(LIBRARY),
             "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("python", "tests/bench"))})
    must_have_worked(done)
    expected, found = done.stdout.split("Found, ")
    assert "the tensors are equal to the file's" in found
    parts = [line.split(" | ")[0] for line in expected.splitlines() if line.startswith("| ")][1:]
    assert len(parts) == 9 and all(f"{part} | " in found for part in parts)


def test_what_fails_is_raised(gpus, caplog):
    gpus.fail("cudaMemcpyAsync", 2, 700)
    with pytest.raises(unshard.Error, match="GPU 0: copying: an illegal memory access") as raised:
        unshard.load_file(GOLDEN / "run/checkpoint-2", device="cuda:0")
    assert raised.value.errno == errno.EIO
    gpus.fail("cudaHostAlloc", 1, 2)
    with pytest.raises(unshard.Error, match="pinning memory") as raised:
        unshard.safe_open(GOLDEN / "run/checkpoint-2", device="cuda:0")
    assert raised.value.errno == errno.ENOMEM
    del raised
    gpus.reset(0)
    with caplog.at_level(logging.WARNING, "unshard"):
        reader = loading.reader_on("cuda:0", {})
    assert isinstance(reader, loading.Host)
    assert "GPU 0: CUDA finds no GPU" in caplog.text and "read into host memory first" in caplog.text

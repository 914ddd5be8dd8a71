"""What reading into GPU memory does on a real GPU, beside what tests/cuda shows on a CUDA runtime that is host memory: equal
tensors, streams, graph captures, contexts, threads; and which other ways into the GPU this machine has. Prints one line
for each: "ok", "FAILED" or, where nothing is promised, what was found; first of all, what is expected. check.py [GOLDEN]: the
folder of golden files. check.py --one: loads one checkpoint and compares it, as a client of MPS or in an instance of MIG."""

import concurrent.futures
import ctypes
import errno
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import checkpoints
import unshard
from runtime import cudart
from unshard.device import Device

GPU = torch.device("cuda:0")
LEGACY, PER_THREAD = 1, 2  # cudaStreamLegacy, cudaStreamPerThread
failed = []
EXPECTED = """| what | expected |
|---|---|
| captures, thread-local and relaxed | the load and the graph are right |
| a capture in the global mode | it fails, as unshard.h says; loads afterwards are right |
| memory of a second context | equal |
| MPS, two clients at once | equal in both |
| an instance of MIG | equal; it is a device like another |
| one mapping of the page cache registered | slower than 12 threads that copy to pinned buffers: pinning takes more than half |
| GPUDirect storage | without nvidia_fs no faster than pread; with it up to the disk's rate, and no gain from the page cache |
"""


def check(what, function):
    try:
        found = function()
    except Exception as e:  # pylint: disable=broad-except
        found = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
        failed.append(what)
        print(f"FAILED  {what}: {found}", flush=True)
    else:
        print(f"ok      {what}{f': {found}' if found else ''}", flush=True)


def found(what, function):
    try:
        print(f"found   {what}: {function()}", flush=True)
    except Exception as e:  # pylint: disable=broad-except
        print(f"found   {what}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", flush=True)


def same(a, b):
    """Bit for bit."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu().view(torch.uint8), b.cpu().view(torch.uint8))


# -- tensors --

def every_golden_checkpoint(golden, way):
    """All tensors, optimizer states too, against the library's own reads into host memory, which other tests compare
    with the frameworks' own."""
    n = 0
    sources = sorted({path.parent for path in golden.rglob("*") if path.is_dir()} | {golden})
    for source in sources:
        with unshard.open(source, store=None, settle_seconds=0) as session:
            for checkpoint in session.checkpoints():
                if "/" in checkpoint.path or not checkpoint.path:
                    continue
                try:
                    tensors = session.tensors(checkpoint.path)
                except unshard.Error:
                    continue  # a damaged one
                with tensors:
                    n += compare(tensors, way)
    assert n > 100, n
    return f"{n} tensors"


def compare(tensors, way):
    n = 0
    device = Device(0, 0, way)
    for tensor in tensors.values():
        try:
            on_host = bytes(tensor.read())
        except unshard.Error:
            continue
        if not on_host:
            continue
        to = torch.full((len(on_host),), 0xA5, dtype=torch.uint8, device=GPU)
        lo, length = [0] * len(tensor.shape), list(tensor.shape)
        device.begin([(tensor, lo, length, to.data_ptr(), len(on_host))], torch.cuda.current_stream().cuda_stream,
                     keep=to).wait()
        assert bytes(to.cpu().numpy()) == on_host, (tensor.name, way)
        n += 1
    device.close()
    return n


# -- a checkpoint of 64 MB --

class Model:
    def __init__(self, folder):
        self.folder = folder / "run/checkpoint-1"
        config, self.tensors = checkpoints.llama(64e6)
        checkpoints.write_run(folder / "run", config, self.tensors, 8)

    def equal(self, loaded):
        assert loaded.keys() == self.tensors.keys()
        for name, tensor in loaded.items():
            assert tensor.device == GPU and same(tensor, self.tensors[name]), name

    def load(self):
        return unshard.load_file(self.folder, device=GPU)


def by_a_stream(model):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # the copies wait for this
        loaded = model.load()
    model.equal(loaded)


def behind_earlier_work(model):
    """A fill that was queued before the transfer comes first, a copy that is queued after it finds the bytes."""
    with unshard.open(model.folder.parent, store=None, settle_seconds=0) as session, \
            session.tensors("checkpoint-1", "weights") as tensors:
        tensor = tensors["model.embed_tokens.weight"]
        to = torch.empty(tensor.shape, dtype=torch.bfloat16, device=GPU)
        device, stream = Device(0), torch.cuda.Stream()
        for handle in (stream.cuda_stream, 0, LEGACY):
            with torch.cuda.stream(stream if handle == stream.cuda_stream else torch.cuda.default_stream()):
                torch.cuda._sleep(200_000_000)
                to.fill_(7)
                device.begin([(tensor, [0, 0], list(tensor.shape), to.data_ptr(), to.nbytes)], handle, keep=to).wait()
                copy = to.clone()
            torch.cuda.synchronize()
            assert same(copy, model.tensors["model.embed_tokens.weight"]), handle
        device.close()


def refuses_the_stream_of_each_thread(model):
    with unshard.open(model.folder.parent, store=None, settle_seconds=0) as session, \
            session.tensors("checkpoint-1", "weights") as tensors:
        tensor = tensors["model.norm.weight"]
        to = torch.empty(tensor.shape, dtype=torch.bfloat16, device=GPU)
        device = Device(0)
        try:
            device.begin([(tensor, [0], list(tensor.shape), to.data_ptr(), to.nbytes)], PER_THREAD, keep=to)
        except unshard.Error as e:
            assert e.errno == errno.EINVAL and "cudaStreamPerThread" in str(e)
            return
        finally:
            device.close()
        raise AssertionError("not refused")


def many_threads(model):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for loaded in pool.map(lambda _: model.load(), range(16)):
            model.equal(loaded)


def takes_no_device_memory(model):
    model.load()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    loaded = model.load()
    torch.cuda.synchronize()
    beyond = before - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    assert beyond <= 2 << 20, beyond
    model.equal(loaded)
    return f"{beyond} bytes beyond what torch reserved"


def while_capturing(model, mode):
    """A graph is captured in this thread while another thread loads."""
    x, graph = torch.zeros(1024, device=GPU), torch.cuda.CUDAGraph()
    model.load()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            job = pool.submit(reads_into_own_memory, model)
            for _ in range(50):
                x += 1
                time.sleep(0.01)
            job.result()
    graph.replay()
    torch.cuda.synchronize()
    assert x.eq(50).all()


def reads_into_own_memory(model):
    """As an engine does that has its memory already: torch's allocator may not be asked during a capture."""
    with unshard.open(model.folder.parent, store=None, settle_seconds=0) as session, \
            session.tensors("checkpoint-1", "weights") as tensors:
        tensor = tensors["model.embed_tokens.weight"]
        device = Device(0)
        device.begin([(tensor, [0, 0], list(tensor.shape), own_memory.data_ptr(), own_memory.nbytes)],
                     own_stream.cuda_stream, keep=own_memory).wait()
        device.close()


def second_context(model):
    """Memory and stream of a context that the program made itself beside CUDA's primary one."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def must(code):
        assert code == 0, f"CUDA driver error {code}"
    context, at, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    must(cuda.cuInit(0))
    previous = ctypes.c_void_p()
    must(cuda.cuCtxGetCurrent(ctypes.byref(previous)))
    create = cuda.cuCtxCreate_v2
    must(create(ctypes.byref(context), 0, 0))
    try:
        with unshard.open(model.folder.parent, store=None, settle_seconds=0) as session, \
                session.tensors("checkpoint-1", "weights") as tensors:
            tensor = tensors["model.embed_tokens.weight"]
            must(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(tensor.size_bytes)))
            device = Device(0)
            device.begin([(tensor, [0, 0], list(tensor.shape), at.value, tensor.size_bytes)], 0, keep=None).wait()
            host = ctypes.create_string_buffer(tensor.size_bytes)
            must(cuda.cuMemcpyDtoH_v2(host, at, ctypes.c_size_t(tensor.size_bytes)))
            device.close()
            want = model.tensors["model.embed_tokens.weight"].view(torch.uint8).numpy().tobytes()
            assert host.raw == want
    finally:
        cuda.cuCtxDestroy_v2(context)
        cuda.cuCtxSetCurrent(previous)


# -- what shares a device --

def by_clients(n, **environment):
    """check.py --one, so many at once."""
    clients = [subprocess.Popen([sys.executable, __file__, "--one"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env={**os.environ, **environment}) for _ in range(n)]
    for client in clients:
        output = client.communicate()[0]
        assert client.returncode == 0, output.strip().splitlines()[-1]


def by_mps():
    """A daemon of our own, ended afterwards."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        return "nvidia-cuda-mps-control is not installed"
    with tempfile.TemporaryDirectory() as top:
        places = {"CUDA_MPS_PIPE_DIRECTORY": top, "CUDA_MPS_LOG_DIRECTORY": top}
        subprocess.run([control, "-d"], check=True, env={**os.environ, **places})
        try:
            by_clients(2, **places)
            servers = subprocess.run([control], input="get_server_list", text=True, capture_output=True,
                                     env={**os.environ, **places}).stdout.split()
        finally:
            subprocess.run([control], input="quit", text=True, env={**os.environ, **places}, capture_output=True)
    assert servers, "no client used it"
    return f"two clients of server {servers[0]}, equal"


def by_mig():
    """Instances that are there already."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    instances = re.findall(r"UUID: (MIG-[^)]+)", listed)
    for instance in instances:
        by_clients(1, CUDA_VISIBLE_DEVICES=instance)
    return f"{len(instances)} instances, equal in each" if instances else "none on this machine"


# -- other ways into the GPU, in GB/s --

def registered_mapping(path):
    """The page cache's own pages, pinned and copied from: how long pinning takes, and the copy."""
    runtime, size = cudart(), os.path.getsize(path)
    to = torch.empty(size, dtype=torch.uint8, device=GPU)
    with open(path, "rb") as f, \
            mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE) as m:
        view = memoryview(m)
        at = ctypes.c_void_p(torch.frombuffer(view, dtype=torch.uint8).data_ptr())
        begin = time.monotonic()
        code = runtime.cudaHostRegister(at, ctypes.c_size_t(size), 8)  # cudaHostRegisterReadOnly
        pinned = time.monotonic()
        if code:
            runtime.cudaGetLastError()
            return f"cudaHostRegister refuses it, error {code}"
        runtime.cudaMemcpy(ctypes.c_void_p(to.data_ptr()), at, ctypes.c_size_t(size), 1)
        torch.cuda.synchronize()
        copied = time.monotonic()
        runtime.cudaHostUnregister(at)
        over = time.monotonic()
        view.release()
        return (f"{size / (over - begin) / 1e9:.1f} GB/s in all: pinning {pinned - begin:.2f} s, copying "
                f"{copied - pinned:.2f} s, unpinning {over - copied:.2f} s of {size / 1e9:.1f} GB")


def pinned_copies(size=2 << 30):
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    to = torch.empty(size, dtype=torch.uint8, device=GPU)
    to.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
    begin = time.monotonic()
    to.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
    return f"{size / (time.monotonic() - begin) / 1e9:.1f} GB/s"


def preads(path, threads):
    """Page cache to ordinary memory."""
    size = os.path.getsize(path)
    buffers = [bytearray(8 << 20) for _ in range(threads)]
    for b in buffers:
        b[::4096] = b"\1" * len(b[::4096])
    with open(path, "rb") as f, concurrent.futures.ThreadPoolExecutor(threads) as pool:
        def one(k):
            for at in range(k * (8 << 20), size, threads * (8 << 20)):
                os.preadv(f.fileno(), [buffers[k]], at)
        begin = time.monotonic()
        list(pool.map(one, range(threads)))
        return f"{size / (time.monotonic() - begin) / 1e9:.1f} GB/s"


def read_by_cufile(library, result_type, size=1 << 30):
    """Of a file of the disk, past the page cache."""
    class Description(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("handle", ctypes.c_void_p), ("operations", ctypes.c_void_p)]

    library.cuFileHandleRegister.restype = result_type
    library.cuFileRead.restype = ctypes.c_ssize_t
    to = torch.empty(size, dtype=torch.uint8, device=GPU)
    with tempfile.NamedTemporaryFile() as f:
        block = os.urandom(64 << 20)
        for _ in range(size // len(block)):
            f.write(block)
        f.flush()
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        fd, handle = os.open(f.name, os.O_RDONLY | os.O_DIRECT), ctypes.c_void_p()
        about = Description(1, fd, None)  # CU_FILE_HANDLE_TYPE_OPAQUE_FD
        result = library.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(about))
        if result.error:
            return f"cuFileHandleRegister returns {result.error}"
        begin = time.monotonic()
        n = library.cuFileRead(handle, ctypes.c_void_p(to.data_ptr()), ctypes.c_size_t(size), ctypes.c_int64(0),
                               ctypes.c_int64(0))
        took = time.monotonic() - begin
        library.cuFileHandleDeregister(handle)
        os.close(fd)
        if n != size:
            return f"cuFileRead returns {n}"
    assert bytes(to[:len(block)].cpu().numpy()) == block
    return f"{size / took / 1e9:.1f} GB/s from the disk, equal; nvidia_fs loaded: {'nvidia_fs' in modules()}"


def modules():
    path = Path("/proc/modules")
    return path.read_text() if path.exists() else ""


def cufile():
    for name in ("libcufile.so.0", "libcufile.so"):
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as e:
            why = str(e)
    else:
        here = [str(p) for p in Path(torch.__file__).parent.parent.rglob("libcufile.so*")]
        if not here:
            return f"no libcufile ({why})"
        library = ctypes.CDLL(here[0])

    class Result(ctypes.Structure):
        _fields_ = [("error", ctypes.c_int), ("cuda", ctypes.c_int)]
    library.cuFileDriverOpen.restype = Result
    result = library.cuFileDriverOpen()
    if result.error == 0:
        return read_by_cufile(library, Result)
    return (f"cuFileDriverOpen returns {result.error}; nvidia_fs loaded: "
            f"{'nvidia_fs' in modules()}")


def main():
    global own_memory, own_stream
    if sys.argv[1:] == ["--one"]:
        with tempfile.TemporaryDirectory() as top:
            model = Model(Path(top))
            model.equal(model.load())
        return
    print(EXPECTED, flush=True)
    golden = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {os.cpu_count()} processors", flush=True)
    with tempfile.TemporaryDirectory() as top:
        model = Model(Path(top))
        own_memory = torch.empty(model.tensors["model.embed_tokens.weight"].shape, dtype=torch.bfloat16, device=GPU)
        own_stream = torch.cuda.Stream()
        check("a checkpoint on the default stream", lambda: model.equal(model.load()))
        check("on a stream that is busy", lambda: by_a_stream(model))
        check("in a stream's order (own, default, legacy)", lambda: behind_earlier_work(model))
        check("the stream of each thread is refused", lambda: refuses_the_stream_of_each_thread(model))
        check("16 loads by 8 threads", lambda: many_threads(model))
        check("no device memory of its own", lambda: takes_no_device_memory(model))
        check("during a capture, thread-local", lambda: while_capturing(model, "thread_local"))
        check("during a capture, relaxed", lambda: while_capturing(model, "relaxed"))
        check("into memory of a second context", lambda: second_context(model))
        if golden:
            for name, way in (("SUITED", 0), ("CACHE", 1), ("DIRECT", 2)):
                check(f"golden checkpoints, {name}", lambda way=way: every_golden_checkpoint(golden, way))
        found("during a capture, global", lambda: while_capturing(model, "global") or "worked")
        torch.cuda.synchronize()
        model.equal(model.load())
    found("clients of MPS", by_mps)
    found("instances of MIG", by_mig)
    for place in ("/dev/shm", tempfile.gettempdir()):
        with tempfile.NamedTemporaryFile(dir=place) as f:
            block = os.urandom(64 << 20)
            for _ in range(32):
                f.write(block)
            f.flush()
            os.fsync(f.fileno())
            found(f"{place}, one mapping registered", lambda: registered_mapping(f.name))
            for threads in (1, 4, 12):
                found(f"{place}, pread by {threads} threads", lambda n=threads: preads(f.name, n))
    found("pinned memory to the GPU", pinned_copies)
    found("GPUDirect storage", cufile)
    print(f"{len(failed)} failed{': ' + ', '.join(failed) if failed else ''}")
    sys.exit(bool(failed))


main()

"""Weights as torch tensors, read straight from the shards: load_file, iterate, safe_open, load_state_dict.

Nothing is merged or written: each tensor is put together in its own memory, on the host or a GPU, by several threads
at once."""

from __future__ import annotations

import errno
import math
import os
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, Callable, Iterator, NamedTuple

import torch

from . import session as sessions
from .device import WAY_CACHE, WAY_SUITED, Device, Transfer
from .errors import Error, NotFound
from .process import Process
from .session import Session, Tensor, Tensors, log

THREADS = max(4, 2 * (os.cpu_count() or 1))
PART_BYTES = 32 << 20  # of one tensor, read by one thread
AHEAD_BYTES = 64 << 20  # read by iterate() while others are used
EARLY = 8  # one of so many bytes is read while torch allocates the memory of the others
DTYPES = {name: getattr(torch, name) for name in sessions.DTYPES if hasattr(torch, name)}
SAFETENSORS = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16",
               "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64",
               "uint64": "U64", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "complex64": "C64"}


NAMED = 5  # checkpoints below a directory that is none


def open_tensors(checkpoint: str | os.PathLike, view: str, **options: Any) -> tuple[Session, Tensors]:
    """A session of its own for a checkpoint, which is the source as if it were mounted itself, and the tensors of the
    view's weights. RUN/latest is the newest checkpoint of RUN that the view shows."""
    options.setdefault("settle_seconds", 0)
    path, name = sessions.newest_of(sessions.located(checkpoint), view, options), ""
    if os.path.isfile(path):
        path, name = os.path.split(path)
    try:
        session = sessions.open(path, **options)
    except NotFound:
        if not sessions.is_url(path) or path.count("/") < 4:
            raise
        path, name = os.path.split(path)  # no key begins with it and a slash: it may be a file
        session = sessions.open(path, **options)
    try:
        return session, session.tensors(name, view)
    except NotFound as e:
        below = [c.path for c in session.checkpoints()] if not name else []
        session.close()
        if not below:
            raise
        more = f", and {len(below) - NAMED} more" if len(below) > NAMED else ""
        raise NotFound(e.errno, f"{path} is not a checkpoint: load one of those below it ("
                                f"{', '.join(below[:NAMED])}{more})") from None
    except BaseException:
        session.close()
        raise


class Box(NamedTuple):
    """Of a tensor: [lo, lo + length) of each dimension."""
    tensor: Tensor
    lo: list[int]
    length: list[int]

    def size_bytes(self) -> int:
        return math.prod(self.length) * sessions.itemsize(self.tensor.dtype)

    def empty(self, device: str | torch.device = "cpu") -> torch.Tensor:
        return torch.empty(self.length, dtype=DTYPES[self.tensor.dtype], device=device)


def whole(t: Tensor) -> Box:
    return Box(t, [0] * len(t.shape), list(t.shape))


def parts(box: Box) -> Iterator[tuple[int, Box]]:
    """Boxes of whole rows, of PART_BYTES at most where a row has no more, and the byte at which each begins in `box`."""
    size = box.size_bytes()
    if size <= PART_BYTES or not box.length:
        yield 0, box
        return
    rows = max(1, PART_BYTES * box.length[0] // size)
    for first in range(0, box.length[0], rows):
        n = min(rows, box.length[0] - first)
        yield first * (size // box.length[0]), Box(box.tensor, [box.lo[0] + first, *box.lo[1:]], [n, *box.length[1:]])


def read_into(out: torch.Tensor, at: int, part: Box) -> None:
    part.tensor.read_at(out.data_ptr() + at, part.size_bytes(), part.lo, part.length)


class Host:
    """Reads boxes into host memory, by several threads, and moves them to the device from there."""

    def __init__(self, device: torch.device, threads: int | None):
        self._device, self._pool = device, ThreadPoolExecutor(threads or THREADS)
        self._process = Process()

    def begin(self, boxes: list[Box]) -> Callable[[], list[torch.Tensor]]:
        """Returns at once. What it returns waits for the tensors."""
        self._process.must_be_this("reader of tensors")  # whose threads a forked process lacks
        out = [box.empty() for box in boxes]
        jobs = [self._pool.submit(read_into, o, at, part)
                for box, o in zip(boxes, out) if o.numel() for at, part in parts(box)]

        def end() -> list[torch.Tensor]:
            ended_all(jobs)
            return [o.to(self._device) for o in out]
        return end

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def abandon(self) -> None:
        """Does not wait for the reads that are under way. They hold their memory and the session, which the last of
        them closes."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def ended_all(jobs: list[Future]) -> None:
    """Waits for all jobs. If one fails, or this is interrupted, those that have not begun never will."""
    try:
        for job in wait(jobs, return_when=FIRST_EXCEPTION).done:
            job.result()
    except BaseException:
        for job in jobs:
            job.cancel()
        raise


def early(boxes: list[Box]) -> tuple[list[Box], list[Box]]:
    """The first boxes that hold an eighth of the bytes, and the others. The first are read while torch allocates memory
    for the others."""
    total, n_bytes = sum(box.size_bytes() for box in boxes), 0
    for n, box in enumerate(boxes, 1):
        n_bytes += box.size_bytes()
        if n_bytes * EARLY >= total:
            return boxes[:n], boxes[n:]
    return [], []


class Gpu:
    """The same straight into the memory of a GPU, on torch's current stream: whatever is queued on it afterwards finds
    the bytes, and memory that torch reuses is no longer in use."""

    def __init__(self, device: torch.device, threads: int | None, n_bytes: int):
        self._device = device
        self._reader = Device(current_device() if device.index is None else device.index, threads or 0, way(), n_bytes)

    def begin(self, boxes: list[Box]) -> Callable[[], list[torch.Tensor]]:
        begun = [self._begin_some(some) for some in early(boxes) if some]

        def end() -> list[torch.Tensor]:
            for transfer, _ in begun:
                transfer.wait()
            return [o for _, out in begun for o in out]
        return end

    def _begin_some(self, boxes: list[Box]) -> tuple[Transfer, list[torch.Tensor]]:
        out = [box.empty(self._device) for box in boxes]
        return self._reader.begin([(*box, o.data_ptr(), box.size_bytes()) for box, o in zip(boxes, out)],
                                  current_stream(self._device), keep=out), out

    def close(self) -> None:
        self._reader.close()

    abandon = close


def way() -> int:
    """Processes that load together want the same bytes, or the same blocks of storage: the first to read them puts them
    into the page cache for all."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return WAY_CACHE if distributed and torch.distributed.get_world_size() > 1 else WAY_SUITED


def current_device() -> int:
    return torch.cuda.current_device()


def current_stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def reader_on(device: str | int | torch.device, tensors: Mapping[str, Tensor], threads: int | None = None) -> Host | Gpu:
    """For some of these tensors. Of a GPU that the library cannot use, because it was built without CUDA for example, the way by host memory."""
    device = torch.device(device)
    if device.type == "cuda":
        try:
            return Gpu(device, threads, sum(t.size_bytes for t in tensors.values()))
        except Error as e:
            if e.errno != errno.ENODEV:
                raise
            log.warning("%s. Tensors are read into host memory first", e.strerror)
    return Host(device, threads)


class Lazy(dict[str, Any]):
    """name -> tensor, each read when it is first asked for, and kept.

    A dict, because programs ask for one. Every way out of it reads: what is copied, pickled, merged or unpacked has
    tensors. Those that were not read are held as descriptions, which only C code that does not look at the type would
    see."""

    def __init__(self, tensors: Tensors, reader: Host | Gpu):
        super().__init__(tensors)
        self._reader = reader

    def __getitem__(self, name: str) -> torch.Tensor:
        value = super().__getitem__(name)
        if isinstance(value, Tensor):
            value, = self._reader.begin([whole(value)])()
            self[name] = value
        return value

    # A dict's own methods would return what is held. That __iter__ is not a dict's makes dict(), ** and update() ask
    # for each item by name.
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    get, items, values = MutableMapping.get, MutableMapping.items, MutableMapping.values  # type: ignore[assignment]
    pop, popitem = MutableMapping.pop, MutableMapping.popitem  # type: ignore[assignment]
    setdefault = MutableMapping.setdefault  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other  # tensors do not say whether they are equal

    def __ne__(self, other: object) -> bool:
        return self is not other

    def copy(self) -> dict[str, torch.Tensor]:
        """An ordinary dict of all tensors."""
        return dict(self)

    __copy__ = copy

    def __or__(self, other):
        return self.copy() | other

    def __ror__(self, other):
        return other | self.copy()

    def __reduce_ex__(self, _):
        return OrderedDict, (), None, None, iter(self.items())  # which torch.load(weights_only=True) allows

    def __repr__(self) -> str:
        unread = sum(isinstance(value, Tensor) for value in super().values())
        return f"<{len(self)} tensors by name, {unread} of them not read yet: dict(...) of this reads all>"


def load_file(checkpoint: str | os.PathLike, view: str = "weights", *, device: str | torch.device = "cpu",
              lazy: bool = False, threads: int | None = None, **options: Any) -> dict[str, torch.Tensor]:
    """The model's tensors by name, as safetensors.torch.load_file would load them from the view's files.

    view: "weights", "weights-bf16", "weights-fp16", "weights-fp32". device: of a GPU ("cuda:0"), the bytes go straight
    into its memory. lazy: a tensor is read when it is asked for.
    Further arguments are those of unshard.open().

    >>> tensors = load_file("tests/golden/run/checkpoint-2", "weights-fp32")
    >>> tensors["model.norm.weight"].dtype
    torch.float32
    """
    session, tensors = open_tensors(checkpoint, view, **options)
    reader = reader_on(device, tensors, threads)
    if lazy:
        return Lazy(tensors, reader)
    try:
        found = dict(zip(tensors, reader.begin([whole(t) for t in tensors.values()])()))
    except BaseException:
        reader.abandon()
        raise
    reader.close()
    session.close()
    return found


def iterate(checkpoint: str | os.PathLike, view: str = "weights", *, device: str | torch.device = "cpu",
            threads: int | None = None, **options: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of each that load_file loads, in the order of the files. The next ones are read meanwhile:
    AHEAD_BYTES, or one tensor that has more."""
    session, tensors = open_tensors(checkpoint, view, **options)
    yield from read_ahead(tensors, session, reader_on(device, tensors, threads))


def read_ahead(tensors: Mapping[str, Tensor], session: Session,
               reader: Host | Gpu) -> Iterator[tuple[str, torch.Tensor]]:
    """The same of some tensors. Closes session and reader."""
    try:
        begun = None
        for group in groups(tensors):
            before, begun = begun, (group, reader.begin([whole(t) for t in group]))
            yield from ended(before)
        yield from ended(begun)
    except BaseException:
        reader.abandon()
        raise
    reader.close()
    session.close()


def groups(tensors: Mapping[str, Tensor]) -> Iterator[list[Tensor]]:
    group: list[Tensor] = []
    for t in tensors.values():
        if group and sum(g.size_bytes for g in group) + t.size_bytes > AHEAD_BYTES:
            yield group
            group = []
        group.append(t)
    if group:
        yield group


def ended(begun: tuple[list[Tensor], Callable[[], list[torch.Tensor]]] | None) -> Iterator[tuple[str, torch.Tensor]]:
    if begun:
        group, end = begun
        yield from zip([t.name for t in group], end())


def load_state_dict(model: torch.nn.Module, checkpoint: str | os.PathLike, view: str = "weights", *,
                    strict: bool = True, **options: Any):
    """The checkpoint's weights into a model that is on one device. Returns what Module.load_state_dict returns.
    Weights that share memory in the model (tied embeddings) need be in the checkpoint once only."""
    found = load_file(checkpoint, view, **options)
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in found:
            twin = next((n for n, t in own.items() if n in found and same_memory(t, tensor)), None)
            if twin:
                found[name] = found[twin]
    return model.load_state_dict(found, strict=strict)


def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Each element of one is the same element of the other. Not known of subclasses, which keep their elements in other
    tensors, and of tensors without memory (meta): their addresses are 0."""
    def where(t):
        return (t.untyped_storage().data_ptr(), t.storage_offset(), t.stride(), t.shape, t.dtype, t.device, t.is_conj(),
                t.is_neg())
    plain = (torch.Tensor, torch.nn.Parameter)
    return (type(a) in plain and type(b) in plain and a.layout == b.layout == torch.strided and a.numel() > 0
            and a.untyped_storage().data_ptr() != 0 and where(a) == where(b))


class Slice:
    """Of safe_open(...).get_slice(name): slices and numbers of dimensions are read alone, as far as they go in steps
    of one; what else indexes a tensor is applied to what was read."""

    def __init__(self, tensor: Tensor, reader: Host | Gpu):
        self._tensor, self._reader = tensor, reader

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return SAFETENSORS[self._tensor.dtype]

    def __getitem__(self, index) -> torch.Tensor:
        t = self._tensor
        index = index if isinstance(index, tuple) else (index,)
        if any(isinstance(i, bool) or not isinstance(i, (int, slice))
               or (isinstance(i, slice) and i.step not in (None, 1)) for i in index):
            return self._reader.begin([whole(t)])()[0][index]
        if len(index) > len(t.shape):
            raise IndexError(f"too many indices for tensor of dimension {len(t.shape)}")
        lo, length = [0] * len(t.shape), list(t.shape)
        kept: list[int | slice] = [slice(None)] * len(t.shape)
        for d, i in enumerate(index):
            if isinstance(i, int):
                if not -t.shape[d] <= i < t.shape[d]:
                    raise IndexError(f"index {i} is out of bounds for dimension {d} with size {t.shape[d]}")
                lo[d], length[d], kept[d] = i % t.shape[d], 1, 0
            else:
                begin, end, _ = i.indices(t.shape[d])
                lo[d], length[d] = begin, max(0, end - begin)
        return self._reader.begin([Box(t, lo, length)])()[0][tuple(kept)]


class safe_open:  # pylint: disable=invalid-name
    """safetensors.safe_open's interface over a checkpoint: with safe_open(checkpoint) as f: f.get_tensor(name)."""

    def __init__(self, checkpoint: str | os.PathLike, framework: str = "pt", device: str | torch.device = "cpu", *,
                 view: str = "weights", **options: Any):
        if framework not in ("pt", "torch", "pytorch"):
            raise ValueError(f"framework {framework!r}: only 'pt' is known")
        self._session, self._tensors = open_tensors(checkpoint, view, **options)
        self._reader = reader_on(device, self._tensors)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_) -> None:
        self._reader.close()
        self._session.close()

    def keys(self) -> list[str]:
        return sorted(self._tensors)

    def offset_keys(self) -> list[str]:
        """In the order of the files."""
        return list(self._tensors)

    def metadata(self) -> dict[str, str]:
        return {"format": "pt"}

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._reader.begin([whole(self._tensors[name])])()[0]

    def get_slice(self, name: str) -> Slice:
        return Slice(self._tensors[name], self._reader)

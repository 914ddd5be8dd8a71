"""Weights as torch tensors, read straight from the shards: load_file, safe_open, load_state_dict.

Nothing is merged or written: each tensor is put together in its own memory, by several threads at once."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import torch

from . import session as sessions
from .session import Session, Tensor, Tensors

THREADS = max(4, 2 * (os.cpu_count() or 1))
PART_BYTES = 32 << 20  # of one tensor, read by one thread
DTYPES = {name: getattr(torch, name) for name in sessions.DTYPES if hasattr(torch, name)}
SAFETENSORS = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16",
               "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "float64": "F64", "int64": "I64",
               "uint64": "U64", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "complex64": "C64"}


def open_above(checkpoint: str | os.PathLike, **options: Any) -> tuple[Session, str]:
    """A session in which the files beside a checkpoint are seen, as the command opens it, and the checkpoint's
    path in it."""
    path = os.path.realpath(checkpoint)
    above, name = os.path.split(path)
    if not name or not os.access(above, os.R_OK | os.X_OK):
        above, name = path, ""
    options.setdefault("settle_seconds", 0)
    return sessions.open(above, **options), name


def empty(t: Tensor) -> torch.Tensor:
    return torch.empty(t.shape, dtype=DTYPES[t.dtype])


def parts(t: Tensor) -> Iterator[tuple[list[int], list[int]]]:
    """Boxes of whole rows, of PART_BYTES at most where a row has no more."""
    if not t.shape or t.size_bytes <= PART_BYTES:
        yield [0] * len(t.shape), list(t.shape)
        return
    rows = max(1, PART_BYTES * t.shape[0] // t.size_bytes)
    for low in range(0, t.shape[0], rows):
        n = min(rows, t.shape[0] - low)
        yield [low] + [0] * (len(t.shape) - 1), [n, *t.shape[1:]]


def read_part(t: Tensor, out: torch.Tensor, lo: list[int], length: list[int]) -> None:
    rest = math.prod(t.shape[1:]) * out.element_size()
    first = lo[0] * rest if lo else 0
    t.read_at(out.data_ptr() + first, math.prod(length) * out.element_size(), lo, length)


def read(tensors: list[Tensor], threads: int | None = None) -> list[torch.Tensor]:
    """All of them, in parallel."""
    out = [empty(t) for t in tensors]
    with ThreadPoolExecutor(threads or THREADS) as pool:
        jobs = [pool.submit(read_part, t, o, *part) for t, o in zip(tensors, out) if t.size_bytes for part in parts(t)]
        for job in jobs:
            job.result()
    return out


class Lazy(dict):
    """name -> tensor, each read when it is first asked for."""

    def __init__(self, tensors: Tensors):
        super().__init__(dict.fromkeys(tensors))
        self._tensors = tensors

    def __getitem__(self, name: str) -> torch.Tensor:
        if super().__getitem__(name) is None:
            self[name] = read([self._tensors[name]])[0]
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def items(self):
        return ((name, self[name]) for name in self)

    def values(self):
        return (self[name] for name in self)


def load_file(checkpoint: str | os.PathLike, view: str = "weights", *, device: str | torch.device = "cpu",
              lazy: bool = False, threads: int | None = None, **options: Any) -> dict[str, torch.Tensor]:
    """The model's tensors by name, as safetensors.torch.load_file would load them from the view's files.

    view: "weights", "weights-bf16", "weights-fp16", "weights-fp32". lazy: a tensor is read when it is asked for.
    Further arguments are those of unshard.open().

    >>> tensors = load_file("tests/golden/run/checkpoint-2", "weights-fp32")
    >>> tensors["model.norm.weight"].dtype
    torch.float32
    """
    session, name = open_above(checkpoint, **options)
    tensors = session.tensors(name, view)
    if lazy:
        return Lazy(tensors)
    names = list(tensors)
    try:
        read_tensors = read([tensors[n] for n in names], threads)
    finally:
        session.close()
    return {n: t.to(device) for n, t in zip(names, read_tensors)}


def load_state_dict(model: torch.nn.Module, checkpoint: str | os.PathLike, view: str = "weights", *,
                    strict: bool = True, **options: Any):
    """The checkpoint's weights into a model that is on one device. Returns what Module.load_state_dict returns.
    Weights that share memory in the model (tied embeddings) need be in the checkpoint once only."""
    found = load_file(checkpoint, view, **options)
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in found:
            twin = next((n for n, t in own.items() if n in found and t.data_ptr() == tensor.data_ptr()
                         and t.shape == tensor.shape and t.numel()), None)
            if twin:
                found[name] = found[twin]
    return model.load_state_dict(found, strict=strict)


class Slice:
    """Of safe_open(...).get_slice(name): slices and numbers of dimensions are read alone, as far as they go in steps
    of one; what else indexes a tensor is applied to what was read."""

    def __init__(self, tensor: Tensor):
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return SAFETENSORS[self._tensor.dtype]

    def __getitem__(self, index) -> torch.Tensor:
        t = self._tensor
        index = index if isinstance(index, tuple) else (index,)
        if any(not isinstance(i, (int, slice)) or (isinstance(i, slice) and i.step not in (None, 1)) for i in index):
            return read([t])[0][index]
        if len(index) > len(t.shape):
            raise IndexError(f"too many indices for tensor of dimension {len(t.shape)}")
        lo, length, kept = [0] * len(t.shape), list(t.shape), [slice(None)] * len(t.shape)
        for d, i in enumerate(index):
            if isinstance(i, int):
                if not -t.shape[d] <= i < t.shape[d]:
                    raise IndexError(f"index {i} is out of bounds for dimension {d} with size {t.shape[d]}")
                lo[d], length[d], kept[d] = i % t.shape[d], 1, 0
            else:
                begin, end, _ = i.indices(t.shape[d])
                lo[d], length[d] = begin, max(0, end - begin)
        out = torch.empty(length, dtype=DTYPES[t.dtype])
        if out.numel():
            t.read_at(out.data_ptr(), out.numel() * out.element_size(), lo, length)
        return out[tuple(kept)]


class safe_open:  # pylint: disable=invalid-name
    """safetensors.safe_open's interface over a checkpoint: with safe_open(checkpoint) as f: f.get_tensor(name)."""

    def __init__(self, checkpoint: str | os.PathLike, framework: str = "pt", device: str | torch.device = "cpu", *,
                 view: str = "weights", **options: Any):
        if framework not in ("pt", "torch", "pytorch"):
            raise ValueError(f"framework {framework!r}: only 'pt' is known")
        self._session, name = open_above(checkpoint, **options)
        self._device = device
        self._tensors = self._session.tensors(name, view)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_) -> None:
        self._session.close()

    def keys(self) -> list[str]:
        return sorted(self._tensors)

    def offset_keys(self) -> list[str]:
        """In the order of the files."""
        return list(self._tensors)

    def metadata(self) -> dict[str, str]:
        return {"format": "pt"}

    def get_tensor(self, name: str) -> torch.Tensor:
        return read([self._tensors[name]])[0].to(self._device)

    def get_slice(self, name: str) -> Slice:
        return Slice(self._tensors[name])

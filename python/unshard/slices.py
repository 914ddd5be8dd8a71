"""Tensors that are read where they are copied. A program that cuts its part out of each tensor, as the ranks of tensor
parallelism do in vLLM and SGLang, reads that part only.

A Sliced tensor has the shape, dtype and device of the checkpoint's. What narrows, indexes, transposes, splits or reshapes
it reads nothing: the result remembers which elements it has. They are read when it is copied. Whatever else is done
with it reads them first, and is counted."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import torch
from torch.utils._pytree import tree_map

from . import loading
from .loading import Box, Gpu, Host
from .session import Tensor, itemsize

aten = torch.ops.aten
VIEWS = {aten.alias.default, aten.as_strided.default, aten.detach.default, aten.expand.default, aten.permute.default,
         aten.select.int, aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default, aten.squeeze.default,
         aten.squeeze.dim, aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.unbind.int, aten.unfold.default,
         aten.unsqueeze.default, aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default}
COPIES = {aten.copy_.default, aten._to_copy.default, aten.clone.default}
# What asks for the memory itself, by a way on which torch does not ask the subclass.
OF_MEMORY = {getattr(torch.Tensor, name) for name in (
    "__array__", "__deepcopy__", "__dlpack__", "__reduce_ex__", "data_ptr", "numpy", "share_memory_", "storage", "tolist",
    "untyped_storage")}
SPLIT_BYTES = 4096  # below which a piece of storage is not read in smaller ones


@dataclass
class Counts:
    """Of the tensors that were handed out: bytes that were read, in all and for a guess that was wrong, and the other
    operations that read a tensor."""
    bytes_read: int = 0
    bytes_in_vain: int = 0
    operations: Counter = field(default_factory=Counter)


class Piece(NamedTuple):
    """Elements of a view, of which `path` selects one index of a dimension after the other: they are in a box of the
    checkpoint's tensor with these strides, from this element of the box on."""
    path: tuple[tuple[int, int], ...]
    lo: tuple[int, ...]
    length: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


def steps_of(shape: Sequence[int]) -> list[int]:
    """Elements from one index of each dimension to the next."""
    return [math.prod(shape[d + 1:]) for d in range(len(shape))]


def box_of(shape, size, stride, offset) -> Piece | None:
    """The smallest box with these elements. None where the view goes from one row into the next."""
    steps, rest, lo = steps_of(shape), offset, []
    for step in steps:
        lo.append(rest // step)
        rest %= step
    length, along = [1] * len(shape), []
    for n, s in zip(size, stride):
        if n == 1 or s == 0:
            along.append((0, 0))
            continue
        d = next((d for d, step in enumerate(steps) if step <= s and shape[d] > 1), None)
        if d is None or s % steps[d]:
            return None
        along.append((d, s // steps[d]))
        length[d] += (n - 1) * (s // steps[d])
    if any(at + n > of for at, n, of in zip(lo, length, shape)):
        return None
    inside = steps_of(length)
    return Piece((), tuple(lo), tuple(length), tuple(size), tuple(inside[d] * k if k else 0 for d, k in along), 0)


def rows_of(shape, size, stride, offset) -> Piece:
    """The whole rows with these elements."""
    row, last = math.prod(shape[1:]), offset + sum((n - 1) * s for n, s in zip(size, stride))
    first, end = offset // row, last // row + 1
    return Piece((), (first, *[0] * (len(shape) - 1)), (end - first, *shape[1:]), tuple(size), tuple(stride),
                 offset - first * row)


def pieces_of(shape, size, stride, offset, element_bytes: int) -> list[Piece]:
    """Boxes with a view's elements, and few others."""
    piece = box_of(shape, size, stride, offset) or rows_of(shape, size, stride, offset)
    wanted = math.prod(n for n, s in zip(size, stride) if s)
    outer = max(range(len(size)), key=lambda d: stride[d] * (size[d] > 1), default=0)
    if (math.prod(piece.length) <= 2 * wanted or size[outer] == 1
            or wanted // size[outer] * element_bytes < SPLIT_BYTES):
        return [piece]
    rest = [d for d in range(len(size)) if d != outer]
    return [p._replace(path=((outer, i), *p.path)) for i in range(size[outer])
            for p in pieces_of(shape, [size[d] for d in rest], [stride[d] for d in rest], offset + i * stride[outer],
                               element_bytes)]


def place_of(box: Box) -> str:
    return repr((box.lo, box.length))


class Source:
    """One tensor of the checkpoint, for all that is cut from it."""

    def __init__(self, tensor: Tensor, reader: Host | Gpu, device: torch.device, counts: Counts):
        self.tensor, self.device, self.counts = tensor, device, counts
        self.read_boxes: dict[str, Box] = {}  # all that were asked for
        self._reader, self._whole = reader, None
        self._begun: dict[str, Callable[[], list[torch.Tensor]]] = {}

    def sliced(self) -> Sliced:
        shape, dtype = self.tensor.shape, loading.DTYPES[self.tensor.dtype]
        return Sliced(self, torch.empty(shape, dtype=dtype, device="meta"))

    def begin(self, boxes: list[Box]) -> int:
        """Read what is expected to be asked for: what another tensor of this shape was asked for. -> its bytes"""
        for box in (box._replace(tensor=self.tensor) for box in boxes):
            self._begun[place_of(box)] = self._reader.begin([box])
        n_bytes = sum(box.size_bytes() for box in boxes)
        self.counts.bytes_read += n_bytes
        self.counts.bytes_in_vain += n_bytes
        return n_bytes

    def _boxes(self, boxes: list[Box]) -> list[torch.Tensor]:
        known = [self._begun.pop(place_of(box), None) for box in boxes]
        new = [box for box, end in zip(boxes, known) if not end]
        self.counts.bytes_read += sum(box.size_bytes() for box in new)
        self.counts.bytes_in_vain -= sum(box.size_bytes() for box, end in zip(boxes, known) if end)
        self.read_boxes.update((place_of(box), box) for box in boxes)
        read = iter(self._reader.begin(new)())
        return [end()[0] if end else next(read) for end in known]

    def read(self, view: torch.Tensor) -> torch.Tensor:
        """The elements of a view, which is one of a tensor without memory."""
        size, stride, offset = view.size(), view.stride(), view.storage_offset()
        if self._whole is not None:
            return self._whole.as_strided(size, stride, offset)
        if view.numel() == 0:
            return torch.empty(size, dtype=view.dtype, device=self.device)
        pieces = pieces_of(self.tensor.shape, size, stride, offset, itemsize(self.tensor.dtype))
        got = [box.as_strided(piece.size, piece.stride, piece.offset) for piece, box in zip(
            pieces, self._boxes([Box(self.tensor, list(p.lo), list(p.length)) for p in pieces]))]
        if not pieces[0].path:
            return got[0]
        out = torch.empty(size, dtype=view.dtype, device=self.device)
        for piece, values in zip(pieces, got):
            part, gone = out, []
            for d, i in piece.path:
                part = part.select(d, i)
                gone.append(d)
            part.copy_(values)
        return out

    def hold(self) -> None:
        """All views are of one memory from now on, which may be written to."""
        if self._whole is None:
            self._whole, = self._boxes([loading.whole(self.tensor)])


class Sliced(torch.Tensor):
    """Elements of a tensor of a checkpoint that have not been read."""

    source: Source
    elements: torch.Tensor  # the same view, of a tensor without memory

    @staticmethod
    def __new__(cls, source: Source, elements: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, elements.size(), strides=elements.stride(), storage_offset=elements.storage_offset(),
            dtype=elements.dtype, device=source.device)

    def __init__(self, source: Source, elements: torch.Tensor):
        super().__init__()
        self.source, self.elements = source, elements

    def __repr__(self, *_, **__) -> str:
        return f"<{self.source.tensor.name}: {tuple(self.shape)} of {self.source.tensor.shape}, {self.dtype}, not read>"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in OF_MEMORY:
            args, kwargs = tree_map(lambda x: held(x, func.__name__), (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in VIEWS:
            source = args[0].source
            return tree_map(lambda x: Sliced(source, x) if isinstance(x, torch.Tensor) else x,
                            func(args[0].elements, *args[1:], **kwargs))
        if torch.Tag.inplace_view in func.tags:
            raise NotImplementedError(f"{args[0]!r} cannot change its shape in place ({func})")
        if func is aten.copy_.default and not isinstance(args[0], Sliced) and args[0].is_meta:
            return func(args[0], args[1].elements, *args[2:], **kwargs)
        name = None if func in COPIES else str(func)
        change = held if shares_memory(func) or isinstance(args[0], Sliced) and func is aten.copy_.default else plain
        args, kwargs = tree_map(lambda x: change(x, name), (args, kwargs))
        return func(*args, **kwargs)


def shares_memory(func) -> bool:
    """Whether an operation writes to a tensor that it is given, or returns one with the same memory."""
    schema = func._schema
    return func is not aten.copy_.default and any(x.alias_info is not None for x in (*schema.arguments, *schema.returns))


def plain(x: Any, operation: str | None) -> Any:
    """A Sliced tensor as an ordinary one."""
    if not isinstance(x, Sliced):
        return x
    if operation:
        x.source.counts.operations[operation] += 1
    return x.source.read(x.elements)


def held(x: Any, operation: str | None) -> Any:
    """The same, in memory that all views of that tensor share."""
    if isinstance(x, Sliced):
        x.source.hold()
    return plain(x, operation)


LAYER = re.compile(r"\d+")  # the first number in a tensor's name


def sliced(tensors: Mapping[str, Tensor], reader: Host | Gpu, device: str | torch.device,
           counts: Counts) -> Iterator[tuple[str, Sliced]]:
    """(name, tensor) of each. What was read of a tensor in one layer is read ahead of the one in the next layer."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", loading.current_device())
    known = list(tensors.values())
    read: dict[tuple, list[Box]] = {}  # of the last tensor of a kind
    begun: dict[int, Source] = {}
    n_bytes: dict[int, int] = {}
    guessed = 0  # those before it were looked at
    for i, tensor in enumerate(known):
        guessed = max(guessed, i + 1)
        while guessed < len(known) and kind_of(known[guessed]) in read and sum(n_bytes.values()) < loading.AHEAD_BYTES:
            boxes = read[kind_of(known[guessed])]
            if boxes:
                begun[guessed] = Source(known[guessed], reader, device, counts)
                n_bytes[guessed] = begun[guessed].begin(boxes)
            guessed += 1
        source = begun.pop(i, None) or Source(tensor, reader, device, counts)
        n_bytes.pop(i, None)
        yield tensor.name, source.sliced()
        read[kind_of(tensor)] = list(source.read_boxes.values())


def kind_of(tensor: Tensor) -> tuple:
    return LAYER.sub("#", tensor.name, count=1), tensor.shape, tensor.dtype

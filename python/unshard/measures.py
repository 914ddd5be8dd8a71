"""What the elements of a checkpoint's tensors are."""

from __future__ import annotations

import ctypes as c
import dataclasses
import math
import os
from typing import Any, Callable

from . import _library as native
from . import session as sessions
from ._library import lib
from .differences import Side
from .session import Progress, Told, text


@dataclasses.dataclass(frozen=True)
class Values:
    """Of the elements of a tensor; min, max, mean and norm of the finite ones, of complex ones the absolute values.

    magnitudes: how many elements are from 2**e to below 2**(e + 1), by e; -80 and 15 also have what is beyond. small_rows:
    those without an element but zeros; of Adam's second moments, without an element above 1e-16. update_norm: of first
    moments, the norm of the update that Adam makes of them with the learning rate lr, without weight decay; None if the
    checkpoint does not record what that needs."""
    elements: int
    zeros: int
    negative: int
    nan: int
    infinite: int
    min: float
    max: float
    mean: float
    norm: float
    magnitudes: dict[int, int]
    rows: int
    small_rows: int
    update_norm: float | None
    lr: float | None


@dataclasses.dataclass(frozen=True)
class Measure:
    """A tensor, or one expert of a tensor that holds several. state: of the optimizer; None for a tensor of the model.
    values: None if it could not be read, and `why` is the reason."""
    name: str
    state: str | None
    role: str
    dtype: str
    shape: tuple[int, ...]
    expert: int | None
    why: str | None
    values: Values | None


def known(number: float) -> float | None:
    return None if math.isnan(number) else number


def values_of(x: native.Measure) -> Values:
    magnitudes = {native.LEAST_EXPONENT + i: n for i, n in enumerate(x.magnitude) if n}
    return Values(x.n_elems, x.n_zero, x.n_negative, x.n_nan, x.n_infinite, x.min, x.max, x.mean, x.norm, magnitudes, x.n_rows,
                  x.n_small_rows, known(x.norm_update), known(x.lr))


def measure_of(x: native.Measure) -> Measure:
    t = x.tensor.contents
    return Measure(text(t.name), text(t.state), lib.unshard_role_name(t.role).decode(), sessions.DTYPES[t.dtype],
                   tuple(t.shape[:t.n_dims]), x.expert if x.expert >= 0 else None, text(x.why), None if x.why else values_of(x))


sessions.MAKE.update(measure=measure_of)


def measure(path: str | os.PathLike, *, progress: Callable[[Progress], None] | None = None, **options: Any) -> list[Measure]:
    """As `unshard show --values`: read every tensor of a checkpoint once, and measure its elements.

    Tensors have the checkpoint's own names, and first and second moments of a parameter follow each other; of a tensor that
    holds all experts of a layer, the experts come before the whole. Further arguments are those of open(). RUN/latest is the
    newest checkpoint.

    >>> found = measure("tests/golden/run/checkpoint-2")
    >>> norm = next(m for m in found if m.name == "model.norm.weight" and m.role == "weight")
    >>> norm.dtype, norm.shape, norm.values.elements, norm.values.zeros, norm.values.nan
    ('bfloat16', (20,), 20, 0, 0)
    """
    options.setdefault("settle_seconds", 0)
    side = Side(path, "weights", options)
    try:
        found: list[Measure] = []
        told, err = Told(progress=progress, measure=found.append), native.ErrorStruct()
        told.must(lib.unshard_measure_tensors(side.session.handle, native.encoded(side.inside), c.byref(told.calls),
                                              c.byref(err)), err)
        return found
    finally:
        side.close()

"""How two checkpoints differ."""

from __future__ import annotations

import ctypes as c
import dataclasses
import json
import os
from typing import Any, Callable

from . import _library as native
from . import session as sessions
from ._library import lib
from .errors import Error
from .session import Progress, Session, Told, text


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of the elements of two tensors, or of all tensors of a group. Differences, means and norms are of finite elements."""
    elements: int
    changed: int
    beyond: int
    not_finite_a: int
    not_finite_b: int
    not_finite_changed: int
    max_abs: float
    mean_abs: float
    norm_a: float
    norm_b: float
    norm_difference: float


@dataclasses.dataclass(frozen=True)
class TensorDiff:
    """kind: "equal", "within", "dtype", "values", "shape", "only_a", "only_b" or "tied". figures: None if the values are
    not compared."""
    name: str
    state: str | None
    kind: str
    dtype_a: str | None
    dtype_b: str | None
    shape_a: tuple[int, ...] | None
    shape_b: tuple[int, ...] | None
    figures: Figures | None


@dataclasses.dataclass(frozen=True)
class GroupDiff:
    """A layer, an expert, or ("") all tensors of the model."""
    name: str
    tensors: int
    different: int
    figures: Figures


@dataclasses.dataclass(frozen=True)
class ValueDiff:
    """A hyper-parameter, a value of config.json, or a fact about the training; None on the side that lacks it."""
    name: str
    a: Any
    b: Any
    counts: bool


@dataclasses.dataclass(frozen=True)
class Diff:
    """`tensors`, `layers` and `experts` are all of them, equal ones too; `values` those that differ."""
    equal: bool
    total: GroupDiff
    tensors: list[TensorDiff]
    layers: list[GroupDiff]
    experts: list[GroupDiff]
    values: list[ValueDiff]
    read_bytes: int
    note: str | None


def figures_of(x: native.Figures) -> Figures:
    return Figures(x.n_elems, x.n_changed, x.n_beyond, x.n_not_finite_a, x.n_not_finite_b, x.n_not_finite_changed,
                   x.max_abs, x.mean_abs, x.norm_a, x.norm_b, x.norm_difference)


def dtype_of(side) -> str | None:
    return sessions.DTYPES[side.contents.dtype] if side else None


def shape_of(side) -> tuple[int, ...] | None:
    return tuple(side.contents.shape[:side.contents.n_dims]) if side else None


def tensor_diff_of(x: native.TensorDiff) -> TensorDiff:
    return TensorDiff(text(x.name), text(x.state), lib.unshard_diff_name(x.kind).decode(), dtype_of(x.a), dtype_of(x.b),
                      shape_of(x.a), shape_of(x.b), figures_of(x.figures.contents) if x.figures else None)


def group_diff_of(x: native.GroupDiff) -> tuple[str, GroupDiff]:
    return (lib.unshard_group_name(x.group).decode(),
            GroupDiff(text(x.name), x.n_tensors, x.n_different, figures_of(x.figures.contents)))


def value_of(text_of_json: bytes | None) -> Any:
    return None if text_of_json is None else json.loads(text_of_json.decode(errors="replace"))


def value_diff_of(x: native.ValueDiff) -> ValueDiff:
    return ValueDiff(text(x.name), value_of(x.json_a), value_of(x.json_b), x.counts)


sessions.MAKE.update(tensor_diff=tensor_diff_of, group_diff=group_diff_of, value_diff=value_diff_of)


class Side:
    """A checkpoint in a session of the directory above it, as the command opens it."""

    def __init__(self, path: str | os.PathLike, view: str, options: dict[str, Any]):
        self.path = os.path.realpath(sessions.newest_of(os.path.abspath(os.fspath(path)), view, options))
        os.stat(self.path)
        above, self.inside = os.path.split(self.path)
        if not self.inside or not os.access(above, os.R_OK | os.X_OK):
            above, self.inside = self.path, ""
        self.above, self.session = above, sessions.open(above, **options)

    def has_config(self) -> bool:
        try:
            self.session.stat("/".join(filter(None, ("weights", self.inside, "config.json"))))
        except (Error, OSError):
            return False
        return True

    def directory_of_config(self) -> str | None:
        for folder in (self.path, os.path.dirname(self.path)):
            if os.path.isfile(os.path.join(folder, "config.json")):
                return folder
        return None

    def reopen(self, options: dict[str, Any]) -> None:
        self.session.close()
        self.session = sessions.open(self.above, **options)

    def close(self) -> None:
        self.session.close()


def share_config(a: Side, b: Side, options: dict[str, Any]) -> str | None:
    """A checkpoint without a config.json gets the other's."""
    with_it = a if a.has_config() else b
    to = b if with_it is a else a
    folder = with_it.directory_of_config()
    if options.get("model") or to.has_config() or not with_it.has_config() or not folder:
        return None
    to.reopen({**options, "model": folder})
    names = ("B", "A") if to is b else ("A", "B")
    return f"{names[0]} has no config.json: {names[1]}'s is used for the names of its tensors"


def compare(a: Session, in_a: str, b: Session, in_b: str, how: native.DiffOptions, note: str | None,
            progress: Callable[[Progress], None] | None) -> Diff:
    tensors: list[TensorDiff] = []
    groups: list[tuple[str, GroupDiff]] = []
    values: list[ValueDiff] = []
    told = Told(progress=progress, tensor_diff=tensors.append, group_diff=groups.append, value_diff=values.append)
    err, counts = native.ErrorStruct(), native.DiffCounts()
    code = told.must(lib.unshard_diff(a.handle, native.encoded(in_a), b.handle, native.encoded(in_b), c.byref(how),
                                      c.byref(told.calls), c.byref(counts), c.byref(err)), err)

    def of(kind: str) -> list[GroupDiff]:
        return [g for k, g in groups if k == kind]
    return Diff(code == 0, of("all")[0], tensors, of("layer"), of("expert"), values, counts.read_bytes, note)


def diff(a: str | os.PathLike, b: str | os.PathLike, *, view: str = "weights", optimizer: bool = False,
         config: bool = True, tolerance: float = 0, relative_tolerance: float = 0,
         progress: Callable[[Progress], None] | None = None, **options: Any) -> Diff:
    """As `unshard diff`: how two checkpoints, of any formats, differ.

    view: whose tensors are compared. optimizer: also the states of the optimizers. config: also hyper-parameters,
    config.json and what is known about the training. |A - B| <= tolerance + relative_tolerance * |B| is no difference, and
    neither is another dtype then. Further arguments are those of open(), for both. RUN/latest is the newest checkpoint.

    >>> found = diff("tests/golden/run/checkpoint-2", "tests/golden/run/checkpoint-2", optimizer=True)
    >>> found.equal, found.total.tensors, [t.name for t in found.tensors if t.kind != "equal"]
    (True, 11, [])
    """
    options.setdefault("settle_seconds", 0)
    how = native.DiffOptions(view=native.encoded(view), tolerance=tolerance, relative_tolerance=relative_tolerance,
                             flags=optimizer | (not config) << 1)
    one = Side(a, view, options)
    try:
        other = Side(b, view, options)
        try:
            note = share_config(one, other, options)
            return compare(one.session, one.inside, other.session, other.inside, how, note, progress)
        finally:
            other.close()
    finally:
        one.close()

"""A session: one directory of runs, shown as the tree that a mount shows."""

from __future__ import annotations

import builtins
import ctypes as c
import dataclasses
import enum
import io
import json
import logging
import os
import re
import time
from typing import Any, Callable, Iterable, Iterator, Mapping, overload

from . import _library as native
from ._library import lib
from .errors import Error, error
from .process import Process

log = logging.getLogger("unshard")
LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


class Kind(enum.Enum):
    FILE, DIRECTORY, LINK = range(3)


@dataclasses.dataclass(frozen=True)
class Stat:
    """Of a name of the tree. `size` is exact before any byte is read."""
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ino: int


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    stat: Stat


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """`path` is below the source; `step` and `world_size` are None if not known."""
    path: str
    format: str | None
    step: int | None
    world_size: int | None
    size_bytes: int
    state: str
    problem: str | None


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is wrong, or worth knowing. Programs go by `id` and `check`; `text` is for people."""
    path: str
    check: str
    severity: str
    scope: str
    text: str
    id: str | None
    code: int
    view: str | None
    file: str | None
    rank: int | None
    tensor: str | None
    expected: str | None
    found: str | None
    advice: str | None


@dataclasses.dataclass(frozen=True)
class Change:
    """What an export left out."""
    path: str
    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class Seal:
    """What became of a checkpoint that was to be sealed. state: "sealed", "sealed before", "differs", "saving" or
    "refused"; text: why, None for the first two."""
    path: str
    state: str
    text: str | None
    where: str | None
    files: int
    pieces: int
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class Fact:
    """What is known about a training, and kept in the metadata store."""
    subject: str
    key: str
    value: Any
    origin: str
    time_s: int


@dataclasses.dataclass(frozen=True)
class Progress:
    phase: str
    directories: int
    checkpoints: int
    done_bytes: int
    total_bytes: int


@dataclasses.dataclass(frozen=True)
class Exported:
    checkpoints: int
    files: int
    size_bytes: int
    shared_bytes: int
    kept_bytes: int
    left_out: list[Change]


@overload
def text(value: bytes) -> str: ...


@overload
def text(value: None) -> None: ...


def text(value):
    """Names may be any bytes: as os.fsdecode has them."""
    return None if value is None else os.fsdecode(value)


def must(code: int, err: native.ErrorStruct) -> int:
    if code < 0:
        raise error(code, err.text.decode(errors="replace") or os.strerror(-code))
    return code


def stat_of(st: native.Stat) -> Stat:
    return Stat(Kind(st.kind), st.mode, st.uid, st.gid, st.size_bytes, st.mtime_ns, st.ino)


def checkpoint_of(x: native.Checkpoint) -> Checkpoint:
    return Checkpoint(text(x.path), text(x.format), x.step if x.step >= 0 else None,
                      x.world_size if x.world_size >= 0 else None, x.size_bytes,
                      lib.unshard_state_name(x.state).decode(), text(x.problem))


def finding_of(x: native.Finding) -> Finding:
    return Finding(text(x.path), text(x.check), ("note", "problem", "not judged")[x.severity],
                   lib.unshard_scope_name(x.scope).decode(), text(x.text), text(x.id), x.code, text(x.view),
                   text(x.file), x.rank if x.rank >= 0 else None, text(x.tensor), text(x.expected), text(x.found),
                   text(x.advice))


def change_of(x: native.Change) -> Change:
    return Change(text(x.path), lib.unshard_change_name(x.kind).decode(), text(x.text))


def seal_of(x: native.Seal) -> Seal:
    return Seal(text(x.path), lib.unshard_seal_state_name(x.state).decode(), text(x.text), text(x.where), x.files, x.pieces,
                x.size_bytes)


def fact_of(x: native.Fact) -> Fact:
    return Fact(text(x.subject), text(x.key), json.loads(x.json), text(x.origin), x.time_s)


def progress_of(x: native.Progress) -> Progress:
    return Progress(("scanning", "reading", "writing")[x.phase], x.directories, x.checkpoints, x.done_bytes,
                    x.total_bytes)


MAKE: dict[str, Callable] = {"checkpoint": checkpoint_of, "finding": finding_of, "change": change_of, "fact": fact_of, "sealed": seal_of,
                             "progress": progress_of}
GIVEN_UP = 1  # returned by a callback that raised


class Told:
    """Functions that a call of the library calls. What one raises ends the call and is raised by it."""

    def __init__(self, **functions: Callable | None):
        self.raised: BaseException | None = None
        self.calls = native.Calls()
        for name, function in functions.items():
            if function:
                setattr(self.calls, name, native.CALLBACK[name](self.guard(function, MAKE[name])))

    def guard(self, function: Callable, make: Callable) -> Callable:
        def call(_, struct):
            try:
                function(make(struct.contents))
            except BaseException as e:  # pylint: disable=broad-except
                self.raised = self.raised or e
                return GIVEN_UP
            return 0
        return call

    def must(self, code: int, err: native.ErrorStruct) -> int:
        if self.raised:
            raise self.raised
        return must(code, err)


def strings(values: str | Iterable[str] | None):
    """A list of C strings and its length, for a pair of fields."""
    listed = [values] if isinstance(values, str) else list(values or ())
    return (c.c_char_p * len(listed))(*map(native.encoded, listed)) if listed else None, len(listed)


def log_line(_, level, line):
    log.log(LEVELS[level], "%s", line.decode(errors="replace"))


LOG_LINE = native.LOG(log_line)


def options_of(view, model, follow, facts, weights_key, store, settle_seconds, other) -> native.Options:
    """The struct of open()'s arguments."""
    o = native.Options(log=LOG_LINE, log_level=1)
    o.view = None if view is None else native.encoded(view)
    for name, values in (("model", model), ("follow", follow), ("weight_root", weights_key)):
        array, n = strings(values if not isinstance(values, os.PathLike) else os.fspath(values))
        if n:
            setattr(o, name, array)
            setattr(o, f"n_{name}", n)
    array, n = strings([f"{key}={json.dumps(value)}" for key, value in (facts or {}).items()])
    if n:
        o.fact, o.n_fact = array, n
    o.no_store = store is None
    o.store = None if store in (None, "default") else native.encoded(store)
    o.no_settling = settle_seconds == 0
    for name, value in {"settle_seconds": settle_seconds, **other}.items():
        if name not in ("settle_seconds", "max_shard_size_bytes", "mem_bytes", "cache_dir", "cache_size_bytes", "strip",
                        "hide_rng", "keep_rng", "crc_exact", "assume_fsdp_units", "trim_memory", "delay_read_us",
                        "seals", "mean", "adapters", "experts", "memos", "reads"):
            raise TypeError(f"open() got an unexpected keyword argument '{name}'")
        value = os.path.abspath(value) if name == "seals" and value is not None else value
        if name == "memos" and value is not None:
            listed = os.fspath(value).split(":") if isinstance(value, (str, os.PathLike)) else map(os.fspath, value)
            value = ":".join(map(os.path.abspath, listed)) or None
        if name in ("cache_dir", "strip", "seals", "mean", "adapters", "experts", "memos", "reads") and value is not None:
            value = native.encoded(value)
        setattr(o, name, value)
        if getattr(o, name) != value:  # ctypes keeps the low bits
            raise ValueError(f"{name}={value!r} is out of range")
    return o


class Session:
    """What unshard.open() returns. Any number of threads may use it at once; close() is for one, after all others
    have ended. It closes the session's files and lists of tensors too. A forked process opens its own: the parent's
    cannot be used there."""

    def __init__(self, source: str | os.PathLike, options: native.Options):
        self.source = os.fspath(source)
        self.process = Process()
        # What of the library is open in the session: handle -> the function that closes it. No Python object, so that
        # the order in which the garbage collector ends them does not matter.
        self.opened: dict[int, Callable] = {}
        self._handle: c.c_void_p | None = c.c_void_p()
        err = native.ErrorStruct()
        must(lib.unshard_open(native.encoded(source), c.byref(options), c.byref(self._handle), c.byref(err)), err)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Nothing that was made of the session may be used any more. Closing twice is allowed."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle and self.process.is_this():
            while self.opened:
                opened, close = self.opened.popitem()
                close(opened)
            lib.unshard_close(handle)

    @property
    def handle(self) -> c.c_void_p:
        if not self._handle:
            raise ValueError("the session is closed")
        self.process.must_be_this("session")
        return self._handle

    # -- the tree --

    def stat(self, path: str = "") -> Stat:
        """Of a path of the tree: "weights/llama/checkpoint-2"."""
        st, err = native.Stat(), native.ErrorStruct()
        must(lib.unshard_stat(self.handle, native.encoded(path), c.byref(st), c.byref(err)), err)
        return stat_of(st)

    def list(self, path: str = "") -> list[Entry]:
        """What is in a directory of the tree, in natural order of names."""
        listing, err = c.c_void_p(), native.ErrorStruct()
        must(lib.unshard_list(self.handle, native.encoded(path), c.byref(listing), c.byref(err)), err)
        try:
            entries = (lib.unshard_listing_at(listing, i).contents for i in range(lib.unshard_listing_count(listing)))
            return [Entry(text(e.name), stat_of(e.stat)) for e in entries]
        finally:
            lib.unshard_listing_free(listing)

    def readlink(self, path: str) -> str:
        target, err = c.c_void_p(), native.ErrorStruct()
        must(lib.unshard_readlink(self.handle, native.encoded(path), c.byref(target), c.byref(err)), err)
        return os.fsdecode(take(target))

    def file(self, path: str) -> File:
        """A file of the tree, open for reading: as open(path, "rb", buffering=0) of a mount."""
        return File(self, path)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Bytes of a file of the tree; size -1: all from `offset` on."""
        with self.file(path) as f:
            wanted = max(0, f.stat.size - offset) if size < 0 else size
            return bytes(f.pread(wanted, offset))

    # -- checkpoints --

    def checkpoints(self, progress: Callable[[Progress], None] | None = None) -> builtins.list[Checkpoint]:
        """Every checkpoint below the source, in natural order."""
        found: builtins.list[Checkpoint] = []
        told, err = Told(checkpoint=found.append, progress=progress), native.ErrorStruct()
        told.must(lib.unshard_scan(self.handle, c.byref(told.calls), c.byref(err)), err)
        return found

    def info(self, checkpoint: str, what: str = "info") -> dict:
        """What a checkpoint is, its views and its problems; what="tensors": with the pieces of each tensor;
        "provenance": where the files of the views come from. `checkpoint` is below the source."""
        made, err = c.c_void_p(), native.ErrorStruct()
        number = ("info", "tensors", "provenance").index(what)
        must(lib.unshard_describe(self.handle, native.encoded(checkpoint), number, None, c.byref(made), c.byref(err)),
             err)
        return json.loads(take(made))

    def seal(self, path: str = "", again: bool = False,
             progress: Callable[[Progress], None] | None = None) -> builtins.list[Seal]:
        """Seal a checkpoint below the source, or every one below a directory of it: see unshard.seal()."""
        found: builtins.list[Seal] = []
        told, counts, err = Told(sealed=found.append, progress=progress), native.SealCounts(), native.ErrorStruct()
        told.must(lib.unshard_seal(self.handle, native.encoded(path), int(again), c.byref(told.calls), c.byref(counts),
                                   c.byref(err)), err)
        return found

    def problems(self, checkpoint: str) -> builtins.list[Finding]:
        """Everything known to be wrong with one checkpoint, and notes."""
        found: builtins.list[Finding] = []
        told, err = Told(finding=found.append), native.ErrorStruct()
        told.must(lib.unshard_problems(self.handle, native.encoded(checkpoint), c.byref(told.calls), None,
                                       c.byref(err)), err)
        return found

    def check(self, path: str = "", deep: bool = False,
              progress: Callable[[Progress], None] | None = None) -> builtins.list[Finding]:
        """As `unshard check`: of a checkpoint, or of every one below a directory. deep: reads all data."""
        found: builtins.list[Finding] = []
        told, err = Told(finding=found.append, progress=progress), native.ErrorStruct()
        told.must(lib.unshard_check(self.handle, native.encoded(path), 1 if deep else 0, c.byref(told.calls), None,
                                    c.byref(err)), err)
        return found

    def facts(self, path: str = "") -> builtins.list[Fact]:
        """Facts of the metadata store that hold for a checkpoint or a directory. The session needs a store."""
        found: builtins.list[Fact] = []
        told, err = Told(fact=found.append), native.ErrorStruct()
        told.must(lib.unshard_meta_list(self.handle, native.encoded(path), c.byref(told.calls), c.byref(err)), err)
        return found

    def set_fact(self, path: str, key: str, value: Any) -> None:
        """Keep a fact for a checkpoint, or for all below a directory."""
        err = native.ErrorStruct()
        must(lib.unshard_meta_set(self.handle, native.encoded(path), native.encoded(key), json.dumps(value).encode(),
                                  None, c.byref(err)), err)

    def unset_fact(self, path: str, key: str) -> None:
        err = native.ErrorStruct()
        must(lib.unshard_meta_unset(self.handle, native.encoded(path), native.encoded(key), c.byref(err)), err)

    def tensors(self, checkpoint: str, view: str | None = None) -> Tensors:
        """The tensors of a checkpoint by name; view: those in the view's files of weights, as they are there."""
        return Tensors(self, checkpoint, view)

    def export(self, path: str, out: str | os.PathLike, view: str | None = None, *, resume: bool = False,
               verify: bool = False, checksums: bool = False,
               progress: Callable[[Progress], None] | None = None) -> Exported:
        """As `unshard export`: what the tree has at VIEW/path, as the new directory `out`."""
        left: builtins.list[Change] = []
        told, err, made = Told(change=left.append, progress=progress), native.ErrorStruct(), native.Exported()
        told.must(lib.unshard_export(self.handle, native.encoded(path), None if view is None else native.encoded(view),
                                     native.encoded(out), resume | verify << 1 | checksums << 2, c.byref(told.calls),
                                     c.byref(made), c.byref(err)), err)
        return Exported(made.checkpoints, made.files, made.size_bytes, made.shared_bytes, made.kept_bytes, left)


def take(memory: c.c_void_p) -> bytes:
    """A text of the library, which is given back."""
    try:
        return c.string_at(memory)
    finally:
        lib.unshard_free(memory)


def address(buffer, writable: bool = True):
    """(what keeps it, address, bytes) of any contiguous buffer."""
    view = memoryview(buffer).cast("B")
    if writable and view.readonly:
        raise TypeError("the buffer is read-only")
    return (c.c_char * len(view)).from_buffer(view) if len(view) else None, len(view)


class Opened:
    """A file or a list of tensors of the library, until it is closed, or its session is."""

    def __init__(self, session: Session, handle: c.c_void_p, close: Callable, what: str):
        number = handle.value or 0  # never NULL
        self.session, self._what = session, what
        self._number: int | None = number
        session.opened[number] = close

    @property
    def handle(self) -> int:
        if self._number is None or self._number not in self.session.opened:
            raise ValueError(f"the {self._what} is closed")
        self.session.process.must_be_this(self._what)
        return self._number

    def close(self) -> None:
        close = self.session.opened.pop(self._number or 0, None)
        if close and self.session.process.is_this():
            close(self._number)
        self._number = None

    __del__ = close


class File(io.RawIOBase):
    """One file of the tree. Reads give the bytes that `stat` describes, or raise Stale. pread and preadinto may be
    called by several threads at once."""

    def __init__(self, session: Session, path: str):
        super().__init__()
        handle, st, err = c.c_void_p(), native.Stat(), native.ErrorStruct()
        must(lib.unshard_file_open(session.handle, native.encoded(path), None, c.byref(handle), c.byref(st),
                                   c.byref(err)), err)
        self._opened = Opened(session, handle, lib.unshard_file_close, "file")
        self.path, self.stat, self._at = path, stat_of(st), 0

    def close(self) -> None:
        if hasattr(self, "_opened"):
            self._opened.close()
        super().close()

    def preadinto(self, buffer, offset: int) -> int:
        """Fills the buffer from byte `offset` on; fewer bytes only at the end of the file."""
        memory, n = address(buffer)
        err = native.ErrorStruct()
        return must(lib.unshard_pread(self._opened.handle, memory, n, native.u64(offset), c.byref(err)), err)

    def pread(self, size: int, offset: int) -> bytearray:
        out = bytearray(max(0, min(size, self.stat.size - offset)))
        del out[self.preadinto(out, offset):]
        return out

    def readinto(self, buffer) -> int:
        n = self.preadinto(buffer, self._at)
        self._at += n
        return n

    def readall(self) -> bytes:
        out = self.pread(self.stat.size - self._at, self._at)
        self._at += len(out)
        return bytes(out)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + (0, self._at, self.stat.size)[whence]
        if at < 0:
            raise ValueError(f"negative seek value {at}")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of a checkpoint. `state` is None for a weight, else which of the optimizer's states it is."""
    name: str
    key: str
    root: str
    state: str | None
    role: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    index: int
    opened: Opened = dataclasses.field(repr=False, compare=False)

    def readinto(self, buffer, lo: Iterable[int] | None = None, length: Iterable[int] | None = None,
                 dtype: str | None = None) -> None:
        """All of it, or the box [lo, lo + length), in C order into a buffer of exactly its size; dtype: rounded to
        another floating dtype, as torch's Tensor.to() does."""
        memory, n = address(buffer)
        self.read_at(memory, n, lo, length, dtype)

    def read_at(self, memory, n_bytes: int, lo=None, length=None, dtype: str | None = None) -> None:
        """The same at an address."""
        err = native.ErrorStruct()
        first, count = (None if x is None else self._of_each_dimension(x) for x in (lo, length))
        must(lib.unshard_tensor_read(self.opened.handle, self.index, first, count,
                                     -1 if dtype is None else DTYPES.index(dtype), memory, n_bytes, c.byref(err)), err)

    def _of_each_dimension(self, numbers: Iterable[int]):
        checked = [native.u64(n) for n in numbers]
        if len(checked) != len(self.shape):
            raise ValueError(f"{len(checked)} numbers for {len(self.shape)} dimensions")
        return (c.c_uint64 * max(1, len(checked)))(*checked)

    def read(self, lo=None, length=None, dtype: str | None = None) -> bytearray:
        """The same as new bytes."""
        elements = 1
        for n in self.shape if length is None else tuple(length):
            elements *= n
        out = bytearray(elements * itemsize(dtype or self.dtype))
        self.readinto(out, lo, length, dtype)
        return out


def names_of_dtypes() -> list[str]:
    out: list[str] = []
    while lib.unshard_dtype_name(len(out)):
        out.append(lib.unshard_dtype_name(len(out)).decode())
    return out


DTYPES = names_of_dtypes()  # torch's names, in the order of unshard.h


def itemsize(dtype: str) -> int:
    return lib.unshard_dtype_size(DTYPES.index(dtype))


class Tensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint: those of the model by name; an optimizer's states by get(name, state)."""

    def __init__(self, session: Session, checkpoint: str, view: str | None):
        handle, err = c.c_void_p(), native.ErrorStruct()
        must(lib.unshard_tensors_open(session.handle, native.encoded(checkpoint),
                                      None if view is None else native.encoded(view), c.byref(handle),
                                      c.byref(err)), err)
        self._opened = Opened(session, handle, lib.unshard_tensors_close, "list of tensors")
        self.all = [self._tensor(i) for i in range(lib.unshard_tensors_count(self._opened.handle))]
        self._by_name: dict[tuple[str, str | None], Tensor] = {}
        for t in self.all:
            self._by_name.setdefault((t.name, t.state), t)
        self._names = [name for name, state in self._by_name if state is None]

    def _tensor(self, i: int) -> Tensor:
        x = lib.unshard_tensors_at(self._opened.handle, i).contents
        return Tensor(text(x.name), text(x.key), text(x.root), text(x.state), lib.unshard_role_name(x.role).decode(),
                      DTYPES[x.dtype], tuple(x.shape[:x.n_dims]), x.size_bytes, i, self._opened)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Tensors:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __getitem__(self, name: str) -> Tensor:
        return self._by_name[name, None]

    def state(self, name: str, state: str) -> Tensor:
        """An optimizer's state of the parameter: "exp_avg", "exp_avg_sq", "master", "step"."""
        return self._by_name[name, state]

    __hash__ = object.__hash__  # it is itself, not what it holds
    __eq__ = object.__eq__

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def open(source: str | os.PathLike, *, view: str | None = None, model: str | Iterable[str] | None = None,  # pylint: disable=redefined-builtin
         follow: str | Iterable[str] | None = None, facts: Mapping[str, Any] | None = None,
         weights_key: str | Iterable[str] | None = None, store: str | os.PathLike | None = None,
         settle_seconds: int = 60, **other: Any) -> Session:
    """Show the checkpoints below `source` as the tree that a mount shows, without a mount.

    view: show this one view at the root. model, follow, facts, weights_key, settle_seconds: as `-o model=`,
    `follow=`, `fact=`, `weights_key=`, `settle=` of the command. store: the metadata store's file, "default" for the
    user's own, None for none. Further options of unshard.h by their names: strip, mem_bytes, crc_exact, ...

    >>> with open("tests/golden/run") as session:
    ...     [c.path for c in session.checkpoints()]
    ...     [e.name for e in session.list("weights/checkpoint-2")][:3]
    ['checkpoint-2']
    ['config.json', 'generation_config.json', 'model.safetensors']
    """
    return Session(source, options_of(view, model, follow, facts, weights_key, store, settle_seconds, other))


def check(path: str | os.PathLike, *, deep: bool = False, wait: float | None = 0,
          progress: Callable[[Progress], None] | None = None, **options: Any) -> list[Finding]:
    """As `unshard check`: what is wrong with a checkpoint, or with every one below a directory. Paths of findings are below
    `path`. A checkpoint that is still being saved, or that cannot be read at this moment, is "not judged": an empty
    list is the only answer that says that all is sound.

    deep: read all data. wait: for saves to end, at most so many seconds; None: as long as it takes. Further arguments are
    those of open().

    >>> check("tests/golden/run", settle_seconds=0)
    []
    """
    with open(path, **options) as session:
        end = None if wait is None else time.monotonic() + wait
        while wait != 0 and any(f.id == "still_saving" for f in session.check()):
            if end is not None and time.monotonic() >= end:
                break
            time.sleep(0.5)
        return session.check(deep=deep, progress=progress)


def seal(path: str | os.PathLike, *, again: bool = False, seals: str | os.PathLike | None = None,
         store: str | os.PathLike | None = "default", progress: Callable[[Progress], None] | None = None,
         **options: Any) -> list[Seal]:
    """As `unshard seal`: keep checksums of a checkpoint, or of every one below a directory, right after the save.

    Seals are kept in the metadata store, or as files: seals is a directory, or the name of one checkpoint's file, which
    ends in ".sha256". again: also replace seals that the files contradict. Further arguments are those of open(). check()
    compares with them if it gets the same `store` or `seals`."""
    above, inside = parted(path)
    with open(above, seals=seals, store=store, **options) as session:
        return session.seal(inside, again=again, progress=progress)


def is_url(path: str | os.PathLike) -> bool:
    """Is it no path on this machine? Which addresses are read, the library knows."""
    return re.match(r"[A-Za-z0-9+.-]+://", os.fspath(path)) is not None


def located(path: str | os.PathLike) -> str:
    """The absolute path; a URL as it is, without a slash at its end."""
    return os.fspath(path).rstrip("/") if is_url(path) else os.path.abspath(path)


def parted(path: str | os.PathLike) -> tuple[str, str]:
    """What to open, and the name in it: none of a directory. Whether a URL is one, the store alone knows."""
    return (os.fspath(path), "") if is_url(path) or os.path.isdir(path) else os.path.split(os.path.abspath(path))


NEWEST = "latest"  # the name that each view has for a run's newest checkpoint


def newest_of(path: str, view: str, options: dict[str, Any]) -> str:
    """What RUN/latest leads to; any other path, and a file or directory of that name, as it is."""
    run, name = os.path.split(path)
    if name != NEWEST or not is_url(path) and (os.path.lexists(path) or not os.path.isdir(run)):
        return path
    with open(run, **options) as session:
        if is_url(path) and session.stat(f"{view}/{NEWEST}").kind != Kind.LINK:
            return path
        return os.path.join(run, session.readlink(f"{view}/{NEWEST}"))


def checkpoints(run: str | os.PathLike, *, view: str = "weights", after: int = -1, timeout: float | None = None,
                **options: Any) -> Iterator[str]:
    """Each newer checkpoint of a run, as soon as it is whole in the view: paths, as `unshard wait` prints them. A program that
    is busy for longer than the training takes for a checkpoint gets the newest, and not those between.

    after: a step; only later ones. timeout: end after so many seconds without a newer checkpoint; None = never. Further
    arguments are those of open().

    >>> [os.path.basename(path) for path in checkpoints("tests/golden/run", timeout=0, settle_seconds=0)]
    ['checkpoint-2']
    """
    with open(run, **options) as session:
        session.stat(view)
        last, began = None, time.monotonic()
        while True:
            try:
                name = session.readlink(f"{view}/{NEWEST}")
                step = session.info(name)["step"]
            except Error:  # none yet, or what is there changes at this moment
                name, step = None, None
            if name and name != last and (after < 0 or (step is not None and step > after)):
                last, after = name, -1 if step is None else step
                yield os.path.join(run, name)
                began = time.monotonic()
            elif timeout is not None and time.monotonic() >= began + timeout:
                return
            else:
                time.sleep(0.5)

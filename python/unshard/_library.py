"""libunshard by ctypes: the structs, callbacks and functions of unshard.h, and nothing else.

ctypes releases the GIL for the duration of each call, and takes it again for a callback."""

from __future__ import annotations

import ctypes as c
import operator
import os
from pathlib import Path

MAX_DIMS = 8


class ErrorStruct(c.Structure):
    _fields_ = [("code", c.c_int), ("text", c.c_char * 512)]


class Sized(c.Structure):
    """A struct of the caller: begins with its size."""

    def __init__(self, **values):
        super().__init__(c.sizeof(type(self)), **values)


LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
STRINGS = c.POINTER(c.c_char_p)


class Options(Sized):
    _fields_ = [("size", c.c_size_t), ("view", c.c_char_p), ("mountpoint", c.c_char_p),
                ("weight_root", STRINGS), ("n_weight_root", c.c_size_t), ("model", STRINGS), ("n_model", c.c_size_t),
                ("follow", STRINGS), ("n_follow", c.c_size_t), ("max_shard_size_bytes", c.c_uint64),
                ("mem_bytes", c.c_uint64), ("cache_dir", c.c_char_p), ("cache_size_bytes", c.c_uint64),
                ("store", c.c_char_p), ("fact", STRINGS), ("n_fact", c.c_size_t), ("strip", c.c_char_p),
                ("log", LOG), ("log_ctx", c.c_void_p), ("log_level", c.c_int), ("settle_seconds", c.c_uint),
                ("delay_read_us", c.c_uint), ("no_settling", c.c_bool), ("no_store", c.c_bool),
                ("hide_rng", c.c_bool), ("keep_rng", c.c_bool), ("crc_exact", c.c_bool),
                ("assume_fsdp_units", c.c_bool), ("trim_memory", c.c_bool), ("keep_names", c.c_bool),
                ("keeps_pages", c.c_bool), ("reserved", c.c_bool * 3), ("seals", c.c_char_p), ("mean", c.c_char_p),
                ("adapters", c.c_char_p), ("experts", c.c_char_p), ("memos", c.c_char_p),
                ("reads", c.c_char_p)]


class Progress(c.Structure):
    _fields_ = [("size", c.c_size_t), ("phase", c.c_int), ("directories", c.c_size_t), ("checkpoints", c.c_size_t),
                ("done_bytes", c.c_uint64), ("total_bytes", c.c_uint64)]


class Checkpoint(c.Structure):
    _fields_ = [("size", c.c_size_t), ("path", c.c_char_p), ("format", c.c_char_p), ("step", c.c_int64),
                ("world_size", c.c_int64), ("size_bytes", c.c_uint64), ("state", c.c_int), ("problem", c.c_char_p),
                ("problem_id", c.c_char_p)]


class Finding(c.Structure):
    _fields_ = [("size", c.c_size_t), ("path", c.c_char_p), ("check", c.c_char_p), ("severity", c.c_int),
                ("scope", c.c_int), ("text", c.c_char_p), ("id", c.c_char_p), ("code", c.c_int), ("view", c.c_char_p),
                ("file", c.c_char_p), ("rank", c.c_int64), ("tensor", c.c_char_p), ("expected", c.c_char_p),
                ("found", c.c_char_p), ("advice", c.c_char_p)]


class Change(c.Structure):
    _fields_ = [("size", c.c_size_t), ("path", c.c_char_p), ("kind", c.c_int), ("text", c.c_char_p)]


class Fact(c.Structure):
    _fields_ = [("size", c.c_size_t), ("subject", c.c_char_p), ("key", c.c_char_p), ("json", c.c_char_p),
                ("origin", c.c_char_p), ("time_s", c.c_int64)]


class Figures(c.Structure):
    _fields_ = [("size", c.c_size_t), ("n_elems", c.c_uint64), ("n_changed", c.c_uint64), ("n_beyond", c.c_uint64),
                ("n_not_finite_a", c.c_uint64), ("n_not_finite_b", c.c_uint64), ("n_not_finite_changed", c.c_uint64),
                ("max_abs", c.c_double), ("mean_abs", c.c_double), ("norm_a", c.c_double), ("norm_b", c.c_double),
                ("norm_difference", c.c_double)]


class TensorDiff(c.Structure):
    pass  # its fields are below, behind Tensor


class GroupDiff(c.Structure):
    _fields_ = [("size", c.c_size_t), ("group", c.c_int), ("name", c.c_char_p), ("n_tensors", c.c_size_t),
                ("n_different", c.c_size_t), ("figures", c.POINTER(Figures))]


class ValueDiff(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("json_a", c.c_char_p), ("json_b", c.c_char_p),
                ("counts", c.c_bool)]


class Seal(c.Structure):
    _fields_ = [("size", c.c_size_t), ("path", c.c_char_p), ("state", c.c_int), ("text", c.c_char_p),
                ("where", c.c_char_p), ("files", c.c_size_t), ("pieces", c.c_size_t), ("size_bytes", c.c_uint64)]


class Memo(c.Structure):
    _fields_ = [("size", c.c_size_t), ("path", c.c_char_p), ("state", c.c_int), ("text", c.c_char_p),
                ("file", c.c_char_p), ("size_bytes", c.c_uint64)]


MAGNITUDES, LEAST_EXPONENT = 96, -80


class Measure(c.Structure):
    pass  # its fields are below, behind Tensor


TOLD = {"progress": Progress, "checkpoint": Checkpoint, "finding": Finding, "change": Change, "fact": Fact}
DIFFS = {"tensor_diff": TensorDiff, "group_diff": GroupDiff, "value_diff": ValueDiff}
LATER = {"sealed": Seal, "measure": Measure, "memo": Memo}
CALLBACK = {name: c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(struct)) for name, struct in (TOLD | DIFFS | LATER).items()}


class Calls(Sized):
    _fields_ = [("size", c.c_size_t), ("ctx", c.c_void_p), *((name, CALLBACK[name]) for name in TOLD), ("writes", c.c_void_p),
                *((name, CALLBACK[name]) for name in (*DIFFS, *LATER))]


class Stat(Sized):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_int), ("mode", c.c_uint32), ("uid", c.c_uint32),
                ("gid", c.c_uint32), ("nlink", c.c_uint32), ("size_bytes", c.c_uint64), ("mtime_ns", c.c_int64),
                ("ino", c.c_uint64), ("stable", c.c_bool), ("live", c.c_bool), ("young", c.c_bool),
                ("reserved", c.c_bool * 5)]


class Dirent(c.Structure):
    _fields_ = [("name", c.c_char_p), ("stat", Stat)]


class Tensor(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("key", c.c_char_p), ("root", c.c_char_p),
                ("state", c.c_char_p), ("role", c.c_int), ("dtype", c.c_int), ("n_dims", c.c_uint32),
                ("shape", c.c_uint64 * MAX_DIMS), ("size_bytes", c.c_uint64)]


TensorDiff._fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("state", c.c_char_p), ("kind", c.c_int),
                       ("a", c.POINTER(Tensor)), ("b", c.POINTER(Tensor)), ("figures", c.POINTER(Figures))]

Measure._fields_ = [("size", c.c_size_t), ("tensor", c.POINTER(Tensor)), ("expert", c.c_int64), ("why", c.c_char_p),
                    *((name, c.c_uint64) for name in ("n_elems", "n_zero", "n_negative", "n_nan", "n_infinite")),
                    *((name, c.c_double) for name in ("min", "max", "mean", "norm")), ("magnitude", c.c_uint64 * MAGNITUDES),
                    ("n_rows", c.c_uint64), ("n_small_rows", c.c_uint64), ("norm_update", c.c_double), ("lr", c.c_double)]


class DiffOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("view", c.c_char_p), ("tolerance", c.c_double),
                ("relative_tolerance", c.c_double), ("flags", c.c_uint), ("reserved", c.c_uint)]


class DiffCounts(Sized):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_size_t * 16), ("n_values", c.c_size_t), ("read_bytes", c.c_uint64)]


class DeviceOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("buffer_bytes", c.c_uint64), ("n_buffers", c.c_uint), ("n_threads", c.c_uint),
                ("way", c.c_int)]


class DeviceBox(Sized):
    _fields_ = [("size", c.c_size_t), ("i", c.c_size_t), ("lo", c.POINTER(c.c_uint64)), ("len", c.POINTER(c.c_uint64)),
                ("dtype", c.c_int), ("to", c.c_void_p), ("to_bytes", c.c_uint64)]


class CheckCounts(Sized):
    _fields_ = [("size", c.c_size_t), ("checkpoints", c.c_size_t), ("problems", c.c_size_t), ("notes", c.c_size_t),
                ("unjudged", c.c_size_t), ("read_bytes", c.c_uint64), ("saving", c.c_size_t)]


class SealCounts(Sized):
    _fields_ = [("size", c.c_size_t), *((name, c.c_size_t) for name in ("checkpoints", "sealed", "sealed_before",
                                                                       "differs", "saving", "refused")),
                ("read_bytes", c.c_uint64)]


class Exported(Sized):
    _fields_ = [("size", c.c_size_t), ("checkpoints", c.c_size_t), ("files", c.c_size_t), ("size_bytes", c.c_uint64),
                ("shared_bytes", c.c_uint64), ("kept_bytes", c.c_uint64)]


def encoded(value: str | bytes | os.PathLike) -> bytes:
    """A C string, which would end at a NUL."""
    made = os.fsencode(value)
    if b"\0" in made:
        raise ValueError(f"embedded null byte in {value!r}")
    return made


def u64(value: int) -> int:
    """ctypes would keep the low bits of any other number."""
    number = operator.index(value)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{number} is not a number from 0 to 2**64 - 1")
    return number


HERE = Path(__file__).resolve().parent / "_lib"  # of a wheel: the library, what it needs, and the command


def load():
    """$UNSHARD_LIBRARY, the wheel's own, or the system's."""
    own = HERE / "libunshard.so.0"
    return c.CDLL(os.environ.get("UNSHARD_LIBRARY") or (str(own) if own.exists() else "libunshard.so.0"))


def declare(lib):
    p, err = c.c_void_p, c.POINTER(ErrorStruct)
    out, calls, text, size = c.POINTER(p), c.POINTER(Calls), c.c_char_p, c.c_size_t
    sizes = c.POINTER(c.c_uint64)
    signatures = {
        "version": (text,), "free": (None, p), "dtype_size": (size, c.c_int),
        "open": (c.c_int, text, c.POINTER(Options), out, err), "close": (None, p),
        "stat": (c.c_int, p, text, c.POINTER(Stat), err), "readlink": (c.c_int, p, text, out, err),
        "list": (c.c_int, p, text, out, err), "listing_count": (size, p),
        "listing_at": (c.POINTER(Dirent), p, size), "listing_free": (None, p),
        "file_open": (c.c_int, p, text, calls, out, c.POINTER(Stat), err), "file_close": (None, p),
        "pread": (c.c_ssize_t, p, p, size, c.c_uint64, err),
        "scan": (c.c_int, p, calls, err), "describe": (c.c_int, p, text, c.c_int, text, out, err),
        "problems": (c.c_int, p, text, calls, c.POINTER(size), err),
        "check": (c.c_int, p, text, c.c_uint, calls, c.POINTER(CheckCounts), err),
        "seal": (c.c_int, p, text, c.c_uint, calls, c.POINTER(SealCounts), err), "seal_state_name": (text, c.c_int),
        "meta_list": (c.c_int, p, text, calls, err), "meta_set": (c.c_int, p, text, text, text, text, err),
        "meta_unset": (c.c_int, p, text, text, err),
        "export": (c.c_int, p, text, text, text, c.c_uint, calls, c.POINTER(Exported), err),
        "diff": (c.c_int, p, text, p, text, c.POINTER(DiffOptions), calls, c.POINTER(DiffCounts), err),
        "measure_tensors": (c.c_int, p, text, calls, err),
        "diff_name": (text, c.c_int), "group_name": (text, c.c_int),
        "tensors_open": (c.c_int, p, text, text, out, err), "tensors_close": (None, p), "tensors_count": (size, p),
        "tensors_at": (c.POINTER(Tensor), p, size),
        "tensor_read": (c.c_int, p, size, sizes, sizes, c.c_int, p, size, err),
        "device_open": (c.c_int, c.c_int, c.POINTER(DeviceOptions), out, err), "device_close": (None, p),
        "device_read": (c.c_int, p, p, c.POINTER(DeviceBox), size, out, out, err),
        "transfer_wait": (c.c_int, p, err), "transfer_free": (None, p),
        "dtype_name": (text, c.c_int), "role_name": (text, c.c_int), "state_name": (text, c.c_int),
        "scope_name": (text, c.c_int), "change_name": (text, c.c_int),
    }
    for name, (returns, *takes) in signatures.items():
        function = getattr(lib, f"unshard_{name}")
        function.restype, function.argtypes = returns, takes
    return lib


lib = declare(load())

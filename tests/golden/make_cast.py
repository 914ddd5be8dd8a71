#!/usr/bin/env python3
r"""Writes cast.bin beside it: what torch's Tensor.to() makes of chosen values (made with torch 2.13).

    make_cast.py                     write cast.bin
    make_cast.py --check LIBRARY.so  compare the C code with torch on every pattern of the 8- and 16-bit
                                     types and on millions of f32 and f64; LIBRARY is made with
        cc -std=gnu11 -O2 -shared -fPIC -fno-strict-aliasing -I lib lib/engine/cast.c \
           lib/wire/dtype.c lib/base/path.c lib/base/arena.c -lm

cast.bin is a list of records: source type (16 bytes, NUL padded), target type (16), count (4, little
endian), the source elements, the target elements.
"""
import ctypes
import os
import struct
import sys

import torch

F8 = ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]
TARGETS = ["float64", "float32", "float16", "bfloat16"]
INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def of_bits(bits, dtype):
    dtype = getattr(torch, dtype)
    return torch.tensor(bits, dtype=torch.int64).to(INTEGER[dtype.itemsize]).view(dtype)


def edges_f32():
    """Around every power of two that some target has as a limit, and halfway between its values."""
    out = []
    for exponent in (-151, -150, -149, -134, -133, -127, -126, -25, -24, -15, -14, 0, 15, 16, 127):
        for mantissa in (1.0, 1.5, 1 + 2 ** -8, 1 + 2 ** -9, 1 + 2 ** -11, 1 + 2 ** -12,
                         1 + 3 * 2 ** -8, 1 + 3 * 2 ** -11, 2 - 2 ** -8, 2 - 2 ** -11, 2 - 2 ** -23):
            out.append(torch.tensor(mantissa * 2.0 ** exponent, dtype=torch.float32))
    x = torch.stack(out)
    bits = x.view(torch.int32)
    x = torch.cat([bits - 1, bits, bits + 1]).view(torch.float32)
    special = torch.tensor([0.0, float("inf"), float("nan")])
    x = torch.cat([special, x])
    return torch.cat([x, -x])


def random_bits(dtype, n, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-2 ** 63, 2 ** 63 - 1, (n * 8 // dtype.itemsize,), generator=g).view(
        torch.uint8)[: n * dtype.itemsize].view(dtype)


def few(source):
    if source in F8:
        return of_bits(list(range(256)), source)
    if source in ("float16", "bfloat16"):
        limits = [0, 1, 2, 0x7f, 0x80, 0x81, 0x3ff, 0x400, 0x401, 0x3c00, 0x3f80, 0x7bff, 0x7c00,
                  0x7c01, 0x7e00, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fff]
        more = [(i * 40503 + 11) & 0x7fff for i in range(30)]
        return of_bits([s | v for v in limits + more for s in (0, 0x8000)], source)
    x = edges_f32()[::5]
    return x if source == "float32" else torch.cat([x.double(), x.double() * (1 + 2.0 ** -40)])[::2]


def all_of(source):
    dtype = getattr(torch, source)
    if dtype.itemsize <= 2:
        return of_bits(list(range(256 ** dtype.itemsize)), source)
    x = random_bits(dtype, 4_000_000, 1)
    f = torch.cat([edges_f32(), random_bits(torch.float32, 4_000_000, 2)])
    # every bf16 and f16 value, exactly halfway to the next one, and one step to either side of that
    base = torch.arange(65536, dtype=torch.int64).to(torch.int32)
    for shift, half in ((16, 0x8000), ):
        for step in (-1, 0, 1):
            f = torch.cat([f, ((base << shift) + half + step).view(torch.float32)])
    half16 = base.to(torch.int16).view(torch.float16).float()
    between = (half16 + half16.roll(-1)) / 2
    bits = between.view(torch.int32)
    f = torch.cat([f, torch.cat([bits - 1, bits, bits + 1]).view(torch.float32)])
    if source == "float32":
        return torch.cat([x, f])
    return torch.cat([x, f.double(), f.double() * (1 + 2.0 ** -45), f.double() * (1 - 2.0 ** -45)])


def raw(t):
    return t.contiguous().view(torch.uint8).numpy().tobytes()


def pairs():
    for source in F8 + TARGETS:
        for target in TARGETS:
            if source != target:
                yield source, target


def write():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cast.bin")
    with open(path, "wb") as out:
        for source, target in pairs():
            if source in F8 and target != "float32":
                continue  # by way of float32, which the other records cover
            x = few(source)
            y = x.to(getattr(torch, target))
            out.write(struct.pack("<16s16sI", source.encode(), target.encode(), len(x)))
            out.write(raw(x) + raw(y))


def check(library):
    lib = ctypes.CDLL(os.path.abspath(library))
    # the order of enum uns_dtype (wire/dtype.h)
    code = {"float8_e5m2": 3, "float8_e4m3fn": 4, "float8_e8m0fnu": 5, "float8_e4m3fnuz": 6,
            "float8_e5m2fnuz": 7, "float16": 10, "bfloat16": 11, "float32": 14, "float64": 16}
    bad = 0
    for source, target in pairs():
        x = all_of(source)
        dtype = getattr(torch, target)
        want = x.to(dtype)
        got = torch.empty_like(want)
        lib.uns_cast(code[source], ctypes.c_void_p(x.data_ptr()), code[target],
                     ctypes.c_void_p(got.data_ptr()), ctypes.c_size_t(len(x)))
        bits = INTEGER[dtype.itemsize]
        wrong = (want.view(bits) != got.view(bits)) & ~(want.isnan() & got.isnan())
        bad += int(wrong.sum())
        print(f"{source} -> {target}: {len(x)} values, {int(wrong.sum())} differ")
    return bad


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        sys.exit(1 if check(sys.argv[2]) else 0)
    write()

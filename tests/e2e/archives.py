"""Torch files harmed on purpose: a bit that no CRC allows for, or values with the CRC that they ask for."""

import struct
import zipfile
import zlib

import torch


def records(path):
    """name -> (offset, length) of each record's data; names without the archive's directory."""
    raw = path.read_bytes()
    out = {}
    with zipfile.ZipFile(path) as z:
        for i in z.infolist():
            name, extra = struct.unpack_from("<HH", raw, i.header_offset + 26)
            out[i.filename.split("/", 1)[1]] = (i.header_offset + 30 + name + extra, i.file_size)
    return out


def tensor_at(path, tensor):
    """(offset, length) of a tensor's bytes, which occur once."""
    want = tensor.detach().contiguous().flatten().view(dtype=torch.uint8).numpy().tobytes()
    raw = path.read_bytes()
    assert want and raw.count(want) == 1, (path, raw.count(want))
    return raw.index(want), len(want)


def flip(path, offset, bit=0):
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1 << bit
    path.write_bytes(raw)


def poke(path, record, offset, value):
    """Put bytes at a file offset in a record (offset, length), and its new CRC wherever the old one stood."""
    raw = bytearray(path.read_bytes())
    at, length = record
    assert at <= offset and offset + len(value) <= at + length
    old = struct.pack("<I", zlib.crc32(raw[at:at + length]))
    raw[offset:offset + len(value)] = value
    new = struct.pack("<I", zlib.crc32(raw[at:at + length]))
    behind = bytes(raw[at + length:])
    assert behind.count(old) == 2  # behind the data and in the directory
    raw[at + length:] = behind.replace(old, new)
    path.write_bytes(raw)


def record_of(path, offset):
    return next(r for r in records(path).values() if r[0] <= offset < r[0] + r[1])

"""Another save of a checkpoint: the same files, sizes, names, shapes and steps, other values, sound CRCs. What a
training that was started again, or another training of the same model, leaves at the same step."""

import shutil
import struct
import zlib
from pathlib import Path

from torch.distributed.checkpoint import FileSystemReader

TORCH = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
DIRECTORY, END = b"PK\1\2", b"PK\5\6"


def records(data, begin, end):
    """(offset of the central directory's entry, offset of the data, size) of each stored record of the archive that
    fills [begin, end)."""
    at = data.rfind(END, begin, end)
    count, _, where = struct.unpack_from("<HII", data, at + 10)
    if where == 0xFFFFFFFF:  # zip64, as torch writes always: its end record is 76 bytes in front
        count, _, where = struct.unpack_from("<QQQ", data, at - 76 + 32)
    entry = begin + where
    for _ in range(count):
        assert data[entry:entry + 4] == DIRECTORY
        method, = struct.unpack_from("<H", data, entry + 10)
        size, n, m, k = struct.unpack_from("<IHHH", data, entry + 24)
        header, = struct.unpack_from("<I", data, entry + 42)
        extra = data[entry + 46 + n:entry + 46 + n + m]
        if extra[:2] == b"\1\0":  # zip64: those of size, compressed size and offset that are ffffffff
            values = list(struct.unpack(f"<{(len(extra) - 4) // 8}Q", extra[4:4 + (len(extra) - 4) // 8 * 8]))
            size = values.pop(0) if size == 0xFFFFFFFF else size
            if struct.unpack_from("<I", data, entry + 20)[0] == 0xFFFFFFFF:
                values.pop(0)
            header = values.pop(0) if header == 0xFFFFFFFF else header
        name = data[entry + 46:entry + 46 + n].decode()
        a, b = struct.unpack_from("<HH", data, begin + header + 26)
        assert method == 0
        yield entry, name, begin + header + 30 + a + b, size
        entry += 46 + n + m + k


def change_archive(data, begin, end):
    """The lowest bit of every fourth byte of each larger storage: small numbers of any dtype stay small."""
    for entry, name, at, size in list(records(data, begin, end)):
        if "/data/" not in name or size < 16:
            continue
        for i in range(at, at + size, 4):
            data[i] ^= 1
        struct.pack_into("<I", data, entry + 16, zlib.crc32(data[at:at + size]))


def change_file(path):
    data = bytearray(path.read_bytes())
    if path.suffix == ".safetensors":
        begin = 8 + struct.unpack_from("<Q", data)[0]
        for i in range(begin, len(data), 4):
            data[i] ^= 1
    elif path.suffix in TORCH and data[:4] == b"PK\3\4":
        change_archive(data, 0, len(data))
    path.write_bytes(data)


def change_items(folder):
    """Of a torch distributed checkpoint; its compressed items stay as they are."""
    metadata = [folder / ".metadata"] if (folder / ".metadata").exists() else sorted(folder.glob("__*.metadata"))
    for m in metadata:
        reader = FileSystemReader(folder)
        named = reader.read_metadata(**({"rank": int(m.name[2:-9])} if m.name != ".metadata" else {}))
        for item in {(i.relative_path, i.offset, i.length) for i in named.storage_data.values()}:
            data = bytearray((folder / item[0]).read_bytes())
            if data[item[1]:item[1] + 4] == b"PK\3\4":
                change_archive(data, item[1], item[1] + item[2])
                (folder / item[0]).write_bytes(data)


def another_save(source, where):
    """A copy of the tree `source` as the new directory `where`."""
    shutil.copytree(source, where)
    for path in sorted(Path(where).rglob("*")):
        if path.name in (".metadata", "__0.metadata"):
            change_items(path.parent)
        elif path.is_file() and path.suffix != ".distcp":
            change_file(path)
    return where

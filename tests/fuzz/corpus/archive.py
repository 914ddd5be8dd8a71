#!/usr/bin/env python3
"""The inputs of a fuzz target are one archive, NAME.tar.gz beside this file, which the build unpacks.

  archive.py add NAME FILE..    adds inputs to the archive; one of the same name is replaced
  archive.py list NAME          prints the names of its inputs

An archive depends on the names and bytes of its inputs alone: it has no times and no owners, and is sorted by name."""
import gzip
import io
import pathlib
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent


def inputs(target):
    """name -> bytes; none where there is no archive yet."""
    path = HERE / f"{target}.tar.gz"
    if not path.exists():
        return {}
    with tarfile.open(path) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}


def add(target, new):
    """Adds inputs, name -> bytes. -> how many the archive has now"""
    all_inputs = {**inputs(target), **new}
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(all_inputs):
            entry = tarfile.TarInfo(name)
            entry.size = len(all_inputs[name])
            archive.addfile(entry, io.BytesIO(all_inputs[name]))
    packed = gzip.compress(unpacked.getvalue(), 9, mtime=0)
    (HERE / f"{target}.tar.gz").write_bytes(packed)
    return len(all_inputs)


def main():
    match sys.argv[1:]:
        case ["add", target, *files] if files:
            print(f"{target}: {add(target, {pathlib.Path(f).name: pathlib.Path(f).read_bytes() for f in files})} inputs")
        case ["list", target]:
            print(*sorted(inputs(target)), sep="\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

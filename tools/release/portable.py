#!/usr/bin/env python3
"""Compiles unshard for a machine with the libraries that it needs beside it, and packs a wheel and a tarball of it.
tools/release/portable calls it in the old system that it is built in.

Usage: portable.py MACHINE FUSE_SOURCES OUT    MACHINE: x86_64 or aarch64
Beside the two it writes MACHINE.json, which says for sbom.py what libraries they hold."""

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import build_backend as backend

CROSS = """[binaries]
c = '{0}-gcc'
ar = '{0}-ar'
strip = '{0}-strip'
pkgconfig = 'false'
[host_machine]
system = 'linux'
cpu_family = '{1}'
cpu = '{1}'
endian = 'little'
"""


def build_fuse(sources, machine, folder):
    """With the paths of an ordinary system inside, /usr/bin/fusermount3 and /etc/fuse.conf. -> where it is installed"""
    root, built, cross = folder / "fuse", folder / "fuse-build", folder / "cross"
    cross.write_text(CROSS.format(f"{machine}-linux-gnu", machine))
    subprocess.run(["meson", "setup", built, sources, f"--cross-file={cross}", "--prefix=/usr", "--libdir=lib",
                    "--buildtype=release", "-Dutils=false", "-Dexamples=false", "-Dtests=false", "--strip"], check=True)
    subprocess.run(["ninja", "-C", built, "install"], check=True, env={**os.environ, "DESTDIR": str(root)})
    config = root / "usr/lib/pkgconfig/fuse3.pc"
    config.write_text(config.read_text().replace("prefix=/usr\n", f"prefix={root}/usr\n"))
    return root / "usr"


def lead_to(prefix, machine):
    """The environment in which cmake and the compiler find that machine's libraries."""
    os.environ |= {"CC": f"{machine}-linux-gnu-gcc", "LD_LIBRARY_PATH": str(prefix / "lib"),
                   "PKG_CONFIG_LIBDIR": f"{prefix}/lib/pkgconfig:/usr/lib/{machine}-linux-gnu/pkgconfig:/usr/share/pkgconfig",
                   "CMAKE_ARGS": f"-DUNSHARD_CUDA=OFF -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR={machine}"}


def tree_of(folder, made):
    """bin, sbin, lib, include and share, with the libraries in lib/unshard, where no other program looks. -> (its
    root, {name of a library: where it came from})"""
    root = folder / "tree/usr/local"  # which units of systemd name
    backend.run("cmake", "--build", str(folder / "build"), "--parallel", str(os.cpu_count() or 1))
    backend.run("env", f"DESTDIR={folder / 'tree'}", "cmake", "--install", str(folder / "build"), "--prefix", "/usr/local")
    (root / "lib/libunshard.a").unlink()  # of use only with the static libraries of the system that it was built in
    config = root / "lib/pkgconfig/unshard.pc"
    config.write_text(re.sub(r"^\w+\.private:.*\n", "", config.read_text(), flags=re.M))
    libraries = root / "lib/unshard"
    libraries.mkdir()
    return root, backend.add_needed([made / "libunshard.so.0", made / "unshard"], libraries)


def of_package(path):
    """(name, source, version) of the Debian package that a library is from. dpkg knows it below /lib or below /usr/lib."""
    pattern = "*/" + "/".join(path.resolve().parts[-2:])
    name = subprocess.run(["dpkg", "-S", pattern], check=True, capture_output=True, text=True).stdout.split(": ")[0]
    return subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${source:Package} ${source:Version}", name], check=True,
                          capture_output=True, text=True).stdout.split()


def origins(copied, prefix, fuse_sources):
    """[{"library", "source", "version", "copyright": a file}], sorted by the library's name."""
    found = []
    for name, path in sorted(copied.items()):
        if prefix in path.parents:
            source, version, licence = "fuse3", path.resolve().name.split(".so.")[1], fuse_sources / "LGPL2.txt"
        else:
            package, source, version = of_package(path)
            licence = Path("/usr/share/doc") / package / "copyright"
        found.append({"library": name, "source": source, "version": version, "copyright": str(licence)})
    return found


def add_documents(root, libraries):
    into = root / "share/doc/unshard"
    into.mkdir(parents=True)
    for name in ("LICENSE", "README.md", "CHANGELOG.md"):
        shutil.copy(backend.ROOT / name, into)
    for library in libraries:
        shutil.copy(library["copyright"], into / f"copyright.{library['source']}")


def pack(root, path, name):
    """A tarball below the directory `name`, of nobody in particular and of the time that $SOURCE_DATE_EPOCH says."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    with open(path, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w") as archive:
        for found in sorted(root.rglob("*")):
            info = archive.gettarinfo(found, f"{name}/{found.relative_to(root).as_posix()}")
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            info.mtime = epoch
            if not info.issym():
                info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            archive.addfile(info, io.BytesIO(found.read_bytes()) if info.isreg() else None)


def main():
    machine, fuse_sources, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    folder = Path("/build") / machine  # the same each time, because what is compiled may have its path
    folder.mkdir()
    prefix = build_fuse(fuse_sources, machine, folder)
    lead_to(prefix, machine)
    made = backend.compile_into(folder)
    root, copied = tree_of(folder, made)
    for library in (root / "lib/unshard").iterdir():
        shutil.copy(library, made)
    backend.pack_wheel(made, out)
    libraries = origins(copied, prefix, fuse_sources)
    add_documents(root, libraries)
    stem = f"{backend.stem()}-linux-{machine}"
    pack(root, out / f"{stem}.tar.gz", stem)
    (out / f"{machine}.json").write_text(json.dumps(libraries))


main()

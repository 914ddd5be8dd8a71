"""Builds the wheel and the source archive (PEP 517) with nothing but the standard library, cmake and a C compiler.

The wheel holds the package, libunshard with the libraries that it needs, and the command. It is one for all
Pythons, since ctypes loads the library, and for every Linux whose glibc is not older than what was linked: the
wheel's tag names that version."""

import base64
import contextlib
import gzip
import hashlib
import io
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python/unshard"
# Every Linux has them, with glibc.
OF_THE_SYSTEM = re.compile(r"linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|gcc_s|resolv)\.so")


def project():
    """Fields of pyproject.toml, and its text; tomllib came with Python 3.11 only."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return dict(re.findall(r'^([\w-]+) = "(.*)"$', text, re.M)), text


def stem():
    fields, _ = project()
    return f"{fields['name']}-{fields['version']}"


def metadata():
    fields, _ = project()
    head = [("Metadata-Version", "2.1"), ("Name", fields["name"]), ("Version", fields["version"]),
            ("Summary", fields["description"]), ("License", fields["license"]),
            ("Requires-Python", fields["requires-python"]), ("Description-Content-Type", "text/markdown")]
    return "".join(f"{name}: {value}\n" for name, value in head) + "\n" + (ROOT / fields["readme"]).read_text("utf-8")


def entry_points():
    _, text = project()
    found = {group: re.search(rf"^\[{re.escape(table)}\]\n(.*?)(?:\n\n|\Z)", text, re.M | re.S).group(1).strip()
             for group, table in (("console_scripts", "project.scripts"),
                                  ("fsspec.specs", 'project.entry-points."fsspec.specs"'),
                                  ("vllm.general_plugins", 'project.entry-points."vllm.general_plugins"'),
                                  ("sglang.srt.plugins", 'project.entry-points."sglang.srt.plugins"'))}
    return "\n".join(f"[{group}]\n{lines}\n" for group, lines in found.items()).replace('"', "")


def information():
    """Files of the .dist-info directory that do not depend on how the package is installed."""
    return {"METADATA": metadata(), "entry_points.txt": entry_points()}


# -- what is compiled --

OLDEST_CMAKE = (3, 20)


def environment():
    """In which a cmake runs that is new enough; None = in none. A cmake that pip installed is a Python script: the one
    outside the build's own environment needs to be called without what leads Python into that, the one inside needs
    just this."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for found in (outside, dict(os.environ)):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            told = subprocess.run(["cmake", "--version"], check=True, env=found, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True).stdout
            version = re.match(r"cmake version (\d+)\.(\d+)", told)
            if version and tuple(map(int, version.groups())) >= OLDEST_CMAKE:
                return found
    return None


def get_requires_for_build_wheel(config_settings=None):
    """PEP 517: what pip installs before it calls build_wheel."""
    del config_settings
    return [] if environment() else [f"cmake>={'.'.join(map(str, OLDEST_CMAKE))}", "ninja"]


def run(*command):
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment()).stdout
    except FileNotFoundError:
        sys.exit(f"{command[0]} is missing: docs/install.md lists what a build needs (installing a wheel needs none)")
    except subprocess.CalledProcessError as e:
        sys.exit(f"{e.stdout}\n{command[0]} failed with status {e.returncode}; what it said stands above")


def compile_into(folder):
    """The library, under the name that it is loaded by, and the command; both find libraries beside them, and in a
    tree of bin and lib in lib/unshard. CMAKE_ARGS of the environment has further arguments for cmake:
    -DUNSHARD_MOUNT=OFF."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    further = shlex.split(os.environ.get("CMAKE_ARGS", ""))
    run("cmake", "-S", str(ROOT), "-B", str(folder / "build"), *generator, *further, "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN;$ORIGIN/../lib/unshard",
        "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags -s", "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags -s")
    run("cmake", "--build", str(folder / "build"), "--parallel", str(os.cpu_count() or 1), "--target",
        "unshard_shared", "unshard")
    made = folder / "_lib"
    made.mkdir()
    shutil.copy(folder / "build/lib/libunshard.so.0", made)
    shutil.copy(folder / "build/bin/unshard", made)
    return made


def machine_of(program):
    """x86_64 or aarch64, as the head of an ELF file says it."""
    return {62: "x86_64", 183: "aarch64"}.get(int.from_bytes(program.read_bytes()[18:20], "little"), platform.machine())


def needed_by(program):
    """[(name, path)] of the libraries that it is loaded with: from this machine's loader, or for another machine from
    the compiler $CC, which finds what is not in a folder of LD_LIBRARY_PATH."""
    if machine_of(program) == platform.machine():
        return re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", str(program)), re.M)
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", str(program)))
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found = {name: next((str(folder / name) for folder in folders if (folder / name).exists()), None)
             or run(os.environ["CC"], f"-print-file-name={name}").strip() for name in names}
    return [(name, path) for name, path in found.items() if path.startswith("/")]


def add_needed(programs, into):
    """Copies the libraries that these programs and their libraries need, under the names that they are looked for.
    -> {name: path of what was copied}"""
    copied, waiting = {}, list(programs)
    while waiting:
        for name, path in needed_by(waiting.pop()):
            if not OF_THE_SYSTEM.match(name) and name not in copied and not (into / name).exists():
                copied[name] = Path(path)
                waiting.append(into / name)
                shutil.copy(path, into / name)
    return copied


def tag_of(made):
    """py3-none-manylinux_2_34_x86_64: by the newest version of glibc's symbols that any of them needs."""
    newest = max(tuple(map(int, found.split(b"."))) for file in made.iterdir()
                 for found in re.findall(rb"\0GLIBC_(\d+\.\d+)(?=[.\0])", file.read_bytes()))
    return f"py3-none-manylinux_{newest[0]}_{newest[1]}_{machine_of(made / 'unshard')}"


# -- the wheel --

class Wheel:
    """A zip file whose last entry lists all others."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def write(self, name, content, mode):
        info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, content)

    def add(self, name, content, executable=False):
        self.write(name, content, 0o100755 if executable else 0o100644)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}\n")

    def close(self):
        name = f"{stem()}.dist-info/RECORD"
        self.write(name, "".join(self.record) + f"{name},,\n", 0o100644)
        self.zip.close()


def pack_wheel(made, wheel_directory):
    """Of what compile_into returned. -> its name"""
    tag = tag_of(made)
    name = f"{stem()}-{tag}.whl"
    wheel = Wheel(Path(wheel_directory) / name)
    for file in sorted(PACKAGE.iterdir()):
        if file.suffix in (".py", ".typed"):
            wheel.add(f"unshard/{file.name}", file.read_bytes())
    for file in sorted(made.iterdir()):
        wheel.add(f"unshard/_lib/{file.name}", file.read_bytes(), executable=True)
    for file, text in {**information(), "licenses/LICENSE": (ROOT / "LICENSE").read_text("utf-8"),
                       "WHEEL": f"Wheel-Version: 1.0\nGenerator: unshard\nRoot-Is-Purelib: false\nTag: {tag}\n"}.items():
        wheel.add(f"{stem()}.dist-info/{file}", text.encode())
    wheel.close()
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    del config_settings, metadata_directory
    with tempfile.TemporaryDirectory() as folder:
        made = compile_into(Path(folder))
        add_needed([made / "libunshard.so.0", made / "unshard"], made)
        return pack_wheel(made, wheel_directory)


# -- the source archive --

def sources():
    """Tracked files of a clone; all files of an archive that was unpacked."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*"))
            if path.is_file() and path.name != "PKG-INFO"]


def entry(name, content, executable=False):
    """Of nobody in particular, and of the time that $SOURCE_DATE_EPOCH says: the same sources are the same bytes."""
    info = tarfile.TarInfo(f"{stem()}/{name}")
    info.size = len(content)
    info.mode = 0o755 if executable else 0o644
    info.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    return info, io.BytesIO(content)


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517."""
    del config_settings
    with open(Path(sdist_directory) / f"{stem()}.tar.gz", "wb") as file, \
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sorted(sources()):
            path = ROOT / name
            archive.addfile(*entry(name, path.read_bytes(), os.access(path, os.X_OK)))
        archive.addfile(*entry("PKG-INFO", metadata().encode()))
    return f"{stem()}.tar.gz"

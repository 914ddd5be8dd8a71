"""Checkpoints made by the real frameworks, and mounts of them.

Checkpoints are generated once (tests/e2e/make, by torchrun) and kept in tests/e2e/.cache under a hash
of their generators and of the frameworks' versions. Nothing here is ever skipped: a framework that is
missing is a failure."""

import atexit
import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import trees
from launches import LAUNCHES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MAKE = HERE / "make"
UNSHARD = Path(os.environ.get("UNSHARD_BIN", ROOT / "build/dev/bin/unshard"))
DEVICE_NODE = Path("/dev/fuse")

STATE = tempfile.mkdtemp(prefix="unshard-state-")  # the default metadata store of all tests
atexit.register(shutil.rmtree, STATE, ignore_errors=True)

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  XDG_STATE_HOME=STATE)


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the slow tests too")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; runs with --long")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        kept = [i for i in items if "long" not in i.keywords]
        config.hook.pytest_deselected(items=[i for i in items if "long" in i.keywords])
        items[:] = kept


def pytest_sessionstart(session):
    for need in (UNSHARD, DEVICE_NODE):
        if not need.exists():
            raise pytest.UsageError(f"{need} is not there: the mount cannot be tested")


def cache_key():
    digest = hashlib.sha256()
    for source in sorted(MAKE.glob("*.py")) + [HERE / "launches.py"]:
        digest.update(source.read_bytes())
    for package in ("torch", "transformers", "accelerate", "safetensors", "lightning", "deepspeed"):
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()[:16]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launched(script, world, out, cases):
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={world}",
               f"--master_port={free_port()}", str(MAKE / script), str(out), *cases]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def must_have_worked(done):
    if done.returncode:
        pytest.fail(f"{' '.join(done.args)}\n{done.stdout[-3000:]}\n{done.stderr[-8000:]}")


def torchrun(script, world, out, cases):
    must_have_worked(launched(script, world, out, cases))


def went_on_again(result):
    """Of resume_run.py: a run that resumed saved one step before its end, and what was resumed from that save
    ended in the same way. -> the result."""
    assert not isinstance(result, str), result
    for key, want in result.items():
        if key in ("loss", "grad_norm", "learning_rate"):
            assert result["again"][key] == want[-1:], key
        elif key != "again":
            assert result["again"][key] == want, key
    return result


def generated(script, world, out, cases):
    """Checkpoints into the new directory `out`. On a busy machine gloo now and then aborts a rank that
    is the last to leave: what was to be tested has not begun then, so it is made once more."""
    for last in (False, True):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        done = launched(script, world, out, cases)
        if last or "SIGABRT" not in done.stderr:
            return must_have_worked(done)


@pytest.fixture(scope="session")
def made():
    """made("t2", "tied-f1-fp32") -> the directory of that case; see launches.py."""
    base = HERE / ".cache" / cache_key()

    def get(launch, case):
        where = base / launch
        if not where.exists():
            base.mkdir(parents=True, exist_ok=True)
            with open(base / (launch + ".lock"), "w") as lock:  # of another run in this checkout
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not where.exists():
                    script, world, cases = LAUNCHES[launch]
                    half = where.with_name(launch + ".making")
                    generated(script, world, half, cases)
                    half.rename(where)
        return where / case

    return get


class Mount:
    """A live mount; str() and / give its path."""

    def __init__(self, path, source):
        self.path, self.source = Path(path), Path(source)

    def __truediv__(self, name):
        return self.path / name

    def __str__(self):
        return str(self.path)

    __fspath__ = __str__

    def pid(self):
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if b"mount" in argv and str(self.path).encode() in argv:
                    return int(entry.name)
        raise AssertionError(f"no process serves {self.path}")

    def rss_bytes(self):
        for line in Path(f"/proc/{self.pid()}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")


def unshard(*args, check=True, **kwargs):
    done = subprocess.run([str(UNSHARD), *map(str, args)], capture_output=True, text=True,
                          timeout=60, **kwargs)
    if check:
        assert done.returncode == 0, f"unshard {args}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture
def command():
    return unshard


def is_mounted(path):
    return f" {path} fuse" in Path("/proc/self/mounts").read_text()


def detach(path):
    if is_mounted(path):
        done = unshard("umount", path, check=False)
        if is_mounted(path):
            subprocess.run(["fusermount3", "-uz", str(path)], check=False)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def mount(tmp_path):
    """mount(SOURCE, "settle=5", ...) -> Mount. Without a word about it nothing has to settle, and the
    source is compared with what it was when the mount ends: changing=True where the test changes it."""
    live = []

    def make(source, *options, at=None, changing=False):
        path = Path(at) if at else tmp_path / f"mnt{len(live)}"
        path.mkdir(exist_ok=True)
        if not any(o.startswith("settle=") for o in options):
            options = ("settle=0", *options)
        before = None if changing else trees.fingerprint(source)
        unshard("mount", source, path, "-o", ",".join(options))
        mounted = Mount(path, source)
        live.append((mounted, before))
        return mounted

    yield make
    for mounted, _ in reversed(live):
        detach(mounted.path)
    for mounted, before in live:
        if before is not None:
            assert trees.fingerprint(mounted.source) == before, "the source was changed"


@pytest.fixture
def mnt(tmp_path):
    """An empty directory that a test mounts on by itself; nothing stays there."""
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    if is_mounted(path):
        subprocess.run(["fusermount3", "-uz", str(path)], check=False)


@pytest.fixture
def copied(tmp_path):
    """A private copy of a tree, times kept."""
    def copy(source, name="source"):
        shutil.copytree(source, tmp_path / name, symlinks=True)
        return tmp_path / name

    return copy


def eventually(check, within=6.0, every=0.2):
    """Call check until it is true; the longest a mount may take to notice something is 5 s."""
    end = time.monotonic() + within
    while True:
        value = check()
        if value or time.monotonic() > end:
            assert value, f"not within {within} s"
            return value
        time.sleep(every)


@pytest.fixture(name="eventually")
def _eventually():
    return eventually


@pytest.fixture
def kill_daemon():
    def kill(mounted):
        pid = mounted.pid()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{pid}").exists())

    return kill

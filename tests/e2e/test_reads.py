"""-o reads=: the ways in which a mount reads shards give the same bytes, and none gives bytes of a shard that has changed."""

import contextlib
import errno
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

from conftest import UNSHARD, eventually, is_mounted, unshard

WAYS = ["cached", "threads", "ordered", "direct", "auto"]


@pytest.fixture
def run(tmp_path):
    """A checkpoint whose tensors are longer than what is read past the page cache (64 KiB), and a short one."""
    torch.manual_seed(3)
    weights = {"a.weight": torch.randn(1500, 1000), "b.bias": torch.randn(7), "c.weight": torch.randn(3000, 700)}
    where = tmp_path / "runs/checkpoint-1/pytorch_model_fsdp_0"
    dcp.save({"model": weights}, checkpoint_id=where, no_dist=True)
    shard, = where.glob("*.distcp")
    return tmp_path / "runs", shard, weights


def forget(path):
    """The page cache's copy."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_gives_the_same_bytes(run, mount, way):
    source, shard, weights = run
    m = mount(source, f"reads={way}")
    forget(shard)
    got = load_file(m / "weights/checkpoint-1/model.safetensors")
    assert got.keys() == weights.keys() and all(torch.equal(got[name], t) for name, t in weights.items())
    direct = json.loads((m / ".unshard/stats.json").read_text())["direct_read_bytes"]
    assert direct == 0 or way == "direct"
    if way == "direct" and takes_direct(shard):
        assert direct >= sum(t.nbytes for t in weights.values()) // 2


def takes_direct(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("way", WAYS)
def test_no_way_gives_bytes_of_a_changed_shard(run, mount, way):
    source, shard, _ = run
    m = mount(source, f"reads={way}", changing=True)
    with open(m / "weights/checkpoint-1/model.safetensors", "rb") as f:
        f.read(1 << 20)
        with open(shard, "r+b") as s:
            s.seek(6 << 20)
            s.write(b"changed")
        forget(shard)
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with pytest.raises(OSError) as e:
            os.pread(f.fileno(), 1 << 20, 12 << 20)
        assert e.value.errno == errno.ESTALE


def test_another_word_is_refused(run, mnt):
    done = unshard("mount", run[0], mnt, "-o", "reads=fast", check=False)
    assert done.returncode != 0 and "reads=fast: expected cached, threads, ordered, direct or auto" in done.stderr


# -- what is found out --

LARGE, SMALL = 600 << 20, 500 << 20  # bytes of a file: of less than 512 MiB nothing is found out
TRIALS, KNOWN = 300, 16  # MiB read from front to back: in which a way is found, and after which it is looked for
WAITS = ("4000", "one")  # each read takes 4 ms, and one that asks ahead waits: `cached` gets 300 MB/s at most, and all is tried
IN_MEMORY = ("tmpfs", "ramfs")
SERVER = Path(UNSHARD).parent / "one_file_fs"


def file_of(top, size):
    """A file without blocks, of no checkpoint: it is read as a shard is. -> the directory to mount"""
    (top / "runs").mkdir(parents=True)
    with open(top / "runs/file", "wb") as f:
        f.truncate(size)
    return top / "runs"


@contextlib.contextmanager
def served(tmp_path, *words):
    """The same file, on a file system of a program. -> the directory to mount"""
    bytes_of, source = file_of(tmp_path / "bytes", LARGE) / "file", tmp_path / "afar"
    (source / "file-system").mkdir(parents=True)
    server = subprocess.Popen([str(SERVER), bytes_of, source / "file-system", *words], stdout=subprocess.DEVNULL)
    eventually(lambda: is_mounted(source / "file-system"))
    yield source
    subprocess.run(["fusermount3", "-uz", source / "file-system"])
    server.wait()


@pytest.fixture
def afar(tmp_path):
    with served(tmp_path, *WAITS) as source:
        yield source


@pytest.fixture
def in_memory():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        yield file_of(Path(top), LARGE)


@pytest.fixture
def answers_later(tmp_path):
    """Each read takes 100 ms, and keeps nobody from asking for more: `cached` gets less than 512 MB/s by far."""
    with served(tmp_path, "100000") as source:
        yield source


@pytest.fixture
def prompt(tmp_path):
    """Its program answers at once."""
    with served(tmp_path) as source:
        yield source


class Read(NamedTuple):
    ways: list  # what stats.json has of them
    lines: list  # of the log, about ways


def read_of(source, mount, command, log, MiB, *options):
    """What a mount shows that it has found, after so much of its file was read from front to back. None of it is in the page
    cache before."""
    path, = source.rglob("file")
    forget(path)
    m = mount(source, f"log={log}", *options)
    with open(m / "weights" / path.relative_to(source), "rb", buffering=0) as f:
        for _ in range(MiB):
            f.read(1 << 20)
    ways = json.loads((m / ".unshard/stats.json").read_text())["ways"]
    shown = command("stats", "--once", m).stdout
    assert [line.split("reads=")[1] for line in shown.splitlines() if "reads=" in line] == [
        f"{way['reads']}, {way['file_system']}, device {way['device']}" for way in ways]
    command("umount", m)
    return Read(ways, [line for line in log.read_text().splitlines() if "is read with reads=" in line])


def device_of(source):
    path, = source.rglob("file")
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def test_the_way_that_was_found_is_logged_shown_and_remembered(afar, mount, command, tmp_path):
    """For this file system: of another one, nothing is known."""
    store = f"store={tmp_path / 'store.db'}"
    first = read_of(afar, mount, command, tmp_path / "log-1", TRIALS, store)
    line, = first.lines
    way, = first.ways
    assert way["device"] == device_of(afar) and way["file_system"] == "fuse.one_file"
    assert f"device {way['device']} is read with reads={way['reads']}: " in line
    rates = re.search(r"cached (\d+) MB/s, threads (\d+), ordered (\d+), direct (\d+) ", line)
    assert all(int(rate) > 0 for rate in rates.groups())  # each was tried
    later = read_of(afar, mount, command, tmp_path / "log-2", KNOWN, store)
    assert later == Read(first.ways, [])
    other = read_of(file_of(tmp_path / "other", LARGE), mount, command, tmp_path / "log-3", KNOWN, store)
    assert not other.lines and all(of["file_system"] in IN_MEMORY for of in other.ways)


def test_storage_that_lets_nobody_wait_is_not_asked_by_many_threads(answers_later, mount, command, tmp_path):
    """One thread has as many reads under way there."""
    line, = read_of(answers_later, mount, command, tmp_path / "log", TRIALS, "store=none").lines
    rates = re.search(r"cached (\d+) MB/s, threads (\d+), ordered (\d+), direct (\d+) ", line)
    cached, threads, ordered, direct = map(int, rates.groups())
    assert threads == 0 and cached and ordered and direct


@pytest.mark.parametrize("way", [way for way in WAYS if way != "auto"])
def test_a_way_that_is_named_holds_from_the_beginning_and_nothing_is_tried(prompt, mount, command, tmp_path, way):
    store = f"store={tmp_path / 'store.db'}"
    got = read_of(prompt, mount, command, tmp_path / "log-1", TRIALS, store, f"reads={way}")
    assert not got.lines and [of["reads"] for of in got.ways] == [way]
    assert read_of(prompt, mount, command, tmp_path / "log-2", KNOWN, store) == Read([], [])  # nor was anything remembered


def test_with_a_cache_of_sources_nothing_is_read_past_the_page_cache(afar, mount, command, tmp_path):
    """What is found is known apart from what was found for mounts whose shards' pages may go."""
    store = f"store={tmp_path / 'store.db'}"
    assert read_of(afar, mount, command, tmp_path / "log-1", TRIALS, store).lines
    got = read_of(afar, mount, command, tmp_path / "log-2", TRIALS, store, "cache=sources")
    line, = got.lines
    assert ", direct 0 " in line and got.ways[0]["reads"] != "direct"
    assert read_of(afar, mount, command, tmp_path / "log-3", KNOWN, store, "cache=sources") == Read(got.ways, [])


def test_a_small_file_shows_nothing_about_ways(mount, command, tmp_path):
    source = file_of(tmp_path / "small", SMALL)
    assert read_of(source, mount, command, tmp_path / "log", TRIALS, f"store={tmp_path / 'store.db'}") == Read([], [])


def test_of_what_is_in_memory_nothing_is_tried(in_memory, mount, command, tmp_path):
    """It is read as with `reads=cached` from the beginning."""
    got = read_of(in_memory, mount, command, tmp_path / "log", KNOWN, "store=none")
    assert not got.lines and [(of["reads"], of["file_system"]) for of in got.ways] == [("cached", "tmpfs")]


@pytest.mark.long
def test_on_a_disk_neither_threads_nor_turns_are_tried(mount, command, tmp_path):
    """The kernel reports what is cached to the file's owner. What has no blocks is read as if it were cached."""
    source = file_of(tmp_path / "large", LARGE)
    with open(source / "file", "r+b") as f:
        for _ in range(TRIALS):
            f.write(bytes(1 << 20))
    number = (source / "file").stat().st_dev
    got = read_of(source, mount, command, tmp_path / "log", TRIALS, "store=none")
    way, = got.ways
    assert way["device"] == device_of(source)
    if way["file_system"] in IN_MEMORY:
        assert not got.lines
        return
    line, = got.lines
    assert ("threads 0, ordered 0, " in line) == (os.major(number) != 0)

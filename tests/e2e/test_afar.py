"""Sources on storage that lets every read wait: tests/bench/one_file_fs.c, which counts the reads that are under way at
once. What it may answer at once is its own matter; that it is asked for so much is ours."""

import os
import subprocess
from pathlib import Path

import pytest

from conftest import UNSHARD, eventually, is_mounted

SERVER = Path(UNSHARD).parent / "one_file_fs"
SIZE = 96 << 20
DELAY_US = 50_000  # long, that a busy machine asks for the next meanwhile
WORKERS = 16  # threads of the mount that answer the kernel
AHEAD = 16  # threads that ask ahead with -o reads=threads
BY_ITSELF = 8  # reads under way that the kernel has the mount answer for one reader: twice 4 MiB by 1 MiB


class Storage:
    def __init__(self, top, *words):
        self.source, self.path = top / "bytes", top / "runs/afar"
        self.path.mkdir(parents=True)
        with open(self.source, "wb") as f:
            f.truncate(SIZE)
        self.process = subprocess.Popen([str(SERVER), self.source, self.path, str(DELAY_US), *words], stdout=subprocess.PIPE, text=True)
        eventually(lambda: is_mounted(self.path))
        dev = os.stat(self.path).st_dev
        self.read_ahead = int(Path(f"/sys/class/bdi/{os.major(dev)}:{os.minor(dev)}/read_ahead_kb").read_text()) << 10

    def read_bytes(self):
        """What the server has read of its file: it keeps nothing."""
        lines = Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))

    def counted(self):
        subprocess.run(["fusermount3", "-uz", self.path], check=True)
        return map(int, self.process.communicate()[0].split())


@pytest.fixture
def storages(tmp_path):
    """Makes one."""
    made = []
    yield lambda *words: made.append(Storage(tmp_path / f"{len(made)}", *words)) or made[-1]
    for it in made:
        if it.process.poll() is None:
            subprocess.run(["fusermount3", "-uz", it.path])
        it.process.wait()
        it.process.stdout.close()


@pytest.fixture
def storage(storages):
    return storages()


def read_through(path):
    with open(path, "rb", buffering=0) as f:
        while f.read(1 << 20):
            pass


def test_one_reader_keeps_many_reads_under_way(storage, mount, command):
    """More than those who answer the kernel could; and each of twice what the kernel asks for by itself, but for what is
    read before it is clear that the reader goes on."""
    m = mount(storage.path.parent, "store=none", changing=True)
    read_through(m / "weights/afar/file")
    command("umount", m)
    n, at_once = storage.counted()
    assert at_once > WORKERS
    assert n < 0.7 * SIZE / storage.read_ahead


def test_several_threads_keep_as_many_reads_under_way_where_each_lets_its_thread_wait(storages, mount, command):
    """The kernel of such storage reads nothing asynchronously: one thread that asks ahead has one read under way."""
    at_once = {}
    for way in ("cached", "threads"):
        storage = storages("one")
        m = mount(storage.path.parent, f"store=none,reads={way}", changing=True)
        read_through(m / "weights/afar/file")
        command("umount", m)
        _, at_once[way] = storage.counted()
    assert at_once["cached"] <= BY_ITSELF + 1 < at_once["threads"] <= BY_ITSELF + AHEAD


def test_processes_that_read_at_once_read_storage_once(storage, mount):
    m = mount(storage.path.parent, "store=none", changing=True)
    before = storage.read_bytes()
    readers = [subprocess.Popen(["cat", m / "weights/afar/file"], stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [reader.wait() for reader in readers] == [0] * 4
    assert storage.read_bytes() - before < 1.02 * SIZE

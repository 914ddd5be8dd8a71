"""Sources that change under their readers, against a model: a file that is opened has one content that its source
had, old or new, for as long as it is open, or its reads fail with ESTALE.

Random steps: sources are created, written in place, written in part, cut, renamed over, exchanged, removed, their
modes and times changed, checkpoints saved again into the same directory, snapshots pushed out of memory; and
between these, files are opened, read, mapped and read around the page cache by two processes. UNSHARD_SEED=N
repeats a run."""

import ctypes
import errno
import mmap
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import save_file

from conftest import ROOT

GOLDEN = ROOT / "tests/golden/run"
WORDS = 16384  # of each file's data: all of them are its version
BYTES = 4 * WORDS
PAGE = mmap.PAGESIZE
TENSORS = 4
CACHED_S = 3  # the kernel keeps names for two seconds, the daemon for one
LATER_S = 5
EXCHANGE = 2
LOSES_A_NAME = ("create", "rename", "remove")
libc = ctypes.CDLL(None, use_errno=True)

READER = """
import mmap, os, sys
kept = {}
for line in sys.stdin:
    what, key, *rest = line.rstrip("\\n").split("\\t")
    try:
        if what == "open":
            fd = os.open(rest[0], os.O_RDONLY)
            size = os.fstat(fd).st_size
            kept[key] = (fd, mmap.mmap(fd, size, prot=mmap.PROT_READ) if rest[1] == "map" else None)
            said = str(size).encode()
        elif what == "close":
            fd, mapped = kept.pop(key)
            mapped and mapped.close()
            os.close(fd)
            said = b""
        else:
            fd, mapped = kept[key]
            at, n = int(rest[0]), int(rest[1])
            said = mapped[at:at + n] if mapped else os.pread(fd, n, at)
        head = b"0"
    except OSError as e:
        head, said = str(e.errno).encode(), b""
    sys.stdout.buffer.write(head + b" %d\\n" % len(said) + said)
    sys.stdout.buffer.flush()
"""


class Other:
    """Another process that opens, maps and reads. A page that cannot be read ends it with SIGBUS."""

    def __init__(self):
        self.lives = 0
        self.process = None

    def ask(self, *words):
        if not self.process:
            self.process = subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE)
            self.lives += 1
        self.process.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().split()
        if not head:
            assert self.end() == -7, "the other reader died of something else than SIGBUS"
            raise OSError(errno.ESTALE, "SIGBUS")
        said = self.process.stdout.read(int(head[1]))
        if int(head[0]):
            raise OSError(int(head[0]), words)
        return said

    def end(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            code = self.process.wait()
            self.process = None
            return code


class Here:
    """A descriptor of this process; `direct`: around the page cache."""

    def __init__(self, path, direct):
        self.fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        self.direct = direct
        self.size = os.fstat(self.fd).st_size

    def read(self, at, n):
        if not self.direct:
            return os.pread(self.fd, n, at)
        first = at // PAGE * PAGE
        with mmap.mmap(-1, -(-(at + n - first) // PAGE) * PAGE) as room:
            got = os.preadv(self.fd, [room], first)
            return room[at - first:min(at + n - first, got)]

    def close(self):
        os.close(self.fd)


class There:
    def __init__(self, other, key, path, how):
        self.other, self.key = other, key
        self.size = int(other.ask("open", key, path, how))
        self.life = other.lives

    def read(self, at, n):
        if self.life != self.other.lives or not self.other.process:
            raise OSError(errno.EPIPE, "its process ended, of another file")
        return self.other.ask("read", self.key, at, n)

    def close(self):
        if self.life == self.other.lives and self.other.process:
            self.other.ask("close", self.key)


def words(version):
    return struct.pack("<I", version) * WORDS


class Source:
    """One file that is shown, and all that it ever held: `states`, None where there was nothing to show."""

    def __init__(self, shown):
        self.shown = shown  # below the mount's view
        self.states = []
        self.history = []  # what led to each
        self.set_back = False  # it was written to, and its time says that it was not
        self.lost = False  # so, and its name was another file's before anything could notice
        self.noticed = 0  # the state that was current when time last passed
        self.changes = 0
        self.seen_changes = 0
        self.absent_until = 0.0

    def becomes(self, data):
        if data is None or (self.states and self.states[-1] is None):
            self.absent_until = time.monotonic() + CACHED_S
        self.states.append(data)
        self.changes += 1

    def time_passed(self):
        self.noticed = len(self.states) - 1
        self.seen_changes = self.changes
        self.lost = False


class Plain(Source):
    """A file outside of checkpoints, or the only file of weights of one: `head` is what stands before the data."""

    def __init__(self, path, shown, head, spare):
        super().__init__(shown)
        self.path, self.head, self.spare = path, head, spare
        self.spare_data = words(0)
        spare.write_bytes(head + self.spare_data)
        self.create(words(1))

    def create(self, data):
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(self.head + data)
        self.becomes(data)

    def now(self):
        return self.states[-1]

    def change(self, rng, version):
        data = words(version)
        how = rng.choice(("create", "in place", "in part", "cut", "rename", "exchange", "remove", "mode",
                          "time", "links"))
        if self.now() is None or len(self.now()) < BYTES or how == "create":
            self.create(data)
        elif how == "in place":
            was = self.path.stat()
            with open(self.path, "r+b", buffering=0) as f:
                f.write(self.head + data)
            os.utime(self.path, ns=(was.st_atime_ns, was.st_mtime_ns))
            self.set_back = True
            self.becomes(data)
        elif how == "in part":
            at = rng.randrange(1, WORDS) * 4
            with open(self.path, "r+b", buffering=0) as f:
                f.seek(len(self.head) + at)
                f.write(data[at:])
            self.becomes(self.now()[:at] + data[at:])
        elif how == "cut":
            at = rng.randrange(WORDS)
            os.truncate(self.path, len(self.head) + 4 * at)
            self.becomes(None if self.head else self.now()[:4 * at])
        elif how == "rename":
            self.spare.write_bytes(self.head + data)
            os.rename(self.spare, self.path)
            self.spare.write_bytes(self.head + self.spare_data)
            self.becomes(data)
        elif how == "exchange":
            assert libc.renameat2(-100, bytes(self.spare), -100, bytes(self.path), EXCHANGE) == 0
            self.spare_data, shown = self.now(), self.spare_data
            self.becomes(shown)
        elif how == "remove":
            self.path.unlink()
            self.becomes(None)
        elif how == "mode":
            self.path.chmod(rng.choice((0o600, 0o644)))
            self.becomes(self.now())
        elif how == "time":
            os.utime(self.path, ns=(0, rng.randrange(10 ** 18)))
            self.becomes(self.now())
        else:  # one name more and less, and a write that sets the time back
            second = self.path.with_name("second")
            was = self.path.stat()
            os.link(self.path, second)
            second.unlink()
            with open(self.path, "r+b", buffering=0) as f:
                f.write(self.head + data)
            os.utime(self.path, ns=(was.st_atime_ns, was.st_mtime_ns))
            self.set_back = True
            self.becomes(data)
        return how


class Saved(Source):
    """A checkpoint of several shards, saved again and again into the same directory, file by file."""

    head = True

    def __init__(self, ckpt, shown):
        super().__init__(shown)
        self.ckpt = ckpt
        state = {f"w{i}": torch.ones(WORDS // TENSORS, dtype=torch.int32) for i in range(TENSORS)}
        dist_cp.save({"model": state}, no_dist=True,
                     storage_writer=dist_cp.FileSystemWriter(ckpt, single_file_per_rank=False))
        self.shards = {p: p.read_bytes() for p in sorted(ckpt.glob("*.distcp"))}
        self.metadata = (ckpt / ".metadata").read_bytes()
        self.left = []
        self.becomes(words(1))

    def change(self, rng, version):
        if not self.left:
            self.version = version
            self.left = rng.sample(sorted(self.shards), len(self.shards))
            self.becomes(None)
        shard = self.left.pop()
        one = words(1)[:BYTES // TENSORS]
        content = self.shards[shard]
        assert content.count(one) == 1
        shard.write_bytes(content.replace(one, words(self.version)[:len(one)]))
        self.changes += 1
        if not self.left:
            (self.ckpt / ".metadata.tmp").write_bytes(self.metadata)
            (self.ckpt / ".metadata").unlink()
            (self.ckpt / ".metadata.tmp").rename(self.ckpt / ".metadata")
            self.becomes(words(self.version))
        return "second save"


class Client:
    """One open file, and the states that its bytes may still be of."""

    def __init__(self, source, file, how, since, sure):
        self.source, self.file, self.how, self.since = source, file, how, since
        self.opened = len(source.states) - 1
        self.changes, self.sure = source.changes, sure
        self.may_be = {i for i in range(since, len(source.states)) if source.states[i] is not None}

    def read(self, rng, count):
        """False = ESTALE. The kernel gives what it has when a page in the middle fails: the next read does."""
        at = rng.randrange(max(self.file.size, 1))
        left = min(rng.choice((4, 4096, BYTES)), self.file.size - at)
        while left:
            try:
                got = self.file.read(at, left)
            except OSError as e:
                if e.errno != errno.EPIPE:
                    assert e.errno == errno.ESTALE, e
                    assert not self.sure or self.changes != self.source.changes, "ESTALE, and no change"
                    count["ESTALE"] += 1
                return False
            assert got, f"{self}: ends at {at}"
            self.compare(at, got)
            at, left = at + len(got), left - len(got)
        count["old" if self.changes != self.source.changes else "new"] += 1
        return True

    def compare(self, at, got):
        for i in sorted(self.may_be):
            data = self.source.states[i]
            head = self.file.size - len(data) if self.source.head else 0  # what stands before the data
            if head + len(data) != self.file.size or \
                    got[max(head - at, 0):] != data[max(at - head, 0):max(at + len(got) - head, 0)]:
                self.may_be.discard(i)
        assert self.may_be, f"{self}: {len(got)} bytes at {at} are of no state: {got[:64].hex()}"

    def __str__(self):
        return (f"{self.source.shown} of {self.file.size} bytes, {self.how}, opened at state {self.opened} "
                f"(since {self.since}), now {len(self.source.states) - 1}, {self.source.history[-12:]}")


class Run:
    def __init__(self, rng, mounts, sources, faults, fillers):
        self.rng, self.mounts, self.sources, self.faults = rng, mounts, sources, faults
        self.fillers = fillers
        self.clients, self.other, self.count, self.version = [], Other(), Counter(), 1

    def open(self):
        m, names, told = self.rng.choice(self.mounts)
        source = self.sources[self.rng.choice(names)]
        path = m / "weights" / source.shown
        how = self.rng.choice(("here", "here", "direct", "map", "there"))
        sure = told and source.seen_changes == source.changes
        try:
            if how in ("here", "direct"):
                file = Here(path, how == "direct")
            else:
                file = There(self.other, self.version, path, how)
                self.version += 1
        except (OSError, ValueError) as e:  # ValueError: nothing to map
            code = getattr(e, "errno", None)
            assert code in (None, errno.ESTALE, errno.ENOENT), e
            assert not sure or source.states[-1] in (None, b"") or time.monotonic() < source.absent_until, e
            self.count["not opened"] += 1
            return
        if told and source.lost:  # perhaps of the file that was there: the name is remembered for a while
            file.close()
            return
        self.clients.append(Client(source, file, how, source.noticed if told else 0, sure))

    def step(self):
        what = self.rng.choices(("change", "open", "read", "close", "time", "evict"), (10, 25, 55, 5, 4, 1))[0]
        if what == "change":
            self.version += 1
            source = self.sources[self.rng.choice(sorted(self.sources))]
            how = source.change(self.rng, self.version)
            source.history.append((len(source.states) - 1, how, hex(self.version)))
            self.count[how] += 1
            if how in LOSES_A_NAME and source.set_back:  # SECURITY.md, "What cannot be seen"
                source.set_back, source.lost = False, True
                for client in [c for c in self.clients if c.source is source]:
                    self.clients.remove(client)
                    client.file.close()
        elif what == "open":
            self.open()
        elif what == "read" and self.clients:
            client = self.rng.choice(self.clients)
            if not client.read(self.rng, self.count):
                self.clients.remove(client)
                client.file.close()
        elif what == "close" or len(self.clients) > 40:
            if self.clients:
                self.clients.pop(self.rng.randrange(len(self.clients))).file.close()
        elif what == "time":
            self.faults.pass_time(LATER_S)
            for source in self.sources.values():
                source.time_passed()
        elif what == "evict":
            for m, *_ in self.mounts:
                for name in self.fillers:
                    (m / "weights" / name / "model.safetensors").stat()
            self.count["evicted"] += 1

    def end(self):
        for client in self.clients:
            client.file.close()
        self.other.end()


def make_sources(src):
    head = {"one": None}
    (src / "one").mkdir(parents=True)
    save_file({"w": torch.zeros(WORDS, dtype=torch.int32)}, src / "one/model.safetensors")
    head["one"] = (src / "one/model.safetensors").read_bytes()[:-BYTES]
    fillers = [f"fill{i}" for i in range(4)]
    for name in fillers:
        (src / name).mkdir()
        save_file({f"t{i}": torch.zeros(1) for i in range(4000)}, src / name / "model.safetensors")
    spare = src.parent / "spare"
    spare.mkdir()
    return {"notes": Plain(src / "notes.bin", "notes.bin", b"", spare / "notes"),
            "one": Plain(src / "one/model.safetensors", "one/model.safetensors", head["one"], spare / "one"),
            "two": Saved(src / "two", "two/model.safetensors")}, fillers


def go(tmp_path, mount, faults, eventually, steps, told_cache="both", young_cache="both"):
    seed = int(os.environ.get("UNSHARD_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"UNSHARD_SEED={seed}")
    src = tmp_path / "src"
    sources, fillers = make_sources(src)
    told = mount(src, "mem=1", f"cache={told_cache}", changing=True, faults=faults)
    young = mount(src, "settle=3600", "mem=1", f"cache={young_cache}", changing=True)
    run = Run(random.Random(seed), [(told, ("notes", "one"), True), (young, tuple(sources), False)],
              sources, faults, fillers)
    try:
        for step in range(steps):
            run.step()
    except BaseException as e:
        raise AssertionError(f"step {step}, UNSHARD_SEED={seed}: {dict(run.count)}") from e
    finally:
        run.end()
    while sources["two"].left:
        sources["two"].change(run.rng, run.version)
    for name in ("notes", "one"):
        sources[name].create(words(run.version))
    faults.pass_time(LATER_S)
    for m, names, _ in run.mounts:
        for name in names:
            want = sources[name].states[-1]
            eventually(lambda: (m / "weights" / sources[name].shown).read_bytes()[-BYTES:] == want)
    print(dict(run.count))
    return run.count


def test_what_is_read_is_of_one_state_or_an_error(tmp_path, mount, faults, eventually):
    count = go(tmp_path, mount, faults, eventually, 2000)
    assert min(count["new"], count["old"], count["ESTALE"]) > 20, count


@pytest.mark.parametrize("caches", [("mount", "sources"), ("sources", "mount")])
def test_whatever_pages_are_kept(tmp_path, mount, faults, eventually, caches):
    count = go(tmp_path, mount, faults, eventually, 1000, *caches)
    assert min(count["new"], count["old"], count["ESTALE"]) > 0, count


@pytest.mark.long
def test_a_hundred_thousand_steps(tmp_path, mount, faults, eventually):
    go(tmp_path, mount, faults, eventually, 100_000)


# -- a file that is written between its lookup and its open --

def test_a_config_that_the_trainer_has_just_written(tmp_path, mount):
    """A trainer that resumes saves its run's config again, and opens the checkpoint's a moment later."""
    run = shutil.copytree(GOLDEN, tmp_path / "source" / "run")
    mnt = mount(tmp_path / "source", "settle=0", changing=True)
    written, shown = run / "tokenizer_config.json", mnt / "full" / "run" / "checkpoint-2" / "tokenizer_config.json"
    text = written.read_text()
    for spaces in range(100):
        assert shown.stat().st_size
        written.write_text(text + " " * (spaces % 5 + 1))
        assert shown.read_text() == written.read_text()


# -- a first look that falls into a write --

@pytest.fixture
def in_memory():
    """A directory on tmpfs, where a store into a page that was written through the mapping before changes no time of the
    file: as for the rest of a large write(2), whose times are those of its beginning."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_what_was_read_during_a_write_does_not_stay(in_memory, mount, eventually):
    words = 1 << 20
    shard = in_memory / "run" / "model.safetensors"
    shard.parent.mkdir()
    save_file({"w": torch.zeros(words, dtype=torch.int32)}, shard)
    (shard.parent / "config.json").write_text("{}")
    half = 2 * words
    mnt = mount(in_memory, "settle=4", changing=True)
    shown = mnt / "weights" / "run" / "model.safetensors"
    data = shard.stat().st_size - 4 * words
    new = b"\1" * (2 * half)
    with open(shard, "r+b") as f, mmap.mmap(f.fileno(), 0) as source:
        source[data + half:] = bytes(half)  # from now on stores there cause no fault
        os.pwrite(f.fileno(), new[:half], data)  # the write begins, and sets the times
        began = shard.stat()
        seen = shown.read_bytes()
        assert len(seen) >= 2 * half and seen[-1] == 0 and seen[-half - 1] == 1
        early = os.open(shown, os.O_RDONLY)
        mapped = mmap.mmap(early, 0, prot=mmap.PROT_READ)
        assert mapped[-1] == 0 and os.pread(early, 1, len(seen) - 1) == b"\0"
        source[data + half:] = new[half:]  # and ends
    assert (shard.stat().st_mtime_ns, shard.stat().st_ctime_ns) == (began.st_mtime_ns, began.st_ctime_ns)
    time.sleep(4 + LATER_S)
    assert shown.read_bytes()[-2 * half:] == new
    eventually(lambda: mapped[-2 * half:] == new)
    assert os.pread(early, 2 * half, len(seen) - 2 * half) == new
    mapped.close()
    os.close(early)

"""The serving process: what it leaves behind when it ends, what it holds after long use, what it calls on SOURCE."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import processes
from conftest import LONGEST_S, ROOT, UNSHARD, Mount, is_mounted
from processes import alive
from test_network import network, open_shards  # noqa: F401

GOLDEN = ROOT / "tests/golden/run"
PROCESSES, THREADS = 4, 16
CHECKPOINTS = 300
VIEWS = ("weights", "weights-bf16", "full", "full-fsdp", "dcp", "universal", "world-3")
MOST_THREADS = 16 + 32 + 4  # that serve requests (max_threads), read shards, and are libfuse's and the library's own
GROWTH_BYTES = 8 << 20  # of the resident set, once all places are known: allocators keep holes

READERS = """
import os, sys, threading
path, threads = sys.argv[1], int(sys.argv[2])
begun = threading.Semaphore(0)

def read():
    told = False
    while True:
        try:
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while os.read(fd, 1 << 16):
                pass
            os.close(fd)
        except OSError:
            return
        if not told:
            begun.release()
        told = True

all = [threading.Thread(target=read) for _ in range(threads)]
for t in all:
    t.start()
for t in all:
    begun.acquire()
print("reading", flush=True)
for t in all:
    t.join()
"""


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(GOLDEN, tmp_path / "source")


ENDS = {
    "SIGTERM": lambda m, command: os.kill(m.pid(), signal.SIGTERM),
    "umount": lambda m, command: command("umount", m),
    "fusermount3 -uz": lambda m, command: subprocess.run(["fusermount3", "-uz", str(m)], check=True),
}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_left_behind_under_64_readers(run, mount, command, eventually, how):
    m = mount(run)
    pid = m.pid()
    readers = [subprocess.Popen([sys.executable, "-c", READERS, str(m / "weights/checkpoint-2/model.safetensors"),
                                 str(THREADS)], stdout=subprocess.PIPE) for _ in range(PROCESSES)]
    assert [r.stdout.readline() for r in readers] == [b"reading\n"] * PROCESSES
    since = time.monotonic()
    ENDS[how](m, command)
    assert [r.wait() for r in readers] == [0] * PROCESSES
    eventually(lambda: not alive(pid) and not is_mounted(m), every=0.01)
    print(f"{how}: ended after {time.monotonic() - since:.2f} s")
    assert os.listdir(m) == []
    for r in readers:
        r.stdout.close()


@contextlib.contextmanager
def usual(number):
    """What is started here does not ignore the signal, even if this process does (nohup)."""
    before = signal.signal(number, signal.SIG_DFL)
    yield
    signal.signal(number, before)


@pytest.fixture
def in_flight(network, mount, faults, eventually):  # noqa: F811
    """in_flight(STORAGE, SIGNAL) -> the mount, a thread that reads a file of it, a list of what it gets, and go_on().
    The daemon has received the read, and cannot answer it before go_on(): `slow`, its own reads are held; `closed`,
    nobody read for a second, and it is held where it opens shards again; `hangs`, the storage is, which keeps nothing
    in memory."""
    def begin(storage, number):
        network.up("direct")
        with usual(number):
            m = mount(network.path, "store=none", changing=True, faults=faults)
        path, got = m / "weights/checkpoint-1/model.safetensors", []
        size = path.stat().st_size

        def read():
            with open(path, "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # what is read below is one request
                file.read(8)  # what says where tensors lie
                if storage == "closed":
                    eventually(lambda: not open_shards(m))
                faults.arm("open" if storage == "closed" else "read", action="hold", path=".distcp", nth=0)
                with contextlib.suppress(OSError):
                    got.append(os.pread(file.fileno(), size, 0))

        reader = threading.Thread(target=read)
        reader.start()
        eventually(lambda: faults.struck, every=0.01)
        if storage == "hangs":
            network.stop()
            faults.disarm()
            eventually(lambda: processes.waits_for_a_fuse_mount(m.pid()), every=0.01)
        return m, reader, got, network.go_on if storage == "hangs" else faults.disarm

    yield begin
    faults.disarm()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("storage", ["slow", "closed", "hangs"])
def test_a_read_in_flight_does_not_hold_up_a_signal(in_flight, faults, made, eventually, storage, number):
    """The mount has gone before the storage answers. Then the read ends, with its bytes, and the process."""
    want = (made("t2", "tied-f1-fp32") / "pretrained-1/model.safetensors").read_bytes()
    m, reader, got, go_on = in_flight(storage, number)
    pid = m.pid()
    faults.stop_clock()  # a process that ends waits ten seconds for its threads, and not until they have ended
    os.kill(pid, number)
    eventually(lambda: not is_mounted(m), every=0.01)
    assert reader.is_alive() and alive(pid)
    go_on()
    reader.join(LONGEST_S)
    assert got == [want]
    eventually(lambda: not alive(pid))


def test_who_waits_in_vain_says_what_the_daemon_waits_in(in_flight, eventually):
    m, reader, _, go_on = in_flight("hangs", signal.SIGTERM)
    with pytest.raises(AssertionError, match=r"not within 0 s: \[\]") as failed:
        eventually(list, within=0)
    go_on()
    reader.join(LONGEST_S)
    process = str(failed.value).split(f"\n{m.pid()} ")[1]
    assert f"{m}" in process.splitlines()[0]
    assert any("unshard" in line and processes.IN_FUSE in line for line in process.splitlines())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_mount_that_is_begun_without_standard_descriptors(run, mnt, command, closed):
    begun = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", UNSHARD, "mount", run, mnt, "-o", "settle=0,store=none"],
                           capture_output=True, timeout=LONGEST_S, check=False)
    assert begun.returncode == 0
    want = (GOLDEN.parent / "run.model.safetensors").read_bytes()
    assert (mnt / "weights/checkpoint-2/model.safetensors").read_bytes() == want
    command("umount", mnt)


@pytest.mark.parametrize("place", ["a file", "@"])
def test_a_service_manager_is_told_when_the_mount_is_live(run, mnt, tmp_path, place):
    """The protocol of Type=notify; tests/service does it with systemd."""
    name = f"@{tmp_path}" if place == "@" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        manager.settimeout(LONGEST_S)
        serving = subprocess.Popen([UNSHARD, "mount", "-f", run, mnt, "-o", "settle=0,store=none"],
                                   env={**os.environ, "NOTIFY_SOCKET": name}, stderr=subprocess.DEVNULL)
        assert manager.recv(100) == b"READY=1"
    assert is_mounted(mnt) and (mnt / "weights/checkpoint-2/model.safetensors").exists()
    serving.terminate()
    assert serving.wait(LONGEST_S) == 0


def status(path, field):
    return re.search(rf"^{field}:\s+(\S+)$", Path(path, "status").read_text(), re.M)[1]


def test_the_serving_process_keeps_one_capability(run, mount):
    """No thread of it has one, but to read what others wrote if root mounted; no program that it runs gets any."""
    m = mount(run)
    for path in (m / "weights").rglob("*.safetensors"):
        path.read_bytes()
    threads = list(Path(f"/proc/{m.pid()}/task").iterdir())
    assert len(threads) > 1
    for thread in threads:
        assert int(status(thread, "CapPrm"), 16) | int(status(thread, "CapEff"), 16) in (0, 1 << 2)
        assert status(thread, "NoNewPrivs") == "1"


def test_the_kernel_refuses_what_would_change_the_source(run, mount, tmp_path):
    """The store's directory becomes a link into SOURCE while it is mounted: there, no store is made."""
    folder, cache, log = tmp_path / "kept", tmp_path / "cache", tmp_path / "log"
    for path in folder, cache:
        path.mkdir()
    m = mount(run, f"store={folder}/store.db", f"cache_dir={cache}", f"log={log}", changing=True)
    weights = (m / "weights/checkpoint-2/model.safetensors").read_bytes()
    shutil.rmtree(folder)
    folder.symlink_to(run)
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-3")
    assert (m / "weights/checkpoint-3/model.safetensors").read_bytes() == weights
    assert re.search(rf"{folder}/store.db.*Permission denied", log.read_text())
    assert not list(run.glob("store.db*"))


def keepers_of(at):
    """The process that waits to unmount it, once that has its name."""
    return [p.parent.name for p in Path("/proc").glob("[0-9]*/cmdline") if f"waits to unmount {at}".encode() in read(p)]


def read(path):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return path.read_bytes()
    return b""


def test_an_ordinary_users_mount_ends_by_sigterm(run, unprivileged, eventually):
    """fusermount3 unmounts, for which the serving process may not get root's privileges."""
    source = shutil.copytree(run, unprivileged.place / "run")
    at = unprivileged.place / "at"
    unprivileged.run("mkdir", at)
    unprivileged("mount", source, at, "--store", "none")
    pid = Mount(at, source).pid()
    eventually(lambda: len(keepers_of(at)) == 1, every=0.01)
    keeper, = keepers_of(at)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not is_mounted(at) and not alive(pid) and not alive(keeper), every=0.01)


def test_a_mount_that_ends_leaves_the_next_one_alone(run, mount, command, eventually, tmp_path):
    """The process of the first mount notices late that it was unmounted. The next mount is at the same path by then, with
    the same device number: the kernel gives the lowest one that is free."""
    at = tmp_path / "at"
    for _ in range(20):
        first = mount(run, at=at)
        pid, device = first.pid(), os.stat(at).st_dev
        os.kill(pid, signal.SIGSTOP)
        command("umount", at)
        mount(run, at=at)
        same = os.stat(at).st_dev == device
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: not alive(pid), every=0.01)
        assert is_mounted(at) and (at / "weights/checkpoint-2/config.json").exists()
        if same:
            break
        command("umount", at)  # another mount of the machine took the number
    assert same


def test_a_mount_whose_connection_was_aborted_is_unmounted(run, mount, eventually):
    """Also while the kernel remembers what its root is."""
    m = mount(run)
    pid = m.pid()
    with open(m / "weights/checkpoint-2/config.json"):  # in use: it is aborted, and stays
        m.path.stat()
        assert subprocess.run(["umount", "-f", str(m)], capture_output=True).returncode != 0
    eventually(lambda: not is_mounted(m) and not alive(pid), every=0.01)


# -- long use --


def held(m):
    status = Path(f"/proc/{m.pid()}/status").read_text()
    return {"fds": len(os.listdir(f"/proc/{m.pid()}/fd")),
            "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
            "bytes": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024}


def operate(m, rng):
    """One operation on a path that is there or not."""
    at = m / rng.choice(VIEWS) / f"run/checkpoint-{rng.randrange(CHECKPOINTS + 3)}"
    what = rng.choice(("list", "stat", "read", "read", "map", "absent", "info"))
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if what == "list":
            os.listdir(at)
        elif what == "stat":
            (at / "model.safetensors").stat()
        elif what == "absent":
            (at / f"no{rng.randrange(100)}").stat()
        elif what == "info":
            (at / ".unshard/provenance.json").read_bytes()
        else:
            names = [e.path for e in os.scandir(at) if e.is_file()]
            if names:
                with open(rng.choice(names), "rb") as f:
                    f.seek(rng.randrange(1 << 16))
                    f.read(rng.choice((1, 4096, 1 << 17)))


def long_use(m, steps):
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    for _ in range(steps // 2):
        operate(m, rng)
    before = held(m)
    for _ in range(steps // 2):
        operate(m, rng)
    after = held(m)
    print(f"seed {seed}: {before} -> {after}")
    assert after["threads"] <= MOST_THREADS, seed
    # A thread that serves requests comes when it is first needed, and has a descriptor of its own.
    assert after["fds"] - after["threads"] <= before["fds"] - before["threads"] + 4, seed
    assert after["bytes"] <= before["bytes"] + GROWTH_BYTES, seed


@pytest.fixture
def many(tmp_path, mount):
    """A mount of 300 checkpoints, with memory for few of them, all looked at once."""
    source = tmp_path / "many/run"
    source.mkdir(parents=True)
    for path in GOLDEN.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    first = source / "checkpoint-0"
    shutil.copytree(GOLDEN / "checkpoint-2", first)
    for i in range(1, CHECKPOINTS):
        shutil.copytree(first, source / f"checkpoint-{i}", copy_function=os.link)
    m = mount(source.parent, "mem=8")
    for view in VIEWS[:-1]:
        for name in sorted(os.listdir(m / view / "run")):
            with contextlib.suppress(NotADirectoryError):
                os.listdir(m / view / "run" / name)
    return m


def test_long_use_leaves_memory_threads_and_descriptors_flat(many):
    long_use(many, 6000)


@pytest.mark.long
def test_a_million_operations(many):
    long_use(many, 1_000_000)


def opened(m, source):
    """Files below `source` that the daemon has open; one that has no name any more ends with " (deleted)"."""
    found = []
    for fd in Path(f"/proc/{m.pid()}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(fd))
    return [name for name in found if name.startswith(f"{source}/") and not Path(name).is_dir()]


def test_a_trainer_that_saves_and_deletes(run, mount, eventually):
    """As with save_total_limit=2: space, descriptors, problems.txt, records and memory are those of what is there. One
    file of each deleted checkpoint stays open in the mount."""
    first = run / "checkpoint-2"
    m = mount(run, changing=True)
    stats, held_open = [], []

    def saved():
        return {path.name for path in run.glob("checkpoint-*")}

    def told():
        return {line.split(":")[0] for line in (m / ".unshard/problems.txt").read_text().splitlines()}

    try:
        for step in range(3, 23):
            shutil.copytree(first, run / "tmp")
            shard = run / "tmp/optimizer_0/__0_0.distcp"
            os.truncate(shard, shard.stat().st_size - 1)
            (run / "tmp").rename(run / f"checkpoint-{step}")
            eventually(lambda: (m / f"weights/checkpoint-{step}").exists(), every=0.02)
            for view in VIEWS:
                for path in (m / view / f"checkpoint-{step}").rglob("*"):
                    if path.is_file():
                        path.read_bytes()
            held_open.append(open(m / f"weights/checkpoint-{step}/model.safetensors", "rb"))  # noqa: SIM115
            held_open[-1].read(1 << 12)
            assert f"checkpoint-{step}" in told()
            if step > 4:
                shutil.rmtree(run / f"checkpoint-{step - 2}")
                eventually(lambda: told() <= saved() and not any(n.endswith(" (deleted)") for n in opened(m, run)), every=0.02)
            eventually(lambda: {n for n in os.listdir(m / "weights") if n.startswith("checkpoint-")} == saved(), every=0.02)
            stats.append({**held(m), "directories": json.loads((m / ".unshard/stats.json").read_text())["directories"]})
        eventually(lambda: not opened(m, run))
    finally:
        for file in held_open:
            file.close()
    early, last = stats[len(stats) // 2], stats[-1]
    assert last["directories"] == early["directories"]
    assert last["bytes"] <= early["bytes"] + GROWTH_BYTES
    assert told() == saved() - {"checkpoint-2"}


# -- what it calls --

CHANGES = ("write", "pwrite64", "writev", "ftruncate", "truncate", "rename", "renameat", "renameat2", "unlink",
           "unlinkat", "rmdir", "mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "chmod", "fchmod",
           "fchmodat", "chown", "fchown", "fchownat", "utimensat", "fallocate", "setxattr", "fsetxattr", "mknodat")


def test_nothing_is_called_that_would_change_the_source(run, mnt, tmp_path, eventually):
    """All views of a mount, and a check, under strace: SOURCE is opened to be read, and no more."""
    trace = tmp_path / "trace"
    strace = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=openat,openat2,creat," + ",".join(CHANGES)]
    serving = subprocess.Popen([*strace, str(UNSHARD), "mount", "-f", str(run), str(mnt), "-o", "settle=0,store=none"],
                               stderr=subprocess.DEVNULL)
    eventually(lambda: is_mounted(mnt))
    for view in VIEWS:
        at = mnt / view / "checkpoint-2"
        for path in at.rglob("*") if at.exists() else ():
            if path.is_file():
                path.read_bytes()
    with pytest.raises(OSError):
        (mnt / "weights/checkpoint-2/new").write_bytes(b"")
    subprocess.run([str(UNSHARD), "umount", str(mnt)], check=True)
    assert serving.wait() == 0
    calls = trace.read_text()
    subprocess.run([*strace, str(UNSHARD), "check", "--deep", "--store", "none", str(run)], capture_output=True)
    calls += trace.read_text()
    of_source = [line for line in calls.splitlines() if str(run) in line]
    assert len(of_source) > 50
    for line in of_source:
        assert not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE|O_APPEND", line), line
        call = re.match(r"\d+\s+(\w+)\((\d+<[^>]*>)?", line)
        if call and call[1] in CHANGES:  # of another file that names it, as a line of the log
            assert call[2] and str(run) not in call[2], line

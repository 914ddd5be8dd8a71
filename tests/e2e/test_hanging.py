"""A source that does not answer: programs that wait for it are ended by Ctrl-C and by kill -9, and the rest of the mount
goes on. SOURCE has two runs: `near`, and `far`, which is mounted by a process that is stopped."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import eventually, is_mounted
from networks import Network
from processes import alive

KEPT_S = 2  # for so long the kernel keeps names and attributes of a mount outside of checkpoints


@pytest.fixture
def source(tmp_path, made):
    """near/ and far/, two runs of two checkpoints."""
    run = made("t2", "tied-f1-fp32") / "run"
    shutil.copytree(run, tmp_path / "source/near")
    shutil.copytree(run, tmp_path / "behind")
    (tmp_path / "behind/link").symlink_to("checkpoint-1")
    (tmp_path / "source/far").mkdir()
    return tmp_path / "source"


@pytest.fixture
def far(source, tmp_path):
    net = Network(tmp_path / "behind", source / "far")
    net.up()
    yield net
    net.end()


class Waiters:
    """Processes that are in one system call each."""

    def __init__(self):
        self.pids = []

    def add(self, wait):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until it ends the child, and raises nothing
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        if pid == 0:
            with contextlib.suppress(OSError):
                wait()
            os._exit(3)  # it got an answer
        self.pids.append(pid)

    def all_wait(self):
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return all(os.waitid(os.P_PID, pid, how) is None for pid in self.pids)

    def ended_with(self, status):
        ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]
        self.pids = []
        return ended == [status] * len(ended)

    def ended_by(self, number):
        """All of them, by this signal."""
        for pid in self.pids:
            os.kill(pid, number)
        return self.ended_with(-number)

    def all_answered(self):
        return self.ended_with(3)


@pytest.fixture
def waiters():
    w = Waiters()
    yield w
    for pid in w.pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Opened:
    """What waiters need to be in one call and not in a lookup before it: descriptors, by name."""

    def __init__(self, runs):
        far, directory = runs / "far", os.O_RDONLY | os.O_DIRECTORY
        self.run = os.open(far, directory)
        self.runs = [os.open(far, directory) for _ in range(64)]
        self.checkpoint = os.open(far / "checkpoint-1", directory)
        self.file = os.open(far / "checkpoint-1/model.safetensors", os.O_RDONLY)
        self.link = os.open(far / "link", os.O_PATH | os.O_NOFOLLOW)

        self.all = [self.run, *self.runs, self.checkpoint, self.file, self.link]

    def close(self):
        while self.all:
            os.close(self.all.pop())


@pytest.fixture
def hang(far):
    """hang(RUNS): from now on `far` does not answer; returns what was open before."""
    opened = []

    def stop(runs):
        opened.append(Opened(runs))
        os.posix_fadvise(opened[0].file, 0, 0, os.POSIX_FADV_DONTNEED)
        time.sleep(KEPT_S + 0.1)
        far.stop()
        return opened[0]

    yield stop
    for o in opened:
        o.close()


WAITS = {
    "lookup": lambda o, i: os.stat(f"absent-{i}", dir_fd=o.run),
    "lookup of what is mounted": lambda o, i: os.stat("../far", dir_fd=o.run),
    "getattr": lambda o, i: os.fstat(o.run),
    "open": lambda o, i: os.open("model.safetensors", os.O_RDONLY, dir_fd=o.checkpoint),
    "opendir": lambda o, i: os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=o.run),
    "readdir": lambda o, i: os.listdir(o.runs[i]),
    "readdir of what it is mounted in": lambda o, i: os.listdir(f"/proc/self/fd/{o.run}/.."),
    "read": lambda o, i: os.pread(o.file, 4096, i * 37 % 4096),
    "getxattr": lambda o, i: os.getxattr(o.file, "user.unshard.generation"),
    "listxattr": lambda o, i: os.listxattr(o.file),
    "readlink": lambda o, i: os.readlink("", dir_fd=o.link),
}


def rest_goes_on(m, runs, want):
    near = runs / "near/checkpoint-1/model.safetensors"
    with open(near, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert f.read() == want
    assert "model.safetensors" in os.listdir(near.parent)
    assert not (near.parent / "absent").exists()
    assert json.loads((m / ".unshard/stats.json").read_text())["reads"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_every_waiter_ends(source, far, hang, mount, waiters, number):
    m = mount(source, changing=True)
    o = hang(m / "weights")
    for kind, wait in WAITS.items():
        for i in range(3):
            waiters.add(lambda i=i, wait=wait: wait(o, i))
        time.sleep(0.2)
        assert waiters.all_wait(), kind
        assert waiters.ended_by(number), kind
    far.go_on()
    eventually(lambda: "model.safetensors" in os.listdir(m / "weights/far/checkpoint-1"))


def test_one_waiter_ends_while_another_waits_for_the_same(source, far, hang, mount, waiters):
    m = mount(source, changing=True)
    o = hang(m / "weights")
    for kind, wait in WAITS.items():
        waiters.add(lambda wait=wait: wait(o, 0))
        time.sleep(0.1)
        if kind == "lookup":
            continue  # of one absent name: the kernel itself lets the second wait for the first
        second = Waiters()
        second.add(lambda wait=wait: wait(o, 1))
        time.sleep(0.1)
        assert second.all_wait(), kind
        assert second.ended_by(signal.SIGINT), kind
    assert waiters.all_wait()
    far.go_on()
    assert waiters.all_answered()


def test_other_signals_interrupt_nothing(source, far, hang, mount, waiters):
    """Not even a signal that is handled: hardly a program expects EINTR of stat."""
    m = mount(source, changing=True)
    o = hang(m / "weights")

    def alarmed(wait):
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            wait()
        except OSError as e:
            os._exit(4 if e.errno == errno.EINTR else 5)

    for kind in ("lookup", "getattr", "readdir"):
        waiters.add(lambda kind=kind: alarmed(lambda: WAITS[kind](o, 0)))
    time.sleep(1.5)
    assert waiters.all_wait()
    far.go_on()
    assert [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in waiters.pids] == [5, 3, 3]
    waiters.pids = []


@pytest.mark.parametrize("n, options", [(16, ()), (64, ()), (64, ("allow_other", "view=weights"))])
def test_waiters_do_not_stop_the_mount(source, far, hang, mount, waiters, made, n, options):
    want = (made("t2", "tied-f1-fp32") / "pretrained-1/model.safetensors").read_bytes()
    m = mount(source, *options, changing=True)
    runs = m.path if options else m / "weights"
    rest_goes_on(m, runs, want)
    o = hang(runs)
    kinds = list(WAITS.values())
    for i in range(n):
        waiters.add(lambda i=i: kinds[i % len(kinds)](o, i))
    time.sleep(1)
    assert waiters.all_wait()
    rest_goes_on(m, runs, want)
    assert waiters.ended_by(signal.SIGINT)
    for wait in WAITS.values():
        waiters.add(lambda wait=wait: wait(o, 0))
    rest_goes_on(m, runs, want)
    far.go_on()
    assert waiters.all_answered()


@pytest.mark.parametrize("how", ["umount", "SIGTERM"])
def test_unmounting_ends(source, hang, mount, waiters, command, how):
    """The process ends while some of its threads wait. Who still waits then gets an error."""
    m = mount(source, changing=True)
    o = hang(m / "weights")
    for i in range(4):
        for wait in WAITS.values():
            waiters.add(lambda i=i, wait=wait: wait(o, i))
    time.sleep(0.3)
    pid = m.pid()
    if how == "umount":
        command("umount", m)
        assert not is_mounted(m.path)
        assert waiters.ended_by(signal.SIGINT)
        o.close()
    else:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not alive(pid))
    assert waiters.all_answered()

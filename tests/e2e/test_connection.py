"""Mounting where this process may not: descriptors that a parent passes on, and programs in place of fusermount3."""

import ctypes
import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from conftest import LONGEST_S, ROOT, UNSHARD, is_mounted
from fingerprints import fingerprint

GOLDEN = ROOT / "tests/golden/run"
CLONE = 0x8004E500  # FUSE_DEV_IOC_CLONE of linux/fuse.h: _IOR(229, 0, uint32_t)
MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
BARE_DEV = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"


def powerless(path):
    """As a container has it: the mount at `path` is not seen, no device, no capability and none to be had."""
    # umount(8) would ask the mount, which nobody serves yet.
    detach = f"""{sys.executable} -c 'import ctypes; ctypes.CDLL(None).umount2(b"{path}", 2)'"""
    return ("unshare", "--mount", "sh", "-c", f'{detach} && {BARE_DEV} && exec "$@"', "sh", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
            "--no-new-privs")


class Parent:
    """What a CSI driver does: it opens /dev/fuse, mounts, clones the descriptor."""

    def __init__(self, path, clones):
        self.path = path
        self.fds = [os.open("/dev/fuse", os.O_RDWR)]
        options = f"fd={self.fds[0]},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"passed", os.fsencode(path), b"fuse", MS_RDONLY | MS_NOSUID | MS_NODEV, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")
        for _ in range(clones):
            self.fds.append(os.open("/dev/fuse", os.O_RDWR))
            fcntl.ioctl(self.fds[-1], CLONE, struct.pack("I", self.fds[0]))

    def serve(self, binary, source, *options):
        clones = ":".join(map(str, self.fds[1:]))
        options = ("settle=0", "store=none", *options, *([f"clones={clones}"] if clones else []))
        child = subprocess.Popen([*powerless(self.path), str(binary), "mount", str(source),
                                  f"/dev/fd/{self.fds[0]}", "-f", "-o", ",".join(options)], pass_fds=self.fds, stderr=subprocess.PIPE, text=True)
        for fd in self.fds:
            os.close(fd)
        return child


@pytest.fixture
def served(mnt, unprivileged):
    """served(SOURCE, clones) -> the serving process; the mount is `mnt`."""
    children = []

    def serve(source, clones, *options):
        children.append(Parent(mnt, clones).serve(unprivileged.binary, source, *options))
        return children[-1]

    yield serve
    subprocess.run(["umount", "-l", str(mnt)], check=False, capture_output=True)
    for child in children:
        child.wait(LONGEST_S)
        child.stderr.close()


@pytest.fixture
def readable(unprivileged):
    return shutil.copytree(GOLDEN, unprivileged.place / "source")


def contents(top):
    return {str(p.relative_to(top)): p.read_bytes() for p in sorted(Path(top).rglob("*")) if p.is_file()}


def waited_at(pid):
    """The descriptors at which threads of the process wait in read(2)."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        call = (task / "syscall").read_text().split()
        if call[0] == "0":
            found.add(int(call[1], 16))
    return found


@pytest.mark.parametrize("clones", [0, 3])
def test_a_process_without_any_capability_serves_what_its_parent_mounted(served, readable, mount, mnt, eventually,
                                                                         clones):
    child = served(readable, clones)
    before = fingerprint(readable)
    names = [mnt / "weights/checkpoint-2/model.safetensors", mnt / "full/checkpoint-2/optimizer.pt"]
    eventually(lambda: names[0].stat())
    status = Path(f"/proc/{child.pid}/status").read_text()
    assert re.search(r"CapEff:\s+0+$", status, re.M) and re.search(r"Uid:\s+65534\s", status)

    def read():
        for name in names * 20:
            fd = os.open(name, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while os.read(fd, 1 << 16):
                pass
            os.close(fd)

    readers = [threading.Thread(target=read) for _ in range(32)]
    for r in readers:
        r.start()
    for r in readers:
        r.join()
    opened = {int(fd.name) for fd in Path(f"/proc/{child.pid}/fd").iterdir() if os.readlink(fd) == "/dev/fuse"}
    assert len(opened) == 1 + clones
    eventually(lambda: waited_at(child.pid) == opened)  # each descriptor has threads of its own
    ordinary = mount(readable)
    for view in ("weights", "full"):
        assert contents(mnt / view) == contents(ordinary / view)
    subprocess.run(["umount", str(mnt)], check=True)
    assert child.wait(LONGEST_S) == 0
    assert fingerprint(readable) == before


def test_sigterm_ends_it_and_leaves_the_mount_to_the_parent(served, readable, mnt, eventually):
    child = served(readable, 3)
    eventually(lambda: (mnt / "weights").is_dir())
    child.send_signal(signal.SIGTERM)
    assert child.wait(LONGEST_S) == 0
    assert is_mounted(mnt)
    with pytest.raises(OSError, match="not connected"):
        os.listdir(mnt)


@pytest.mark.parametrize("what, options, said", [
    ("closed", (), "descriptor {fd} (/dev/fd/{fd}): Bad file descriptor: the parent must pass it on"),
    ("file", (), "descriptor {fd} (/dev/fd/{fd}) is not of /dev/fuse"),
    ("unmounted", (), "descriptor {fd} (/dev/fd/{fd}) is of /dev/fuse, but of no mount: the parent must mount with "
                      "fd={fd} first, and clone further ones from it (FUSE_DEV_IOC_CLONE)"),
    ("mounted", ("clones=0",), "descriptor 0 (clones=) is not of /dev/fuse"),
    ("mounted", ("clones=4,5",), "unknown option '5'"),
    ("mounted", ("clones=4:",), "clones=4:: numbers with colons between them are expected: clones=4:5:6"),
    ("directory", ("clones=4",), "clones= belongs to a mount point /dev/fd/N, and {mnt} is none"),
])
def test_descriptors_that_cannot_be_used(mnt, tmp_path, what, options, said):
    fd = os.open("/dev/fuse" if what == "unmounted" else tmp_path, os.O_RDONLY)
    if what == "mounted":
        os.close(fd)
        fd = Parent(mnt, 0).fds[0]
    where = mnt if what == "directory" else f"/dev/fd/{fd}"
    done = subprocess.run([UNSHARD, "mount", GOLDEN, where, "-o", ",".join(("store=none", *options))],
                          pass_fds=[] if what == "closed" else [fd], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LONGEST_S, check=False)
    os.close(fd)
    assert done.returncode == 2
    assert said.format(fd=fd, mnt=mnt) in done.stderr


@pytest.mark.parametrize("where", ["/dev/fd", "/dev/fd/"])
def test_nothing_is_mounted_over_the_directory_of_descriptors(where):
    """In mounts of its own: where this fails, they go with the process."""
    done = subprocess.run(["unshare", "--mount", UNSHARD, "mount", "-f", GOLDEN, where, "-o", "store=none"], timeout=LONGEST_S,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2, f"unshard: {where} is no descriptor: MOUNTPOINT /dev/fd/N has a number from 0 to 1048576\n")


# -- programs in place of fusermount3 --

# Asks a server over a socket, as those in containers do; whoever may opens the device and mounts.
SHIM = """#!{python}
import array, ctypes, os, socket, subprocess, sys
if "-u" in sys.argv[1] or "-o" not in sys.argv:
    sys.exit(subprocess.run(["umount", "-l", sys.argv[-1]]).returncode)
options, path = sys.argv[sys.argv.index("-o") + 1], sys.argv[-1]
os.mknod("{device}", 0o20666, os.makedev(10, 229))
fd = os.open("{device}", os.O_RDWR)
os.unlink("{device}")
kept = [o for o in options.split(",") if o.startswith("max_read")]
data = ",".join([f"fd={{fd}},rootmode=40000,user_id=0,group_id=0", *kept])
if ctypes.CDLL(None).mount(b"shim", path.encode(), b"fuse.unshard", 7, data.encode()):
    sys.exit(1)
with socket.socket(fileno=int(os.environ["_FUSE_COMMFD"])) as s:
    s.sendmsg([b"0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
"""

# In the container: mount, compare with an export (the mount is seen in here alone), end it one way or the other.
INSIDE = BARE_DEV + """
set -e
"$1" mount "$2" "$3" -o settle=0,store=none
diff -r "$3/weights/checkpoint-2" "$4"
grep " $3 fuse.unshard " /proc/mounts
if [ "$5" = umount ]; then
    "$1" umount "$3"
else
    pkill -TERM -f "mount $2 $3"
    while grep -q " $3 fuse" /proc/mounts; do sleep 0.1; done
fi
! grep " $3 fuse" /proc/mounts
"""


@pytest.mark.parametrize("end", ["umount", "SIGTERM"])
def test_a_program_in_place_of_fusermount3(mnt, tmp_path, command, end):
    shim, out = tmp_path / "bin/fusermount3", tmp_path / "out"
    shim.parent.mkdir()
    shim.write_text(SHIM.format(python=sys.executable, device=tmp_path / "fuse"))
    shim.chmod(0o755)
    command("export", GOLDEN / "checkpoint-2", out, "-o", "store=none")
    done = subprocess.run(["unshare", "--mount", "sh", "-c", INSIDE, "sh", UNSHARD, GOLDEN, mnt, out, end],
                          env={**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"},
                          capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_the_device_the_sentence_names_what_helps(mnt):
    done = subprocess.run(["unshare", "--mount", "sh", "-c", f'{BARE_DEV} && exec "$@"', "sh", UNSHARD, "mount",
                           GOLDEN, mnt, "-o", "store=none"], capture_output=True, text=True, timeout=LONGEST_S,
                          check=False)
    assert done.returncode == 2
    for way in ("/dev/fuse is missing", "modprobe fuse", "Docker", "Kubernetes: CAP_SYS_ADMIN alone does not help",
                "device plugin", "/dev/fd/N", "Slurm", "unshard export", "Python package"):
        assert way in done.stderr, way


def test_the_device_is_opened_once_to_say_why(mnt, tmp_path):
    """Once by libfuse, and once to find out what helps."""
    calls = tmp_path / "calls"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", f'{BARE_DEV} && exec "$@"', "sh", "strace", "-o", calls,
                           "-e", "trace=open,openat", UNSHARD, "mount", "-f", GOLDEN, mnt, "-o", "store=none"],
                          capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.returncode == 2 and "/dev/fuse is missing" in done.stderr
    assert calls.read_text().count('"/dev/fuse"') == 2

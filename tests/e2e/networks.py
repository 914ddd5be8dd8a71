"""Sources on file systems that a process serves: tests/fuse/renumber_fs.c and rclone."""

import os
import signal
import struct
import subprocess
from pathlib import Path

from conftest import UNSHARD, eventually, is_mounted
from processes import tasks

RENUMBER = Path(UNSHARD).parent / "renumber_fs"
RCLONE_S = 2  # for so long it takes a directory to be as it was
RCLONE = ["rclone", "mount", "--config", os.devnull, "--read-only", "--dir-cache-time", f"{RCLONE_S}s"]


class Network:
    def __init__(self, source, path):
        self.source, self.path = source, path

    def up(self, how="fine", env=None):
        serve, options = (RCLONE, ()) if how == "rclone" else ([str(RENUMBER)], how.split())
        self.process = subprocess.Popen([*serve, str(self.source), str(self.path), *options], env=env)
        eventually(lambda: is_mounted(self.path))

    def down(self):
        unmount = ["fusermount3", "-u", str(self.path)]
        eventually(lambda: subprocess.run(unmount).returncode == 0)  # not while a daemon that ends holds it
        assert self.process.wait() == 0

    def stop(self):
        """From now on nothing is taken or answered."""
        os.kill(self.process.pid, signal.SIGSTOP)
        eventually(lambda: all(state == "T" for _, _, state in tasks(self.process.pid)), every=0.001)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        if is_mounted(self.path):
            subprocess.run(["fusermount3", "-uz", str(self.path)], check=True)
        self.process.wait()


def requests(counts):
    """What renumber_fs was asked so far: enum request."""
    kinds = ("getattr", "readlink", "opendir", "readdir", "open", "read")
    return dict(zip(kinds, struct.unpack_from(f"{len(kinds)}Q", Path(counts).read_bytes())))


def of_reads(counts):
    """Bytes that were read so far, and how many reads were answered at once, at most."""
    return struct.unpack_from("2Q", Path(counts).read_bytes(), 6 * 8)


def of_opens(counts):
    """How many opens were answered at once, and how many files were open, at most."""
    return struct.unpack_from("2Q", Path(counts).read_bytes(), 8 * 8)

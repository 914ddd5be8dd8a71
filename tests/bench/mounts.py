"""What is measured, mounted: the two FUSE servers, what their processes use, and their read-ahead."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path


def status_bytes(pid, field):
    """A line of /proc/PID/status: VmHWM is the most memory it ever had, VmRSS what it has."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def io_bytes(pid, field):
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise LookupError(field)


def written_bytes(pid):
    """Bytes the process has written to file systems that store them."""
    return io_bytes(pid, "write_bytes")


def read_bytes(pid):
    """Bytes the process has read, from the page cache too."""
    return io_bytes(pid, "rchar")


def cpu_seconds(pid):
    """Of the process so far, in the kernel too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_ahead_file(path):
    dev = os.stat(path).st_dev
    return Path(f"/sys/class/bdi/{os.major(dev)}:{os.minor(dev)}/read_ahead_kb")


def same_read_ahead(path, like):
    """Give the mount at `path` the read-ahead of the one at `like`."""
    kb = read_ahead_file(like).read_text()
    if read_ahead_file(path).read_text() != kb:
        read_ahead_file(path).write_text(kb)
    return int(kb)


def is_mounted(path):
    return any(line.split()[1] == str(path)
               for line in Path("/proc/self/mounts").read_text().splitlines())


def daemon_of(mountpoint):
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"mount" in argv and str(mountpoint).encode() in argv:
                return int(entry.name)
    raise LookupError(f"no process serves {mountpoint}")


@contextlib.contextmanager
def unshard(programs, source, mountpoint, *options, store="none"):
    """The mount, that knows nothing from earlier ones; yields the process that serves it."""
    mountpoint.mkdir(exist_ok=True)
    subprocess.run([programs / "unshard", "mount", source, mountpoint, "-o",
                    ",".join(["settle=0", f"store={store}", *options])],
                   check=True, stderr=subprocess.DEVNULL)
    daemon = daemon_of(mountpoint)
    try:
        yield daemon
    finally:
        subprocess.run([programs / "unshard", "umount", mountpoint], check=True)
        while Path(f"/proc/{daemon}").exists():
            time.sleep(0.01)


@contextlib.contextmanager
def one_file(programs, source, mountpoint, delay_us=0):
    """The minimal server, showing `source` as MOUNTPOINT/file; every read of it takes delay_us more."""
    mountpoint.mkdir(exist_ok=True)
    server = subprocess.Popen([programs / "one_file_fs", source, mountpoint, str(delay_us)], stdout=subprocess.DEVNULL)
    try:
        while not is_mounted(mountpoint):
            if server.poll() is not None:
                raise RuntimeError("the minimal server did not start")
            time.sleep(0.01)
        os.stat(mountpoint)  # answered: read-ahead may be set from now on
        yield server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()

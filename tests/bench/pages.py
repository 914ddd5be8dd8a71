"""Pages of files in the kernel's page cache: how many there are, and how to be rid of them."""

import ctypes
import os
from pathlib import Path

CACHESTAT = 451  # its number on all machines; since Linux 6.5


class Range(ctypes.Structure):
    _fields_ = [("at", ctypes.c_uint64), ("len", ctypes.c_uint64)]


class Cachestat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64)
                for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")]


def drop(path):
    """The file's own pages."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)  # what is not on the disk yet would stay
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def may_drop_all():
    return os.access("/proc/sys/vm/drop_caches", os.W_OK)


def drop_all():
    """Of all files of the machine, and what it remembers of its directories."""
    Path("/proc/sys/vm/drop_caches").write_text("3")


def cached_bytes(path):
    """Of the file's bytes, how many are in the page cache; a page counts whole."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = Cachestat()
    fd = os.open(path, os.O_RDONLY)
    try:
        if libc.syscall(CACHESTAT, fd, ctypes.byref(Range(0, 0)), ctypes.byref(found), 0):
            raise OSError(ctypes.get_errno(), "cachestat (since Linux 6.5)")
    finally:
        os.close(fd)
    return found.cache * os.sysconf("SC_PAGE_SIZE")

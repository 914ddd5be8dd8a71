"""Calls that fail once in processes that run, and time that passes when a test says so: the plan of
tests/faults/faults.h, in a file that a preloaded `unshard` maps."""

import contextlib
import errno
import mmap
import os
import struct
import time
from pathlib import Path

# In the order of enum faults_call.
CALLS = ("open", "stat", "read", "readdir", "readlink", "mmap", "write", "fsync", "rename", "lock",
         "malloc", "sqlite", "thread")
ON_FILES = CALLS[:CALLS.index("malloc")]
ACTIONS = ("fail", "short", "kill", "hold")

FIELDS = ("armed", "calls", "action", "error", "pid", "stands_s", "later_s", "wall_s", "nth", "seen", "struck",
          *CALLS, "path", "library", "program")
LAYOUT = struct.Struct(f"<IIIiiIqqQQQ{len(CALLS)}Q256s64s32s")


class Faults:
    """One plan; start processes with env=faults.env, or mount(..., faults=faults)."""

    def __init__(self, path, binary):
        self.path = Path(path)
        self.path.write_bytes(bytes(LAYOUT.size))
        self.file = open(self.path, "r+b")
        self.plan = mmap.mmap(self.file.fileno(), LAYOUT.size)
        self.later_s = self.wall_s = self.stands_s = 0
        library = Path(binary).parents[1] / "lib/libunshard_faults.so"
        assert library.exists(), f"{library} is not built"
        sanitizer = os.environ.get("ASAN_OPTIONS", "")
        self.env = {**os.environ, "UNSHARD_FAULTS": str(self.path), "LD_PRELOAD": str(library),
                    "ASAN_OPTIONS": f"{sanitizer}:verify_asan_link_order=0"}

    def write(self, **values):
        values = {"path": b"", "library": b"", "program": b"", "later_s": self.later_s,
                  "wall_s": self.wall_s, "stands_s": self.stands_s, **values}
        self.plan[:] = LAYOUT.pack(*(values.get(name, 0) for name in FIELDS))

    def read(self, name):
        return dict(zip(FIELDS, LAYOUT.unpack(self.plan[:])))[name]

    def arm(self, *calls, error=errno.EIO, nth=1, action="fail", path="", library="", program="unshard",
            pid=0):
        """The nth (0: each) of these calls, counted from now on, fails with `error`."""
        self.write(calls=sum(1 << CALLS.index(call) for call in calls), action=ACTIONS.index(action),
                   error=error, nth=nth, path=str(path).encode(), library=library.encode(),
                   program=program.encode(), pid=pid)
        self.plan[:4] = struct.pack("<I", 1)

    def disarm(self):
        """Nothing fails any more; what was counted can still be read. Who was held goes on."""
        self.plan[:4] = struct.pack("<I", 0)

    @contextlib.contextmanager
    def armed(self, *calls, **how):
        self.arm(*calls, **how)
        try:
            yield self
        finally:
            self.disarm()

    @property
    def struck(self):
        return self.read("struck")

    @property
    def seen(self):
        """How many of the calls that are to fail were made."""
        return self.read("seen")

    def pass_time(self, seconds):
        """In all processes of this plan it is so much later."""
        self.later_s += seconds
        self._put_clocks()

    def set_clock(self, seconds):
        """The wall clock is set so much forward (back: less than 0); no time passes."""
        self.wall_s += seconds
        self._put_clocks()

    def stop_clock(self):
        """Within a second no more time passes in them: no deadline comes that is set from now on."""
        self.stands_s = int(time.monotonic()) + self.later_s + 1
        self._put_clocks()

    def _put_clocks(self):
        at = struct.calcsize("<IIIii")
        self.plan[at:at + 20] = struct.pack("<Iqq", self.stands_s, self.later_s, self.wall_s)

    def close(self):
        self.disarm()
        self.plan.close()
        self.file.close()

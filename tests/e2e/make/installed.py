"""Packages that tests use without what they depend on, each set in a folder of its own."""

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache"


def installed(name, *requirements):
    """The folder `name`, which holds these packages; filled by the first process that asks for it, and others wait."""
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with open(CACHE / f"{name}.lock", "w") as lock, tempfile.TemporaryDirectory(dir=CACHE) as place:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--target",
                                f"{place}/new", *requirements], check=True)
                Path(place, "new").rename(folder)
    return folder

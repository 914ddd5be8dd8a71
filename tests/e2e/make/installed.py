"""Packages that tests use without what they depend on, each set in a folder of its own."""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache"


def installed(name, *requirements):
    """The folder `name`, which holds these packages; filled when it is first asked for."""
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--target",
                            f"{place}/new", *requirements], check=True)
            with contextlib.suppress(OSError):  # another process was first
                Path(place, "new").rename(folder)
    return folder

"""A directory tree as it is at one moment; imports nothing but the standard library, as conftest.py and test_connection.py,
which tests/roots runs without the frameworks."""

import hashlib
import os
from pathlib import Path


def fingerprint(top):
    """path -> everything about it that a writer would change, and a hash of its bytes. Sparse files
    of many gigabytes are not read."""
    out = {}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            content = None
            if os.path.isfile(path) and st.st_size < 1 << 26:
                content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            out[os.path.relpath(path, top)] = (st.st_mode, st.st_size, st.st_mtime_ns, content)
    return out

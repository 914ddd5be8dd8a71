#!/usr/bin/env python3
"""What tools/packages.sh prints and calls where packages are missing: packages_rule.py SOURCE_ROOT. The programs of a
Debian system are stand-ins, so that it is any system and any user."""
import os
import subprocess
import sys
import tempfile

STAND_INS = {
    "dpkg-query": "exit 1",  # nothing is installed
    "dpkg": '[ "$2" = "$4" ] && exit 1; [ "$(printf "%s\\n" "$2" "$4" | sort -V | head -n 1)" = "$2" ]',  # A lt B
    "apt-get": 'echo "apt-get $*" >>"$CALLS"',
    "apt-cache": 'case $2 in cmake) has=$HAS_CMAKE ;; libfuse3-dev) has=$HAS_FUSE ;; esac; echo "  Candidate: ${has:-$HAS}"',
    "getconf": 'echo "glibc $GLIBC"',
    "id": 'echo "$USER_ID"',
    "sudo": '[ "$1" != -n ] || exit 1; "$@"',
}
CASES = [
    # name, environment, exit status, text, whether apt-get is called at all, whether it installs
    ("a user whose sudo asks", {"USER_ID": "1000", "HAS": "99", "GLIBC": "2.36"}, 2,
     "missing packages; type: sudo apt-get install -y --no-install-recommends cmake ninja-build gcc", False, False),
    ("very old", {"USER_ID": "0", "HAS": "1.0.0", "GLIBC": "2.28"}, 2,
     "this system is too old to build unshard: cmake is 1.0.0 (3.20 is needed), libfuse3-dev is 1.0.0 (3.14 is needed)",
     True, False),
    ("very old: the wheel", {"USER_ID": "0", "HAS": "1.0.0", "GLIBC": "2.28"}, 2,
     "Here runs: neither the build nor a release. Elsewhere, unshard export writes plain directories", True, False),
    ("Debian 11", {"USER_ID": "0", "HAS": "99", "HAS_CMAKE": "3.18.4", "HAS_FUSE": "3.10.3", "GLIBC": "2.31"}, 2,
     "too old to build unshard: cmake is 3.18.4 (3.20 is needed), libfuse3-dev is 3.10.3 (3.14 is needed). Here runs: the "
     "wheel and the tarball of a release (docs/install.md), and all but the mount (CMAKE_ARGS=-DUNSHARD_MOUNT=OFF pip install .). Elsewhere", True, False),
    ("old, with a glibc for wheels", {"USER_ID": "0", "HAS": "99", "HAS_FUSE": "3.10.5", "GLIBC": "2.35"}, 2,
     "unshard: libfuse3-dev is 3.10.5 (3.14 is needed). Here runs: the wheel and the tarball of a release "
     "(docs/install.md), and all but the mount", True, False),
    ("root of a new system", {"USER_ID": "0", "HAS": "99", "GLIBC": "2.41"}, 0, "installing cmake", True, True),
]


def main():
    root = os.path.abspath(sys.argv[1])
    bad = 0
    for name, environment, status, text, asked, installs in CASES:
        with tempfile.TemporaryDirectory() as folder:
            for program, script in STAND_INS.items():
                path = os.path.join(folder, program)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(f"#!/bin/bash\n{script}\n")
                os.chmod(path, 0o755)
            calls = os.path.join(folder, "calls")
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", ". tools/packages.sh; packages_install build"], cwd=root, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                env={**os.environ, **environment, "PATH": f"{folder}:{os.environ['PATH']}", "CALLS": calls})
            called = open(calls, encoding="utf-8").read() if os.path.exists(calls) else ""
        if (done.returncode != status or text not in done.stdout or bool(called) != asked
                or ("apt-get install" in called) != installs):
            print(f"{name}: {done.returncode}\n{done.stdout}{called}")
            bad += 1
    print(f"{len(CASES)} cases, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

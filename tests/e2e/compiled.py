"""Builds that tests make as users do: the commands of the pages, the wheel. All of them compile the same files, so that
where ccache is used (tests/run) each file is compiled once."""

import contextlib
import fcntl
import os

from conftest import ROOT

# What cmake is to call before the compiler. Without optimisation, in half of the time; and in the sources' directory: the
# command, which ccache looks up, is the same wherever a build's directory is. Each build is made once: that ninja finds
# none of the files that an object depends on does not matter.
LAUNCHER = """#!/bin/bash
build=$PWD
cd '{sources}' || exit
last= arguments=()
for argument; do
	case $last in -o | -MF) argument=$build/$argument ;; esac
	arguments+=("$argument")
	last=$argument
done
exec {ccache} "${{arguments[@]}}" -O0
"""


@contextlib.contextmanager
def without_optimisation(sources, folder):
    """The environment of a build of `sources`; `folder` is for what calls the compiler. One at a time: the next one finds
    what this one compiled."""
    launcher = folder / "compile"
    launcher.write_text(LAUNCHER.format(sources=sources, ccache=os.environ.get("CMAKE_C_COMPILER_LAUNCHER", "")))
    launcher.chmod(0o755)
    kept = ROOT / "build/ccache"
    kept.mkdir(parents=True, exist_ok=True)
    with open(kept / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield {"CMAKE_GENERATOR": "Ninja", "CMAKE_C_COMPILER_LAUNCHER": str(launcher), "CCACHE_BASEDIR": str(sources),
               "CCACHE_DEPEND": "1", "CCACHE_DIR": os.environ.get("CCACHE_DIR", str(kept))}

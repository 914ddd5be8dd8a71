"""Builds that tests make as users do, by the commands of the pages. Their objects are those that ccache has of the build
`dev` (tests/run): everything is done but compiling what was compiled."""

import contextlib
import fcntl
import os
import subprocess

from conftest import ROOT

# What cmake is to call before the compiler: it compiles as the build `dev` does. To ccache the commands are equal if their
# paths, seen from the directory where the compiler runs, are: build/dev. Without ccache, no optimisation, in a third of
# the time. Each build is made once: that ninja finds none of the files that an object depends on does not matter.
LAUNCHER = """#!/bin/bash
build=$PWD there='{sources}/build/dev' ccache='{ccache}'
[ -e "$there/lib" ] || {{ mkdir -p "$there" && ln -sfn "$build/lib" "$there/lib"; }}
cd "$there" || exit
last= arguments=()
for argument; do
	case $last in -o | -MF) argument=$build/$argument ;; esac
	last=$argument
	case $argument in
	-O3) if [ -n "$ccache" ]; then arguments+=(-O2) argument=-g; else argument=-O0; fi ;;
	-I"$build"/lib/made) argument=-I$there/lib/made ;;
	-fvisibility=hidden) arguments+=(-Werror) ;;
	esac
	arguments+=("$argument")
done
exec $ccache "${{arguments[@]}}"
"""


def cache_of(ccache):
    """The directory where it keeps what was compiled; a page's commands have another home."""
    return subprocess.run([ccache, "-k", "cache_dir"], capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def as_dev(sources, folder):
    """The environment of a build of `sources`; `folder` is for what calls the compiler. One at a time: the next one finds
    what this one compiled."""
    launcher, ccache = folder / "compile", os.environ.get("CMAKE_C_COMPILER_LAUNCHER", "")
    launcher.write_text(LAUNCHER.format(sources=sources, ccache=ccache))
    launcher.chmod(0o755)
    cache = {"CCACHE_DIR": cache_of(ccache), "CCACHE_BASEDIR": str(sources), "CCACHE_NOHASHDIR": "1",
             "CCACHE_DEPEND": "1"} if ccache else {}
    with open(ROOT / "build/one-build.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield {"CMAKE_GENERATOR": "Ninja", "CMAKE_C_COMPILER_LAUNCHER": str(launcher), **cache}

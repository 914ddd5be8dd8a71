"""Processes that tests begin and others end: is one alive, and what do its threads wait in?"""

import contextlib
import os
from pathlib import Path

IN_FUSE = "request_wait_answer"  # the kernel's function in which a thread waits for who serves a FUSE mount


def tasks(pid):
    """Of each thread of the process: its directory, its name and its state."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
                yield task, name, rest[0]


def alive(pid):
    """What the kernel has left of it until its parent asks is not: that may take process 1 as long as it likes."""
    return any(state not in "ZX" for _, _, state in tasks(pid))


def threads(pid):
    """Of each thread: number, name, state, system call (its number, or "running") and the kernel's function that it
    sleeps in, "0" if it does not. Those that end meanwhile are left out."""
    for task, name, state in tasks(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield task.name, name, state, (task / "syscall").read_text().split()[0], (task / "wchan").read_text()


def waits_for_a_fuse_mount(pid):
    return any(function == IN_FUSE for *_, function in threads(pid))


def runs_one_of(pid, directory):
    """A process that is ending has only the beginning of its program's name."""
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).parent == directory
    except FileNotFoundError:
        return any(name in {program.name[:15] for program in directory.iterdir()} for _, name, _ in tasks(pid))


def of_programs(directory):
    """The processes that run a program of this directory."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and runs_one_of(entry.name, directory):
                yield int(entry.name)


def report(directory):
    """A line for each thread of these programs and of this process, of what may be seen."""
    lines = []
    for pid in [os.getpid(), *sorted(of_programs(directory))]:
        with contextlib.suppress(OSError):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines.append(f"{pid} {argv}")
            lines += [f"    {' '.join(thread)}" for thread in threads(pid)]
    return "\n".join(lines)

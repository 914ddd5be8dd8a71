"""Plain reading: the file itself, the minimal server, the mount over 2, 8 and 64 shards."""

import contextlib
import filecmp
import shutil
import statistics
import subprocess

import checkpoints
import mounts
import pages

SHARDS = (2, 8, 64)
# name, how read_modes reads, whether the mounted files' pages are dropped before
MODES = (("first read", "read", True), ("second read", "read", False), ("mmap", "mmap", True),
         ("8 threads", "threads", True))
NATIVE, MINIMAL, AGAIN = "the file itself", "minimal FUSE server", "another of the same"


def seconds(programs, how, path):
    done = subprocess.run([programs / "read_modes", how, path], check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


@contextlib.contextmanager
def subjects(programs, work, size):
    """name -> path of the same bytes."""
    config, tensors = checkpoints.llama(size)
    for n in SHARDS:
        checkpoints.write_run(work / f"source/{n}", config, tensors, n)
    del tensors
    with contextlib.ExitStack() as stack:
        stack.enter_context(mounts.unshard(programs, work / "source", work / "mount"))
        found = {f"mount, {n} shards": work / f"mount/weights/{n}/checkpoint-1/model.safetensors"
                 for n in SHARDS}
        native = work / "native.safetensors"
        shutil.copyfile(next(iter(found.values())), native)
        for path in found.values():
            assert filecmp.cmp(path, native, shallow=False), f"{path} is not {native}"
        minimal = {MINIMAL: work / "minimal/file", AGAIN: work / "again/file"}
        for path in minimal.values():
            stack.enter_context(mounts.one_file(programs, native, path.parent))
            kb = mounts.same_read_ahead(path.parent, like=work / "mount")
        yield {NATIVE: native} | minimal | found, kb


def rounds(programs, paths, n):
    """mode -> name -> seconds of each round. Within a round each mode is measured for all subjects in
    turn, beginning with another one each time, so that what disturbs disturbs all alike. All pages are
    dropped before the first of them is read: one that gets its own back has them in better order."""
    names = list(paths)
    took = {mode: {name: [] for name in names} for mode, _, _ in MODES}
    for r in range(n):
        order = names[r % len(names):] + names[:r % len(names)]
        for mode, how, drop in MODES:
            for name in order:
                if drop and name != NATIVE:
                    pages.drop(paths[name])
            for name in order:
                took[mode][name].append(seconds(programs, how, paths[name]))
    return took


def table(took, size):
    """GB/s of the median round, and the median of the rounds' ratios to the minimal server."""
    print("|", " | ".join(["", *took]), "|")
    print("|---|" + "---:|" * len(took))
    for name in next(iter(took.values())):
        cells = []
        for mode in took:
            gbps = size / statistics.median(took[mode][name]) / 1e9
            ratio = statistics.median(m / s for m, s in zip(took[mode][MINIMAL], took[mode][name]))
            cells.append(f"{gbps:.2f} GB/s" + (f", **{ratio:.0%}**" if name != MINIMAL else ""))
        print("|", " | ".join([name, *cells]), "|")


def measure(programs, work, size, n_rounds):
    with subjects(programs, work, size) as (paths, kb):
        size = paths[NATIVE].stat().st_size
        took = rounds(programs, paths, n_rounds)
    print(f"\n## Reading {size / 1e6:.0f} MB\n")
    print(f"Medians of {n_rounds} interleaved rounds; bold: against the minimal server in the same "
          f"round. Sources are in the page cache. First read, mmap and 8 threads begin with none of "
          f"the mounted file's pages in it, so that all come through FUSE; second read finds them "
          f"there. The file itself is always there. The minimal server runs twice: how far the second "
          f"is from 100% is what this machine's other work does to the numbers. Read-ahead of all mounts: {kb} KiB.\n")
    table(took, size)

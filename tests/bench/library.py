"""Python without a mount: unshard.load_file on shards, against safetensors' load_file and a copy of each tensor on the
consolidated file."""

import os
import shutil
import statistics

import checkpoints
import reads
import zero
from exports import export, trees

RANKS = 8


def drop(top):
    """The files' pages; they are on the disk."""
    for path in [top] if top.is_file() else top.rglob("*"):
        if path.is_file():
            reads.drop_pages(path)


def once(what, path, cold):
    if cold:
        drop(path)
    return zero.python("library_once.py", what, path)


def measure(programs, work, size, n_rounds):
    os.environ["UNSHARD_LIBRARY"] = str(programs.parent / "lib/libunshard.so.0")
    work = work / "library"
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work, config, tensors, RANKS)
    paths = {"file": work / "native/model.safetensors", "shards": work / "checkpoint-1"}
    export(programs, paths["shards"], "weights", work / "native")
    trees.assert_same(trees.weights(work / "native"), tensors)
    del tensors
    os.sync()
    print(f"\n## Every tensor in memory of its own, {paths['file'].stat().st_size / 1e6:.0f} MB\n")
    print(f"Medians of {n_rounds} interleaved rounds, in fresh processes, imports excluded; bold: the median of the rounds' "
          f"ratios. {RANKS} shards against the consolidated file.\n\n| from | safetensors' load_file and a copy of each "
          f"tensor | unshard.load_file | its speed |\n|---|---:|---:|---:|")
    for place in "the page cache", "the disk":
        took = {what: [] for what in paths}
        for r in range(n_rounds + 1):  # the first round is not counted: it warms up
            for what in list(paths)[::1 if r % 2 else -1]:
                took[what].append(once(what, paths[what], place == "the disk"))
        counted = [took[what][1:] for what in paths]
        native, shards = map(statistics.median, counted)
        ratio = statistics.median(n / s for n, s in zip(*counted))
        print(f"| {place} | {native:.2f} s | {shards:.2f} s | **{ratio:.2f}x** |", flush=True)
    shutil.rmtree(work)

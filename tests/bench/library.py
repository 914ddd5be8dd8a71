"""Python without a mount: unshard.load_file on shards, against safetensors' load_file and a copy of each tensor on the
consolidated file."""

import shutil
import statistics

import checkpoints
import pages
from exports import export, trees
from loaders import Loaders

RANKS = 8
LOADERS = {"file": "load_file", "shards": "unshard"}


def drop(top):
    for path in [top] if top.is_file() else top.rglob("*"):
        if path.is_file():
            pages.drop(path)


def once(loaders, what, path, cold):
    if cold:
        drop(path)
    return loaders.load(LOADERS[what], path)["seconds"]


def measure(programs, work, size, n_rounds):
    work = work / "library"
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work, config, tensors, RANKS)
    paths = {"file": work / "native/model.safetensors", "shards": work / "checkpoint-1"}
    export(programs, paths["shards"], "weights", work / "native")
    trees.assert_same(trees.weights(work / "native"), tensors)
    del tensors
    print(f"\n## Every tensor in memory of its own, {paths['file'].stat().st_size / 1e6:.0f} MB\n")
    print(f"Medians of {n_rounds} interleaved rounds, in fresh processes, imports excluded; bold: the median of the rounds' "
          f"ratios. {RANKS} shards against the consolidated file.\n\n| from | safetensors' load_file and a copy of each "
          f"tensor | unshard.load_file | its speed |\n|---|---:|---:|---:|")
    with Loaders() as loaders:
        for place in "the page cache", "the disk":
            took = {what: [] for what in paths}
            for r in range(n_rounds + 1):  # the first round is not counted: it warms up
                for what in list(paths)[::1 if r % 2 else -1]:
                    took[what].append(once(loaders, what, paths[what], place == "the disk"))
            counted = [took[what][1:] for what in paths]
            native, shards = map(statistics.median, counted)
            ratio = statistics.median(n / s for n, s in zip(*counted))
            print(f"| {place} | {native:.2f} s | {shards:.2f} s | **{ratio:.2f}x** |", flush=True)
    shutil.rmtree(work)

"""N processes of a node load the same model from storage that makes one wait: its shards through a mount, and the
consolidated file as it is. How long until all have it, and how many times storage was read for that."""

import contextlib
import importlib.util
import shutil
import statistics

import checkpoints
import loaders
import mounts
import pages

RANKS, DELAY_US, READ_AHEAD_KB = 8, 8000, 4096
LOADERS = {"load_file": ("safetensors, each tensor copied", "safetensors"),
           "fastsafetensors": ("fastsafetensors", "fastsafetensors"),
           "runai": ("Run:ai's streamer", "runai_model_streamer")}
FILE, MOUNT = "the file itself", "the mount"


@contextlib.contextmanager
def behind_servers(programs, paths, top):
    """-> each path's file in a server of its own, the servers' processes"""
    shown, servers = [], []
    with contextlib.ExitStack() as stack:
        for path in paths:
            at = top / path.name
            at.mkdir(parents=True)
            servers.append(stack.enter_context(mounts.one_file(programs, path, at, DELAY_US)))
            mounts.read_ahead_file(at).write_text(str(READ_AHEAD_KB))
            shown.append(at / "file")
        yield shown, servers


def once(process, loader, path, held, servers, n):
    """-> seconds; bytes that storage was asked for"""
    for file in [path, *held]:
        pages.drop(file)
    before = sum(map(mounts.read_bytes, servers))
    seconds = process.load(loader, path, n)["seconds"]
    return seconds, sum(map(mounts.read_bytes, servers)) - before


def cells(rounds, size):
    seconds, read = (statistics.median(of) for of in zip(*rounds))
    return f"{seconds:.2f} s | {read / size:.2f}"


def measure(programs, work, size, n_rounds, numbers):
    work = work / "beside"
    work.mkdir()
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work / "run", config, tensors, RANKS)
    del tensors
    native = work / "model.safetensors"
    with mounts.unshard(programs, work / "run", work / "mount"):
        shutil.copyfile(work / "mount/weights/checkpoint-1/model.safetensors", native)
    size, shards = native.stat().st_size, sorted((work / "run").rglob("*.distcp"))
    afar = work / "afar"  # a link of it leads nowhere outside
    shutil.copytree(work / "run", afar / "run", ignore=shutil.ignore_patterns("*.distcp"))
    with contextlib.ExitStack() as stack:
        (alone,), of_file = stack.enter_context(behind_servers(programs, [native], afar / "servers"))
        held, of_shards = stack.enter_context(behind_servers(programs, shards, afar / "servers"))
        for shard, path in zip(shards, held):
            (afar / shard.relative_to(work)).symlink_to(path)
        stack.enter_context(mounts.unshard(programs, afar, work / "mount"))
        process = stack.enter_context(loaders.Loaders())
        ways = {FILE: (alone, [alone], of_file),
                MOUNT: (work / "mount/weights/run/checkpoint-1/model.safetensors", held, of_shards)}
        print(f"\n## N processes beside each other, {size / 1e6:.0f} MB\n")
        print(f"Each process loads all. Medians of {n_rounds} interleaved rounds; storage takes {DELAY_US / 1000:.0f} ms for every "
              f"read, with a read-ahead of {READ_AHEAD_KB} KiB. Read: the bytes that storage was asked for, as parts of the model's "
              f"size. The mount shows {RANKS} shards.\n")
        print("| loader | processes |" + "".join(f" {way} | read |" for way in ways) + "\n|---|---:|" + "---:|" * 2 * len(ways))
        for loader, (label, module) in LOADERS.items():
            if not importlib.util.find_spec(module):
                print(f"| {label} | not installed |" + " |" * 2 * len(ways))
                continue
            for n in numbers:
                took = {way: [] for way in ways}
                for _ in range(n_rounds):
                    for way, (path, sources, servers) in ways.items():
                        took[way].append(once(process, loader, path, sources, servers, n))
                print(f"| {label} | {n} |" + "".join(f" {cells(rounds, size)} |" for rounds in took.values()), flush=True)
    shutil.rmtree(work)

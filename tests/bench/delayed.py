"""Storage at the other end of a network: files whose reads take 8 ms each, read as they are and through the mount."""

import concurrent.futures
import contextlib
import shutil
import statistics

import checkpoints
import mounts
import pages
import reads

DELAY_US = 8000
READ_AHEAD_KB = (128, 4096)  # what a kernel has, and what a network file system is often given
FILES = 8  # each behind a server of its own
NATIVE, MOUNT = "the file itself", "the mount"


def seconds(programs, paths):
    """Until the last of them is read, by one thread each."""
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        return max(pool.map(lambda path: reads.seconds(programs, "read", path), paths))


def measure(programs, work, size, n_rounds):
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work / "one", config, tensors, 1)
    del tensors
    native = work / "delayed.safetensors"
    with mounts.unshard(programs, work / "one", work / "mount"):
        shutil.copyfile(work / "mount/weights/checkpoint-1/model.safetensors", native)
    size = native.stat().st_size
    servers = [work / f"storage/delayed-{i}" for i in range(FILES)]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.mkdir(parents=True)
            stack.enter_context(mounts.one_file(programs, native, server, DELAY_US))
        stack.enter_context(mounts.unshard(programs, work / "storage", work / "mount"))
        paths = {NATIVE: [server / "file" for server in servers],
                 MOUNT: [work / "mount/weights" / server.name / "file" for server in servers]}
        print(f"\n## Storage that takes {DELAY_US / 1000:.0f} ms for every read\n")
        print(f"Medians of {n_rounds} interleaved rounds, {size / 1e6:.0f} MB each, one thread a file from front to back, by the "
              f"read-ahead of the storage's file system.\n")
        print("| read-ahead | files at once |", " | ".join(paths), "|\n|---|---:|" + "---:|" * len(paths))
        for kb in READ_AHEAD_KB:
            for server in servers:
                mounts.read_ahead_file(server).write_text(str(kb))
            for n in (1, FILES):
                took = {name: [] for name in paths}
                for _ in range(n_rounds):
                    for name in paths:
                        for path in sum(paths.values(), []):
                            pages.drop(path)
                        took[name].append(seconds(programs, paths[name][:n]))
                cells = [f"{n * size / statistics.median(took[name]) / 1e9:.2f} GB/s" for name in paths]
                print(f"| {kb} KiB | {n} |", " | ".join(cells), "|", flush=True)

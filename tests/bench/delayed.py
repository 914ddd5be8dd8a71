"""Storage at the other end of a network: a file whose reads take 8 ms each, read as it is and through the mount."""

import shutil
import statistics

import checkpoints
import mounts
import pages
import reads

DELAY_US = 8000
READ_AHEAD_KB = (128, 4096)  # what a kernel has, and what a network file system is often given
NATIVE, MOUNT = "the file itself", "the mount"


def measure(programs, work, size, n_rounds):
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work / "one", config, tensors, 1)
    del tensors
    native = work / "delayed.safetensors"
    with mounts.unshard(programs, work / "one", work / "mount"):
        shutil.copyfile(work / "mount/weights/checkpoint-1/model.safetensors", native)
    source = work / "storage"
    source.mkdir()
    with mounts.one_file(programs, native, source / "delayed", DELAY_US), \
            mounts.unshard(programs, source, work / "mount"):
        paths = {NATIVE: source / "delayed/file", MOUNT: work / "mount/weights/delayed/file"}
        print(f"\n## Storage that takes {DELAY_US / 1000:.0f} ms for every read\n")
        print(f"Medians of {n_rounds} interleaved rounds, {native.stat().st_size / 1e6:.0f} MB, one thread from front to "
              f"back, by the read-ahead of the storage's file system.\n")
        print("| read-ahead |", " | ".join(paths), "|\n|---|" + "---:|" * len(paths))
        for kb in READ_AHEAD_KB:
            mounts.read_ahead_file(source / "delayed").write_text(str(kb))
            took = {name: [] for name in paths}
            for _ in range(n_rounds):
                for name, path in paths.items():
                    for each in paths.values():
                        pages.drop(each)
                    took[name].append(reads.seconds(programs, "read", path))
            cells = [f"{native.stat().st_size / statistics.median(took[name]) / 1e9:.2f} GB/s" for name in paths]
            print(f"| {kb} KiB |", " | ".join(cells), "|", flush=True)

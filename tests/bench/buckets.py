"""An object store that answers after 30 ms and gives 5 GB/s in total: curl's parallel ranges of the shards, the mount for
one reader and for eight, export. With the processor seconds of both ends, and what they allow: they share the machine.
Then how long `unshard ls` takes."""

import concurrent.futures
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import time
from typing import NamedTuple

import checkpoints
import mounts
import reads

DELAY_US, GB_PER_SECOND = 30000, 5
READERS = 8
RANGE_BYTES, RANGES_AT_ONCE = 8 << 20, 16
BUCKET = "checkpoints"
SHARD = "checkpoint-1/pytorch_model_fsdp_0/__0_0.distcp"


@contextlib.contextmanager
def server(programs, top):
    """Yields its process and the environment of programs that ask it."""
    process = subprocess.Popen([programs / "object_server", top, str(DELAY_US), str(GB_PER_SECOND)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    env |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{process.stdout.readline().strip()}", "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    try:
        yield process.pid, env
    finally:
        process.stdin.close()
        process.wait()


class Took(NamedTuple):
    seconds: float
    cpu: float  # of the programs that read
    server_cpu: float
    sent: int  # bytes, by the server


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def took(what, pid, daemon=None):
    """Of programs that end meanwhile, and of the mount's process."""
    before = children_cpu(), mounts.cpu_seconds(pid), mounts.cpu_seconds(daemon) if daemon else 0
    sent = mounts.io_bytes(pid, "wchar")
    began = time.monotonic()
    what()
    seconds = time.monotonic() - began
    cpu = children_cpu() - before[0] + (mounts.cpu_seconds(daemon) - before[2] if daemon else 0)
    return Took(seconds, cpu, mounts.cpu_seconds(pid) - before[1], mounts.io_bytes(pid, "wchar") - sent)


def curl(env, top, runs, work):
    """Every byte of the runs' shards."""
    lines = []
    for run in runs:
        size = (top / BUCKET / run / SHARD).stat().st_size
        for at in range(0, size, RANGE_BYTES):
            lines.append(f'next\nurl = "{env["AWS_ENDPOINT_URL"]}/{BUCKET}/{run}/{SHARD}"\noutput = /dev/null\n'
                         f"range = {at}-{min(at + RANGE_BYTES, size) - 1}\n")
    (work / "curl").write_text("".join(lines).removeprefix("next\n"))
    subprocess.run(["curl", "--silent", "--fail", "--parallel", "--parallel-max", str(RANGES_AT_ONCE), "--config",
                    work / "curl"], check=True, stderr=subprocess.DEVNULL)


def read(programs, mount, runs):
    paths = [mount / f"weights/{run}/checkpoint-1/model.safetensors" for run in runs]
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        list(pool.map(lambda path: reads.seconds(programs, "read", path), paths))


def export(programs, env, run, out):
    subprocess.run([programs / "unshard", "export", f"s3://{BUCKET}/{run}/checkpoint-1", out, "-o",
                    "settle=0,store=none"], check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(out)


def ls(programs, env):
    subprocess.run([programs / "unshard", "ls", f"s3://{BUCKET}", "-o", "settle=0,store=none"], check=True, env=env,
                   stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def mounted(programs, env, work):
    """Nothing was read yet, but for what the command looks at before it mounts."""
    with contextlib.ExitStack() as stack:
        before = dict(os.environ)
        os.environ.update(env)
        try:
            daemon = stack.enter_context(mounts.unshard(programs, f"s3://{BUCKET}", work / "mount"))
        finally:
            os.environ.clear()
            os.environ.update(before)
        yield daemon


def once(programs, env, pid, work, what):
    top, runs = work / "store", [f"run-{i}" for i in range(READERS)]
    n, way = what
    runs = runs[:n]
    if way == "curl":
        return took(lambda: curl(env, top, runs, work), pid)
    if way == "ls":
        return took(lambda: ls(programs, env), pid)
    if way == "export":
        # in memory: it is not the disk that is measured
        return took(lambda: export(programs, env, runs[0], f"/dev/shm/unshard-bench-{os.getpid()}"), pid)
    with mounted(programs, env, work) as daemon:
        return took(lambda: read(programs, work / "mount", runs), pid, daemon)


ROWS = {(1, "curl"): f"curl, {RANGES_AT_ONCE} ranges of 8 MiB at once", (1, "mount"): "the mount, one reader",
        (1, "export"): "export, into memory", (READERS, "curl"): f"curl, as much as {READERS} readers read",
        (READERS, "mount"): f"the mount, {READERS} readers"}
LS = READERS, "ls"


def measure(programs, work, size, n_rounds):
    work = work / "buckets"
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work / "store" / BUCKET / "run-0", config, tensors, 1)
    del tensors
    for i in range(1, READERS):  # other objects; the server's page cache need not hold them twice
        shutil.copytree(work / "store" / BUCKET / "run-0", work / "store" / BUCKET / f"run-{i}", copy_function=os.link)
    size = (work / "store" / BUCKET / "run-0" / SHARD).stat().st_size
    found = {what: [] for what in (*ROWS, LS)}
    with server(programs, work / "store") as (pid, env):
        curl(env, work / "store", ["run-0"], work)  # into the page cache
        for _ in range(n_rounds):
            for what in found:
                found[what].append(once(programs, env, pid, work, what))
    print(f"\n## An object store that answers after {DELAY_US // 1000} ms and gives {GB_PER_SECOND} GB/s in total\n")
    print(f"Medians of {n_rounds} interleaved rounds, {size / 1e6:.0f} MB for each reader, no encryption, server and readers on "
          f"{os.cpu_count()} processors; bold: the median of the rounds' ratios to curl. Processor seconds: of the programs "
          f"that read and the mount's process; of the server. These two allow so much on all processors. Sent: by the server, "
          f"for each byte that was read.\n")
    print("| | GB/s | of curl's | processor seconds for a GB | the server's | GB/s that these allow | sent |\n"
          "|---|---:|---:|---:|---:|---:|---:|")
    for (n, way), label in ROWS.items():
        gb = n * size / 1e9
        rounds = found[n, way]
        ratio = statistics.median(c.seconds / t.seconds for c, t in zip(found[n, "curl"], rounds))
        cpu, server_cpu = (statistics.median(getattr(t, of) for t in rounds) / gb for of in ("cpu", "server_cpu"))
        print(f"| {label} | {gb / statistics.median(t.seconds for t in rounds):.2f} | "
              f"{'' if way == 'curl' else f'**{ratio:.0%}**'} | {cpu:.2f} | {server_cpu:.2f} | "
              f"{os.cpu_count() / (cpu + server_cpu):.2f} | {statistics.median(t.sent for t in rounds) / gb / 1e9:.2f} |",
              flush=True)
    print(f"\n`unshard ls` of the {READERS} checkpoints: {statistics.median(t.seconds for t in found[LS]):.2f} s, "
          f"{statistics.median(t.sent for t in found[LS]) / 1e6:.1f} MB.")
    shutil.rmtree(work)

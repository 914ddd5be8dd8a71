"""Programs that load by ways of their own, or write what they loaded in a form of their own: from the mount of 8 shards, and
from the exported file. Both must give the same bits. Each program has the environment that tests/e2e makes for it."""

import contextlib
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import checkpoints
import mounts
import pages
from loaders import Loaders
from shares import Shares

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
import environments  # noqa: E402

SHARDS = 8
MINUTES = 7  # then a round that lasts longer than those before it ends within eight
CACHED, DISK = "page cache", "disk"
FILE, MOUNT = "the file", "the mount"


class Program(NamedTuple):
    label: str
    environment: str = ""  # of programs/
    most: dict = {CACHED: 2.5, DISK: 1.2}  # times the file's seconds that the mount should take


WRITES = {CACHED: 1.2, DISK: 1.2}
PROGRAMS = {
    "load_file": Program("safetensors, each tensor copied"),
    "fastsafetensors": Program("fastsafetensors, CPU, `nogds`", "fastsafetensors"),
    "runai": Program("Run:ai's streamer", "runai"),
    "device_map": Program('transformers, `device_map="cpu"`'),
    "tp_plan": Program('transformers, `tp_plan="auto"`, 2 ranks'),
    "sharded": Program("transformers, `fsdp_size=2`: each of 2 ranks reads its slices"),
    "tensorizer": Program("transformers, then tensorizer writes it", "tensorizer", WRITES),
    "llama_cpp": Program("llama.cpp's `convert_hf_to_gguf.py`", "llama_cpp", WRITES),
    "tensorrt_llm": Program("TensorRT-LLM's way: all bytes read, then mapped"),
}


def begun(stack, of, processes={}):
    """-> the process that loads in this environment; a sentence where it cannot be made"""
    if of not in processes:
        try:
            python = environments.environment(of) if of else sys.executable
        except (AssertionError, subprocess.CalledProcessError, OSError) as e:
            return f"not installed: {(str(e).strip().splitlines() or [type(e).__name__])[-1]}"
        processes[of] = stack.enter_context(Loaders("--transformers", "--bits", python=python))
    return processes[of]


def once(process, name, where, path, sources, server):
    for file in {path, *sources}:
        pages.drop(file)
    for file in sources if where == CACHED else ():
        with open(file, "rb", buffering=0) as f:
            while f.read(1 << 20):
                pass
    before = mounts.cpu_seconds(server)
    found = process.load(name, path)
    return found | {"server": mounts.cpu_seconds(server) - before}


def row(name, where, took, size):
    program, gb = PROGRAMS[name], size / 1e9
    file, mount = ({key: statistics.median(r[key] for r in rounds) for key in rounds[0]} for rounds in took.values())
    bits = {r["bits"] for rounds in took.values() for r in rounds}
    ratios = sorted(m["seconds"] / f["seconds"] for f, m in zip(*took.values()))
    print(f"| {program.label} | {where} | {len(ratios)} | {file['seconds']:.2f} s | {mount['seconds']:.2f} s | "
          f"**{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {program.most[where]} | "
          f"{file['cpu'] / gb:.2f} | {mount['cpu'] / gb:.2f} + {mount['server'] / gb:.2f} | "
          f"{'equal' if len(bits) == 1 else 'DIFFERENT'} |", flush=True)


@contextlib.contextmanager
def sources(programs, work, size):
    """-> the file and the mount's file, each with what its bytes come from; the process that serves the mount"""
    config, tensors = checkpoints.llama(size)
    checkpoints.write_run(work / "run", config, tensors, SHARDS)
    del tensors
    write_tokenizer = environments.functions("llama_cpp")["write_tokenizer"]
    write_tokenizer(work / "run/checkpoint-1", config["vocab_size"])
    subprocess.run([programs / "unshard", "export", work / "run/checkpoint-1", work / "exported", "--store", "none"], check=True,
                   stdout=subprocess.DEVNULL)
    file = work / "exported/model.safetensors"
    with mounts.unshard(programs, work / "run", work / "mount") as server:
        shards = sorted((work / "run").rglob("*.distcp"))
        yield {FILE: (file, [file]), MOUNT: (work / "mount/weights/checkpoint-1/model.safetensors", shards)}, server


def measure(programs, work, size, n_rounds, names=tuple(PROGRAMS)):
    work = work / "programs"
    work.mkdir()
    with contextlib.ExitStack() as stack:
        for name in names:  # to make an environment takes minutes, once
            begun(stack, PROGRAMS[name].environment)
        shares = Shares(MINUTES, 2 * len(names))
        of, server = stack.enter_context(sources(programs, work, size))
        size = of[FILE][0].stat().st_size
        print(f"\n## Programs by their own doors, {size / 1e6:.0f} MB\n")
        print(f"Medians of up to {n_rounds} interleaved rounds, in fresh processes, imports excluded; bold: the median of the rounds' "
              f"ratios (least to most), below 1.00 the mount of {SHARDS} shards is sooner than the exported file; then the "
              f"ratio that was to be reached. Processor seconds are for each GB: of the loading processes, then of the process "
              f"that serves. Bits: a sum of all that each program then had, from both. From the disk: the files' own pages are "
              f"dropped before.\n")
        print("| program | from | rounds | the file | the mount | ratio | goal | CPU s/GB: file | mount: program + server | bits |\n"
              "|---|---|" + "---:|" * 7 + "---|")
        for name in names:
            process = begun(stack, PROGRAMS[name].environment)
            for where in () if isinstance(process, str) else (CACHED, DISK):
                def one_round(i):
                    return {what: once(process, name, where, *of[what], server) for what in list(of)[::1 if i % 2 else -1]}
                rounds = shares.rounds(n_rounds, one_round)
                row(name, where, {what: [r[what] for r in rounds] for what in of}, size)
            if isinstance(process, str):
                print(f"| {PROGRAMS[name].label} | {process} | | | | | | | | |", flush=True)

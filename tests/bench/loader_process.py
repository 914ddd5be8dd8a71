"""Loads in processes that need not import anything: loader_process.py [--transformers] imports once, then forks for each
line of standard input, [LOADER, PATH] or [LOADER, PATH, PROCESSES] in JSON, and answers with a line: the seconds and processor
seconds until each of the processes has loaded all."""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
import unshard  # noqa: E402

WORKERS = 8


def copy_of_each(path):
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def from_pretrained(path):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(path.parent, dtype="auto")
    for tensor in model.state_dict().values():
        tensor.view(-1).view(torch.int64).sum()
    return model


def warm_up_transformers():
    """What from_pretrained imports when it is first called."""
    from transformers import AutoModelForCausalLM, LlamaConfig
    config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, vocab_size=8,
                         num_attention_heads=1, num_key_value_heads=1)
    with tempfile.TemporaryDirectory() as tiny:
        AutoModelForCausalLM.from_config(config).save_pretrained(tiny)
        from_pretrained(Path(tiny) / "model.safetensors")


def import_fastsafetensors():
    import fastsafetensors  # noqa: F401


def by_fastsafetensors(path):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [str(path)]})
    held = loader.copy_files_to_device()
    return {name: held.get_tensor(name).clone() for name in loader.get_keys()}


def import_runai():
    import runai_model_streamer  # noqa: F401


def by_runai(path):
    from runai_model_streamer import SafetensorsStreamer
    with SafetensorsStreamer() as streamer:
        streamer.stream_file(str(path))
        return {name: tensor.clone() for name, tensor in streamer.get_tensors()}


def worker(path, rank):
    """One of vLLM's workers: all map the file, and each copies its share of every tensor. Down and output
    projections are cut along their columns."""
    part = {}
    with safe_open(path, "pt") as f:
        for name in f.keys():
            cut = 1 if "o_proj" in name or "down_proj" in name else 0
            part[name] = f.get_tensor(name).chunk(WORKERS, cut)[rank].clone(memory_format=torch.contiguous_format)


def in_processes(n, run):
    """run(0), run(1), ...: at once, each in a process of its own."""
    for rank in range(n):
        if os.fork() == 0:
            torch.set_num_threads(1)
            run(rank)
            os._exit(0)
    for _ in range(n):
        assert os.wait()[1] == 0


def workers(path):
    in_processes(WORKERS, lambda rank: worker(path, rank))


# name -> what it is before the time begins, the load
LOADERS = {
    "load_file": (None, copy_of_each),
    "unshard": (None, unshard.load_file),
    "from_pretrained": (warm_up_transformers, from_pretrained),
    "torch": (None, lambda path: torch.load(path, weights_only=True)),
    "workers": (None, workers),
    "fastsafetensors": (import_fastsafetensors, by_fastsafetensors),
    "runai": (import_runai, by_runai),
}


def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def load(loader, path, n=1):
    torch.set_num_threads(os.cpu_count() if n == 1 else 1)  # with more, threads would be missing in forked processes
    before, run = LOADERS[loader]
    if before:
        before()
    cpu, began = processor_seconds(), time.monotonic()
    held = run(path) if n == 1 else in_processes(n, lambda rank: run(path))
    print(json.dumps({"seconds": time.monotonic() - began, "cpu": processor_seconds() - cpu}), flush=True)
    del held


def main():
    torch.set_num_threads(1)  # threads would be missing in forked processes
    if "--transformers" in sys.argv:
        import transformers.models.llama.modeling_llama  # noqa: F401
    for line in sys.stdin:
        loader, path, *n = json.loads(line)
        pid = os.fork()
        if pid == 0:
            load(loader, Path(path), *n)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0


main()

"""Loads in processes that need not import anything: loader_process.py [--transformers] [--bits] imports once,
then forks for each line of standard input, [LOADER, PATH] or [LOADER, PATH, PROCESSES] in JSON, and answers with a line: the
seconds and processor seconds until each of the processes has loaded all; with --bits a sum of all bits that it then has."""

import importlib
import json
import logging
import os
import resource
import runpy
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
import unshard  # noqa: E402

WORKERS, RANKS = 8, 2


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


# -- what returns the files or tensors that it made --

def touched(model):
    """All parameters; each in two bytes an element."""
    held = {name: getattr(t.detach(), "to_local", t.detach)() for name, t in model.named_parameters()}
    sum_of_bits(held.values())
    return held


def sum_of_bits(tensors):
    return sum(int(t.contiguous().view(-1).view(torch.int16).sum(dtype=torch.int64)) for t in tensors)


def by_device_map(path):
    from transformers import AutoModelForCausalLM
    return touched(AutoModelForCausalLM.from_pretrained(path.parent, dtype="auto", device_map="cpu"))


def in_ranks(path, **sizes):
    """Each of RANKS processes of a group holds its slices."""
    with tempfile.TemporaryDirectory() as top:
        in_processes(RANKS, lambda rank: one_rank(rank, path, top, sizes))
        return {rank: torch.load(f"{top}/{rank}") for rank in range(RANKS)}


def one_rank(rank, path, top, sizes):
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo", init_method=f"file://{top}/rendezvous", rank=rank, world_size=RANKS)
    held = touched(AutoModelForCausalLM.from_pretrained(path.parent, dtype="auto",
                                                        distributed_config=DistributedConfig(**sizes)))
    torch.save(torch.tensor([sum_of_bits(held.values())]).view(torch.int16), f"{top}/{rank}")
    dist.barrier()


def by_tensorizer(path):
    """Loaded by transformers, written by tensorizer."""
    from tensorizer import TensorSerializer
    from transformers import AutoModelForCausalLM
    out = tempfile.NamedTemporaryFile(suffix=".tensors")
    writer = TensorSerializer(out.name)
    writer.write_module(AutoModelForCausalLM.from_pretrained(path.parent, dtype="auto"))
    writer.close()
    return out


def read_by_tensorizer(file):
    from tensorizer import TensorDeserializer
    with TensorDeserializer(file.name, device="cpu") as held:
        return sum_of_bits([held[name] for name in held.keys()])


def llama_cpp():
    return runpy.run_path(str(Path(__file__).parents[1] / "e2e/programs/llama_cpp.py"))


def import_llama_cpp():
    llama_cpp()["converter"]()
    importlib.import_module("conversion.llama")
    warm_up_transformers()


def by_llama_cpp(path):
    out = tempfile.NamedTemporaryFile(suffix=".gguf")
    logging.disable(logging.WARNING)
    llama_cpp()["convert"](path.parent, out.name)
    return out


def read_gguf(file):
    reader = importlib.import_module("gguf").GGUFReader(file.name)
    return sum_of_bits([torch.from_numpy(t.data.copy()) for t in reader.tensors])


def by_tensorrt_llm(path):
    """As its HfWeightLoader does, which cannot be installed here: all bytes are read once, then the file is mapped."""
    with open(path, "rb") as f:
        f.read()
    held = load_file(path)
    sum_of_bits(held.values())
    return held


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


BITS = "--bits" in sys.argv
ANSWERS = os.fdopen(os.dup(1), "w")  # programs print on standard output
os.dup2(2, 1)

# name -> what it is before the time begins, the load
LOADERS = {
    "load_file": (None, copy_of_each),
    "unshard": (None, unshard.load_file),
    "from_pretrained": (warm_up_transformers, from_pretrained),
    "torch": (None, lambda path: torch.load(path, weights_only=True)),
    "workers": (None, workers),
    "fastsafetensors": (import_fastsafetensors, by_fastsafetensors),
    "runai": (import_runai, by_runai),
    "device_map": (warm_up_transformers, by_device_map),
    "tp_plan": (warm_up_transformers, lambda path: in_ranks(path, tp_size=RANKS, tp_plan="auto")),
    "sharded": (warm_up_transformers, lambda path: in_ranks(path, fsdp_size=RANKS)),
    "tensorizer": (warm_up_transformers, by_tensorizer),
    "llama_cpp": (import_llama_cpp, by_llama_cpp),
    "tensorrt_llm": (None, by_tensorrt_llm),
}
# What they made, when the time has ended; the others return tensors.
READ_AGAIN = {"tensorizer": read_by_tensorizer, "llama_cpp": read_gguf}


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
    took = {"seconds": time.monotonic() - began, "cpu": processor_seconds() - cpu}
    if BITS:
        took["bits"] = READ_AGAIN[loader](held) if loader in READ_AGAIN else sum_of_bits(held.values())
    print(json.dumps(took), flush=True, file=ANSWERS)


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

"""Plain torch.distributed.checkpoint of tensors that are not plain, several cases in one launch:

    torchrun --nproc_per_node=W subclasses.py OUT CASE[-zstd]...

Each makes OUT/CASE/run/ckpt and OUT/CASE/live-0.safetensors (the plain values, by flat key, of what holds any).
"""

import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # AdamW8bit compiles each shape, for minutes

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dist_cp  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.distributed.checkpoint import FileSystemWriter  # noqa: E402
from torch.distributed.checkpoint._extension import ZStandard  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: E402
from torchao.optim import AdamW8bit  # noqa: E402
from torchao.quantization import Int8WeightOnlyConfig, quantize_  # noqa: E402

import oracle  # noqa: E402
from leaving import leave  # noqa: E402


class Marked(torch.Tensor):
    """Any subclass: as_subclass keeps the bytes and changes what they may mean."""


def net(dtype=torch.float32):
    torch.manual_seed(4)
    return nn.Sequential(nn.Embedding(12, 64), nn.Linear(64, 256, dtype=dtype), nn.ReLU(),
                         nn.Linear(256, 64, dtype=dtype), nn.LayerNorm(64))


def stepped(model, optimizer):
    """Gradients without a forward pass: float8 products need a GPU."""
    for step in range(2):
        for i, p in enumerate(model.parameters()):
            p.grad = torch.full_like(p, 0.01 * (i + step + 1))
        optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": states}


def unwrapped(value):
    """A DTensor of float8's wrapped weights as a tensor: what is wrapped, gathered."""
    whole = value.full_tensor() if hasattr(value, "full_tensor") else value
    return getattr(whole, "_tensor", whole)


def float8():
    """As torchtitan's recipe: the weights that FSDP gathers as float8 are wrapped; the head is left out."""
    model = convert_to_float8_training(
        net(torch.bfloat16), config=Float8LinearConfig(enable_fsdp_float8_all_gather=True),
        module_filter_fn=lambda module, name: name != "3")
    fully_shard(model)
    state = stepped(model, torch.optim.AdamW(model.parameters(), lr=0.1))
    return state, {k: unwrapped(v) for k, v in oracle.flat(state).items()}


def adam8bit():
    model = net()
    fully_shard(model)
    state = stepped(model, AdamW8bit(model.parameters(), lr=0.1))
    return state, {f"model.{k}": unwrapped(v) for k, v in state["model"].items()}


def int8():
    """An inference model whose linear weights are int8 with scales."""
    model = net()
    quantize_(model, Int8WeightOnlyConfig())
    return {"model": model.state_dict()}, {}


def subclass():
    """One of many tensors of the same shape."""
    weights = {f"layers.{i}.weight": torch.full((8, 4), float(i)) for i in range(8)}
    weights["layers.5.weight"] = weights["layers.5.weight"].as_subclass(Marked)
    return {"model": weights}, {}


def conj():
    numbers = torch.complex(torch.arange(6.), torch.ones(6))
    return {"model": {"a": numbers, "b": numbers.conj()}}, {}


def run(case, out):
    kind, _, zstd = case.partition("-")
    state, live = {"float8": float8, "adam8bit": adam8bit, "int8": int8, "subclass": subclass,
                   "conj": conj}[kind]()
    extensions = [ZStandard()] if zstd else None
    dist_cp.save(state, storage_writer=FileSystemWriter(f"{out}/run/ckpt", _extensions=extensions))
    if dist.get_rank() == 0:
        oracle.write(live, f"{out}/live-0.safetensors")
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("cpu:gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        run(one, f"{base}/{one}")
    leave()

"""Loads a mounted checkpoint with the best loader that this Python has: transformers, else safetensors.
Usage: quickstart.py CHECKPOINT"""

import sys
from pathlib import Path


def with_transformers(checkpoint):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    words = AutoTokenizer.from_pretrained(checkpoint)("w5 w6 w7", return_tensors="pt")
    with torch.no_grad():
        best = model(words["input_ids"]).logits[0, -1].argmax().item()
    n = sum(p.numel() for p in model.parameters())
    return f"AutoModelForCausalLM: {n} parameters as {model.dtype}; after w5 w6 w7 it says w{best}"


def with_safetensors(checkpoint):
    from safetensors import safe_open

    with safe_open(checkpoint / "model.safetensors", framework="numpy") as f:
        shapes = {name: f.get_slice(name).get_shape() for name in f.keys()}
    name, shape = next(iter(shapes.items()))
    return f"safetensors: {len(shapes)} tensors, {name} of shape {shape} first"


def main():
    checkpoint = Path(sys.argv[1])
    try:
        print(with_transformers(checkpoint))
    except ImportError:
        print(with_safetensors(checkpoint))


main()

"""Loads a mounted checkpoint's model with the best loader that this Python has: transformers, else safetensors with numpy.
Usage: quickstart.py MOUNTPOINT CHECKPOINT"""

import sys
from pathlib import Path


def with_transformers(mount, checkpoint):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = mount / "weights" / checkpoint
    model = AutoModelForCausalLM.from_pretrained(weights)
    words = AutoTokenizer.from_pretrained(weights)("w5 w6 w7", return_tensors="pt")
    with torch.no_grad():
        best = model(words["input_ids"]).logits[0, -1].argmax().item()
    n = sum(p.numel() for p in model.parameters())
    return f"AutoModelForCausalLM: {n} parameters as {model.dtype}; after w5 w6 w7 it says w{best}"


def with_numpy(mount, checkpoint):
    """numpy has no bfloat16, in which the checkpoint is."""
    from safetensors.numpy import load_file

    model = load_file(mount / "weights-fp32" / checkpoint / "model.safetensors")
    n = sum(tensor.size for tensor in model.values())
    return f"safetensors.numpy.load_file: {len(model)} tensors, {n} parameters as float32"


def main():
    mount, checkpoint = Path(sys.argv[1]), sys.argv[2]
    try:
        print(with_transformers(mount, checkpoint))
    except ImportError:
        print(with_numpy(mount, checkpoint))


main()

"""Loads a mounted checkpoint with the best loader that this Python has: transformers, safetensors, or
neither (then the bytes are compared). Usage: quickstart.py CHECKPOINT EXPECTED.safetensors"""

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
        names = list(f.keys())
    return f"safetensors: {len(names)} tensors, {names[0]} first"


def main():
    checkpoint, expected = Path(sys.argv[1]), Path(sys.argv[2])
    if (checkpoint / "model.safetensors").read_bytes() != expected.read_bytes():
        sys.exit("the mount's model.safetensors is not what save_pretrained wrote")
    print("model.safetensors is byte for byte what save_pretrained wrote")
    for load in (with_transformers, with_safetensors):
        try:
            print(load(checkpoint))
            return
        except ImportError:
            continue
    print("neither transformers nor safetensors is installed for", sys.executable)


main()

#!/usr/bin/env python3
"""Writes the files beside it with the real library (made with safetensors 0.8.0, torch 2.13)."""
import os
import torch
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
DTYPES = ["bool", "uint8", "int8", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu",
          "float8_e4m3fnuz", "float8_e5m2fnuz", "int16", "uint16", "float16", "bfloat16",
          "int32", "uint32", "float32", "complex64", "float64", "int64", "uint64"]


def tensor(dtype, *shape):
    dtype = getattr(torch, dtype)
    n = 1
    for d in shape:
        n *= d
    return torch.zeros(n * dtype.itemsize, dtype=torch.uint8).view(dtype).reshape(shape)


def save(name, tensors):
    save_file(tensors, os.path.join(here, name), metadata={"format": "pt"})


save("dtypes.safetensors", {f"{name}.{i}": tensor(name, i, 2) for name in DTYPES for i in (1, 0, 3)})
save("names.safetensors", {
    "".join(map(chr, range(1, 0x80))): tensor("float32", 1),
    "": tensor("float32"),
    "layers.10.weight": tensor("bfloat16", 2, 3),
    "layers.9.weight": tensor("bfloat16", 3),
    "Layers.9.weight": tensor("bfloat16", 1),
    "layers.9.bias": tensor("float32", 1, 1, 1, 1, 1, 1, 1, 2),
    "gewicht \u00e4\u00f6": tensor("float32", 2),
    "\u91cd\u307f": tensor("float32", 2),
    "\U0001f600": tensor("float32", 2),
    "\uffff": tensor("float32", 2),
    "empty": tensor("int64", 5, 0),
})
save("empty.safetensors", {})

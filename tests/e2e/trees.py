"""Directory trees and tensors: compared, and made."""

import json
import math
import os
from pathlib import Path

import torch
from safetensors import safe_open

from fingerprints import fingerprint  # noqa: F401


def listing(top):
    return sorted(str(p.relative_to(top)) for p in Path(top).rglob("*") if not p.is_dir())


def tensors(path):
    """name -> tensor of one safetensors file, through safe_open (which maps it)."""
    with safe_open(path, framework="pt") as f:
        return {name: f.get_tensor(name) for name in f.keys()}


def weights(folder):
    """name -> tensor of an inference directory, as a loader would find them."""
    folder = Path(folder)
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        return tensors(folder / "model.safetensors")
    if not index.exists():
        raise AssertionError(f"no weights in {folder}: {sorted(os.listdir(folder))}")
    named = json.loads(index.read_text())["weight_map"]
    out = {}
    for name in sorted(set(named.values())):
        out.update(tensors(folder / name))
    assert sorted(out) == sorted(named)
    return out


def sparse(folder, name, shape):
    """A checkpoint of one tensor in fp32, whose zeros take no room."""
    folder.mkdir(parents=True)
    size = 4 * math.prod(shape)
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        f.truncate(8 + len(header) + size)


def bits(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor


def assert_same(got, want):
    """The same names, types, shapes and bits."""
    assert sorted(got) == sorted(want)
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype, name
        assert got[name].shape == expected.shape, name
        assert torch.equal(bits(got[name]), bits(expected)), name


def assert_same_values(got, want):
    """As assert_same, but a NaN need only be a NaN."""
    assert sorted(got) == sorted(want)
    for name, expected in want.items():
        assert got[name].dtype == expected.dtype, name
        nan = torch.isnan(expected) if expected.is_floating_point() else torch.zeros(1).bool()
        if nan.any():
            assert torch.equal(torch.isnan(got[name]), nan), name
            assert torch.equal(bits(got[name][~nan]), bits(expected[~nan])), name
        else:
            assert torch.equal(bits(got[name]), bits(expected)), name


def rounded(exact, dtype):
    """Each fp64 number to the nearest of dtype, ties to even: torch goes by way of fp32, and so rounds twice."""
    once = exact.to(dtype)
    if dtype in (torch.float32, torch.float64):
        return once
    step = once.view(torch.int16)
    best, distance = once, (once.double() - exact).abs()
    for other in (step + 1, step - 1):
        other = other.view(dtype)
        d = (other.double() - exact).abs()
        even = (d == distance) & (other.view(torch.int16) & 1 == 0)
        better = (d < distance) | even
        best, distance = torch.where(better, other, best), torch.where(better, d, distance)
    return best

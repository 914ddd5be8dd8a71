"""Writes the torch.save files that tests/unit/test_torchfile.c reads. Values are 1, 2, 3, ... in
storage order unless said otherwise. Run in an environment with torch 2.13."""
import torch


def count(n, dtype):
    return torch.arange(1, n + 1, dtype=torch.float64).to(dtype)


shared = count(12, torch.float32)
tensors = {
    "f32": count(6, torch.float32).view(2, 3),
    "bf16": count(5, torch.bfloat16),
    "f16": count(3, torch.float16),
    "f64": count(2, torch.float64),
    "i64": count(4, torch.int64),
    "u8": count(3, torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "c64": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64),
    "f8": count(7, torch.float32).to(torch.float8_e4m3fn),
    "u16": torch.tensor([1, 2, 3], dtype=torch.uint16),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 3),
    "transposed": count(6, torch.float32).view(2, 3).t(),
    "expanded": torch.tensor([7.0]).expand(4),
    "whole": shared,
    "middle": shared[4:8],
    "column": shared.view(3, 4)[:, 1:3],
    "parameter": torch.nn.Parameter(count(3, torch.float32)),
    "nine": torch.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1),
    "conj": torch.tensor([1 + 2j]).conj(),
    "text": "not a tensor",
}
attributed = count(2, torch.float32)
attributed.tag = "a Python attribute"
tensors["attributed"] = attributed

torch.save(tensors, "tensors.pt")
torch.save(tensors, "legacy.pt", _use_new_zipfile_serialization=False)
torch.serialization.set_crc32_options(False)
torch.save({"f32": tensors["f32"]}, "no_crc.pt")

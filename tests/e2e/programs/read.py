"""Runs the read() of one program in that program's environment: read.py PROGRAM.py DIRECTORY SCRATCH RESULT

RESULT is JSON: the program's version, and for each value that read() returned its kind and a hash of its bytes."""

import sys

del sys.path[0]  # this folder, whose files are called as the programs are

import hashlib  # noqa: E402
import importlib.metadata  # noqa: E402
import json  # noqa: E402
import runpy  # noqa: E402


def kind_and_hash(value):
    if isinstance(value, (bytes, bytearray)):
        kind, data = "bytes", bytes(value)
    elif isinstance(value, (int, float, str)):
        kind, data = type(value).__name__, repr(value).encode()
    else:
        import torch

        value = torch.as_tensor(value).detach().cpu().contiguous()
        kind = f"{value.dtype} {tuple(value.shape)}"
        data = value.reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{kind} {hashlib.sha256(data).hexdigest()}"


if __name__ == "__main__":
    program, directory, scratch, result = sys.argv[1:]
    module = runpy.run_path(program)
    values = module["read"](directory, scratch)
    version = module["SOURCE"][0].partition("==")[2] if "SOURCE" in module else importlib.metadata.version(module["PACKAGE"])
    with open(result, "w") as f:
        json.dump({"version": version,
                   "values": {k: kind_and_hash(v) for k, v in values.items()}}, f)

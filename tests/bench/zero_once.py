"""One process that gets its state of a DeepSpeed checkpoint:

    zero_once.py weights FOLDER                      all tensors of its safetensors files
    zero_once.py engine STAGE PARAMETERS FOLDER universal|native

Prints one line of JSON: seconds, imports and the engine's own making excluded, and what the process had
and wrote."""

import json
import os
import socket
import sys
import time
from pathlib import Path

import mounts
import zero_engine


def weights(folder):
    from safetensors.torch import load_file

    began = time.monotonic()
    for file in Path(folder).glob("*.safetensors"):
        for tensor in load_file(file).values():
            tensor.view(-1).sum()
    return time.monotonic() - began


def engine(stage, parameters, folder, form):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(s.getsockname()[1]))
    zero_engine.deepspeed.init_distributed("gloo")
    made = zero_engine.engine_of(int(stage), int(parameters), form == "universal")
    began = time.monotonic()
    path, _ = made.load_checkpoint(folder)
    assert path, folder
    return time.monotonic() - began


def main():
    what, *arguments = sys.argv[1:]
    before = mounts.written_bytes("self")
    seconds = {"weights": weights, "engine": engine}[what](*arguments)
    print(json.dumps({"seconds": seconds, "peak_bytes": mounts.status_bytes("self", "VmHWM"),
                      "written_bytes": mounts.written_bytes("self") - before}))


main()

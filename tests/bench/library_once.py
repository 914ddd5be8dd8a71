"""Every tensor in memory of its own, in a process of its own: library_once.py shards CHECKPOINT | file FILE. Prints the
seconds, imports excluded."""

import sys
import time
from pathlib import Path

from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
import unshard  # noqa: E402

LOADERS = {"shards": unshard.load_file, "file": lambda path: {name: t.clone() for name, t in load_file(path).items()}}


def main():
    what, path = sys.argv[1:]
    began = time.monotonic()
    tensors = LOADERS[what](path)
    print(time.monotonic() - began)
    assert tensors


main()

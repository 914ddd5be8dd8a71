"""The CUDA runtime that the library takes (lib/device/runtime.c): the one that the process has loaded, else one that is
found, as beside torch."""

import ctypes
import os
from pathlib import Path

import torch

NAMES = ("libcudart.so.12", "libcudart.so.13")


def cudart():
    for mode in (os.RTLD_NOLOAD, 0):
        for name in NAMES:
            try:
                return ctypes.CDLL(name, mode | os.RTLD_NOW)
            except OSError:
                pass
    return ctypes.CDLL(next(str(p) for p in Path(torch.__file__).parent.parent.rglob("libcudart.so.1*")))

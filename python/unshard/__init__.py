"""Sharded training checkpoints as the directories that frameworks load, without a mount.

>>> import unshard
>>> with unshard.open("tests/golden/run") as session:
...     weights = session.tensors("checkpoint-2", view="weights")
...     weights["model.norm.weight"].dtype
'bfloat16'

Everything reads; nothing is ever written to the source. Calls into the library release the GIL."""

from __future__ import annotations

from ._library import lib as _lib
from .differences import Diff, Figures, GroupDiff, TensorDiff, ValueDiff, diff
from .errors import Damaged, Error, Incomplete, NotFound, NotSupported, Stale
from .measures import Measure, Values, measure
from .session import (Change, Checkpoint, Entry, Exported, Fact, File, Finding, Kind, Progress, Seal, Session, Stat,
                      Tensor, Tensors, check, checkpoints, open, seal)  # pylint: disable=redefined-builtin

__version__ = _lib.unshard_version().decode()
__all__ = ["Change", "Checkpoint", "Damaged", "Diff", "Entry", "Error", "Exported", "Fact", "Figures", "File", "Finding",
           "GroupDiff", "Incomplete", "Kind", "Measure", "NotFound", "NotSupported", "Progress", "Seal", "Session", "Stale", "Stat", "Tensor",
           "TensorDiff", "Tensors", "ValueDiff", "Values", "check", "checkpoints", "diff", "measure", "open", "seal"]

_WITH_TORCH = {"iterate": "loading", "load_file": "loading", "load_state_dict": "loading", "safe_open": "loading",
               "Reader": "dcp"}


def __getattr__(name: str):
    """What needs torch is imported when it is asked for."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'unshard' has no attribute '{name}'")
    import importlib
    return getattr(importlib.import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)

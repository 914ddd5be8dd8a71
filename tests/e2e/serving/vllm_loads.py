"""vLLM loads models from checkpoints, on the CPU, in its own environment: vllm_loads.py TOP RESULT

TOP is what make/serving_source.py makes of one family. What vLLM loads from the checkpoints must be what it loads from
the directories that the framework itself saved. RESULT is JSON: for each number of ranks, with expert parallelism and
without, the bytes that unshard read for each rank, by which operations, and the shape of a rank's experts, which vLLM pads."""

import json
import os
import runpy
import sys
from pathlib import Path

import torch

PROGRAM = runpy.run_path(str(Path(__file__).parents[1] / "programs/vllm.py"))
KERNELS = PROGRAM["prepare"]()

from vllm.distributed import parallel_state  # noqa: E402
from vllm.model_executor.model_loader.reload.inplace import reload_weights  # noqa: E402
from vllm.plugins import load_general_plugins  # noqa: E402

from unshard import slices  # noqa: E402

TOP, RESULT = sys.argv[1:]
SEEN = []


class Seen(slices.Counts):
    """Counts that are looked at."""

    def __init__(self):
        super().__init__()
        SEEN.append(self)


def loaded(model, load_format, size=1, experts=False, **extra):
    return PROGRAM["loaded"](f"{TOP}/{model}", f"{TOP}/run", load_format, os.path.dirname(RESULT), size, experts, **extra)


def rank_is(rank, size):
    """Layers are built as this rank of a group builds them. There are no other ranks: nothing is sent."""
    for group in (parallel_state._TP, parallel_state._EP):
        if group is not None:
            group.rank_in_group, group.world_size = rank, size


def must_be(model, want):
    got, want = dict(model.named_parameters()), dict(want.named_parameters())
    assert got.keys() == want.keys() and got
    assert not [name for name, t in want.items() if not torch.equal(got[name], t)]


def must_reload(want_1, want_2, **extra):
    """By the path of another checkpoint, which vLLM is told."""
    config, model = loaded("run/checkpoint-1", "unshard", **extra)
    must_be(model, want_1)
    for path, want in (("latest", want_2), ("checkpoint-1", want_1), (None, want_1)):
        for t in model.parameters():  # as sleep level 2 leaves them
            t.data.fill_(7)
        reload_weights(config, model, None, path and f"{TOP}/run/{path}", True)
        must_be(model, want)


def cut(size, experts):
    """What each rank of a group reads."""
    SEEN.clear()
    for rank in range(size):
        rank_is(rank, size)
        _, want = loaded("native-1", "auto", size, experts)
        _, model = loaded("run/checkpoint-1", "unshard", size, experts, slices=True)
        must_be(model, want)
    shapes = {name: list(t.shape) for name, t in model.named_parameters() if ".layers.0." in name and name.endswith("w2_weight")}
    return [{"read": c.bytes_read, "in_vain": c.bytes_in_vain, "operations": c.operations, "experts": [*shapes.values()]}
            for c in SEEN]


def main():
    load_general_plugins()
    slices.Counts = Seen
    _, want_1 = loaded("native-1", "auto")
    _, want_2 = loaded("native-2", "auto")
    for extra in ({}, {"slices": True}, {"enable_weights_track": True, "threads": 1}):
        must_reload(want_1, want_2, **extra)
    found = {f"{size} {'experts' if experts else 'tensors'}": cut(size, experts)
             for experts in (False, True) for size in (2, 4, 8)}
    with open(RESULT, "w") as f:
        json.dump(found, f, indent=1)


if __name__ == "__main__":
    main()

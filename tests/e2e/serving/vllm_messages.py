"""What vLLM prints when it is given the wrong thing of a mount: vllm_messages.py OUT MOUNT SOURCE

In vLLM's own environment. The arguments are those of make/messages.py. OUT becomes {case: "Type: message", PATH in place of
the path}."""

import json
import os
import runpy
import sys
from pathlib import Path

PROGRAM = runpy.run_path(str(Path(__file__).parents[1] / "programs/vllm.py"))
KERNELS = PROGRAM["prepare"]()

from vllm.engine.arg_utils import EngineArgs  # noqa: E402

OUT, MNT, SOURCE = sys.argv[1:]
CHECKPOINT = "checkpoint-2"


def configured(path):
    EngineArgs(model=path, dtype="bfloat16", enforce_eager=True).create_engine_config()


def loaded(path):
    """With a config from elsewhere."""
    PROGRAM["loaded"](path, f"{MNT}/weights/whole/{CHECKPOINT}", "auto", os.path.dirname(OUT))


CASES = {
    "no path": (configured, f"{MNT}/weights/absent/{CHECKPOINT}"),
    "no config": (configured, f"{MNT}/weights/bare/{CHECKPOINT}"),
    "view of a trainer": (configured, f"{MNT}/dcp/whole/{CHECKPOINT}"),
    "the source": (configured, f"{SOURCE}/whole/{CHECKPOINT}"),
    "damaged": (configured, f"{MNT}/weights/damaged/{CHECKPOINT}"),
    "weights of a view of a trainer": (loaded, f"{MNT}/dcp/whole/{CHECKPOINT}"),
    "weights of the source": (loaded, f"{SOURCE}/whole/{CHECKPOINT}"),
    "weights of a damaged checkpoint": (loaded, f"{MNT}/weights/damaged/{CHECKPOINT}"),
}

if __name__ == "__main__":
    for works in (configured, loaded):
        works(f"{MNT}/weights/whole/{CHECKPOINT}")
    printed = {}
    for name, (run, path) in CASES.items():
        try:
            run(path)
            printed[name] = "nothing"
        except Exception as e:
            printed[name] = f"{type(e).__name__}: {e}".replace("`", "").replace(path, "PATH")
    with open(OUT, "w", encoding="utf-8") as file:
        json.dump(printed, file)
    os._exit(0)

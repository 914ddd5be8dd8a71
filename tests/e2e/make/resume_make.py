"""Runs to resume from, several in one launch:

    torchrun --nproc_per_node=2 resume_make.py OUT CASE...

CASE is f1, f2 (Trainer, SHARDED_STATE_DICT), full (Trainer, FSDP2, FULL_STATE_DICT): OUT/CASE/run with
checkpoint-2 and checkpoint-4; or acc (Accelerate, FSDP2, SHARDED_STATE_DICT): OUT/acc/run/state.
"""

import sys

import cpu_fsdp  # noqa: F401
import resume_run
from leaving import leave

if __name__ == "__main__":
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        if one == "acc":
            resume_run.accelerate(None, None, 2, "SHARDED_STATE_DICT", save=f"{base}/acc/run/state")
        else:
            resume_run.trainer(None, None, 1 if one == "f1" else 2,
                               "FULL_STATE_DICT" if one == "full" else "SHARDED_STATE_DICT",
                               save=f"{base}/{one}/run")
    leave()

"""Runs whose model and optimizer are whole files, and resumes of them:

    [torchrun --nproc_per_node=2] unsharded.py OUT CASE...

CASE is plain (a Trainer) or acc (Accelerate), both in one process; full or accfull, with FSDP2 and FULL_STATE_DICT:
OUT/CASE/run/checkpoint-{2,4}, of Accelerate OUT/CASE/run/state. Or one file *.json, a SPEC of resume_run.py, whose
results go to the file OUT. The model is one whose parameters are all trained, and that has no buffers.
"""

import json
import os
import sys

if sys.argv[2].startswith(("full", "accfull")) or int(os.environ.get("WORLD_SIZE", "0")):
    import cpu_fsdp  # noqa: F401
import models
import resume_run
from leaving import leave

models.add_oddities = lambda model, base: model
FULL = "FULL_STATE_DICT"
CASES = {"plain": (resume_run.trainer, 0, ""), "acc": (resume_run.accelerate, 0, ""),
         "full": (resume_run.trainer, 2, FULL), "accfull": (resume_run.accelerate, 2, FULL)}


def resumed(out, spec):
    results = {}
    for name, kind, path, *how in json.load(open(spec)):
        try:
            results[name] = resume_run.KINDS[kind](path, f"{out}.saved/{name}", *how)
        except Exception as e:
            results[name] = f"{type(e).__name__}: {e}"
        print(name, results[name], flush=True)
    if int(os.environ.get("RANK", "0")) == 0:
        with open(out, "w") as f:
            json.dump(results, f)


if __name__ == "__main__":
    out, cases = sys.argv[1], sys.argv[2:]
    if cases[0].endswith(".json"):
        resumed(out, cases[0])
    else:
        for case in cases:
            run, fsdp, state = CASES[case]
            where = f"{out}/{case}/run"
            run(None, None, fsdp, state, save=f"{where}/state" if "acc" in case else where)
    leave()

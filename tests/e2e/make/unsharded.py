"""Runs whose model and optimizer are whole files (and, beside them, sharded ones), and resumes of them:

    [torchrun --nproc_per_node=2] unsharded.py OUT CASE...

CASE is plain (a Trainer) or acc (Accelerate), both in one process; full or accfull, with FSDP2 and FULL_STATE_DICT; f2
or accf2, the same with SHARDED_STATE_DICT. Made are
OUT/CASE/run/checkpoint-{2,4}, of Accelerate OUT/CASE/run/state. Or one file *.json, a SPEC of resume_run.py, whose
results go to the file OUT. The model is one whose parameters are all trained, and that has no buffers. Two more kinds:
"dropping KIND" has dropout, so that its losses tell which random states it had; "registered" loads a state of Accelerate's
with one registered object and nothing else.
"""

import json
import os
import sys

if sys.argv[2].startswith(("full", "accfull")) or int(os.environ.get("WORLD_SIZE", "0")):
    import cpu_fsdp  # noqa: F401
import models
import resume_run
from leaving import leave

DROPOUT = [0.0]


def without_oddities(model, base):
    for layer in base.layers:
        layer.self_attn.attention_dropout = DROPOUT[0]
    return model


models.add_oddities = without_oddities
FULL = "FULL_STATE_DICT"
CASES = {"plain": (resume_run.trainer, 0, ""), "acc": (resume_run.accelerate, 0, ""),
         "full": (resume_run.trainer, 2, FULL), "accfull": (resume_run.accelerate, 2, FULL),
         "f2": (resume_run.trainer, 2, "SHARDED_STATE_DICT"), "accf2": (resume_run.accelerate, 2, "SHARDED_STATE_DICT")}


def registered(path, *_):
    resume_run.forget_last_run()
    accelerator = resume_run.Accelerator(cpu=True)
    accelerator.register_for_checkpointing(resume_run.Counter())
    accelerator.load_state(path)
    return {}


def run_one(kind, *how):
    DROPOUT[0] = 0.2 if kind.startswith("dropping ") else 0.0
    return registered(*how) if kind == "registered" else resume_run.resume(kind.removeprefix("dropping "), *how)


def resumed(out, spec):
    results = {}
    for name, kind, path, *how in json.load(open(spec)):
        try:
            results[name] = run_one(kind, path, f"{out}.saved/{name}", *how)
        except BaseException as e:  # DCP's is no Exception
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
            DROPOUT[0] = 0.2  # so that the random states which are saved are not those of a new process
            where = f"{out}/{case}/run"
            run(None, None, fsdp, state, save=f"{where}/state" if "acc" in case else where)
    leave()

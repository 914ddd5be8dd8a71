"""Accelerate save_state under FSDP, several in one launch:

    torchrun --nproc_per_node=W accelerate_state.py OUT CASE...

CASE is f1, f2 (SHARDED_STATE_DICT) or f1-ranks, f2-ranks (use_dcp=False: per-rank files). Each makes
OUT/CASE/run/state, OUT/CASE/live-0.safetensors. f1-two, f2-two: two models in one state, with an optimizer each;
live-1.safetensors is the second's.
"""

import sys

import cpu_fsdp  # noqa: F401
import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer

import models
import oracle
from trainer import forget_last_run
from leaving import leave


def plugin(fsdp):
    kwargs = {"sync_module_states": False, "use_orig_params": True} if fsdp == "f1" else {}
    made = FullyShardedDataParallelPlugin(
        fsdp_version=int(fsdp[1]), state_dict_type="SHARDED_STATE_DICT",
        auto_wrap_policy="SIZE_BASED_WRAP" if fsdp == "f1" else "NO_WRAP",
        cpu_ram_efficient_loading=False, **kwargs)
    if fsdp == "f1":
        made.min_num_params = 10**9
    return made


def witness(model, path):
    tensors = oracle.full_tensors(model)
    if dist.get_rank() == 0:
        oracle.write(tensors, path)
    dist.barrier()


def prepared(accelerator, model, steps=2):
    """The trained model and its optimizer."""
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    models.train(model, optimizer, accelerator.backward, steps)
    return model, optimizer


def run(case, out):
    fsdp, _, how = case.partition("-")
    forget_last_run()
    accelerator = Accelerator(fsdp_plugin=plugin(fsdp))
    model, optimizer = prepared(accelerator, models.Odd())
    state = f"{out}/run/state"
    if how == "ranks":
        used = accelerator.state.fsdp_plugin
        save_fsdp_model(used, accelerator, model, state, use_dcp=False)
        save_fsdp_optimizer(used, accelerator, optimizer, model, state, use_dcp=False)
    elif how == "two":
        second, _ = prepared(accelerator, models.Odd(), steps=3)
        accelerator.save_state(state)
        witness(second, f"{out}/live-1.safetensors")
    else:
        accelerator.save_state(state)
    witness(model, f"{out}/live-0.safetensors")


if __name__ == "__main__":
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        run(one, f"{base}/{one}")
    leave()

"""Two ranks of DeepSpeed resume from the universal checkpoint that is shown of a Megatron-Core one:

    torchrun --nproc_per_node=2 torch_dist_resume.py OUT NAME:STAGE:CASE:SHOWN...

CASE is a directory of torch_dist_optimizer.py, SHOWN that of the universal checkpoint. OUT/NAME/loaded.safetensors has
"PARAMETER|STATE" of what the engine holds after load_checkpoint, stepped.safetensors the same after a step, and
wanted.safetensors that of torch's AdamW in one process, to which the live states of CASE were given.
"""

import json
import os
import sys

import torch
import torch.distributed as dist

import cpu_deepspeed
import deepspeed
from leaving import leave
from safetensors.torch import save_file
from torch_dist import STEP
from transformers import AutoConfig, AutoModelForCausalLM, Trainer


def groups(model, case=None):
    """As a Trainer makes them; with the values that they had in CASE's run."""
    decay = set(Trainer.get_decay_parameter_names(None, model))
    out = [{"params": [p for n, p in model.named_parameters() if (n in decay) == with_decay], "lr": 1.0}
           for with_decay in (True, False)]
    if case:
        values = json.load(open(f"{case}/live/groups.json"))
        out[0].update(values["model.embed_tokens.weight"])
        out[1].update(values["model.norm.weight"])
    return out


def loss_of(model):
    return model(torch.arange(9)[None] % 17, labels=torch.arange(9)[None] % 17)


def model_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager")


def wanted(case):
    model = model_of(f"{case}/live/param")
    states = {s: dict(model_of(f"{case}/live/{s}").named_parameters()) for s in ("exp_avg", "exp_avg_sq")}
    optimizer = torch.optim.AdamW(groups(model, case))
    for name, p in model.named_parameters():
        optimizer.state[p] = {s: t[name].detach().clone() for s, t in states.items()}
        optimizer.state[p]["step"] = torch.tensor(float(STEP))
    loss_of(model).loss.backward()
    optimizer.step()
    out = {f"{n}|fp32": p.detach().clone() for n, p in model.named_parameters()}
    return out | {f"{n}|{s}": optimizer.state[p][s] for n, p in model.named_parameters() for s in states}


def resume(stage, case, shown, out):
    torch.manual_seed(99)
    config = AutoConfig.from_pretrained(f"{case}/hf")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, experts_implementation="eager")
    engine = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(groups(model)),
        config={"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "steps_per_print": 10 ** 9,
                "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0, "checkpoint": {"load_universal": True},
                "zero_optimization": {"stage": stage, "reduce_bucket_size": 100000}})[0]
    path, _ = engine.load_checkpoint(shown)
    assert path, shown
    held = cpu_deepspeed.states(engine)
    if stage == 3:  # problems.txt says that the view has not what the param groups differ in
        for group, saved in zip(engine.optimizer.param_groups, groups(engine.module, case)):
            group["weight_decay"] = saved["weight_decay"]
        for state in engine.optimizer.optimizer.state.values():
            state["step"] = state["step"].clone()
    engine.backward(loss_of(engine).loss)
    engine.step()
    stepped = cpu_deepspeed.states(engine)
    if dist.get_rank() == 0:
        os.makedirs(out)
        save_file(held, f"{out}/loaded.safetensors")
        save_file(stepped, f"{out}/stepped.safetensors")
        save_file(wanted(case), f"{out}/wanted.safetensors")
    dist.barrier()


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    for one in sys.argv[2:]:
        name, stage, case, shown = one.split(":")
        resume(int(stage), case, shown, f"{sys.argv[1]}/{name}")
    leave()

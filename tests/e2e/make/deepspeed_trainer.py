"""Hugging Face Trainer runs with DeepSpeed, several in one launch:

    torchrun --nproc_per_node=W deepspeed_trainer.py OUT CASE...

CASE is STAGE-DTYPE (z2-bf16): four steps without a break, OUT/CASE/run/checkpoint-{2,4} and OUT/CASE/
losses.json. "resume:STAGE-DTYPE:MODEL:DIRECTORY:NAME[:universal][:save]" goes on from DIRECTORY
instead, to step 4: OUT/NAME/losses.json, and OUT/NAME/states.safetensors as they were when training
went on; "save" saves OUT/NAME/run/checkpoint-2 then, too.
"""

import json
import os
import sys

import cpu_deepspeed
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from safetensors.torch import save_file
from transformers import Trainer, TrainerCallback, TrainingArguments

import models

MODELS = {"tied": lambda dtype: models.llama(dtype, tie=True),
          "untied": lambda dtype: models.llama(dtype, tie=False)}


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(3, 98, (12,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def dropping_out(model):
    """With random numbers in every step, so that losses tell whether their state was restored."""
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.2
    return model


class Witness(TrainerCallback):
    """Keeps what the optimizer held when training went on. (All param groups have the same
    hyper-parameters here: load_universal at stage 3 gives them all the first one's.)"""

    def __init__(self, out, save):
        self.out, self.save, self.trainer = out, save, None

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.global_step:
            return
        held = cpu_deepspeed.states(self.trainer.model_wrapped)
        if dist.get_rank() == 0:
            os.makedirs(self.out, exist_ok=True)
            save_file(held, f"{self.out}/states.safetensors")
        if self.save:
            self.trainer._save_checkpoint(self.trainer.model, None)
        dist.barrier()


def config(stage, dtype, universal):
    zero = {"stage": stage, "reduce_bucket_size": 100000}
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
    out = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
           "train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": zero,
           "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True,
           "bf16": {"enabled": dtype == "bf16"}}
    if universal:
        out["checkpoint"] = {"load_universal": True}
    return out


def run(case, model, out, source=None, options=()):
    stage, dtype = case.split("-")
    AcceleratorState._reset_state()
    PartialState._reset_state()
    GradientState._reset_state()
    args = TrainingArguments(
        f"{out}/run", use_cpu=True, per_device_train_batch_size=1, max_steps=4, save_steps=2,
        logging_steps=1, report_to="none", learning_rate=1e-2, disable_tqdm=True, seed=7,
        bf16=dtype == "bf16", dataloader_pin_memory=False,
        deepspeed=config(int(stage[1]), dtype, "universal" in options),
        save_strategy="no" if source else "steps")
    witness = Witness(out, "save" in options)
    trainer = Trainer(model=dropping_out(MODELS[model](torch.float32)), args=args, train_dataset=Tokens(),
                      callbacks=[witness])
    witness.trainer = trainer
    trainer.train(resume_from_checkpoint=source)
    if dist.get_rank() == 0:
        losses = {h["step"]: h["loss"] for h in trainer.state.log_history if "loss" in h}
        with open(f"{out}/losses.json", "w") as f:
            json.dump(losses, f)
    dist.barrier()


if __name__ == "__main__":
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        if one.startswith("resume:"):
            _, case, model, source, name, *options = one.split(":")
            run(case, model, f"{base}/{name}", source, options)
        else:
            run(one, "tied", f"{base}/{one}")
    dist.destroy_process_group()

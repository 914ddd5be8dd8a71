"""A plain Trainer with models that transformers publishes under other names than it has in memory:

    renamed_run.py OUT JOB...

JOB is
    save:FAMILY                 four steps without a break, saved after the second: OUT/FAMILY/run/checkpoint-2
    resume:FAMILY:NAME:PATH     goes on from there
and makes OUT/NAME.json (NAME of what is saved: FAMILY), the losses of steps 3 and 4, and of what resumed OUT/NAME.safetensors,
the model as it was loaded. FAMILY is a function of models.py, or qwen3_moe.
"""

import json
import sys

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, TrainerCallback, TrainingArguments

import models
import oracle
from leaving import leave
from resume_run import SAVED, STEPS, Tokens, forget_last_run


def qwen3_moe(dtype):
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=models.VOCAB, hidden_size=24, intermediate_size=32, moe_intermediate_size=20, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_experts=5, num_experts_per_tok=2,
        decoder_sparse_step=1, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)).to(dtype)


def model_of(family):
    return qwen3_moe(torch.float32) if family == "qwen3_moe" else getattr(models, family)(torch.float32)


class Loaded(TrainerCallback):
    """The model when training begins."""

    def __init__(self, path):
        self.path = path

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        oracle.write(model.state_dict(), self.path)


def train(family, where, name, path=None):
    forget_last_run()
    out, model = sys.argv[1], model_of(family)
    if path:  # what is not loaded is not right by chance
        for p in model.parameters():
            p.data.fill_(0.5)
    args = TrainingArguments(
        where, use_cpu=True, per_device_train_batch_size=2, max_steps=STEPS, save_steps=SAVED, logging_steps=1,
        report_to="none", learning_rate=1e-2, disable_tqdm=True, seed=7, save_strategy="no" if path else "steps")
    run = Trainer(model=model, args=args, train_dataset=Tokens(),
                  callbacks=[Loaded(f"{out}/{name}.safetensors")] if path else [])
    run.train(resume_from_checkpoint=path)
    with open(f"{out}/{name}.json", "w") as f:
        json.dump([e["loss"] for e in run.state.log_history if e.get("step", 0) > SAVED and "loss" in e], f)


if __name__ == "__main__":
    for job in sys.argv[2:]:
        kind, family, *rest = job.split(":")
        if kind == "save":
            train(family, f"{sys.argv[1]}/{family}/run", family)
        else:
            train(family, f"{sys.argv[1]}/resumed", *rest)
    leave()

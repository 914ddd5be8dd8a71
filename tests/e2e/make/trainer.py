"""Hugging Face Trainer runs with FSDP, several in one launch:

    torchrun --nproc_per_node=W trainer.py OUT CASE...

CASE is MODEL-FSDP-DTYPE: tied-f1-fp32, untied-f2-bf16, mixtral-f2-fp32, llava-f1-fp32. Each makes
    OUT/CASE/run/checkpoint-{1,2}, OUT/CASE/run/config.json      what a user has
    OUT/CASE/live-{1,2}.safetensors                              the live tensors at that step
    OUT/CASE/pretrained-{1,2}/                                   save_pretrained of the same state
"""

import os
import sys

import cpu_fsdp  # noqa: F401
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers import Trainer, TrainerCallback, TrainingArguments

import models
import oracle
from leaving import leave

BUILD = {
    "tied": lambda dtype: models.llama(dtype, tie=True),
    "untied": lambda dtype: models.llama(dtype, tie=False),
    "small": models.small_llama,
    "mixtral": models.mixtral,
    "llava": models.llava,
}
WRAP = {
    "tied": ["LlamaDecoderLayer"], "untied": ["LlamaDecoderLayer"],
    "small": ["LlamaDecoderLayer"],
    "mixtral": ["MixtralDecoderLayer"], "llava": ["LlamaDecoderLayer", "CLIPEncoderLayer"],
}


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(3, 98, (12,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


class Witness(TrainerCallback):
    """Keeps what the model held when a checkpoint was written."""

    def __init__(self, out, build):
        self.out, self.build, self.trainer = out, build, None

    def on_save(self, args, state, control, **kwargs):
        tensors = oracle.full_tensors(self.trainer.model)
        if dist.get_rank() == 0:
            oracle.write(tensors, f"{self.out}/live-{state.global_step}.safetensors")
            plain = self.build()
            plain.load_state_dict(tensors, strict=True)
            plain.save_pretrained(f"{self.out}/pretrained-{state.global_step}")
        dist.barrier()


def forget_last_run():
    AcceleratorState._reset_state()
    PartialState._reset_state()
    GradientState._reset_state()
    for name in list(os.environ):
        if name.startswith(("FSDP_", "ACCELERATE_")) and name != "ACCELERATE_USE_CPU":
            del os.environ[name]


def run(case, out):
    name, fsdp, dtype = case.split("-")
    forget_last_run()

    def build():
        return BUILD[name](models.DTYPES[dtype])

    config = {"version": int(fsdp[1]), "state_dict_type": "SHARDED_STATE_DICT",
              "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
              "transformer_layer_cls_to_wrap": WRAP[name]}
    if fsdp == "f1":
        config.update(use_orig_params="true", reshard_after_forward="full_shard",
                      sync_module_states="false")
    args = TrainingArguments(
        f"{out}/run", use_cpu=True, per_device_train_batch_size=1, max_steps=2, save_steps=1,
        logging_steps=1, report_to="none", learning_rate=1e-2, disable_tqdm=True, seed=7,
        fsdp=True, fsdp_config=config)
    witness = Witness(out, build)
    trainer = Trainer(model=build(), args=args, train_dataset=Tokens(), callbacks=[witness])
    witness.trainer = trainer
    trainer.train()
    if dist.get_rank() == 0:
        build().config.save_pretrained(f"{out}/run")
    dist.barrier()


if __name__ == "__main__":
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        run(one, f"{base}/{one}")
    leave()

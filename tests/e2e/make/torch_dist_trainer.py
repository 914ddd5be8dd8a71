"""A Trainer resumes from what is shown of Megatron-Core's directories:

    torchrun --nproc_per_node=W torch_dist_trainer.py OUT NAME:HOW:CASE:SHOWN...

HOW is "fsdp" (FULL_STATE_DICT) or a stage of DeepSpeed's ZeRO, and one of both in all. CASE is a directory of torch_dist_optimizer.py, SHOWN that of
the view. OUT/NAME/held.safetensors has "PARAMETER|STATE" of what the Trainer holds when it has resumed, end.safetensors
the same at its end; told.json the step that it resumed at, the rates that its scheduler held, and its log.
"""

import json
import os
import sys

if ":fsdp:" in sys.argv[2]:
    import cpu_fsdp  # noqa: F401
import cpu_deepspeed
import torch
import torch.distributed as dist
from leaving import leave
from resume_run import forget_last_run
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

LAST = 4  # steps
LAYERS = {"llama": "LlamaDecoderLayer", "qwen3_moe": "Qwen3MoeDecoderLayer"}


def how_of(how, model):
    if how == "fsdp":
        return {"fsdp": True, "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT",
                                              "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                                              "transformer_layer_cls_to_wrap": [LAYERS[model.config.model_type]]}}
    return {"deepspeed": {"train_micro_batch_size_per_gpu": "auto", "zero_allow_untested_optimizer": True,
                          "zero_force_ds_cpu_optimizer": False, "gradient_clipping": "auto", "steps_per_print": 10 ** 9,
                          "checkpoint": {"load_universal": True},
                          "zero_optimization": {"stage": int(how), "reduce_bucket_size": 100000}}}


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def held(how, trainer):
    if how != "fsdp":
        return cpu_deepspeed.states(trainer.model_wrapped)
    optimizer = trainer.optimizer.optimizer
    out = {f"{n}|fp32": whole(p) for n, p in trainer.model_wrapped.named_parameters()}
    for name, p in trainer.model_wrapped.named_parameters():
        out |= {f"{name}|{s}": whole(optimizer.state[p][s]) for s in cpu_deepspeed.STATES[1:]}
    return out


class Begin(TrainerCallback):
    def __init__(self, how):
        self.how, self.trainer = how, None

    def on_train_begin(self, args, state, control, **kwargs):
        self.step, self.rates = state.global_step, self.trainer.lr_scheduler.get_last_lr()
        self.held = held(self.how, self.trainer)


def resume(how, case, shown, out):
    forget_last_run()
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{case}/hf"), dtype=torch.float32,
                                             experts_implementation="eager")
    rows = [{"input_ids": torch.arange(i, i + 9) % 17, "labels": torch.arange(i, i + 9) % 17} for i in range(2 * LAST)]
    arguments = TrainingArguments(
        f"{out}/run", max_steps=LAST, per_device_train_batch_size=2 // int(os.environ["WORLD_SIZE"]), seed=7,
        learning_rate=1.0, weight_decay=0.0, adam_epsilon=0.1, lr_scheduler_type="cosine", warmup_steps=1,
        report_to="none", disable_tqdm=True, save_strategy="no", **how_of(how, model))
    begin = Begin(how)
    begin.trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[begin])
    begin.trainer.train(resume_from_checkpoint=shown)
    end = held(how, begin.trainer)
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        save_file(begin.held, f"{out}/held.safetensors")
        save_file(end, f"{out}/end.safetensors")
        with open(f"{out}/told.json", "w") as f:
            json.dump({"step": begin.step, "rates": begin.rates, "log": begin.trainer.state.log_history}, f)
    dist.barrier()


if __name__ == "__main__":
    for one in sys.argv[2:]:
        name, how, case, shown = one.split(":")
        resume(how, case, shown, f"{sys.argv[1]}/{name}")
    leave()

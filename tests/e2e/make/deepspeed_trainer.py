"""Hugging Face Trainer runs with DeepSpeed, several in one launch:

    torchrun --nproc_per_node=W deepspeed_trainer.py OUT CASE...

CASE is STAGE-DTYPE[-untied][-gathered] (z2-bf16): four steps without a break, OUT/CASE/run/checkpoint-
{2,4}, OUT/CASE/{live,states}-{2,4}.safetensors (what model and optimizer held then) and OUT/CASE/
losses.json. acc-STAGE-DTYPE: an Accelerate loop of two steps, OUT/CASE/run/state, OUT/CASE/{live,
states}-2.safetensors. "resume:STAGE-DTYPE:MODEL:DIRECTORY:NAME[:universal][:mend][:save][:fail][:once]" goes on
from DIRECTORY instead, to step 4: OUT/NAME/losses.json, and OUT/NAME/states.safetensors as they were when
training went on; "mend" runs the line for load_universal at stage 3 first, "save" saves
OUT/NAME/run/checkpoint-2 then, too. With "fail" that must not work: OUT/NAME/error.txt.
"acc-resume:STAGE-DTYPE:DIRECTORY:NAME[:universal][:once]" is the same of an Accelerate loop:
OUT/NAME/{states.safetensors,schedule.json}.

What resumes saves one step before its end, and is resumed once more from that, without load_universal:
OUT/NAME/again.json, how the last step went before and after. With "once" it does not.
"""

import json
import os
import sys

import cpu_deepspeed
import torch
import torch.distributed as dist
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.state import AcceleratorState, GradientState, PartialState
from safetensors.torch import save_file
from transformers import Trainer, TrainerCallback, TrainingArguments

import models
from leaving import leave
from resume_run import AGAIN, SaveAgain

# As problems.txt of a universal view says it.
MEND = 'for v in engine.optimizer.optimizer.state.values(): v["step"] = v["step"].clone()'
MODELS = {"tied": lambda dtype: models.llama(dtype, tie=True),
          "untied": lambda dtype: models.llama(dtype, tie=False),
          "even": models.even_llama}


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


def write(engine, out, step):
    held, live = cpu_deepspeed.states(engine), cpu_deepspeed.tensors(engine.module)
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        save_file(held, f"{out}/states-{step}.safetensors")
        save_file({n: t.clone() for n, t in live.items()}, f"{out}/live-{step}.safetensors")
    dist.barrier()


class Witness(TrainerCallback):
    """Keeps what the optimizer held when training went on."""

    def __init__(self, out, options):
        self.out, self.options, self.trainer = out, options, None

    def on_save(self, args, state, control, **kwargs):
        if args.save_strategy == "steps":
            write(self.trainer.model_wrapped, self.out, state.global_step)

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.global_step:
            return
        engine = self.trainer.model_wrapped
        held = cpu_deepspeed.states(engine)
        if dist.get_rank() == 0:
            os.makedirs(self.out, exist_ok=True)
            save_file(held, f"{self.out}/states.safetensors")
        if "mend" in self.options:
            exec(MEND, {"engine": engine})
        if "save" in self.options:
            self.trainer._save_checkpoint(self.trainer.model, None)
        dist.barrier()


def config(stage, dtype, universal, gathered=False):
    zero = {"stage": stage, "reduce_bucket_size": 100000}
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
        zero["stage3_gather_16bit_weights_on_model_save"] = gathered
    out = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
           "train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": zero,
           "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True,
           "bf16": {"enabled": dtype == "bf16"}}
    if universal:
        out["checkpoint"] = {"load_universal": True}
    return out


def forget_last_run():
    AcceleratorState._reset_state()
    PartialState._reset_state()
    GradientState._reset_state()


def trained(case, model, out, source, callbacks, universal=False):
    """The losses by step."""
    stage, dtype, *settings = case.split("-")
    forget_last_run()
    args = TrainingArguments(
        f"{out}/run", use_cpu=True, per_device_train_batch_size=1, max_steps=4, save_steps=2,
        logging_steps=1, report_to="none", learning_rate=1e-2, disable_tqdm=True, seed=7,
        bf16=dtype == "bf16", dataloader_pin_memory=False,
        deepspeed=config(int(stage[1]), dtype, universal, "gathered" in settings),
        save_strategy="no" if source else "steps")
    trainer = Trainer(model=dropping_out(MODELS[model](torch.float32)), args=args,
                      train_dataset=Tokens(), callbacks=callbacks)
    for witness in callbacks:
        witness.trainer = trainer
    trainer.train(resume_from_checkpoint=source)
    return {h["step"]: h["loss"] for h in trainer.state.log_history if "loss" in h}


def dump(out, name, value):
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/{name}.json", "w") as f:
            json.dump(value, f)
    dist.barrier()


def run(case, model, out, source=None, options=()):
    witness = Witness(out, options)
    again = source and "once" not in options
    losses = trained(case, model, out, source, [witness, SaveAgain()] if again else [witness],
                     "universal" in options)
    dump(out, "losses", losses)
    if again:
        again = trained(case, model, f"{out}/again", f"{out}/run/checkpoint-{AGAIN}", [])
        dump(out, "again", [losses.get(4), again.get(4)])


class Registered:
    """An object registered for checkpointing."""

    def state_dict(self):
        return self.__dict__

    def load_state_dict(self, state):
        self.__dict__.update(state)


def prepared(case, universal):
    stage, dtype = case.split("-")
    forget_last_run()
    settings = config(int(stage[1]), dtype, universal) | {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
        "train_batch_size": dist.get_world_size(), "gradient_clipping": 1.0}
    accelerator = Accelerator(mixed_precision="no" if dtype == "fp32" else dtype,
                              deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=settings))
    model = MODELS["tied"](torch.float32)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    return accelerator, *accelerator.prepare(model, optimizer, schedule)


def step(i, accelerator, model, optimizer, schedule):
    ids = Tokens()[2 * i + dist.get_rank()]["input_ids"][None]
    loss = model(input_ids=ids, labels=ids).loss
    accelerator.backward(loss)
    optimizer.step()
    schedule.step()
    return [float(loss.detach()), *schedule.get_last_lr()]


def accelerate(case, out):
    accelerator, model, optimizer, schedule = prepared(case.removeprefix("acc-"), False)
    for i in range(2):
        step(i, accelerator, model, optimizer, schedule)
    accelerator.save_state(f"{out}/run/state")
    write(model, out, 2)


def fail(case, model, out, source, options):
    try:
        run(case, model, out, source, options)
        text = "nothing"
    except Exception as e:
        text = f"{type(e).__name__}: {e}"
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/error.txt", "w") as f:
            f.write(text)


def loaded(case, source, universal):
    parts = prepared(case, universal)
    if os.path.exists(f"{source}/custom_checkpoint_0.pkl"):  # Accelerate counts them
        parts[0].register_for_checkpointing(Registered())
    parts[0].load_state(source)
    return parts


def accelerate_on(case, source, out, options):
    universal = "universal" in options
    parts = loaded(case, source, universal)
    accelerator, engine, _, schedule = parts
    held = cpu_deepspeed.states(engine)
    if dist.get_rank() == 0:
        os.makedirs(out)
        save_file(held, f"{out}/states.safetensors")
    dump(out, "schedule", schedule.scheduler.last_epoch)
    if universal and case.startswith("z3"):
        exec(MEND, {"engine": engine})
    if "once" in options:
        return
    step(2, *parts)
    accelerator.save_state(f"{out}/saved")
    before = step(3, *parts)
    dump(out, "again", [before, step(3, *loaded(case, f"{out}/saved", False))])


if __name__ == "__main__":
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        if one.startswith("resume:"):
            _, case, model, source, name, *options = one.split(":")
            (fail if "fail" in options else run)(case, model, f"{base}/{name}", source, options)
        elif one.startswith("acc-resume:"):
            _, case, source, name, *options = one.split(":")
            accelerate_on(case, source, f"{base}/{name}", options)
        elif one.startswith("acc-"):
            accelerate(one, f"{base}/{one}")
        else:
            run(one, "untied" if "untied" in one else "tied", f"{base}/{one}")
    leave()

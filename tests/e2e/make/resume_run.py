"""Resume training from directories, and tell how it went on:

    [torchrun --nproc_per_node=W] resume_run.py OUT SPEC

SPEC is a JSON file: [[name, kind, directory to resume from or null, FSDP version
or 0, state dict type, directory to save to or null], ...]. OUT becomes {name: {...} or the error's
text}. The kind is "trainer", "accelerate", or "only_model": a Trainer with save_only_model, "only_model
unchecked" one that has not looked at its arguments. With FSDP version 0 everywhere it is an ordinary script without FSDP, not to be run by torchrun.
"""

import json
import os
import sys
import tempfile

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers import Trainer, TrainingArguments

import models
from leaving import leave

STEPS, SAVED = 4, 2


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = torch.randint(3, 98, (12,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def forget_last_run():
    AcceleratorState._reset_state()
    PartialState._reset_state()
    GradientState._reset_state()
    for name in list(os.environ):
        if name.startswith(("FSDP_", "ACCELERATE_")) and name != "ACCELERATE_USE_CPU":
            del os.environ[name]


def fsdp_arguments(fsdp, state):
    if not fsdp:
        return {}
    config = {"version": fsdp, "state_dict_type": state,
              "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
              "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
    if fsdp == 1:
        config.update(use_orig_params="true", reshard_after_forward="full_shard",
                      sync_module_states="false")
    return {"fsdp": True, "fsdp_config": config}


def optimizer_steps(optimizer):
    return sorted({float(s["step"]) for s in optimizer.state.values() if "step" in s})


def trainer(path, fsdp, state, save=None):
    forget_last_run()
    args = TrainingArguments(
        save or tempfile.mkdtemp(), use_cpu=True, per_device_train_batch_size=2, max_steps=STEPS,
        save_strategy="steps" if save else "no", save_steps=SAVED, logging_steps=1,
        report_to="none", learning_rate=1e-2, warmup_steps=1, lr_scheduler_type="cosine",
        weight_decay=0.01, disable_tqdm=True, seed=7, **fsdp_arguments(fsdp, state))
    run = Trainer(model=models.llama(torch.float32, tie=True), args=args, train_dataset=Tokens())
    run.train(resume_from_checkpoint=path)
    log = [e for e in run.state.log_history if "loss" in e]
    return {"step": run.state.global_step, "optimizer": optimizer_steps(run.optimizer),
            "history": [e["step"] for e in log],
            **{k: [e[k] for e in log if e["step"] > SAVED]
               for k in ("loss", "grad_norm", "learning_rate")}}


def only_model(_, fsdp, state, save, checked=True):
    forget_last_run()
    args = TrainingArguments(save, use_cpu=True, max_steps=1, save_steps=1, report_to="none",
                             disable_tqdm=True, save_only_model=checked, **fsdp_arguments(fsdp, state))
    run = Trainer(model=models.llama(torch.float32, tie=True), args=args, train_dataset=Tokens())
    args.save_only_model = True  # older versions let it pass
    run.train()


def only_model_unchecked(*how):
    only_model(*how, checked=False)


class Counter:
    """An object registered for checkpointing."""

    def __init__(self):
        self.n = 0

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


def plugin(fsdp, state):
    return FullyShardedDataParallelPlugin(fsdp_version=fsdp, state_dict_type=state,
                                          auto_wrap_policy="NO_WRAP",
                                          cpu_ram_efficient_loading=False)


def accelerate(path, fsdp, state, save=None):
    forget_last_run()
    accelerator = Accelerator(cpu=not fsdp, fsdp_plugin=plugin(fsdp, state) if fsdp else None)
    model = models.llama(torch.float32, tie=True)
    # As the Trainer: what is frozen is no matter of the optimizer's.
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    counter = Counter()
    if not path or os.path.exists(f"{path}/custom_checkpoint_0.pkl"):  # Accelerate counts them
        accelerator.register_for_checkpointing(counter)
    if path:
        accelerator.load_state(path)
    losses, rates = [], []
    for _ in range(2):
        batch = torch.stack([Tokens()[2 * counter.n + i]["input_ids"] for i in range(2)])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        counter.n += 1
        losses.append(float(loss.detach()))
        rates.append(schedule.get_last_lr()[0])
    if save:
        accelerator.save_state(save)
    return {"step": counter.n, "optimizer": optimizer_steps(optimizer.optimizer), "loss": losses,
            "learning_rate": rates}


KINDS = {"trainer": trainer, "accelerate": accelerate, "only_model": only_model,
         "only_model unchecked": only_model_unchecked}

if __name__ == "__main__":
    out, spec = sys.argv[1], json.load(open(sys.argv[2]))
    if any(one[3] for one in spec):
        import cpu_fsdp  # noqa: F401
    results = {}
    for name, kind, *how in spec:
        try:
            results[name] = KINDS[kind](*how)
        except Exception as e:
            results[name] = f"{type(e).__name__}: {e}"
        print(name, results[name], flush=True)
    if int(os.environ.get("RANK", "0")) == 0:
        with open(out, "w") as f:
            json.dump(results, f)
    leave()

"""Resume training from directories, and tell how it went on:

    [torchrun --nproc_per_node=W] resume_run.py OUT SPEC

SPEC is a JSON file: [[name, kind, directory to resume from or null, FSDP version
or 0, state dict type, directory to save to or null], ...]. OUT becomes {name: {...} or the error's
text}. With FSDP version 0 everywhere it is an ordinary script without FSDP, not to be run by torchrun.

What resumes trains on, saves in between (below OUT.saved) and resumes once more from that save: how this
second run went is its "again". Of a kind that ends with " once" it does not. The kind is
    trainer, accelerate
    counting      a Trainer with a callback that has a state
    cadences      a Trainer that logs and saves at every step, by its own arguments
    only_model    a Trainer with save_only_model; "only_model unchecked" one that has not looked at its arguments
"""

import json
import os
import sys

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

import models
from leaving import leave

STEPS, SAVED = 4, 2
AGAIN = SAVED + 1  # where a run that resumed saves


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


class SaveAgain(TrainerCallback):
    """At a step that is none of the run's cadence."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_save |= state.global_step == AGAIN


class Counting(TrainerCallback, ExportableState):
    """A callback with a state, as EarlyStoppingCallback is one."""

    def __init__(self, by=1):
        self.by, self.n = by, 0

    def on_step_end(self, args, state, control, **kwargs):
        self.n += self.by

    def state(self):
        return {"args": {"by": self.by}, "attributes": {"n": self.n}}


def trained(path, where, fsdp, state, callbacks, **cadences):
    """A Trainer that has trained from there to the end."""
    forget_last_run()
    args = TrainingArguments(
        where, use_cpu=True, per_device_train_batch_size=2, max_steps=STEPS,
        report_to="none", learning_rate=1e-2, warmup_steps=1, lr_scheduler_type="cosine",
        weight_decay=0.01, disable_tqdm=True, seed=7, **cadences, **fsdp_arguments(fsdp, state))
    run = Trainer(model=models.llama(torch.float32, tie=True), args=args, train_dataset=Tokens(),
                  callbacks=callbacks)
    run.train(resume_from_checkpoint=path)
    return run


def told(run, after):
    """How a run went behind that step."""
    log = [e for e in run.state.log_history if "loss" in e]
    return {"step": run.state.global_step, "optimizer": optimizer_steps(run.optimizer),
            "history": [e["step"] for e in log],
            **{k: [e[k] for e in log if e["step"] > after]
               for k in ("loss", "grad_norm", "learning_rate")}}


def trainer(path, where, fsdp, state, save=None, callbacks=(), once=False):
    how = {"save_strategy": "steps" if save else "no", "save_steps": SAVED, "logging_steps": 1}
    again = path is not None and not once
    first = trained(path, save or where, fsdp, state, [c() for c in callbacks] + [SaveAgain()] * again, **how)
    result = told(first, SAVED)
    if again:
        result["again"] = told(trained(f"{where}/checkpoint-{AGAIN}", f"{where}/again", fsdp, state,
                                       [c() for c in callbacks], **how), AGAIN)
    return result


def counting(*how, **options):
    return trainer(*how, callbacks=[Counting], **options)


def cadences(path, where, fsdp, state):
    run = trained(path, where, fsdp, state, [], save_strategy="steps", save_steps=1, logging_steps=1)
    return {"logged": [e["step"] for e in run.state.log_history if "loss" in e],
            "saved": sorted(n for n in os.listdir(where) if n.startswith("checkpoint-"))}


def only_model(_, where, fsdp, state, save, checked=True):
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


def accelerate(path, where, fsdp, state, save=None, once=False):
    again = path is not None and not once
    result = accelerated(path, fsdp, state, 2, save, f"{where}/state" if again else None)
    if again:
        result["again"] = accelerated(f"{where}/state", fsdp, state, 1, trained=result["step"] - 1)
    return result


def accelerated(path, fsdp, state, steps, save=None, save_before_last=None, trained=0):
    """A loop of so many steps. `trained`: how many there were before, where the state does not say."""
    forget_last_run()
    accelerator = Accelerator(cpu=not fsdp, fsdp_plugin=plugin(fsdp, state) if fsdp else None)
    model = models.llama(torch.float32, tie=True)
    # As the Trainer: what is frozen is no matter of the optimizer's.
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    counter = Counter()
    counter.n = trained
    if not path or os.path.exists(f"{path}/custom_checkpoint_0.pkl"):  # Accelerate counts them
        accelerator.register_for_checkpointing(counter)
    if path:
        accelerator.load_state(path)
    losses, rates = [], []
    for step in range(steps):
        if save_before_last and step == steps - 1:
            accelerator.save_state(save_before_last)
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


KINDS = {"trainer": trainer, "counting": counting, "cadences": cadences, "accelerate": accelerate,
         "only_model": only_model, "only_model unchecked": only_model_unchecked}


def resume(kind, *how):
    once = {"once": True} if kind.endswith(" once") else {}
    return KINDS[kind.removesuffix(" once")](*how, **once)


if __name__ == "__main__":
    out, spec = sys.argv[1], json.load(open(sys.argv[2]))
    if any(one[3] for one in spec):
        import cpu_fsdp  # noqa: F401
    results = {}
    for name, kind, path, *how in spec:
        try:
            results[name] = resume(kind, path, f"{out}.saved/{name}", *how)
        except Exception as e:
            results[name] = f"{type(e).__name__}: {e}"
        print(name, results[name], flush=True)
    if int(os.environ.get("RANK", "0")) == 0:
        with open(out, "w") as f:
            json.dump(results, f)
    leave()

"""One process without DeepSpeed goes on from what DeepSpeed saved:

    plain_resume.py OUT SPEC

SPEC is a JSON file: [[name, kind, model, directory], ...]. Each leaves OUT/NAME.safetensors, what model
("NAME") and optimizer ("NAME|STATE") held when training went on, and OUT/NAME.json: the losses and learning
rates of the next steps, or the error's text.

Each trains on, saves, and resumes once more from what it saved (in OUT/NAME.saved): "again" is how the last
step went, before and after.

kind "trainer" and "accelerate" resume as deepspeed_trainer.py's runs do, "engine" as deepspeed_engine.py's:
a loop of its own. "oracle" is a Trainer that goes on from what is put together here, out of a run's live
tensors (DIRECTORY is that of a case of deepspeed_trainer.py) and the files beside its shards.
"""

import json
import os
import shutil
import sys
import tempfile

import deepspeed_engine
import torch
from accelerate import Accelerator
from deepspeed_trainer import MODELS, Tokens, dropping_out, forget_last_run
from safetensors.torch import load_file, save_file
from transformers import Trainer, TrainerCallback, TrainingArguments

from resume_run import AGAIN, SaveAgain

STATES = ("step", "exp_avg", "exp_avg_sq")


def held(model, optimizer):
    out = {name: t.detach().clone() for name, t in model.state_dict().items()}
    for name, p in model.named_parameters():
        for state, value in optimizer.state.get(p, {}).items():
            out[f"{name}|{state}"] = torch.as_tensor(value).detach().clone()
    return out


class Witness(TrainerCallback):
    def __init__(self, out):
        self.out, self.trainer = out, None

    def on_train_begin(self, args, state, control, **kwargs):
        optimizer = self.trainer.optimizer
        save_file(held(self.trainer.model, getattr(optimizer, "optimizer", optimizer)),
                  f"{self.out}.safetensors")


def trained(model, path, where, callbacks):
    args = TrainingArguments(
        where, use_cpu=True, per_device_train_batch_size=1, max_steps=4,
        save_strategy="no", logging_steps=1, report_to="none", learning_rate=1e-2,
        disable_tqdm=True, seed=7, dataloader_pin_memory=False)
    run = Trainer(model=dropping_out(MODELS[model](torch.float32)), args=args,
                  train_dataset=Tokens(), callbacks=callbacks)
    for witness in callbacks:
        witness.trainer = run
    run.train(resume_from_checkpoint=path)
    log = [e for e in run.state.log_history if "loss" in e]
    return {k: [e[k] for e in log] for k in ("step", "loss", "learning_rate")}


def trainer(model, path, out):
    first = trained(model, path, f"{out}.saved", [Witness(out), SaveAgain()])
    forget_last_run()
    second = trained(model, f"{out}.saved/checkpoint-{AGAIN}", f"{out}.saved/again", [])
    return first | {"again": [first, second]}


def optimizer_file(model, states):
    """optimizer.pt by torch itself: an AdamW over the Trainer's groups that holds these states."""
    run = Trainer(model=model, args=TrainingArguments(
        tempfile.mkdtemp(), use_cpu=True, learning_rate=1e-2, report_to="none"))
    optimizer = run.create_optimizer()
    for name, p in model.named_parameters():
        if p.requires_grad:
            optimizer.state[p] = {"step": torch.tensor(2.0),
                                  **{s: states[f"{name}|{s}"].clone() for s in STATES[1:]}}
    return optimizer.state_dict()


def oracle(model, source, out):
    """What a Trainer without DeepSpeed would have saved."""
    made, ckpt = tempfile.mkdtemp(), f"{source}/run/checkpoint-2"
    states, live = load_file(f"{source}/states-2.safetensors"), load_file(f"{source}/live-2.safetensors")
    for name in ("trainer_state.json", "scheduler.pt"):
        shutil.copy(f"{ckpt}/{name}", made)
    shutil.copy(f"{ckpt}/rng_state_0.pth", f"{made}/rng_state.pth")
    net = MODELS[model](torch.float32)
    live.pop("lm_head.weight", None)  # tied
    net.load_state_dict({n: states.get(f"{n}|fp32", t) for n, t in live.items()}, strict=False)
    net.save_pretrained(made)
    saved = optimizer_file(net, states)
    rates = torch.load(f"{made}/scheduler.pt", weights_only=True)["_last_lr"]
    for group, rate in zip(saved["param_groups"], rates):
        group.update(lr=rate, initial_lr=1e-2)
    torch.save(saved, f"{made}/optimizer.pt")
    return trainer(model, made, out)


def accelerated(model, path):
    """(accelerator, ...), and a step of its loop."""
    forget_last_run()
    accelerator = Accelerator(cpu=True)
    net = MODELS[model](torch.float32)
    optimizer = torch.optim.AdamW((p for p in net.parameters() if p.requires_grad), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    net, optimizer, schedule = accelerator.prepare(net, optimizer, schedule)
    accelerator.load_state(path)

    def step(i):
        ids = Tokens()[i]["input_ids"][None]
        loss = net(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        return [float(loss.detach()), *schedule.get_last_lr()]

    return accelerator, net, optimizer, schedule, step


def accelerate(model, path, out):
    accelerator, net, optimizer, schedule, step = accelerated(model, path)
    save_file(held(net, optimizer.optimizer), f"{out}.safetensors")
    result = {"learning_rate": schedule.get_last_lr(), "epoch": schedule.state_dict()["last_epoch"]}
    step(10)
    accelerator.save_state(f"{out}.saved")
    return result | {"again": [step(11), accelerated(model, f"{out}.saved")[-1](11)]}


def step_of(net, optimizer, schedule, seed):
    ids = torch.randint(0, deepspeed_engine.VOCAB, (1, 9), generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    loss = net(ids)
    loss.backward()
    optimizer.step()
    schedule.step()
    return [float(loss.detach()), *schedule.get_last_lr()]


def engine(model, path, out):
    """model: "adamw", or "numbered" for an optimizer whose `step` is a plain number."""
    kind = deepspeed_engine.NumberedSteps if model == "numbered" else torch.optim.AdamW
    net, optimizer, schedule = deepspeed_engine.parts_of(1, kind)

    def load(name):
        return torch.load(f"{path}/{name}", weights_only=True)

    missing = net.load_state_dict(load("pytorch_model.bin"), strict=False)
    optimizer.load_state_dict(load("optimizer.bin"))
    schedule.load_state_dict(load("scheduler.bin"))
    save_file(held(net, optimizer), f"{out}.safetensors")
    client = load("client_state.pt")
    client["order"] = client["order"].tolist()
    scaler = torch.amp.GradScaler("cpu")
    if os.path.exists(f"{path}/scaler.pt"):
        scaler.load_state_dict(load("scaler.pt"))
    rates = [[g[k] for g in optimizer.param_groups] for k in ("lr", "weight_decay")]
    last_lr = schedule.get_last_lr()
    step_of(net, optimizer, schedule, 10)
    torch.save([x.state_dict() for x in (net, optimizer, schedule)], f"{out}.saved")
    again = deepspeed_engine.parts_of(2, kind)
    for part, state in zip(again, torch.load(f"{out}.saved", weights_only=True)):
        part.load_state_dict(state)
    steps = [step_of(*parts, 11) for parts in ((net, optimizer, schedule), again)]
    return {"again": steps, "missing": missing.missing_keys, "unexpected": missing.unexpected_keys,
            "lr": rates[0], "client": client, "weight_decay": rates[1],
            "last_lr": last_lr, "scaler": scaler.state_dict()}


if __name__ == "__main__":
    base, spec = sys.argv[1], json.load(open(sys.argv[2]))
    for name, kind, model, path in spec:
        forget_last_run()
        torch.manual_seed(0)
        try:
            job = {"trainer": trainer, "accelerate": accelerate, "engine": engine, "oracle": oracle}
            result = job[kind](model, path, f"{base}/{name}")
        except Exception as e:
            result = f"{type(e).__name__}: {e}"
        with open(f"{base}/{name}.json", "w") as f:
            json.dump(result, f)

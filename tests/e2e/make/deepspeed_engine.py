"""Plain DeepSpeed engines, several in one launch:

    torchrun --nproc_per_node=W deepspeed_engine.py OUT CASE...

CASE is STAGE-DTYPE[-SETTING...]: z2-bf16, z3-bf16-subgroups. Each trains a few steps and leaves
    OUT/CASE/run/{latest,global_step3/..}            what a user has
    OUT/CASE/{states,live}.safetensors               the optimizer's and the model's tensors at that time
"pipe" among the settings: a model in two pipeline stages instead.
"tags" among the settings: OUT/CASE/run/global_step2 and OUT/CASE/2/{states,live}.safetensors as well.
"load:CASE:DIRECTORY:NAME[:universal][:once]" loads DIRECTORY with the settings of CASE instead, from weights
that are initialised otherwise, and saves it again: OUT/NAME like the above, and OUT/NAME/info.json. With
"universal" at stage 3 it runs the lines that OUT's problems.txt gives for after loading. Unless "once", it then trains
on, saves, and another engine loads that natively: OUT/NAME/again.json, how the next step went in both.
"""

import json
import os
import re
import sys

import cpu_deepspeed
import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from safetensors.torch import save_file
from leaving import leave

VOCAB, WIDTH, HIDDEN = 37, 12, 17


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.ln(x)))) * self.gain.mean()


class Awkward(nn.Module):
    """A tied head, a frozen layer, persistent and other buffers, sizes that nothing divides."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.scale = nn.Parameter(torch.full((1,), 1.5))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.linspace(0, 1, WIDTH))
        self.register_buffer("scratch", torch.zeros(5), persistent=False)

    def forward(self, ids):
        x = self.emb(ids)
        x = x + self.frozen(x)
        for block in self.blocks:
            x = block(x)
        x = (x - self.mean.to(x.dtype)) * self.scale
        return nn.functional.cross_entropy(self.head(x).float().view(-1, VOCAB)[:-1],
                                           ids.view(-1)[1:])


class NumberedSteps(torch.optim.Optimizer):
    """Adam whose `step` is a plain number, as that of DeepSpeed's own FusedAdam and CPUAdam."""

    def __init__(self, groups, betas):
        super().__init__(groups, {"lr": 1e-3, "betas": betas, "eps": 1e-8, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, (one, two) = self.state[p], group["betas"]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                state["exp_avg"].lerp_(p.grad, 1 - one)
                state["exp_avg_sq"].mul_(two).addcmul_(p.grad, p.grad, value=1 - two)
                p.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt() + group["eps"],
                           value=-group["lr"])


def config(case, universal):
    stage, dtype, *settings = case.split("-")
    zero = {"stage": int(stage[1]), "reduce_bucket_size": 100000}
    if zero["stage"] == 3:
        zero["stage3_param_persistence_threshold"] = 0
    if "subgroups" in settings:
        zero["sub_group_size"] = 150
    if "roundrobin" in settings:
        zero["round_robin_gradients"] = True
    if "aligned" in settings:
        zero["parameter_alignment"] = True
    if "elastic" in settings:
        zero["elastic_checkpoint"] = True
    out = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
           "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9,
           "zero_optimization": zero, "bf16": {"enabled": dtype == "bf16"}}
    if dtype == "fp16":
        out["fp16"] = {"enabled": True, "initial_scale_power": 4}
    if "fp32grads" in settings:  # DeepSpeed's BF16_Optimizer
        out["data_types"] = {"grad_accum_dtype": "fp32"}
    if universal:
        out["checkpoint"] = {"load_universal": True}
    return out


def parts_of(seed, kind=torch.optim.AdamW):
    """A model, its optimizer and schedule, as a script makes them with DeepSpeed or without."""
    torch.manual_seed(seed)
    model = Awkward()
    model.mean += seed
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = kind(
        [{"params": [p for p in trained if p.dim() >= 2], "lr": 1e-2, "weight_decay": 0.1},
         {"params": [p for p in trained if p.dim() < 2], "lr": 2.5e-3, "weight_decay": 0.0}],
        betas=(0.9, 0.99))
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))


def engine_of(case, seed, universal=False):
    model, optimizer, schedule = parts_of(
        seed, NumberedSteps if "numberedsteps" in case else torch.optim.AdamW)
    return deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule,
                                config=config(case, universal))[0]


def write(engine, out):
    held, live = cpu_deepspeed.states(engine), cpu_deepspeed.tensors(engine.module)
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        save_file(held, f"{out}/states.safetensors")
        save_file({n: t.clone() for n, t in live.items()}, f"{out}/live.safetensors")
    dist.barrier()


def save(case, engine, out):
    engine.save_checkpoint(f"{out}/run", exclude_frozen_parameters="nofrozen" in case,
                           client_state={"epoch": 7, "seen": [1, 2.5, "three"],
                                         "order": torch.arange(4)})


def train(case, out):
    engine = engine_of(case, 0)
    g = torch.Generator().manual_seed(100 + dist.get_rank())
    for step in (1, 2, 3):
        engine.module.calls += 1
        engine.backward(engine(torch.randint(0, VOCAB, (1, 9), generator=g)))
        engine.step()
        if step == 2 and "tags" in case:
            save(case, engine, out)
            write(engine, f"{out}/2")
    save(case, engine, out)
    write(engine, out)


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCAB, WIDTH) * 0.1)

    def forward(self, ids):
        return nn.functional.embedding(ids, self.weight)


def pipeline(case, out):
    """Two stages with a tied layer at both ends: layer_*-model_states.pt."""
    torch.manual_seed(0)
    net = PipelineModule(
        [TiedLayerSpec("emb", Embedding), LayerSpec(Block), LayerSpec(nn.LayerNorm, WIDTH),
         TiedLayerSpec("emb", Embedding, forward_fn=lambda m, x: x @ m.weight.t())],
        num_stages=2, partition_method="uniform",
        loss_fn=lambda o, y: nn.functional.cross_entropy(o.float().view(-1, VOCAB), y.view(-1)))
    settings = config(case, False) | {"gradient_accumulation_steps": 2}
    engine = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters()),
                                  config=settings)[0]
    g = torch.Generator().manual_seed(1)
    ids = [torch.randint(0, VOCAB, (1, 8), generator=g) for _ in range(4)]
    batches = iter([(x, x) for x in ids])
    for _ in range(2):
        engine.train_batch(data_iter=batches)
    engine.save_checkpoint(f"{out}/run")
    held = [None, None]
    dist.all_gather_object(held, (cpu_deepspeed.tensors(engine.module),
                                  cpu_deepspeed.states(engine)))
    if dist.get_rank() == 0:
        for i, name in enumerate(("live", "states")):
            save_file({**held[1][i], **held[0][i]}, f"{out}/{name}.safetensors")
    dist.barrier()


def problems_of(source):
    """Of the checkpoint that DeepSpeed loads from there."""
    with open(f"{source}/latest_universal") as f:
        tag = f.read().split("/")[0]
    folder = f"{source}/{tag}" if os.path.exists(f"{source}/{tag}/latest_universal") else source
    with open(f"{folder}/.unshard/problems.txt") as f:
        return f.read()


def groups_of(engine):
    return {k: [g[k] for g in engine.optimizer.param_groups] for k in ("lr", "weight_decay")}


def step_of(engine, seed):
    g = torch.Generator().manual_seed(seed + dist.get_rank())
    loss = engine(torch.randint(0, VOCAB, (1, 9), generator=g))
    engine.backward(loss)
    engine.step()
    return [float(loss.detach()), *engine.lr_scheduler.get_last_lr()]


def train_on(case, engine, out):
    """It steps, saves, steps; and another that loads what it saved steps as well."""
    step_of(engine, 200)
    engine.save_checkpoint(f"{out}/on")
    second = engine_of(case, 2)
    assert second.load_checkpoint(f"{out}/on")[0]
    steps = [step_of(e, 300) for e in (engine, second)]
    held = [cpu_deepspeed.tensors(e.module) for e in (engine, second)]
    same = all(torch.equal(t, held[1][n]) for n, t in held[0].items())
    if dist.get_rank() == 0:
        with open(f"{out}/again.json", "w") as f:
            json.dump({"steps": steps, "same": same}, f)


def load(case, source, out, options):
    universal = "universal" in options
    engine = engine_of(case, 1, universal)
    path, client = engine.load_checkpoint(source)
    assert path, source
    loaded = groups_of(engine)
    if universal and case.startswith("z3"):
        for line in re.findall(r"`([^`]*engine[^`]*)`", problems_of(source)):
            exec(line, {"engine": engine})
    write(engine, out)
    engine.save_checkpoint(f"{out}/run", client_state={k: client[k] for k in ("epoch", "seen", "order")})
    if dist.get_rank() == 0:
        with open(f"{out}/info.json", "w") as f:
            json.dump({"global_steps": engine.global_steps, **groups_of(engine), "loaded": loaded,
                       "steps": [float(s["step"]) for s in engine.optimizer.state.values()],
                       "epoch": client["epoch"], "seen": client["seen"],
                       "order": client["order"].tolist(),
                       "scheduler": engine.lr_scheduler.state_dict()["last_epoch"]}, f)
    if "once" not in options:
        train_on(case, engine, out)
    dist.barrier()


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        if one.startswith("load:"):
            _, case, source, name, *options = one.split(":")
            load(case, source, f"{base}/{name}", options)
        elif "pipe" in one:
            pipeline(one, f"{base}/{one}")
        else:
            train(one, f"{base}/{one}")
    leave()

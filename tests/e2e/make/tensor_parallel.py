"""Plain DeepSpeed engines with AutoTP, several in one launch:

    torchrun --nproc_per_node=W tensor_parallel.py OUT CASE...

CASE is STAGE-DTYPE-tpN: z1-bf16-tp2. Each trains a few steps and leaves
    OUT/CASE/run/{latest,global_step3/..}            what a user has
    OUT/CASE/{states,live}.safetensors               the optimizer's and the model's tensors at that time, gathered by
                                                     DeepSpeed's own layers
"load:CASE:DIRECTORY:NAME[:universal]" loads DIRECTORY with the settings of CASE instead, into weights that are
initialised otherwise: OUT/NAME/{states,live}.safetensors, and OUT/NAME/info.json: the losses of the next steps.
"""

import json
import os
import sys

import cpu_deepspeed
import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.module_inject.layers import GatherReplacedLayerParams
from deepspeed.utils import groups
from safetensors.torch import save_file
from leaving import leave

VOCAB, WIDTH, HIDDEN = 37, 12, 17
QKV = (8, 8, 8)
CUTS = {"use_default_specs": False, "layer_specs": [
    {"patterns": [r".*\.qkv\.weight$"], "partition_type": "column", "shape": [list(QKV), -1], "partition_dim": 0},
    {"patterns": [r".*\.(up|frozen)\.weight$"], "partition_type": "column"},
    {"patterns": [r".*\.(out|down)\.weight$"], "partition_type": "row"},
    {"patterns": [r".*(head|emb)\.weight$"], "partition_type": "skip"}]}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, sum(QKV))
        self.out = nn.Linear(QKV[0], WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.frozen = nn.Linear(WIDTH, HIDDEN)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        q, k, v = self.qkv(self.ln(x)).chunk(3, -1)
        x = x + self.out(torch.tanh(q * k) * v)
        return x + self.down(torch.relu(self.up(x)) + self.frozen(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.scale = nn.Parameter(torch.full((1,), 1.5))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.linspace(0, 1, WIDTH))

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        x = (x - self.mean.to(x.dtype)) * self.scale
        return nn.functional.cross_entropy(self.head(x).float().view(-1, VOCAB)[:-1], ids.view(-1)[1:])


def config(case, universal):
    stage, dtype, cut = case.split("-")[:3]
    out = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
           "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9,
           "zero_optimization": {"stage": int(stage[1]), "reduce_bucket_size": 100000},
           "bf16": {"enabled": dtype == "bf16"}}
    if cut != "tp1":
        out["tensor_parallel"] = {"autotp_size": int(cut[2:]), "partition_config": CUTS}
    if universal:
        out["checkpoint"] = {"load_universal": True}
    return out


def engine_of(case, other=False, universal=False):
    """other: initialised otherwise; but for what load_universal does not restore."""
    torch.manual_seed(0)
    model = Model()
    for t in (*model.parameters(), model.mean) if other else ():
        if t.requires_grad or not universal:
            t.data += 1
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in trained if p.dim() >= 2], "lr": 1e-2, "weight_decay": 0.1},
         {"params": [p for p in trained if p.dim() < 2], "lr": 2.5e-3, "weight_decay": 0.0}], betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    return deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule,
                                config=config(case, universal))[0]


def gathered(p, slice_):
    """What the ranks of tensor parallelism hold of the parameter, put together by the layer that cut it."""
    kept = p.data
    p.data = slice_.clone()
    with GatherReplacedLayerParams([p], None, enabled=True):
        whole = p.detach().clone()
    p.data = kept
    return whole


def write(engine, out):
    held, live = cpu_deepspeed.states(engine), cpu_deepspeed.tensors(engine.module)
    named = dict(engine.module.named_parameters(remove_duplicate=False))
    live = {n: gathered(named[n], t) if n in named else t for n, t in live.items()}
    held = {k: gathered(named[k.split("|")[0]], t) for k, t in held.items()}
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        save_file(held, f"{out}/states.safetensors")
        save_file({n: t.clone() for n, t in live.items()}, f"{out}/live.safetensors")
    dist.barrier()


def step_of(engine, g):
    """All ranks of tensor parallelism see the same batch; those of data parallelism here too, so that the loss does not
    depend on how many there are."""
    loss = engine(torch.randint(0, VOCAB, (1, 9), generator=g))
    engine.backward(loss)
    engine.step()
    return float(loss.detach())


def train(case, out):
    engine = engine_of(case)
    g = torch.Generator().manual_seed(100)
    for _ in range(3):
        engine.module.calls += 1
        step_of(engine, g)
    engine.save_checkpoint(f"{out}/run", client_state={"epoch": 7, "seen": [1, 2.5, "three"]})
    write(engine, out)
    finish(engine, out)


def finish(engine, out):
    g = torch.Generator().manual_seed(200)
    losses = [step_of(engine, g) for _ in range(3)]
    if dist.get_rank() == 0:
        with open(f"{out}/info.json", "w") as f:
            json.dump({"losses": losses, "global_steps": engine.global_steps,
                       "lr": [g["lr"] for g in engine.optimizer.param_groups]}, f)
    dist.barrier()


def load(case, source, out, universal):
    engine = engine_of(case, True, universal)
    path, client = engine.load_checkpoint(source)
    assert path, source
    assert client["epoch"] == 7 and client["seen"] == [1, 2.5, "three"]
    write(engine, out)
    finish(engine, out)


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        if one.startswith("load:"):
            _, case, source, name, *universal = one.split(":")
            load(case, source, f"{base}/{name}", bool(universal))
        else:
            train(one, f"{base}/{one}")
        groups.mesh_device = None  # the next engine may have another cut
        groups._TENSOR_MODEL_PARALLEL_GROUP = groups._TENSOR_MODEL_PARALLEL_RANK = None
    leave()

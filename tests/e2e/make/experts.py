"""Plain DeepSpeed engines with DeepSpeed's own mixture of experts (deepspeed.moe), several in one launch:

    torchrun --nproc_per_node=W experts.py OUT CASE...

CASE is STAGE-DTYPE-epN[-mixed]: of z2-bf16-ep2, N ranks share the experts; with "mixed" those of the first layer alone. Each
trains a few steps and leaves
    OUT/CASE/run/{latest,global_step3/..}      what a user has
    OUT/CASE/{states,live}.safetensors         the optimizer's and the model's tensors at that time, of all ranks, each
                                               expert under the number that it has in the whole model
A case with "pp" is one of pipelines.py. "load:CASE:DIRECTORY:NAME[:universal]" loads DIRECTORY with the settings of CASE instead, into weights that are
initialised otherwise: OUT/NAME/{states,live}.safetensors, and OUT/NAME/info.json: the losses of the next steps.
"refused:CASE:DIRECTORY:NAME": OUT/NAME/refused-RANK.txt, what each rank raised.
"""

import os
import re
import sys

import cpu_deepspeed
import deepspeed
import pipelines
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from deepspeed.utils import groups
from leaving import leave

VOCAB, WIDTH, HIDDEN = 37, 12, 17
LOCAL = re.compile(r"(.*deepspeed_experts\.)(\d+)(\..*)")


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.register_buffer("seen", torch.arange(5))

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Two layers of experts; the second has a dense part beside them."""

    def __init__(self, first, second):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.first = MoE(WIDTH, Expert(), num_experts=4, ep_size=first, use_rts=False)
        self.ln = nn.LayerNorm(WIDTH)
        self.second = MoE(WIDTH, Expert(), num_experts=2, ep_size=second, use_rts=False, use_residual=True)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, ids):
        x = self.emb(ids)
        x = x + self.first(x)[0]
        x = x + self.second(self.ln(x))[0]
        return nn.functional.cross_entropy(self.head(x).float().view(-1, VOCAB)[:-1], ids.view(-1)[1:])


def config(case, universal):
    stage, dtype = case.split("-")[:2]
    out = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True,
           "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10 ** 9,
           "zero_optimization": {"stage": int(stage[1]), "reduce_bucket_size": 100000},
           "bf16": {"enabled": dtype == "bf16"}}
    if universal:
        out["checkpoint"] = {"load_universal": True}
    return out


def engine_of(case, other=False, universal=False):
    """other: initialised otherwise."""
    torch.manual_seed(dist.get_rank())  # each rank's experts are others; DeepSpeed broadcasts the rest
    shared_by = int(case.split("-")[2][2:])
    model = Model(shared_by, 1 if "mixed" in case else shared_by)
    for p in model.parameters() if other else ():
        p.data += 1
    split = split_params_into_different_moe_groups_for_optimizer(
        [{"params": [p for p in model.parameters() if p.dim() >= 2], "lr": 1e-2, "weight_decay": 0.1, "name": "decay"},
         {"params": [p for p in model.parameters() if p.dim() < 2], "lr": 2.5e-3, "weight_decay": 0.0, "name": "rest"}])
    if "mixed" in case and dist.get_rank():  # the order is that of a set of names, of each process its own
        split[2:4], split[4:] = split[3:1:-1], split[:3:-1]
    optimizer = torch.optim.AdamW(split, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    return deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule,
                                config=config(case, universal))[0]


def in_whole(engine, held):
    """The rank's tensors, under the names of the whole model."""
    out = {}
    for name, t in held.items():
        match = LOCAL.match(name)
        if match:
            moe = engine.module.get_submodule(name.split(".")[0])
            rank = groups._get_expert_parallel_rank(moe.expert_group_name)
            name = f"{match[1]}{rank * moe.num_local_experts + int(match[2])}{match[3]}"
        out[name] = t
    return out


def write(engine, out):
    pipelines.write(out, in_whole(engine, cpu_deepspeed.tensors(engine.module)),
                    in_whole(engine, cpu_deepspeed.states(engine)))


def steps(engine, seed, n):
    g = torch.Generator().manual_seed(seed + dist.get_rank())
    losses = []
    for _ in range(n):
        engine.module.calls += 1
        loss = engine(torch.randint(0, VOCAB, (1, 9), generator=g))
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.detach()))
    return losses


def train(case, out):
    engine = engine_of(case)
    steps(engine, 100, 3)
    engine.save_checkpoint(f"{out}/run", client_state={"epoch": 7})
    write(engine, out)
    pipelines.go_on(engine, steps, out)


def refused(case, source, out):
    """What DeepSpeed says instead of loading a universal checkpoint."""
    try:
        engine_of(case, True, True).load_checkpoint(source)
    except AssertionError as e:
        os.makedirs(out, exist_ok=True)
        with open(f"{out}/refused-{dist.get_rank()}.txt", "w") as f:
            f.write(str(e))
    dist.barrier()


def load(case, source, out, universal):
    engine = engine_of(case, True, universal)
    path, _ = engine.load_checkpoint(source)
    assert path, source
    write(engine, out)
    pipelines.go_on(engine, steps, out)


if __name__ == "__main__":
    deepspeed.init_distributed("gloo")
    base, cases = sys.argv[1], sys.argv[2:]
    for one in cases:
        groups._EXPERT_PARALLEL_GROUP.clear()
        groups._EXPERT_DATA_PARALLEL_GROUP.clear()
        if one.startswith("refused:"):
            _, case, source, name = one.split(":")
            refused(case, source, f"{base}/{name}")
        elif one.startswith("load:"):
            _, case, source, name, *universal = one.split(":")
            (pipelines.load if "pp" in case else load)(case, source, f"{base}/{name}", bool(universal))
        else:
            (pipelines.train if "pp" in one else train)(one, f"{base}/{one}")
    leave()

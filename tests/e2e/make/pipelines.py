"""DeepSpeed pipelines. CASE is STAGE-DTYPE-ppN: z1-bf16-pp2 has N pipeline stages, with a tied layer in the first and the last.
train() trains a few steps and leaves
    OUT/run/{latest,global_step2/..}      what a user has
    OUT/{states,live}.safetensors         the optimizer's and the model's tensors at that time, of all stages
    OUT/info.json                         and the losses of the next steps
load() loads such a directory into weights that are initialised otherwise, and leaves the same but for run."""

import json
import os

import cpu_deepspeed
import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from safetensors.torch import save_file
from deepspeed_engine import Block, Embedding, VOCAB, WIDTH, config

BATCHES = 2


def engine_of(case, other, universal):
    """other: initialised otherwise. The last pipeline stage alone has the losses."""
    torch.manual_seed(1 if other else 0)
    net = PipelineModule(
        [TiedLayerSpec("emb", Embedding), LayerSpec(Block), LayerSpec(nn.LayerNorm, WIDTH), LayerSpec(Block),
         TiedLayerSpec("emb", Embedding, forward_fn=lambda m, x: x @ m.weight.t())],
        num_stages=int(case.split("-")[2][2:]), partition_method="uniform",
        loss_fn=lambda o, y: nn.functional.cross_entropy(o.float().view(-1, VOCAB), y.view(-1)))
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in trained if p.dim() >= 2], "lr": 1e-2, "weight_decay": 0.1},
         {"params": [p for p in trained if p.dim() < 2], "lr": 2.5e-3, "weight_decay": 0.0}], betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    settings = config(case, universal) | {"gradient_accumulation_steps": BATCHES}
    return deepspeed.initialize(model=net, optimizer=optimizer, lr_scheduler=schedule, config=settings)[0]


def write(out, live, states):
    """Of all ranks."""
    held = [None] * dist.get_world_size()
    dist.all_gather_object(held, (live, states))
    if dist.get_rank() == 0:
        os.makedirs(out, exist_ok=True)
        for i, name in enumerate(("live", "states")):
            save_file({n: t.clone().contiguous() for one in held for n, t in one[i].items()}, f"{out}/{name}.safetensors")
    dist.barrier()


def steps(engine, seed, n):
    """Every data-parallel rank has the same batches, so that the losses are those of any number of them."""
    g = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, VOCAB, (1, 8), generator=g) for _ in range(n * BATCHES)]
    batches = iter([(x, x) for x in ids])
    return [float(engine.train_batch(data_iter=batches)) for _ in range(n)]


def go_on(engine, steps, out):
    facts = {"global_steps": engine.global_steps, "lr": engine.lr_scheduler.get_last_lr(), "losses": steps(engine, 500, 2)}
    if dist.get_rank() == 0:
        with open(f"{out}/info.json", "w") as f:
            json.dump(facts, f)
    dist.barrier()


def train(case, out):
    engine = engine_of(case, False, False)
    steps(engine, 100, 2)
    engine.save_checkpoint(f"{out}/run")
    write(out, cpu_deepspeed.tensors(engine.module), cpu_deepspeed.states(engine))
    go_on(engine, steps, out)


def load(case, source, out, universal):
    engine = engine_of(case, True, universal)
    path, _ = engine.load_checkpoint(source)
    assert path, source
    write(out, cpu_deepspeed.tensors(engine.module), cpu_deepspeed.states(engine))
    go_on(engine, steps, out)

"""Random torch distributed checkpoints: torch's own planner and writer in one process, rank after rank, for
tensors that are cut into boxes at random."""

import dataclasses
import json

import torch
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

import random_truth
from random_truth import Refused, Shown, Truth, by_dcp, file_bytes, in_files, load


class OfOneRank(DefaultSavePlanner):
    """Saves a state dict of whole tensors as one rank that holds parts of some. parts: flat key ->
    [(offset, tensor)]; () is a rank without any of it, None one that holds all."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def create_local_plan(self):
        plan = super().create_local_plan()
        items = []
        for item in plan.items:
            held = self.parts.get(item.index.fqn)
            items += [item] if held is None else [self.part(item, *p) for p in held]
        self.plan = dataclasses.replace(plan, items=items)
        return self.plan

    def part(self, item, offset, tensor):
        whole = self.state_dict[item.index.fqn]
        return WriteItem(
            index=MetadataIndex(item.index.fqn, torch.Size(offset)), type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(ChunkStorageMetadata(torch.Size(offset), tensor.shape),
                                        TensorProperties(dtype=whole.dtype), whole.shape))

    def lookup_object(self, index):
        for offset, tensor in self.parts.get(index.fqn) or ():
            if index.offset == torch.Size(offset):
                return tensor
        return super().lookup_object(index)


# -- where a tensor is cut --

def whole(tensor):
    return [((0,) * tensor.dim(), tensor)]


def by_rows(tensor, world, dim=0):
    """As FSDP and torch.chunk: equal parts, fewer or none for the last ranks."""
    offset, out = 0, []
    for part in torch.chunk(tensor, world, dim):
        out.append(((*(0,) * dim, offset, *(0,) * (tensor.dim() - dim - 1)), part))
        offset += part.shape[dim]
    return out


def at_random(rng, tensor, n, offset=None):
    """Into up to n boxes, by cutting a box in two anywhere until there are as many."""
    offset = offset or (0,) * tensor.dim()
    dims = [d for d in range(tensor.dim()) if tensor.shape[d] > 1]
    if n < 2 or not dims or not tensor.numel():
        return [(offset, tensor)]
    dim = rng.choice(dims)
    at = rng.randint(1, tensor.shape[dim] - 1)
    behind = tuple(o + at * (d == dim) for d, o in enumerate(offset))
    return (at_random(rng, tensor.narrow(dim, 0, at), n // 2, offset) +
            at_random(rng, tensor.narrow(dim, at, tensor.shape[dim] - at), n - n // 2, behind))


def strided(rng, tensor):
    """Some lie in memory the other way round."""
    if tensor.dim() > 1 and rng.random() < 0.25:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    return tensor.contiguous()


def cut(rng, tensor, world):
    """-> for each rank its parts, or None for all ranks: a tensor that all hold."""
    how = rng.choice(["rows", "rows", "rows", "columns", "boxes", "one rank", "all"])
    if tensor.dim() == 0 or how == "all":
        return [None] * world
    if how == "rows" or (how == "columns" and tensor.dim() == 1):
        parts = by_rows(tensor, world)
    elif how == "columns":
        parts = by_rows(tensor, world, rng.randrange(tensor.dim()))
    else:
        parts = at_random(rng, tensor, rng.randint(1, 2 * world)) if how == "boxes" else whole(tensor)
    held = [[] for _ in range(world)]
    in_turn = how in ("rows", "columns")
    for i, (offset, part) in enumerate(parts):
        held[i if in_turn else rng.randrange(world)].append((offset, strided(rng, part)))
    if how == "rows" and len(parts) < world and rng.random() < 0.7 and tensor.numel():
        # FSDP2: a rank without rows saves none of them, from where they would begin.
        held[len(parts)].append(((tensor.shape[0], *(0,) * (tensor.dim() - 1)), tensor[:0]))
    return held


# -- written --

def writer_of(rng, folder):
    kinds = [{}, {}, {"thread_count": 3}, {"single_file_per_rank": False}, {"_extensions": [ZStandard()]}]
    options = rng.choice(kinds)
    return lambda: FileSystemWriter(folder, sync_files=False, **options)


def planned(planner, writer, state, rank, together):
    planner.set_up_planner(state, writer.storage_meta(), is_coordinator=rank == 0)
    writer.set_up_storage_writer(rank == 0, rank=rank, use_collectives=together)
    return writer.prepare_local_plan(planner.create_local_plan())


def write(rng, folder, state, world, together=True):
    """state: nested dict of whole tensors. together: one .metadata for all ranks."""
    make = writer_of(rng, folder)
    flat = DefaultSavePlanner()
    flat.set_up_planner(state)
    cuts = {k: cut(rng, v, world) for k, v in flat.state_dict.items() if torch.is_tensor(v)}
    planners = [OfOneRank({k: held[r] for k, held in cuts.items()}) for r in range(world)]
    writers = [make()] * world if together else [make() for _ in range(world)]
    plans = [planned(p, w, state, r, together) for r, (p, w) in enumerate(zip(planners, writers))]
    if together:
        plans, metadata = planners[0].create_global_plan(plans)
        plans = writers[0].prepare_global_plan(plans)
        results = [w.write_data(p.finish_plan(plan), p).value()
                   for p, w, plan in zip(planners, writers, plans)]
        writers[0].finish(metadata, results)
        return
    for planner, writer, plan in zip(planners, writers, plans):
        [plan], metadata = planner.create_global_plan([plan])
        [plan] = writer.prepare_global_plan([plan])
        writer.finish(metadata, [writer.write_data(planner.finish_plan(plan), planner).value()])


# -- families --

def world(rng):
    return rng.choice([1, 2, 2, 3, 3, 4, 5, 7, 8, rng.randint(9, 40), 130 if rng.random() < 0.15 else 6])


def truth(rng, base, where, lora=True):
    t = Truth(rng, base / where, where)
    t.draw_model(random_truth.shape, random_truth.shape,
                 None if rng.random() < 0.3 else rng.choice(random_truth.WIDE))
    if lora and rng.random() < 0.25:
        t.adapt()
    t.draw_optimizer(lambda p: p.dtype if rng.random() < 0.5 else torch.float32)
    t.world, t.together = world(rng), True
    t.source.mkdir(parents=True)
    return t


def optimizer_state(t):
    return {"state": {n: dict(s) for n, s in t.states.items()},
            "param_groups": [dict(g) for g in t.groups]}


def shared_out(rng, t):
    """Each parameter in one of two optimizers, as a GAN's."""
    names = rng.sample(t.trained, len(t.trained))
    out = []
    for held in (set(names[::2]), set(names[1::2])):
        held = [n for n in t.trained if n in held]
        out.append({"state": {n: dict(t.states[n]) for n in held}, "param_groups": [{**t.groups[0], "params": held}]})
    return out


def plain(rng, base, name):
    """dcp.save({"model": ..., "optimizer": ...}) of a script."""
    t = truth(rng, base, name)
    model, optim = t.model, optimizer_state(t)
    t.state = rng.choice([{"model": model, "optimizer": optim}, {"app": {"model": model, "optim": optim}},
                          {"net": model, "opt": optim}])
    if rng.random() < 0.15:
        t.world, t.together = min(t.world, 5), False
    write(rng, t.source, t.state, t.world, t.together)
    t.views, t.as_saved = views_of_plain, as_saved
    return t


def trainer(rng, base, name):
    """A Trainer's, FSDP with SHARDED_STATE_DICT: two directories, and what it resumes from beside them."""
    step = rng.randint(1, 5000)
    t = truth(rng, base, f"{name}/checkpoint-{step}")
    t.state = {"model": t.model, "optimizer": optimizer_state(t)}
    for folder, key in (("pytorch_model_fsdp_0", "model"), ("optimizer_0", "optimizer")):
        (t.source / folder).mkdir()
        write(rng, t.source / folder, {key: t.state[key]}, t.world)
    t.scheduler = {"last_epoch": t.step, "_step_count": t.step + 1}
    torch.save(t.scheduler, t.source / "scheduler.pt")
    (t.source / "trainer_state.json").write_text(json.dumps(
        {"global_step": t.step, "train_batch_size": 2, "logging_steps": 10, "save_steps": 10, "eval_steps": 10,
         "max_steps": 9000, "num_train_epochs": 1, "epoch": 0.5}))
    t.views = views_of_trainer
    return t


def lightning(rng, base, name):
    """FSDPStrategy's, or ModelParallelStrategy's: one directory for all, with meta.pt."""
    t = truth(rng, base, f"{name}.ckpt", lora=False)
    t.optimizers = [optimizer_state(t)]
    if len(t.trained) > 1 and rng.random() < 0.25:
        t.optimizers = shared_out(rng, t)
    t.state = {rng.choice(["model", "state_dict"]): t.model, **{f"optimizer_{i}": o for i, o in enumerate(t.optimizers)}}
    write(rng, t.source, t.state, t.world)
    t.meta = {"epoch": 0, "global_step": t.step, "pytorch-lightning_version": "2.6.6", "loops": {},
              "callbacks": {}, "lr_schedulers": [{"last_epoch": t.step, "_last_lr": [0.5]}]}
    torch.save(t.meta, t.source / "meta.pt")
    t.views = views_of_lightning
    return t


# -- what views of them hold --

def as_saved(t):
    """(what torch reads, what was written). torch has no reader of metadata that each rank wrote by itself."""
    return (by_dcp(t.source), t.state) if t.together else ({}, {})


def views_of_plain(t):
    by_number, by_name = (random_truth.optimizer(t, named) for named in (False, True))
    return {
        **random_truth.of_weights(t), "world-N": Refused("is not a DeepSpeed ZeRO checkpoint"),
        "full": Shown(in_files(model="model.safetensors", optimizer="optimizer.pt"),
                      {"model": t.model, "optimizer": by_number}),
        "full-fsdp": Shown(in_files(model="pytorch_model_fsdp.bin", optimizer="optimizer.bin"),
                           {"model": t.model, "optimizer": by_name}),
        "dcp": Shown(by_dcp, t.state) if t.together else Shown(file_bytes, file_bytes(t.source)),
        "universal": random_truth.of_universal(t, with_aliases=False)}


def views_of_trainer(t):
    views = views_of_plain(t)
    by_number, by_name = (random_truth.optimizer(t, named) for named in (False, True))
    file, model = ("adapter_model", random_truth.of_adapter(t)) if t.is_adapter else ("model", t.model)
    views["full"] = Shown(in_files(model=f"{file}.safetensors", optimizer="optimizer.pt",
                                   scheduler="scheduler.pt"),
                          {"model": model, "optimizer": by_number, "scheduler": t.scheduler})
    views["dcp"] = Shown(lambda folder: {**by_dcp(folder / "pytorch_model_fsdp_0"),
                                         **by_dcp(folder / "optimizer_0")}, t.state)
    return views


def views_of_lightning(t):
    """full is one file."""
    whole = Shown(load, {**t.meta, "state_dict": t.model, "optimizer_states": t.optimizers})
    several = {"universal": Refused("has several optimizers")} if len(t.optimizers) > 1 else {}
    return {**views_of_plain(t), "full": whole, "full-fsdp": whole, **several}

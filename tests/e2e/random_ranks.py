"""Random per-rank files as the checkpoint managers of veRL and EasyR1 write them (make/ranks.py says where that is
from): one process is each rank in turn, in a process group that does nothing."""

import json
import logging
import random

import numpy
import torch
import torch.distributed as dist
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard as LocalShard
from torch.distributed._shard.sharded_tensor import ShardedTensor, ShardedTensorMetadata, TensorProperties
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

import random_truth
from random_truth import Refused, Shown, Truth, in_files, load

logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)  # that a mesh was unpickled

ACTOR = "run/global_step_2/actor"
RANDOM_STATES = {"cpu": torch.get_rng_state(), "numpy": numpy.random.RandomState(1).get_state(),
                 "random": random.Random(1).getstate()}
EXTRA = {"lr_scheduler": {"last_epoch": 2, "_last_lr": [0.5]}, "rng": RANDOM_STATES}


def matrix(rng):
    """FSDP has no parameters without dimensions."""
    return random_truth.shape(rng, (1, 1, 2, 2, 2, 3, 4))


# -- one rank's part of a tensor --

def nth(parts, i, tensor, dim=0):
    """torch.chunk gives fewer parts than were asked for where there are too few rows."""
    return (parts[i] if i < len(parts) else tensor.narrow(dim, 0, 0)).clone()


class Rank:
    """Rank `rank` of a mesh: "fsdp" (world), "hsdp" (world / 2, 2), "tp" (world / 2, 2), "none": FSDP1 shards
    nothing on a single rank."""

    def __init__(self, kind, rank, world):
        self.rank = rank
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        if kind in ("fsdp", "none"):
            self.mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
        else:
            names = ("ddp", "fsdp") if kind == "hsdp" else ("fsdp", "tp")
            self.mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=names)
        self.kind = kind

    def part(self, tensor, how):
        """how: of tensor parallelism, "columns", "rows" or None."""
        place, mesh = [Shard(0)], self.mesh
        if self.kind == "none":
            return tensor.clone()
        if self.kind == "tp":
            first, tp = divmod(self.rank, 2)
            if how is None:
                mesh = self.mesh["fsdp"]
                local = nth(torch.chunk(tensor, mesh.size()), first, tensor)
            else:
                dim = 0 if how == "columns" else 1
                mine = nth(torch.chunk(tensor, 2, dim), tp, tensor, dim)
                local = nth(torch.chunk(mine, self.mesh.size(0)), first, mine)
                place = [_StridedShard(0, split_factor=2), Shard(0)] if dim == 0 else [Shard(0), Shard(1)]
        elif self.kind == "hsdp":
            place = [Replicate(), Shard(0)]
            local = nth(torch.chunk(tensor, 2), self.rank % 2, tensor)
        else:
            local = nth(torch.chunk(tensor, mesh.size()), self.rank, tensor)
        return DTensor.from_local(local, mesh, place, run_check=False, shape=tensor.shape, stride=tensor.stride())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        dist.destroy_process_group()


# -- written --

def weights_of(t, rank):
    made = {n: x if n in t.buffers else rank.part(x, t.how.get(n)) for n, x in t.model.items() if n not in t.aliases}
    return {n: made[t.aliases.get(n, n)] for n in t.model}


def optimizer_of(t, rank):
    number = t.number
    return {"state": {number[n]: {k: v if v.dim() == 0 else rank.part(v, t.how.get(n))
                                  for k, v in state.items()} for n, state in t.states.items()},
            "param_groups": [{**g, "params": [number[n] for n in g["params"]]} for g in t.groups]}


def files_of(t, world, kind):
    """(name, what is in it) of every rank's files; only until the next is asked for."""
    for r in range(world):
        with Rank(kind, r, world) as rank:
            for name, state in (("model", weights_of(t, rank)), ("optim", optimizer_of(t, rank)),
                                ("extra_state", EXTRA)):
                yield f"{name}_world_size_{world}_rank_{r}.pt", state


def write(t, folder, world, kind):
    folder.mkdir(parents=True)
    for name, state in files_of(t, world, kind):
        torch.save(state, folder / name)
    if t.manager == "verl":
        (folder / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": world}, indent=4))


def kind_of(t, world, kind="fsdp"):
    """EasyR1's manager knows FSDP1 alone."""
    return "none" if world == 1 and t.manager == "easyr1" else kind


def how_cut(rng, t):
    """By tensor parallelism; columns (of a linear layer, rows of its weight) in equal parts."""
    out = {n: rng.choice(["columns", "rows", None]) for n in t.trained + t.frozen if t.model[n].dim() > 1}
    return {n: "rows" if how == "columns" and t.model[n].shape[0] % 2 else how for n, how in out.items()}


def dtensors(rng, base, name):
    t = Truth(rng, base / name / ACTOR, f"{name}/{ACTOR}")
    t.draw_model(matrix, random_truth.shape, rng.choice(random_truth.WIDE) if rng.random() < 0.7 else None)
    if rng.random() < 0.2:
        t.adapt()
    t.manager = rng.choice(["verl", "easyr1"])
    t.kind = rng.choice(["fsdp"] * 4 + ["hsdp", "tp"])
    t.world = rng.choice([1, 2, 3, 4, 5, 7, 8, rng.randint(9, 24), 130 if rng.random() < 0.1 else 2])
    t.kind = kind_of(t, t.world, t.kind)
    if t.kind in ("hsdp", "tp"):
        t.world = 2 * max(t.world // 2, 2)
    t.how = how_cut(rng, t) if t.kind == "tp" else {}
    if not any(t.how.values()):
        t.kind = t.kind.replace("tp", "fsdp")
    t.other = rng.randint(1, 5)
    t.draw_optimizer(lambda p: p.dtype if rng.random() < 0.5 else torch.float32,
                     groups=1 if t.manager == "verl" else 3)
    if t.manager == "verl":  # all parameters, those without states too, by numbers
        params = [n for n in t.model if n in t.trained + t.frozen]
        t.groups[0]["params"] = params
        t.number = {n: i for i, n in enumerate(params)}
    else:
        t.number = {n: n for n in t.trained}
    write(t, t.source, t.world, t.kind)
    run = t.source.parents[1]
    if t.manager == "verl":
        (run / "latest_checkpointed_iteration.txt").write_text("2")
    else:
        (run / "checkpoint_tracker.json").write_text(json.dumps({"best_global_step": 2, "last_global_step": 2}))
    t.views = views_of_dtensors
    return t


# -- FSDP1: rows of weights as ShardedTensors; what the optimizer has, of flat parameters --

def sharded(tensor, rank, world):
    """As FSDP's _create_chunk_sharded_tensor makes it: ranks behind the last row have no shard."""
    parts, at, shards = torch.chunk(tensor, world), 0, []
    for r, part in enumerate(parts):
        shards.append(ShardMetadata([at, *(0,) * (tensor.dim() - 1)], list(part.shape), f"rank:{r}/cpu"))
        at += part.shape[0]
    local = [LocalShard(parts[rank].clone(), shards[rank])] if rank < len(parts) else []
    return ShardedTensor._init_from_local_shards_and_global_metadata(local, ShardedTensorMetadata(
        shards, tensor.shape, TensorProperties(dtype=tensor.dtype)))


def stretch(tensors, rank, world):
    """The rank's part of one flat parameter, filled up at its end."""
    joined = torch.cat([x.flatten() for x in tensors])
    return torch.cat([joined, joined.new_zeros(-len(joined) % world)]).chunk(world)[rank].clone()


def of_flat(t, unit, key, rank):
    """use_orig_params=True: of each parameter what lies in the rank's part."""
    sizes = [t.model[n].numel() for n in unit]
    size, at = -(-sum(sizes) // t.world), 0
    for name, n in zip(unit, sizes):
        low, high = max(at, rank * size), min(at + n, (rank + 1) * size)
        if low < high:
            yield name, t.states[name][key].flatten()[low - at:high - at].clone()
        at += n


def flat_optimizer(t, rank):
    state = {}
    for i, unit in enumerate(t.units):
        for key in ("exp_avg", "exp_avg_sq"):
            parts = of_flat(t, unit, key, rank)
            if not t.original:
                parts = [(i, stretch([t.states[n][key] for n in unit], rank, t.world))]
            for name, part in parts:
                number = t.number[name] if t.original else name
                state.setdefault(number, {"step": torch.tensor(float(t.step))})[key] = part
    return {"state": state, "param_groups": [{**t.groups[0], "params": list(
        t.number.values() if t.original else range(len(t.units)))}]}


def look_like_units(t):
    """Parts of parameters that are equally long on all ranks: no reader can tell them from units of one parameter."""
    of_ranks = [{n: len(x) for unit in t.units for n, x in of_flat(t, unit, "exp_avg", r)} for r in range(t.world)]
    return all(len(lengths) == len(t.trained) and lengths == of_ranks[0] for lengths in of_ranks)


def flat_units(rng, base, name):
    """veRL's with FSDP1. A unit map is imported where parameters were not kept (use_orig_params=False)."""
    t = Truth(rng, base / name / ACTOR, f"{name}/{ACTOR}")
    t.draw_model(lambda rng: tuple(max(n, 1) for n in matrix(rng)), random_truth.shape, rng.choice(random_truth.WIDE))
    for alias in t.aliases:
        del t.model[alias]
    t.aliases, t.frozen = {}, []
    t.trained = [n for n in t.model if n not in t.buffers]
    t.world = rng.choice([2, 2, 3, 4, 5, 8, rng.randint(9, 24)])
    t.original = rng.random() < 0.5
    t.draw_optimizer(lambda p: p.dtype if rng.random() < 0.5 else torch.float32, groups=1)
    dtype = rng.choice(random_truth.WIDE)
    for state in t.states.values():  # one flat parameter has one type
        state.update({k: x.to(dtype) for k, x in state.items() if k != "step"})
    t.number = {n: i for i, n in enumerate(t.trained)}
    cuts = sorted(rng.sample(range(1, len(t.trained)), rng.randint(0, min(3, len(t.trained) - 1))))
    t.units = [t.trained[a:b] for a, b in zip([0, *cuts], [*cuts, len(t.trained)])]
    t.original = t.original and not look_like_units(t)
    t.source.mkdir(parents=True)
    for r in range(t.world):
        with Rank("none", r, t.world):
            weights = {n: x if n in t.buffers else sharded(x, r, t.world) for n, x in t.model.items()}
            for kind, state in (("model", weights), ("optim", flat_optimizer(t, r)), ("extra_state", EXTRA)):
                torch.save(state, t.source / f"{kind}_world_size_{t.world}_rank_{r}.pt")
    (t.source / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 1, "world_size": t.world}))
    if not t.original:
        t.unit_map = {"unshard_fsdp_units": 1, "units": [
            {"name": "", "params": [{"name": n, "shape": list(t.model[n].shape)} for n in unit]} for unit in t.units]}
    t.views = lambda t: {**views_of_dtensors_but_worlds(t),
                         "world-N": Refused("only DTensors can be sharded for another number of ranks")}
    return t


# -- what views of them hold --

def opened(value):
    """DTensors as what is said of them, and the local one."""
    if isinstance(value, DTensor):
        spec = value._spec
        return {"local": value._local_tensor, "placements": str(spec.placements), "mesh": str(spec.mesh.mesh.tolist()),
                "shape": tuple(value.shape), "coordinate": str(spec.mesh.get_coordinate())}
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, dict):
        return {k: opened(v) for k, v in value.items()}
    return tuple(map(opened, value)) if isinstance(value, tuple) else value


def shards(folder):
    return {p.name: opened(load(p)) for p in sorted(folder.glob("*_rank_*.pt"))}


def views_of_dtensors_but_worlds(t):
    by_number, by_name = (random_truth.optimizer(t, named) for named in (False, True))
    return {
        **random_truth.of_weights(t),
        "full": Shown(in_files(model="model.safetensors", optimizer="optimizer.pt"),
                      {"model": t.model, "optimizer": by_number}),
        "full-fsdp": Shown(in_files(model="pytorch_model_fsdp.bin", optimizer="optimizer.bin"),
                           {"model": t.model, "optimizer": by_name}),
        "dcp": Refused("has no .metadata"),
        "universal": random_truth.of_universal(t)}


def views_of_dtensors(t):
    views = views_of_dtensors_but_worlds(t)
    if t.kind == "none":
        return {**views, "world-N": Refused("holds no DTensors")}
    return {**views, f"world-{t.other}": Shown(shards, other_world(t))}


def other_world(t):
    """As that many ranks would have saved it, sharded by rows; random states are left out."""
    cut, t.how = t.how, {}
    out = {name: opened(state) for name, state in files_of(t, t.other, kind_of(t, t.other))}
    t.how = cut
    if t.other != t.world:
        for name in out:
            if name.startswith("extra"):
                out[name] = {"lr_scheduler": EXTRA["lr_scheduler"]}
    return out

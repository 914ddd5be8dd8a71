"""Random DeepSpeed checkpoints, ZeRO stages 1 to 3: the dicts that the engine's ranks save, with the partitions
that its optimizers make (deepspeed 0.19.8, runtime/engine.py, zero/stage_1_and_2.py, zero/stage3.py,
bf16_optimizer.py), written by torch.save."""

import contextlib
import math
import os
from collections import OrderedDict

os.environ["DS_ACCELERATOR"] = "cpu"

import torch  # noqa: E402
from deepspeed.runtime.fp16.loss_scaler import LossScaler  # noqa: E402
from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: E402
from deepspeed.utils import zero_to_fp32  # noqa: E402
from deepspeed.utils.tensor_fragment import fragment_address  # noqa: E402

import random_truth  # noqa: E402
from random_truth import Refused, Shown, Truth, in_files, load  # noqa: E402


# -- how groups of parameters are laid out and cut --

def dealt(names, world):
    """round_robin_gradients: each rank in turn gets one."""
    return [n for r in range(min(world, len(names))) for n in names[r::world]]


def deals(t):
    """Stage 1 has obeyed the setting since 0.13.0."""
    return t.round_robin and (t.stage == 2 or t.version != "0.12.6")


class Flat:
    """A group of stages 1 and 2 over `world` ranks: one parameter behind the other in one buffer, which is cut in
    equal parts."""

    def __init__(self, t, names, world):
        self.names = dealt(names, world) if deals(t) else names
        step = 16 // t.dtype.itemsize if t.aligned else 1
        self.at, self.padding, end = {}, [], 0
        for i, name in enumerate(self.names):
            self.at[name] = end
            end += t.model[name].numel()
            self.padding.append(0 if i == len(self.names) - 1 else -end % step)
            end += self.padding[-1]
        self.elems = end
        self.total = math.ceil(end / (2 * world)) * 2 * world
        self.part = self.total // world
        self.world = world

    def filled(self, tensors, dtype):
        flat = torch.zeros(self.total, dtype=dtype)
        for name, at in self.at.items():
            flat[at:at + tensors[name].numel()] = tensors[name].flatten()
        return flat

    def of_rank(self, flat, rank):
        return flat[rank * self.part:(rank + 1) * self.part].clone()

    def tail(self, rank):
        """Elements of padding at the end of the rank's part."""
        return min(self.part, max(0, (rank + 1) * self.part - self.elems))

    def mapping(self, t, names, rank):
        """param_slice_mappings: in the optimizer's order whatever lies there, so wrong where it was dealt out."""
        out, at, first = OrderedDict(), 0, rank * self.part
        for i, name in enumerate(names):
            low, high = max(at, first), min(at + t.model[name].numel(), first + self.part)
            if low < high:
                out[name] = fragment_address(numel=high - low, start=low - first)
            at += t.model[name].numel() + self.padding[i]
        return out


def slice_of(tensor, rank, world):
    """Stage 3 cuts each parameter for itself, the last slices filled up."""
    flat = tensor.flatten()
    size = math.ceil(flat.numel() / world)
    part = flat[rank * size:(rank + 1) * size]
    return torch.cat([part, part.new_zeros(size - part.numel())])


def sub_groups(t, names, world):
    sizes = [math.ceil(t.model[n].numel() / world) for n in names]
    if t.sub_group_size is None or t.sub_group_size >= sum(sizes):
        return [names]
    out, group, size = [], [], 0
    for name, elems in zip(names, sizes):
        group.append(name)
        size += elems
        if size >= t.sub_group_size or name == names[-1]:
            out.append(group)
            group, size = [], 0
    return out


# -- files --

def hypers(t):
    return [{k: v for k, v in g.items() if k != "params"} for g in t.groups]


def optim_flat(t, world, rank):
    """Stages 1 and 2; BF16_Optimizer, which does not know its stage, where gradients are kept in fp32."""
    flats = [Flat(t, g["params"], world) for g in t.groups]
    moments = [{k: f.of_rank(f.filled({n: t.states[n][k] for n in f.names}, torch.float32), rank)
                for k in ("exp_avg", "exp_avg_sq")} for f in flats]
    masters = [f.of_rank(f.filled(t.masters, torch.float32), rank) for f in flats]
    last = rank == world - 1
    tails = [f.total - f.elems if last else 0 for f in flats] if t.fp32_grads else [f.tail(rank) for f in flats]
    if not t.fp32_grads:
        masters = [m[:len(m) - tail] for m, tail in zip(masters, tails)]
    base = {"state": {i: {"step": torch.tensor(float(t.step)), **m} for i, m in enumerate(moments)},
            "param_groups": [{**h, "params": [i]} for i, h in enumerate(hypers(t))]}
    mappings = [f.mapping(t, g["params"], rank) for f, g in zip(flats, t.groups)]
    common = {"clip_grad": 1.0, "base_optimizer_state": base,
              "single_partition_of_fp32_groups": [torch.nn.Parameter(m) for m in masters]}
    if t.fp32_grads:
        return {**common, "group_paddings": tails, "partition_count": [world] * len(flats),
                "ds_version": t.version, "param_slice_mappings": mappings}
    return {"loss_scaler": LossScaler(scale=1.0), "dynamic_loss_scale": False, "overflow": False, **common,
            "zero_stage": ZeroStageEnum(t.stage), "group_paddings": tails,
            "param_alignment_paddings": [f.padding for f in flats], "partition_count": [world] * len(flats),
            "ds_version": t.version, "param_slice_mappings": mappings}


def optim_sliced(t, world, rank):
    """Stage 3. States are numbered by sub-groups, which a param group lists."""
    state, masters, groups = {}, [], []
    for held, hyper in zip(t.groups, hypers(t)):
        groups.append({**hyper, "params": []})
        for names in sub_groups(t, held["params"], world):
            def joined(tensors):
                return torch.cat([slice_of(tensors[n], rank, world) for n in names])
            groups[-1]["params"].append(len(masters))
            state[len(masters)] = {"step": torch.tensor(float(t.step)),
                                   **{k: joined({n: t.states[n][k] for n in names})
                                      for k in ("exp_avg", "exp_avg_sq")}}
            masters.append(torch.nn.Parameter(joined(t.masters)))
    return {"zero_stage": ZeroStageEnum.weights, "loss_scaler": LossScaler(scale=1.0), "dynamic_loss_scale": False,
            "overflow": False, "partition_count": world,
            "optimizer_state_dict": {"state": state, "param_groups": groups}, "fp32_flat_groups": masters}


def shapes(t, names):
    return OrderedDict((n, t.model[n].shape) for n in names)


def module(t, world):
    """The model's state dict: views of the flat buffers, or nothing of parameters at stage 3."""
    parts = {n: x for n, x in t.model.items() if n not in t.trained and n not in t.aliases}
    if t.stage == 3:
        parts = {n: x if n in t.buffers else x.new_empty(0) for n, x in parts.items()}
        parts.update({n: torch.empty(0, dtype=t.dtype) for n in t.trained})
    else:
        for group in t.groups:
            flat = Flat(t, group["params"], world)
            buffer = flat.filled(t.model, t.dtype)
            parts.update({n: buffer[at:at + t.model[n].numel()].view(t.model[n].shape) for n, at in flat.at.items()})
    names = [n for n in t.model if n in t.saved]
    return OrderedDict((n, parts[t.aliases.get(n, n)]) for n in names)


def model_file(t, world, rank):
    frozen = [n for n in t.frozen if n in t.saved]
    with_frozen = t.stage > 1 and not t.exclude_frozen
    parameters = [shapes(t, Flat(t, g["params"], world).names) for g in t.groups]
    if t.stage == 3:
        parameters = [shapes(t, names) for g in t.groups for names in sub_groups(t, g["params"], world)]
    return {"module": module(t, world), "buffer_names": list(t.buffers), "optimizer": None,
            "param_shapes": parameters, "frozen_param_shapes": shapes(t, frozen) if with_frozen else None,
            "shared_params": dict(t.aliases) if rank == 0 else {},
            "frozen_param_fragments": OrderedDict(
                (n, slice_of(t.model[n], rank, world) if t.stage == 3 else t.model[n]) for n in frozen)
            if with_frozen else None,
            "lr_scheduler": {"last_epoch": t.step, "_last_lr": [g["lr"] for g in t.groups]}, "data_sampler": None,
            "random_ltd": None, "skipped_steps": 0, "global_steps": t.step, "global_samples": 4 * t.step,
            "dp_world_size": world, "mp_world_size": 1,
            "checkpoint_parallel_dimensions": {"pp_degree": 1, "tp_degree": 1}, "ds_config": t.config,
            "ds_version": t.version, "epoch": 3, "seen": [1, 2.5, "three"]}


def files_of(t, world):
    """(name, what is in it) of what `world` ranks save below a tag."""
    prefix = "bf16_" if t.dtype == torch.bfloat16 else ""
    optim = optim_sliced if t.stage == 3 else optim_flat
    for r in range(world):
        yield f"{prefix}zero_pp_rank_{r}_mp_rank_00_optim_states.pt", {
            "optimizer_state_dict": optim(t, world, r), "ds_config": t.config, "ds_version": t.version}
        if t.stage == 3:
            yield f"zero_pp_rank_{r}_mp_rank_00_model_states.pt", model_file(t, world, r)
    if t.stage < 3:
        yield "mp_rank_00_model_states.pt", model_file(t, world, 0)


# -- drawn --

def parameter(rng):
    """The engine trains no parameters without dimensions."""
    return tuple(max(n, 1) for n in random_truth.shape(rng, (1, 1, 2, 2, 2, 3, 4)))


def draw_settings(t):
    rng = t.rng
    t.stage = rng.choice([1, 2, 2, 3, 3])
    t.version = rng.choice(["0.12.6", "0.19.8", "0.19.8", "0.19.8"])
    t.fp32_grads = t.stage == 1 and t.dtype == torch.bfloat16 and rng.random() < 0.3
    flat = t.stage < 3 and not t.fp32_grads
    t.round_robin = flat and rng.random() < 0.25
    t.aligned = flat and not t.round_robin and rng.random() < 0.3
    t.sub_group_size = rng.choice([None, None, 1, 20, 100]) if t.stage == 3 else None
    t.exclude_frozen = rng.random() < 0.2
    t.world = rng.choice([1, 2, 2, 3, 4, 5, 7, 8, rng.randint(9, 24), 130 if rng.random() < 0.1 else 3])
    t.other = rng.randint(1, 6)


def config(t):
    zero = {"stage": t.stage}
    if t.round_robin:
        zero["round_robin_gradients"] = True
    if t.aligned:
        zero["parameter_alignment"] = True
    if t.sub_group_size:
        zero["sub_group_size"] = t.sub_group_size
    out = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero,
           "bf16": {"enabled": t.dtype == torch.bfloat16}}
    if t.dtype == torch.float16:
        out["fp16"] = {"enabled": True}
    if t.fp32_grads:
        out["data_types"] = {"grad_accum_dtype": "fp32"}
    return out


def engine(rng, base, name, **settings):
    """settings: in place of what is drawn."""
    t = Truth(rng, None, None)
    t.dtype = rng.choice([torch.bfloat16, torch.bfloat16, torch.float16, torch.float32])
    t.draw_model(parameter, random_truth.shape, t.dtype)
    if rng.random() < 0.2:
        t.adapt()
    t.draw_optimizer(lambda p: torch.float32)
    t.masters = {n: random_truth.values(rng, tuple(t.model[n].shape), torch.float32) for n in t.trained}
    for n in t.model:  # what is trained is rounded from them
        owner = t.aliases.get(n, n)
        if owner in t.masters:
            t.model[n] = t.masters[owner].to(t.dtype)
    draw_settings(t)
    vars(t).update(settings)
    t.config = config(t)
    t.saved = [n for n in t.model if not (t.exclude_frozen and n in t.frozen)]
    t.where = f"{name}/global_step{t.step}"
    t.source = base / t.where
    t.source.mkdir(parents=True)
    for file, state in files_of(t, t.world):
        torch.save(state, t.source / file)
    (t.source.parent / "latest").write_text(t.source.name)
    t.views, t.as_saved = views_of_engine, as_saved
    return t


# -- what views of them hold --

def by_deepspeed(folder):
    """What zero_to_fp32 makes of a tag."""
    zero_to_fp32.tqdm = lambda v, **_: v
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        return zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(folder.parent), folder.name)


def as_saved(t):
    """(what zero_to_fp32 makes of it, what it was made of): frozen parameters as they are, but none at stage 1. It
    knows nothing of BF16_Optimizer."""
    if t.fp32_grads:
        return {}, {}
    kept = [n for n in t.saved if t.stage > 1 or n not in t.frozen]
    exact = t.exact()
    return by_deepspeed(t.source), {n: exact[n].float() if n in t.buffers and exact[n].is_floating_point() else exact[n]
                                    for n in kept}


def comparable(value):
    """Without what no loader reads and what can be wrong."""
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items() if k != "param_slice_mappings"}
    if isinstance(value, LossScaler):
        return {"class": type(value).__name__, **vars(value)}
    if torch.is_tensor(value):
        return value.detach()
    return [comparable(v) for v in value] if isinstance(value, list) else value


def tag_files(folder):
    return {p.name: comparable(load(p)) for p in folder.glob("*_states.pt")}


def views_of_engine(t):
    by_number, by_name = (random_truth.optimizer(t, named) for named in (False, True))
    exact = {n: x for n, x in t.exact().items() if n in t.saved}
    t.model = {n: t.model[n] for n in t.saved}
    return {
        **random_truth.of_weights(t, exact=exact, rounded=t.stage == 3),
        "full": Shown(in_files(model="pytorch_model.bin", optimizer="optimizer.bin"),
                      {"model": exact, "optimizer": by_number}),
        "full-fsdp": Shown(in_files(model="pytorch_model_fsdp.bin", optimizer="optimizer.bin"),
                           {"model": exact, "optimizer": by_name}),
        "dcp": Shown(random_truth.by_dcp, {"model": exact, "optimizer": by_name}),
        "universal": random_truth.of_universal(t),
        f"world-{t.other}": Shown(tag_files, {n: comparable(v) for n, v in files_of(t, t.other)})}

"""What a random checkpoint holds, from a seed: a model, which of its parameters are trained, what Adam keeps
of them. How a framework cuts and writes it is random_dcp.py's, random_ranks.py's and random_zero.py's."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

WIDE = [torch.float32, torch.bfloat16, torch.float16]
EVERY = [getattr(torch, name) for name in (
    "float64 float32 bfloat16 float16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz int64 int32 int16 int8 "
    "uint64 uint32 uint16 uint8 bool complex64").split()]
LAYERS = ["embed.weight", "layers.{}.attn.q_proj.weight", "layers.{}.attn.q_proj.bias", "layers.{}.mlp.experts",
          "layers.{}.norm.weight", "layers.{}.conv.kernel", "gain", "head.0", "a.b.c.d.e"]


def values(rng, shape, dtype):
    """Any bits, or numbers that a training might have."""
    seed = torch.Generator().manual_seed(rng.getrandbits(63))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=seed, dtype=torch.uint8).bool()
    if dtype in WIDE and rng.random() < 0.7:
        return torch.randn(shape, generator=seed).to(dtype)
    count = torch.Size(shape).numel() * dtype.itemsize
    return torch.randint(0, 256, (count,), generator=seed, dtype=torch.uint8).view(dtype).view(shape)


def shape(rng, dims=(0, 1, 1, 2, 2, 2, 3, 4)):
    n = rng.choice(dims)
    most = (1, 60, 13, 6, 4)[n]
    return tuple(0 if rng.random() < 0.04 else rng.randint(1, most) for _ in range(n))


@dataclass
class Truth:
    """model: every name of the state dict, in its order; an alias's tensor is its owner's. states: of each
    trained parameter that has been stepped. groups: the optimizer's, by parameters' names."""

    rng: random.Random
    source: Path  # where it is written
    where: str    # the same, below the source of a mount
    model: dict = field(default_factory=dict)
    trained: list = field(default_factory=list)
    frozen: list = field(default_factory=list)
    buffers: list = field(default_factory=list)
    aliases: dict = field(default_factory=dict)
    masters: dict = field(default_factory=dict)  # the optimizer's fp32 copies
    states: dict = field(default_factory=dict)
    groups: list = field(default_factory=list)
    step: int = 0
    is_adapter: bool = False
    as_saved: object = None  # (what the framework's own reader says of the files, what it should)

    def draw_model(self, of_parameter, of_buffer, dtype):
        """of_parameter, of_buffer: a random shape, by rng. dtype: of parameters, None = each its own."""
        rng = self.rng
        for i in range(rng.randint(1, 9)):
            name = rng.choice(LAYERS).format(i)
            if name in self.model:
                name = f"{name}_{i}"
            kind = rng.choice(["trained"] * 5 + ["frozen"] * 2 + ["buffer"] * 2)
            if kind == "buffer":
                self.model[name] = values(rng, of_buffer(rng), rng.choice(EVERY))
                self.buffers.append(name)
            else:
                self.model[name] = values(rng, of_parameter(rng), dtype or rng.choice(WIDE))
                (self.trained if kind == "trained" else self.frozen).append(name)
        if not self.trained:
            self.model["last.weight"] = values(rng, (rng.randint(2, 9), 3), dtype or torch.float32)
            self.trained.append("last.weight")
        owners = [n for n in self.trained if self.model[n].numel()]  # of nothing there is nothing to share
        if owners and rng.random() < 0.3:
            owner = rng.choice(owners)
            self.aliases["tied.weight"] = owner
            self.model["tied.weight"] = self.model[owner]

    def is_linear(self, name):
        return name.endswith(".weight") and self.model[name].dim() == 2 and name not in self.buffers

    def adapt(self):
        """The trained parameters are LoRA's, put on others that are frozen; nothing is tied. Needs a linear layer."""
        self.model.pop("tied.weight", None)
        self.is_adapter = any(map(self.is_linear, self.model))
        if not self.is_adapter:
            self.aliases = {}
            return
        before, frozen, buffers = self.model, set(self.frozen + self.trained), set(self.buffers)
        put = {n: n.removesuffix("weight") + "base_layer.weight" if self.is_linear(n) else n for n in before}
        self.model, self.aliases, self.trained = {}, {}, []
        for name, tensor in before.items():
            self.model[f"base_model.model.{put[name]}"] = tensor
            if put[name] != name:
                rows, columns = (max(n, 1) for n in tensor.shape)
                for part, size in (("A", (2, columns)), ("B", (rows, 2))):
                    new = f"base_model.model.{name.removesuffix('weight')}lora_{part}.default.weight"
                    self.model[new] = values(self.rng, size, tensor.dtype)
                    self.trained.append(new)
        self.frozen = [f"base_model.model.{put[n]}" for n in before if n in frozen]
        self.buffers = [f"base_model.model.{put[n]}" for n in before if n in buffers]

    def draw_optimizer(self, dtype_of, groups=3):
        """dtype_of(parameter's tensor) -> of its moments."""
        rng = self.rng
        self.step = rng.randint(1, 5000)
        n = rng.randint(1, min(groups, len(self.trained)))
        shuffled = rng.sample(self.trained, len(self.trained))
        for g in range(n):
            names = set(shuffled[g::n])
            self.groups.append({"lr": rng.random() / 100, "betas": (0.9, rng.choice([0.95, 0.999])), "eps": 1e-8,
                                "weight_decay": rng.choice([0.0, 0.01, 0.1]), "amsgrad": False, "maximize": False,
                                "foreach": None, "capturable": False, "differentiable": False, "fused": None,
                                "decoupled_weight_decay": True,
                                "params": [x for x in self.trained if x in names]})
        for name in self.trained:
            t = self.model[name]
            dtype = dtype_of(t)
            self.states[name] = {"step": torch.tensor(float(self.step)),
                                 "exp_avg": values(rng, tuple(t.shape), dtype),
                                 "exp_avg_sq": values(rng, tuple(t.shape), dtype)}

    def in_order(self):
        """Names by the optimizer's numbers."""
        return [n for g in self.groups for n in g["params"]]

    def exact(self):
        """The most exact that there is of each tensor of the model."""
        return {n: self.masters.get(self.aliases.get(n, n), t) for n, t in self.model.items()}

    def moments(self):
        return {f"{n} {k}": t for n, state in self.states.items() for k, t in state.items()}


def cast(tensors, dtype):
    return {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}


# -- read --

class Refused(str):
    """A view that is not there: a regular expression of the reason that is given."""


@dataclass
class Shown:
    """What a view holds: read(its path) -> values, which are compared with wanted. rounded: made by a
    conversion, in which a NaN need only stay a NaN."""

    read: object
    wanted: dict
    rounded: bool = False


def flat(value, prefix=""):
    """(path, leaf) of everything in nested containers; an empty one is a leaf."""
    if not torch.is_tensor(value) and isinstance(value, (dict, list, tuple)) and len(value):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(inner, f"{prefix}/{key}")
    else:
        yield prefix, value


def load(path):
    return torch.load(path, weights_only=False)


def in_file(name):
    """The reader of a directory's safetensors file."""
    return lambda folder: load_file(folder / name)


def in_files(**files):
    """The reader of torch and safetensors files of a directory, each under a name."""
    def read(folder):
        return {k: (load_file if n.endswith("safetensors") else load)(folder / n) for k, n in files.items()}
    return read


def by_dcp(folder):
    """As torch's dcp_to_torch_save reads."""
    state = {}
    _load_state_dict(state, storage_reader=FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(),
                     no_dist=True)
    return state


def file_bytes(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*"))
            if p.is_file() and ".unshard" not in p.parts}


def universal(folder):
    """As DeepSpeed's loader finds the states of each parameter."""
    zero = folder / (folder / "latest_universal").read_text() / "zero"
    state = load(zero / "optimizer_state.pt")
    out = {"lr": [g["lr"] for g in state["param_groups"]]}
    for place in zero.iterdir():
        if place.is_dir():
            held = {p.stem: load(p) for p in place.iterdir()}
            out[place.name] = {k: v["param"] if isinstance(v, dict) else float(v) for k, v in held.items()}
    return out


# -- wanted --

def of_adapter(t, tensors=None):
    """Under PEFT's own names."""
    return {n.replace(".default", ""): (tensors or t.model)[n] for n in t.trained}


def own_names(t, tensors):
    """Of a model with adapters what is the model's, as it is called without them."""
    if not t.is_adapter:
        return tensors
    return {n.removeprefix("base_model.model.").replace(".base_layer", ""): x for n, x in tensors.items()
            if n not in t.trained}


def of_weights(t, exact=None, rounded=False):
    """The views weights: the dtypes that were saved, and conversions of them. exact: what fp32 is made of, and
    all others too where the checkpoint holds nothing else (rounded). Of a model with adapters its own tensors, under
    their own names; what is trained is in the view adapter."""
    file, weights = "model.safetensors", own_names(t, t.model)
    views = {"adapter": Refused("holds no PEFT adapter"), "merged": Refused("holds no PEFT adapter")}
    if t.is_adapter:
        views = {"adapter": Shown(in_file("adapter_model.safetensors"), of_adapter(t), rounded),
                 "merged": Refused("cannot be merged")}
    if t.is_adapter and not any(n in t.model for n in t.frozen):
        file, weights = "adapter_model.safetensors", of_adapter(t)
    views["torch_dist"] = Refused("is no checkpoint of Megatron-Core")
    exact = weights if exact is None else own_names(t, exact) if file[0] == "m" else of_adapter(t, exact)
    views["weights"] = Shown(in_file(file), weights, rounded)
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        views[f"weights-{name}"] = Shown(in_file(file), cast(exact if rounded or name == "fp32" else weights, dtype),
                                         True)
    return views


def optimizer(t, by_name):
    """What torch.save(optimizer.state_dict()) holds; by_name: keyed as FSDP does."""
    number = {n: n if by_name else i for i, n in enumerate(t.in_order())}
    return {"state": {number[n]: t.states[n] for n in t.in_order() if n in t.states},
            "param_groups": [{**g, "params": [number[n] for n in g["params"]]} for g in t.groups]}


def of_universal(t, with_aliases=True):
    """Everything widened, under each name that the files tell to be the parameter's."""
    exact = t.exact()
    names = {**{n: n for n in t.trained}, **(t.aliases if with_aliases else {})}
    wanted = {"lr": [g["lr"] for g in t.groups],
              **{a: {"fp32": exact[o].float(), "exp_avg": t.states[o]["exp_avg"].float(),
                     "exp_avg_sq": t.states[o]["exp_avg_sq"].float(), "step": float(t.step)}
                 for a, o in names.items()}}
    return Shown(universal, wanted, rounded=True)

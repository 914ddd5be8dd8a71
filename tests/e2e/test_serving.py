"""vLLM and SGLang load checkpoints by unshard's own loaders: against copies of their interfaces here, and with --long in
the programs themselves, each in an environment of its own, on the CPU."""

import abc
import dataclasses
import inspect
import json
import logging
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import trees
from conftest import LONGEST_S, ROOT, launch, must_have_worked
from test_device import gpus  # noqa: F401
from environments import environment
from test_python import LIBRARY, checkpoint_of, unshard

import build_backend  # beside the package

# -- vLLM: a copy of the interface that vLLM 0.33.0 has. Facts of these files of it:
#   vllm/plugins/__init__.py                           the group "vllm.general_plugins"; a plugin may be loaded several times
#   vllm/config/load.py                                LoadConfig, a dataclass
#   vllm/model_executor/model_loader/__init__.py       register_model_loader, get_model_loader, get_model
#   vllm/model_executor/model_loader/base_loader.py    load_model makes the target device and the model's dtype torch's
#                                                      defaults meanwhile
#   vllm/model_executor/model_loader/default_loader.py DefaultModelLoader: its methods' signatures, its checks
#   vllm/model_executor/model_loader/reload/inplace.py reload_weights


class BaseModelLoader(abc.ABC):
    def __init__(self, load_config):
        self.load_config = load_config

    @abc.abstractmethod
    def download_model(self, model_config) -> None:
        raise NotImplementedError

    @abc.abstractmethod
    def load_weights(self, model, model_config) -> None:
        raise NotImplementedError

    def load_model(self, vllm_config, model_config, prefix=""):
        torch.set_default_dtype(model_config.dtype)
        try:
            with torch.device("meta"):  # vLLM: the target device
                model = vllm_config.model
                self.load_weights(model, model_config)
        finally:
            torch.set_default_dtype(torch.float32)
        return model.eval()


class DefaultModelLoader(BaseModelLoader):
    def __init__(self, load_config):
        super().__init__(load_config)
        self.local_expert_ids = None
        unexpected = set(load_config.model_loader_extra_config) - {"enable_multithread_load", "num_threads",
                                                                  "enable_weights_track"}
        if unexpected:
            raise ValueError(f"Unexpected extra config keys for load format {load_config.load_format}: {unexpected}")

    def _get_weights_iterator(self, source):
        assert self.load_config.load_format == "auto"
        yield source.prefix + "secondary", torch.ones(1)

    def get_all_weights(self, model_config, model):
        raise AssertionError("vLLM's own files")

    def download_model(self, model_config) -> None:
        raise AssertionError("vLLM's own files")

    def load_weights(self, model, model_config) -> None:
        self.local_expert_ids = getattr(model, "local_expert_ids", None)
        model.load_weights(self.get_all_weights(model_config, model))


@dataclasses.dataclass
class LoadConfig:
    load_format: str = "unshard"
    safetensors_load_strategy: str | None = None
    model_loader_extra_config: dict = dataclasses.field(default_factory=dict)
    device: str | None = "cpu"
    use_tqdm_on_load: bool = False


class Model:
    """What vLLM's models are for a loader: load_weights(weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]."""

    def __init__(self, **attributes):
        self.loaded = []
        vars(self).update(attributes)

    def load_weights(self, weights):
        self.loaded.extend(weights)
        return {name for name, _ in self.loaded}

    def eval(self):
        return self


@pytest.fixture
def vllm(monkeypatch):
    """-> load format -> loader"""
    registered = {}

    def register_model_loader(load_format: str):
        def wrapper(model_loader_cls):
            if not issubclass(model_loader_cls, BaseModelLoader):
                raise ValueError("The model loader must be a subclass of `BaseModelLoader`.")
            registered[load_format] = model_loader_cls
            return model_loader_cls
        return wrapper

    modules = {"vllm": {}, "vllm.model_executor": {},
               "vllm.model_executor.model_loader": {"register_model_loader": register_model_loader},
               "vllm.model_executor.model_loader.default_loader": {"DefaultModelLoader": DefaultModelLoader},
               "vllm.model_executor.model_loader.ep_weight_filter": {
                   "should_skip_weight": lambda name, ids: ".layers." in name and int(name.split(".")[2]) not in ids},
               "vllm.model_executor.model_loader.weight_utils": {"enable_tqdm": lambda use_tqdm_on_load: use_tqdm_on_load}}
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return registered


def loader_of(vllm, **config):
    from unshard.vllm import register
    register()
    register()
    return vllm["unshard"](LoadConfig(**config))


def of(checkpoint):
    return types.SimpleNamespace(model=str(checkpoint), dtype=torch.bfloat16)


CASE = ("t2", "untied-f1-bf16", "run/checkpoint-2")


@pytest.mark.parametrize("config,view", [({}, "weights"), ({"view": "weights-fp32"}, "weights-fp32"),
                                         ({"slices": True}, "weights")])
@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_vllm_gets_each_published_name_once(made, gpus, vllm, device, config, view):  # noqa: F811
    """deepseek_v3 and the like: vLLM's models know the names that save_pretrained writes."""
    checkpoint = checkpoint_of(made, *CASE)
    loader = loader_of(vllm, model_loader_extra_config=config, device="cpu" if config.get("slices") else device)
    loader.download_model(of(checkpoint))
    got = loader.load_model(vllm_config=types.SimpleNamespace(model=Model()), model_config=of(checkpoint)).loaded
    assert len(got) == len(dict(got))
    trees.assert_same({name: t.clone() for name, t in got}, unshard.load_file(checkpoint, view))
    if view == "weights":
        trees.assert_same({name: t.clone() for name, t in got}, trees.weights(checkpoint.parents[1] / "pretrained-2"))
    assert bool(gpus.copies()) == (device != "cpu" and not config.get("slices"))


def test_vllm_reloads_the_newest_and_another(made, vllm):
    """reload_weights makes a loader, sets model_config.model and asks get_all_weights, which it must have."""
    checkpoint = checkpoint_of(made, *CASE)
    model_config = of(checkpoint)
    for name in ("checkpoint-1", "latest", "checkpoint-2"):
        model_config.model = str(checkpoint.parent / name)
        want = unshard.load_file(checkpoint.parent / name.replace("latest", "checkpoint-2"))
        for slices in (False, True):
            got = loader_of(vllm, model_loader_extra_config={"slices": slices}).get_all_weights(model_config, Model())
            trees.assert_same({name: t.clone() for name, t in got}, want)


def test_vllm_gets_what_its_model_wants(made, vllm, caplog):
    """Experts of other ranks and what the model does not use are not read; a second model is vLLM's to read."""
    checkpoint = checkpoint_of(made, *CASE)
    want = unshard.load_file(checkpoint)
    model = Model(local_expert_ids={1, 2}, is_unused_checkpoint_weight=lambda name: name.endswith("norm.weight"),
                  secondary_weights=[types.SimpleNamespace(prefix="other.")])
    with caplog.at_level(logging.INFO, "unshard"):
        loader_of(vllm, model_loader_extra_config={"slices": True, "enable_weights_track": True}).load_weights(
            model, of(checkpoint))
    assert [name for name, _ in model.loaded] == [name for name in want if not name.endswith("norm.weight")
                                                  and ".layers.0." not in name] + ["other.secondary"]
    assert f": 0 of {sum(t.nbytes for t in want.values())} bytes were read" in caplog.text


def test_vllms_options(made, vllm, monkeypatch):
    checkpoint = checkpoint_of(made, *CASE)

    def kinds(**config):
        return {type(t).__name__ for _, t in loader_of(vllm, **config).get_all_weights(of(checkpoint), Model())}

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for ranks in (1, 2):
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda ranks=ranks: ranks)
        assert kinds() == {"Tensor" if ranks == 1 else "Sliced"}
        assert kinds(safetensors_load_strategy="lazy") == kinds(model_loader_extra_config={"slices": True}) == {"Sliced"}
        assert kinds(safetensors_load_strategy="eager") == kinds(model_loader_extra_config={"slices": False}) == {"Tensor"}
    with pytest.raises(ValueError, match="--load-format auto"):
        kinds(safetensors_load_strategy="torchao")
    with pytest.raises(TypeError, match="no_such_option"):
        kinds(model_loader_extra_config={"no_such_option": 1})


def test_vllm_shows_its_bar(made, vllm, capsys):
    list(loader_of(vllm, use_tqdm_on_load=True).get_all_weights(of(checkpoint_of(made, *CASE)), Model()))
    assert "Loading checkpoint shards by unshard: 100%" in capsys.readouterr().err


def test_the_loader_has_vllms_signatures(vllm):
    """What vLLM calls, by position and by name."""
    own = vars(type(loader_of(vllm)))
    taken_over = [name for name, f in vars(DefaultModelLoader).items() if inspect.isfunction(f) and name in own]
    assert set(taken_over) == {"__init__", "download_model", "get_all_weights"}
    for name in taken_over:
        theirs, ours = (list(inspect.signature(f).parameters.values()) for f in (vars(DefaultModelLoader)[name], own[name]))
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs]


def test_vllm_finds_the_loader():
    assert "[vllm.general_plugins]\nunshard = unshard.vllm:register\n" in build_backend.entry_points()


# -- SGLang: a copy of the interface that SGLang 0.5.23 has. Facts of these files of it, below sglang/srt:
#   plugins/__init__.py, plugins/hook_registry.py  the group "sglang.srt.plugins"; hooks are applied after all plugins ran
#   server_args.py, arg_groups/choices.py          add_load_format_choices, of a list that plugins extend
#   configs/load_config.py                         LoadConfig, a dataclass: _verify_load_format refuses other names
#   model_loader/loader.py                         DefaultModelLoader; get_model_loader makes a load_format that is a class
#   model_executor/model_runner_components/weight_updater.py  update_weights_from_disk: DefaultModelLoader and its subclasses,
#                                                  by _get_weights_iterator(Source.init_new(..)), without an extra config

@dataclasses.dataclass
class SglangConfig:
    load_format: object = "auto"
    model_loader_extra_config: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self._verify_load_format()

    def _verify_load_format(self):
        if isinstance(self.load_format, str) and self.load_format not in ("auto", "safetensors"):
            raise ValueError(f"{self.load_format!r} is not a valid LoadFormat")


@dataclasses.dataclass
class Source:
    model_or_path: str
    prefix: str = ""
    model_config: object = None


class SglangLoader:
    def __init__(self, load_config):
        self.load_config = load_config
        unexpected = set(load_config.model_loader_extra_config) - {"enable_multithread_load", "num_threads"}
        if unexpected:
            raise ValueError(f"Unexpected extra config keys for load format {load_config.load_format}: {unexpected}")

    def download_model(self, model_config) -> None:
        raise AssertionError("SGLang's own files")

    def _get_weights_iterator(self, source, *, resolved_source=None, startup_prefetch_started=False,
                              startup_prefetch_active=False):
        assert self.load_config.load_format == "auto"
        yield source.prefix + "secondary", torch.ones(1)

    def _get_all_weights(self, model_config, model):
        yield from self._get_weights_iterator(Source(model_config.model_path, model_config=model_config))
        for source in getattr(model, "secondary_weights", ()):
            yield from self._get_weights_iterator(source)


@pytest.fixture
def sglang(monkeypatch):
    """-> the names that --load-format may have"""
    choices, hooks = ["auto", "safetensors"], {}

    class HookRegistry:
        """AROUND hooks get the original first."""

        @staticmethod
        def register(target, hook, hook_type):
            assert hook_type == "around"
            hooks[target] = hook

    modules = {"sglang": {}, "sglang.srt": {}, "sglang.srt.plugins": {}, "sglang.srt.model_loader": {},
               "sglang.srt.plugins.hook_registry": {"HookRegistry": HookRegistry,
                                                    "HookType": types.SimpleNamespace(AROUND="around")},
               "sglang.srt.server_args": {"add_load_format_choices": choices.extend},
               "sglang.srt.model_loader.loader": {"DefaultModelLoader": SglangLoader}}
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    import unshard.sglang as ours
    ours.register()
    hook, original = hooks.pop("sglang.srt.configs.load_config.LoadConfig._verify_load_format"), SglangConfig._verify_load_format
    monkeypatch.setattr(SglangConfig, "_verify_load_format", lambda self: hook(original, self))
    assert not hooks
    yield choices
    ours.loader.cache_clear()


def test_sglang_loads_and_updates_from_disk(made, sglang):
    checkpoint = checkpoint_of(made, *CASE)
    assert "unshard" in sglang and SglangConfig("safetensors").load_format == "safetensors"
    with pytest.raises(ValueError, match="not a valid LoadFormat"):
        SglangConfig("other")
    for name, extra, view in (("checkpoint-1", {}, "weights"), ("latest", {"slices": True, "num_threads": 8}, "weights"),
                              ("checkpoint-2", {"view": "weights-fp32"}, "weights-fp32")):
        config = SglangConfig("unshard", extra)
        assert isinstance(config.load_format, type)  # which get_model_loader makes
        loader = config.load_format(config)
        assert isinstance(loader, SglangLoader)  # what update_weights_from_disk asks
        model_config = types.SimpleNamespace(model_path=str(checkpoint.parent / name))
        loader.download_model(model_config)
        got = list(loader._get_all_weights(model_config, types.SimpleNamespace(secondary_weights=[Source("x", "other.")])))
        assert got.pop()[0] == "other.secondary" and len(got) == len(dict(got))
        want = unshard.load_file(checkpoint.parent / name.replace("latest", "checkpoint-2"), view)
        trees.assert_same({name: t.clone() for name, t in got}, want)


def test_sglang_finds_the_loader():
    assert "[sglang.srt.plugins]\nunshard = unshard.sglang:register\n" in build_backend.entry_points()


# -- SGLang and vLLM themselves --

SERVING = Path(__file__).parent / "serving"


def as_installed(folder):
    """A directory for $PYTHONPATH in which the package is, with its entry points."""
    information = folder / "unshard-0.1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "unshard").symlink_to(ROOT / "python/unshard")
    for name, text in build_backend.information().items():
        (information / name).write_text(text)
    return folder


@pytest.mark.long
def test_sglang_itself_loads_and_updates(tmp_path):
    """What SGLang holds, and its logits, are equal to what it has from save_pretrained's directories
    (serving/sglang_loads.py)."""
    python = environment("sglang")
    launch("serving_source.py", 2, tmp_path, ["llama"])
    done = subprocess.run(
        [python, SERVING / "sglang_loads.py", tmp_path / "llama"], capture_output=True, text=True, timeout=LONGEST_S,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(as_installed(tmp_path / "installed")),
             "UNSHARD_LIBRARY": str(LIBRARY)})
    must_have_worked(done)
    assert done.stdout.splitlines()[-1] == "equal 8"


@pytest.mark.long
@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen2_5_vl"])
def test_vllm_loads_reloads_and_cuts(tmp_path, family):
    """What vLLM holds, and its logits, are equal to what it has from save_pretrained's directories
    (serving/vllm_loads.py). Each rank
    reads 1/N of what its layers cut and all of what they do not."""
    python = environment("vllm")
    launch("serving_source.py", 2, tmp_path, [family])
    paths = os.pathsep.join(map(str, (as_installed(tmp_path / "installed"), SERVING / "absent")))
    done = subprocess.run(
        [python, SERVING / "vllm_loads.py", tmp_path / family, tmp_path / "result.json"], capture_output=True, text=True,
        timeout=LONGEST_S, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths, "UNSHARD_LIBRARY": str(LIBRARY)})
    must_have_worked(done)
    found = json.loads((tmp_path / "result.json").read_text())
    weights = trees.weights(tmp_path / family / "native-1")
    every = sum(t.nbytes for t in weights.values())
    whole = sum(t.nbytes for name, t in weights.items() if is_whole(name))
    for key, ranks in found.items():
        size = int(key.split()[0])
        twice = sum(t.nbytes for name, t in weights.items() if "k_proj" in name or "v_proj" in name) if size == 8 else 0
        read = [rank["read"] for rank in ranks]
        assert len(ranks) == size and not any(rank["in_vain"] or rank["operations"] for rank in ranks)
        assert sum(read) == every + (size - 1) * whole + twice  # four heads of eight ranks
        assert max(read) - min(read) <= 6 * 64 * 2 * 2  # 250 rows of two tensors: the last ranks have padding
        if family == "mixtral":
            assert [shape[0] for shape in ranks[0]["experts"]] == [8 // size if "experts" in key else 8]


@pytest.mark.long
def test_the_script_for_a_gpu_runs_on_the_cpu(tmp_path):
    """As far as vLLM goes without a GPU; and it says so where values differ."""
    python = environment("vllm")
    launch("serving_source.py", 2, tmp_path, ["llama"])
    paths = os.pathsep.join(map(str, (as_installed(tmp_path / "installed"), SERVING / "absent")))

    def run(top, *arguments):
        return subprocess.run(
            [python, ROOT / "tests/bench/cuda/serving.py", top, "--device", "cpu", "--seconds", str(LONGEST_S), *arguments],
            capture_output=True, text=True, timeout=LONGEST_S,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths, "UNSHARD_LIBRARY": str(LIBRARY)})

    done = run(tmp_path)
    must_have_worked(done)
    told = [line for line in done.stdout.splitlines() if " llama" in line]
    assert told == ["ok      whole llama: 24 tensors", "ok      slices llama 2: 24 tensors in each of 2 ranks",
                    "ok      slices llama 4: 24 tensors in each of 4 ranks", "not run fp8 llama: it needs a GPU",
                    "ok      reloads llama: 9 reloads", "not run engine llama: it needs a GPU",
                    "not run engine llama graphs: it needs a GPU"]
    assert done.stdout.endswith("4 ok, 0 FAILED, 3 not run\n")
    swapped = tmp_path / "swapped/llama"
    swapped.mkdir(parents=True)
    for name, of in (("native-1", "native-2"), ("native-2", "native-1"), ("run", "run")):
        (swapped / name).symlink_to(tmp_path / "llama" / of)
    done = run(swapped.parent, "whole llama")
    assert done.returncode == 1 and "FAILED  whole llama: AssertionError: other values: ['" in done.stdout
    done = run(tmp_path, "whole lama")
    assert done.returncode == 2 and "no such case: whole lama; known: whole llama, " in done.stderr


def is_whole(name):
    """What each rank of vLLM has all of: norms, routers, the first layer of a vision model, biases that are added after a
    sum over the ranks."""
    return "norm" in name or name.endswith((".gate.weight", "ln_q.weight", "patch_embed.proj.weight", "attn.proj.bias",
                                            "down_proj.bias", "merger.mlp.2.bias"))

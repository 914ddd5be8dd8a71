"""Pipelines of diffusers: the models of a state are shown as components of the pipeline that has their names and shapes;
what cannot be decided is noted. programs/diffusers_pipeline.py has diffusers itself save and load."""

import json
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

import trees

UNET = {"conv_in.weight": (4, 3, 3, 3), "conv_in.bias": (4,), "up.weight": (8, 4)}
TEXT = {"embeddings.weight": (10, 4), "layers.0.weight": (4, 4)}
VAE = {"decoder.weight": (6, 2)}
INDEX = {"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.42.1", "requires_safety_checker": False,
         "safety_checker": [None, None], "scheduler": ["diffusers", "DDIMScheduler"],
         "text_encoder": ["transformers", "CLIPTextModel"], "unet": ["diffusers", "UNet2DConditionModel"],
         "vae": ["diffusers", "AutoencoderKL"]}
FILES = ["model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json", "text_encoder/model.safetensors",
         "unet/config.json", "unet/diffusion_pytorch_model.safetensors", "vae/config.json",
         "vae/diffusion_pytorch_model.safetensors"]


def model(shapes, seed):
    g = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=g) for name, shape in shapes.items()}


def pipeline(where, index=INDEX, **components):
    """As DiffusionPipeline.save_pretrained writes it."""
    for name, tensors in {"unet": model(UNET, 1), "text_encoder": model(TEXT, 2), "vae": model(VAE, 3), **components}.items():
        (where / name).mkdir(parents=True)
        (where / name / "config.json").write_text(json.dumps({"of": name}))
        stem = "diffusion_pytorch_model" if index.get(name, ["diffusers"])[0] == "diffusers" else "model"
        save_file(tensors, where / name / f"{stem}.safetensors")
    (where / "scheduler").mkdir()
    (where / "scheduler/scheduler_config.json").write_text("{}")
    (where / "model_index.json").write_text(json.dumps(index))
    return where


def state(where, *models):
    """A state of Accelerate's as scripts of diffusers name it."""
    for k, tensors in enumerate(models):
        dcp.save({"model": tensors}, checkpoint_id=where / f"pytorch_model_fsdp_{k}", no_dist=True)
    torch.save({"step": 1}, where / "random_states_0.pkl")
    return where


def saved_by_hook(where, tensors):
    where.mkdir()
    (where / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel", "decay": 0.999}))
    save_file(tensors, where / "diffusion_pytorch_model.safetensors")


def problems(shown):
    return (shown / ".unshard/problems.txt").read_text()


@pytest.mark.parametrize("where", ["run", "option"])
def test_each_model_is_in_its_component(mount, command, tmp_path, where):
    unet, text, run = model(UNET, 11), model(TEXT, 12), tmp_path / "run"
    base = pipeline(run if where == "run" else tmp_path / "base")
    state(run / "checkpoint-4", unet, text)
    shown = mount(run, *(() if where == "run" else (f"model={base}",))) / "weights/checkpoint-4"
    assert trees.listing(shown) == FILES
    trees.assert_same(load_file(shown / "unet/diffusion_pytorch_model.safetensors"), unet)
    trees.assert_same(load_file(shown / "text_encoder/model.safetensors"), text)
    for name in set(FILES) - {"unet/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"}:
        assert (shown / name).read_bytes() == (base / name).read_bytes(), name
    option = () if where == "run" else ("-o", f"model={base}")
    assert "diffusers.DiffusionPipeline.from_pretrained" in command("show", run / "checkpoint-4", *option).stdout
    told = command("check", run / "checkpoint-4", *option)
    assert "0 problems, 1 note" in told.stdout and "further model" in told.stdout


def test_the_models_may_be_in_any_order_and_in_several_files(mount, tmp_path):
    unet, text, base = model(UNET, 11), model(TEXT, 12), pipeline(tmp_path / "base")
    state(tmp_path / "run/checkpoint-4", text, unet)
    shown = mount(tmp_path / "run", f"model={base}", "max_shard_size=300")
    index = json.loads((shown / "weights/checkpoint-4/unet/diffusion_pytorch_model.safetensors.index.json").read_text())
    got = {}
    for name in sorted(set(index["weight_map"].values())):
        got |= load_file(shown / "weights/checkpoint-4/unet" / name)
    trees.assert_same(got, unet)
    cast = load_file(shown / "weights-bf16/checkpoint-4/text_encoder/model.safetensors")
    trees.assert_same(cast, {n: t.bfloat16() for n, t in text.items()})
    assert trees.listing(shown / "full/checkpoint-4") == ["pytorch_model.bin", "pytorch_model_1.bin", "random_states_0.pkl"]


def test_no_other_weights_of_a_trained_component_are_shown(mount, tmp_path):
    """from_pretrained(variant="fp16") would load the pipeline's own. Those of other components are."""
    base = pipeline(tmp_path / "base")
    save_file(model(UNET, 1), base / "unet/diffusion_pytorch_model.fp16.safetensors")
    torch.save(model(UNET, 1), base / "unet/diffusion_pytorch_model.bin")
    (base / "unet/diffusion_pytorch_model.safetensors.index.fp16.json").write_text("{}")
    save_file(model(VAE, 3), base / "vae/diffusion_pytorch_model.fp16.safetensors")
    state(tmp_path / "run/checkpoint-4", model(UNET, 11))
    shown = trees.listing(mount(tmp_path / "run", f"model={base}") / "weights/checkpoint-4")
    assert shown == sorted([*FILES, "vae/diffusion_pytorch_model.fp16.safetensors"])


def test_two_components_of_the_same_shapes_are_not_guessed(mount, command, tmp_path):
    index = {**INDEX, "text_encoder_2": ["transformers", "CLIPTextModel"]}
    base, text, run = pipeline(tmp_path / "base", index, text_encoder_2=model(TEXT, 4)), model(TEXT, 12), tmp_path / "run"
    state(run / "checkpoint-4", text)
    shown = mount(run, f"model={base}") / "weights/checkpoint-4"
    assert trees.listing(shown) == ["model.safetensors"]
    assert "has the names and shapes of text_encoder and of text_encoder_2" in problems(shown)
    assert "components=" in problems(shown)
    found = json.loads(command("check", run, "--json", "-o", f"model={base}").stdout)["findings"]
    assert "pipeline_undecided" in [f["id"] for f in found]
    command("meta", "set", run, "components=text_encoder_2")
    shown = mount(run, f"model={base}") / "weights/checkpoint-4"
    trees.assert_same(load_file(shown / "text_encoder_2/model.safetensors"), text)
    trees.assert_same(load_file(shown / "text_encoder/model.safetensors"), model(TEXT, 2))
    command("meta", "unset", run, "components")


def test_two_models_of_the_same_shapes_are_not_guessed(mount, command, tmp_path):
    """A student and its teacher."""
    base, models, run = pipeline(tmp_path / "base"), [model(UNET, 11), model(UNET, 12)], tmp_path / "run"
    state(run / "checkpoint-4", *models)
    shown = mount(run, f"model={base}") / "weights/checkpoint-4"
    assert trees.listing(shown) == ["model.safetensors", "model_1/model.safetensors"]
    assert "the first model and model 1 both have the names and shapes of unet" in problems(shown)
    command("meta", "set", run, "components=-,unet")
    shown = mount(run, f"model={base}") / "weights/checkpoint-4"
    trees.assert_same(load_file(shown / "unet/diffusion_pytorch_model.safetensors"), models[1])
    trees.assert_same(load_file(shown / "model.safetensors"), models[0])
    command("meta", "unset", run, "components")


@pytest.mark.parametrize("given", ["vae", "unet,unet", "nothing"])
def test_a_fact_that_the_files_disprove_is_told(mount, command, tmp_path, given):
    base, run = pipeline(tmp_path / "base"), tmp_path / "run"
    state(run / "checkpoint-4", model(UNET, 11))
    command("meta", "set", run, f"components={given}")
    shown = mount(run, f"model={base}") / "weights/checkpoint-4"
    assert trees.listing(shown) == ["model.safetensors"]
    assert f"the fact components={given}" in problems(shown)
    command("meta", "unset", run, "components")


def test_a_pipeline_without_weights_needs_the_fact(mount, command, tmp_path):
    base, unet, run = pipeline(tmp_path / "base"), model(UNET, 11), tmp_path / "run"
    (base / "unet/diffusion_pytorch_model.safetensors").unlink()
    state(run / "checkpoint-4", unet)
    shown = mount(run, f"model={base}") / "weights/checkpoint-4"
    assert "no component's safetensors files have the names and shapes" in problems(shown)
    command("meta", "set", run, "components=unet")
    shown = mount(run, f"model={base}") / "weights/checkpoint-4"
    assert trees.listing(shown) == FILES
    trees.assert_same(load_file(shown / "unet/diffusion_pytorch_model.safetensors"), unet)
    command("meta", "unset", run, "components")


@pytest.mark.parametrize("change", [{"up.weight": (4, 8)}, {"up.weight": None}, {"further.weight": (2,)}])
def test_a_model_of_other_names_or_shapes_is_none_of_the_components(mount, tmp_path, change):
    shapes = {n: s for n, s in {**UNET, **change}.items() if s}
    state(tmp_path / "run/checkpoint-4", model(shapes, 11))
    shown = mount(tmp_path / "run", f"model={pipeline(tmp_path / 'base')}") / "weights/checkpoint-4"
    assert trees.listing(shown) == ["model.safetensors"]
    assert "no component's safetensors files have the names and shapes" in problems(shown)


def test_a_model_that_is_no_component_keeps_its_place(mount, tmp_path):
    """A discriminator beside the UNet."""
    other = model({"head.weight": (3, 3)}, 12)
    state(tmp_path / "run/checkpoint-4", model(UNET, 11), other)
    shown = mount(tmp_path / "run", f"model={pipeline(tmp_path / 'base')}") / "weights/checkpoint-4"
    assert trees.listing(shown) == sorted([*FILES, "model_1/model.safetensors"])
    trees.assert_same(load_file(shown / "model_1/model.safetensors"), other)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"_class_name": "P", "../unet": ["diffusers", "UNet2DModel"]}'])
def test_a_model_index_that_is_none_is_told(mount, tmp_path, text):
    base = pipeline(tmp_path / "base")
    (base / "model_index.json").write_text(text)
    state(tmp_path / "run/checkpoint-4", model(UNET, 11))
    shown = mount(tmp_path / "run", f"model={base}") / "weights/checkpoint-4"
    assert trees.listing(shown) == ["model.safetensors"]
    assert "not shown as the pipeline of diffusers" in problems(shown)


def test_damage_of_the_pipelines_own_files_proves_nothing(mount, tmp_path):
    base = pipeline(tmp_path / "base")
    (base / "unet/diffusion_pytorch_model.safetensors").write_bytes(b"\xff" * 40)
    state(tmp_path / "run/checkpoint-4", model(UNET, 11))
    shown = mount(tmp_path / "run", f"model={base}") / "weights/checkpoint-4"
    assert trees.listing(shown) == ["model.safetensors"]


def test_options_about_names_are_heeded(mount, tmp_path):
    unet = model(UNET, 11)
    state(tmp_path / "run/checkpoint-4", unet)
    shown = mount(tmp_path / "run", f"model={pipeline(tmp_path / 'base')}", "names=memory") / "weights/checkpoint-4"
    trees.assert_same(load_file(shown / "model.safetensors"), unet)


@pytest.mark.parametrize("name", ["unet_ema", "model_ema"])
def test_what_a_hook_saved_is_in_every_view(mount, tmp_path, name):
    """diffusers' EMAModel.save_pretrained, by a hook of save_state; a hook of load_state reads it again."""
    ema, checkpoint = model(UNET, 13), state(tmp_path / "run/checkpoint-4", model(UNET, 11))
    dcp.save({"optimizer": {"state": {}, "param_groups": {}}}, checkpoint_id=checkpoint / "optimizer_0", no_dist=True)
    saved_by_hook(checkpoint / name, ema)
    (checkpoint / "notes").mkdir()
    (checkpoint / "notes/config.json").write_text("{}")
    m = mount(tmp_path / "run")
    for view in ("weights", "weights-bf16", "full", "full-fsdp", "dcp"):
        shown = m / view / "checkpoint-4"
        if view == "full-fsdp" and not shown.exists():
            continue
        trees.assert_same(load_file(shown / name / "diffusion_pytorch_model.safetensors"), ema)
        assert (shown / name / "config.json").read_bytes() == (checkpoint / name / "config.json").read_bytes()
        assert not (shown / "notes").exists(), view


def test_an_accelerate_state_with_the_trainers_name_is_none_of_the_trainer(command, tmp_path):
    state(tmp_path / "run/checkpoint-4", model(UNET, 11))
    told = command("check", tmp_path / "run").stdout
    assert "0 problems" in told and "trainer_state" not in told
    shown = command("show", tmp_path / "run/checkpoint-4").stdout
    assert "Hugging Face Accelerate, FSDP" in shown and "step        4" in shown


def two_of_deepspeed(made, run):
    """What Accelerate saves of two models: the second in the tag pytorch_model_1, which `latest` names."""
    source = made("h2", "acc-z2-bf16") / "run"
    one = next(p for p in source.iterdir() if p.is_dir())
    shutil.copytree(one, run / "checkpoint-4")
    shutil.copytree(run / "checkpoint-4/pytorch_model", run / "checkpoint-4/pytorch_model_1")
    (run / "checkpoint-4/latest").write_text("pytorch_model_1")


def test_models_of_deepspeed_are_checkpoints_each(made, mount, command, tmp_path):
    run = tmp_path / "run"
    two_of_deepspeed(made, run)
    saved_by_hook(run / "checkpoint-4/unet_ema", model(UNET, 13))
    m = mount(run)
    want = trees.weights(mount(made("h2", "acc-z2-bf16") / "run") / "weights" /
                         next(p.name for p in (made("h2", "acc-z2-bf16") / "run").iterdir() if p.is_dir()))
    for tag in ("pytorch_model", "pytorch_model_1"):
        trees.assert_same(load_file(m / "weights/checkpoint-4" / tag / "model.safetensors"), want)
        assert (m / "world-4/checkpoint-4" / tag / "mp_rank_00_model_states.pt").exists()
    assert (m / "weights/checkpoint-4/unet_ema/diffusion_pytorch_model.safetensors").exists()
    assert "2 checkpoints: 0 problems" in command("check", run).stdout


def test_a_model_of_several_of_deepspeed_is_its_component_alone(made, mount, command, tmp_path):
    """A pipeline with the others untrained would look trained."""
    run = tmp_path / "run"
    two_of_deepspeed(made, run)
    want = load_file(mount(run) / "weights/checkpoint-4/pytorch_model_1/model.safetensors")
    base = pipeline(tmp_path / "base", unet={n: torch.zeros(t.shape) for n, t in want.items()})
    shown = mount(run, f"model={base}") / "weights/checkpoint-4/pytorch_model_1"
    assert trees.listing(shown) == ["config.json", "diffusion_pytorch_model.safetensors"]
    trees.assert_same(load_file(shown / "diffusion_pytorch_model.safetensors"), want)
    assert (shown / "config.json").read_bytes() == (base / "unet/config.json").read_bytes()
    told = command("show", run / "checkpoint-4/pytorch_model_1", "-o", f"model={base}").stdout
    assert "diffusers.AutoModel.from_pretrained" in told


def test_a_state_of_one_model_of_deepspeed_is_the_pipeline(made, mount, tmp_path):
    run = made("h2", "acc-z2-bf16") / "run"
    name = next(p.name for p in run.iterdir() if p.is_dir())
    want = load_file(mount(run) / "weights" / name / "model.safetensors")
    base = pipeline(tmp_path / "base", unet={n: torch.zeros(t.shape) for n, t in want.items()})
    shown = mount(run, f"model={base}") / "weights" / name
    assert trees.listing(shown) == FILES
    trees.assert_same(load_file(shown / "unet/diffusion_pytorch_model.safetensors"), want)

"""`weights` of further families of Megatron-Core (make/torch_dist_families.py): the bytes of save_pretrained, and the logits
of Megatron's own model. Which sources name their tensors is in docs/megatron-families.md."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import megatron_logits
import trees
from launches import MEGATRON_FAMILIES

STEP = "iter_0000002"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs/megatron-families.md"


@pytest.mark.long
@pytest.mark.parametrize("launch_name,case", MEGATRON_FAMILIES)
def test_a_config_makes_them_what_save_pretrained_wrote(made, mount, launch_name, case):
    folder = made(launch_name, case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    assert (shown / "model.safetensors").read_bytes() == (folder / "hf/model.safetensors").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("case", ["llama4_text-dp2", "phi3-dp2"])
def test_logits_are_those_of_megatrons_own_model(made, mount, case):
    folder = made("ma2", case)
    megatron_logits.assert_equal(folder, mount(folder / "run", f"model={folder}/hf") / "weights" / STEP)


@pytest.mark.long
@pytest.mark.parametrize("case", ["llama4-ep2-bf16", "internvl-tp2", "internvl-pp2-bf16"])
def test_transformers_loads_the_vision_model_too(made, mount, case):
    folder = made("ma2", case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    model, info = AutoModelForImageTextToText.from_pretrained(shown, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    trees.assert_same(model.state_dict(), AutoModelForImageTextToText.from_pretrained(folder / "hf").state_dict())


@pytest.mark.long
@pytest.mark.parametrize("case", ["llama4_text-dp2", "phi3-dp2", "internvl-tp2"])
def test_full_has_the_names_in_memory(made, mount, case):
    folder = made("ma2", case)
    shown = mount(folder / "run", f"model={folder}/hf") / "full-fsdp" / STEP / "pytorch_model_fsdp.bin"
    kind = AutoModelForImageTextToText if case.startswith("internvl") else AutoModelForCausalLM
    want = kind.from_pretrained(folder / "hf").state_dict()
    got = torch.load(shown, weights_only=True)
    trees.assert_same(got, want)
    assert list(got) == list(want)


@pytest.mark.parametrize("launch_name,case,model_type", [
    ("mc2", "deepseek_v3-tp2", "kimi_k2"), ("mc2", "qwen2-tp2", "mimo"),
    ("mt2", "deepseek_v3-mtp-pp2", "kimi_k2"), ("mt2", "deepseek_v3-mtp-pp2", "glm4_moe_lite")])
def test_families_with_the_names_of_another(made, mount, tmp_path, launch_name, case, model_type):
    folder = made(launch_name, case)
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"model_type": model_type}))
    shown = mount(run) / "weights" / STEP
    assert (shown / "model.safetensors").read_bytes() == (folder / "hf/model.safetensors").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("case,changes,said", [
    ("internvl-tp2", {"text_config": {"model_type": "gpt2"}},
     "unshard does not know Megatron's tensors of a language model of type gpt2 within internvl"),
    ("internvl-tp2", {"vision_config": {"image_size": [6, 4]}}, "vision_tower.embeddings.position_embeddings is not known"),
    ("internvl-tp2", {"downsample_ratio": 0.25}, "multi_modal_projector.layer_norm.weight has the shape [32]; by config.json"),
    ("internvl_chat-tp2", {"vision_config": {"qkv_bias": False}}, "vision_model.decoder.layers.self_attention.linear_qkv.bias is"),
    ("llama4-ep2-bf16", {"text_config": {"moe_layers": [1]}}, "is made from language_model.decoder.layers.0.mlp.linear_fc1"),
    ("llama4-ep2-bf16", {"vision_config": {"patch_size": 3}}, "positional_embedding_vlm has the shape [10, 8]; by config.json"),
])
def test_a_config_of_another_model_is_refused_by_the_tensors_name(made, mount, tmp_path, case, changes, said):
    folder = made("ma2", case)
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text())
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    (run / "config.json").write_text(json.dumps(config))
    assert said in (mount(run) / "weights" / STEP / "UNSHARD_PROBLEM.txt").read_text()


@pytest.mark.parametrize("model_type", re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.M))
def test_families_that_no_converter_names_keep_megatrons_names(made, mount, tmp_path, model_type):
    folder = made("mc2", "qwen2-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"model_type": model_type}))
    shown = mount(run) / "weights" / STEP
    assert "decoder.layers.mlp.linear_fc1.weight" in trees.weights(shown)
    assert f"unshard does not know the names that Hugging Face publishes for model type {model_type}" in (
        shown / ".unshard/problems.txt").read_text()

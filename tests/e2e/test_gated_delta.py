"""`weights` of Megatron-Core's models with gated delta nets (make/gated_delta.py): the bytes of save_pretrained, what
Megatron-Bridge exports, and the logits of Megatron's own model. No released version of Megatron-Bridge has a bridge for
Qwen3.5."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import megatron_logits
import trees
from conftest import launch
from launches import MEGATRON_DELTA, MEGATRON_DELTA_OF_4

STEP = "iter_0000002"
WITH_BRIDGE = [case for _, case in MEGATRON_DELTA if case.startswith("qwen3_next")]
# Bridge has no name for this norm as a module of its own; with Transformer Engine it is a part of the projection.
NOT_MAPPED = {"mtp.layers.0.input_layernorm.weight"}


@pytest.mark.parametrize("launch_name,case", [
    *MEGATRON_DELTA, *(pytest.param(*c, marks=pytest.mark.long) for c in MEGATRON_DELTA_OF_4)],
    ids=[case for _, case in MEGATRON_DELTA + MEGATRON_DELTA_OF_4])
def test_a_config_makes_them_what_save_pretrained_wrote(made, mount, launch_name, case):
    folder = made(launch_name, case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    assert (shown / "model.safetensors").read_bytes() == (folder / "hf/model.safetensors").read_bytes()
    problems = (shown / ".unshard/problems.txt").read_text()
    assert "1 was added to each element of 2 norms (linear_attn.norm), which Megatron keeps minus one" in problems
    has_mtp = any(n.startswith("mtp.") for n in trees.weights(shown))
    assert has_mtp == ("is published as mtp.layers.0 and mtp.fc" in problems)


def test_megatron_bridge_exports_the_same_bytes(made, mount, tmp_path):
    folder = made("md2", WITH_BRIDGE[0]).parent
    launch("megatron_bridge.py", 1, tmp_path, [folder, *WITH_BRIDGE])
    for case in WITH_BRIDGE:
        got = load_file(tmp_path / f"{case}.safetensors")
        want = trees.weights(mount(folder / case / "run", f"model={folder / case}/hf") / "weights" / STEP)
        assert want.keys() - got.keys() <= NOT_MAPPED, case
        rows = json.loads((folder / case / "hf/config.json").read_text())["vocab_size"]
        for name in ("model.embed_tokens.weight", "lm_head.weight"):  # Bridge exports the rows that pad them
            got[name] = got[name][:rows]
        trees.assert_same(got, {n: t for n, t in want.items() if n not in NOT_MAPPED})


@pytest.mark.parametrize("case", ["qwen3_next-dp2", "qwen3_5_text-dp2"])
def test_logits_are_those_of_megatrons_own_model(made, mount, case):
    folder = made("md2", case)
    megatron_logits.assert_equal(folder, mount(folder / "run", f"model={folder}/hf") / "weights" / STEP)


def test_a_cast_is_of_what_is_published_and_full_has_it_too(made, mount):
    folder = made("md2", "qwen3_next-dp2")
    m = mount(folder / "run", f"model={folder}/hf")
    want = {n: t.bfloat16() for n, t in trees.weights(folder / "hf").items()}
    trees.assert_same(trees.weights(m / "weights-bf16" / STEP), want)
    shown = torch.load(m / "full-fsdp" / STEP / "pytorch_model_fsdp.bin", weights_only=True)
    trees.assert_same(shown, AutoModelForCausalLM.from_pretrained(folder / "hf").state_dict())


@pytest.mark.parametrize("changes,said", [
    ({"layer_types": ["linear_attention"] * 4}, "is made from decoder.layers.1.self_attention.dt_bias"),
    ({"linear_key_head_dim": 8}, "self_attention.conv1d.weight.query has the shape [8, 1, 4]; by config.json it would"),
])
def test_a_config_of_another_model_is_refused_by_the_tensors_name(made, mount, tmp_path, changes, said):
    folder = made("md2", "qwen3_next-dp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text()) | changes
    (run / "config.json").write_text(json.dumps(config))
    assert said in (mount(run) / "weights" / STEP / "UNSHARD_PROBLEM.txt").read_text()

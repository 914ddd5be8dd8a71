"""LoRAs that Megatron-Bridge trained (make/megatron_loras.py) as the views merged and adapter, against Bridge's own merge in
fp64 and its own export of the adapter. Of DoRA, which Bridge does not merge: against what its layers compute."""

import json
import shutil
from pathlib import Path

import peft
import pytest
import torch
import torch.distributed.checkpoint as dcp
from transformers import AutoModelForCausalLM

import trees
from launches import LAUNCHES

STEP = "iter_0000002"


def checkpoint_of(case):
    """Below the run; NeMo 2's name is another."""
    return "model--step=2/weights" if case.startswith("nemo") else STEP


# What cannot be converted, by the tensor that is named, and the words of the reason.
REFUSED = {
    "dora-rows-tp2": ("decoder.layers.self_attention.linear_proj.adapter.linear_in.weight", "one tensor-parallel rank's columns"),
    "grouped-ep2": ("decoder.layers.mlp.experts.experts.linear_fc1.adapter.linear_in.weight", "were not saved"),
    "gpt_oss-experts-dp2": ("decoder.layers.mlp.experts.experts.linear_fc1.adapter.linear_in.weight", "of all experts"),
}
CASES = [c for c in LAUNCHES["ml2"][2] if c not in REFUSED]
# Families whose experts transformers puts together when it loads them: PEFT has no modules of single ones.
OF_EXPERTS = ("experts", "grouped")

# What make/megatron_loras.py made of this case: fused queries, keys and values, gate and up of two ranks, magnitudes.
GOLDEN = Path(__file__).parents[1] / "golden/megatron_lora/dora-tp2.tar.xz"


def loras(path):
    """Bridge's export of the adapter, under PEFT's names."""
    return {f"base_model.model.{n}": t for n, t in trees.tensors(path).items()}


def merged_compare(mount, folder):
    """The view, after its tensors were compared with the exact ones, rounded once."""
    step = checkpoint_of(folder.name)
    base, exact = trees.weights(folder / "hf"), trees.tensors(folder / "merged.safetensors")
    want = {n: trees.rounded(exact[n], t.dtype) for n, t in base.items()}
    assert sum(not torch.equal(want[n], t) for n, t in base.items()) >= 2
    shown = mount(folder / "run", f"model={folder}/hf") / "merged" / step
    trees.assert_same(trees.weights(shown), want)
    return shown


@pytest.fixture
def golden(tmp_path):
    shutil.unpack_archive(GOLDEN, tmp_path)
    return tmp_path / "dora-tp2"


def test_it_is_what_the_layers_compute_rounded_once(mount, golden):
    merged_compare(mount, golden)


def test_peft_s_names_of_megatron_s_modules_are_refused_by_name(mount, command, golden):
    """As ms-swift saves them without --save_safetensors: no model of transformers has such modules."""
    module = "decoder.layers.0.self_attention.linear_qkv"
    state = {f"{module}.lora_A.default.weight": torch.rand(4, 16), f"{module}.lora_B.default.weight": torch.rand(48, 4)}
    checkpoint = golden / "run" / STEP
    kept = {name: (checkpoint / name).read_bytes() for name in ("common.pt", "metadata.json")}
    shutil.rmtree(checkpoint)
    dcp.save(state, checkpoint_id=checkpoint, no_dist=True)
    for name, text in kept.items():
        (checkpoint / name).write_bytes(text)
    views = json.loads(command("show", checkpoint, "-o", f"model={golden}/hf,settle=0", "--json").stdout)["info"]["views"]
    for view in ("adapter", "merged"):
        assert views[view]["state"] == "none" and views[view]["why_id"] == "other_lora"
        assert f"{module}.lora_A.default.weight" in views[view]["why"] and "swift export" in views[view]["why"]
    trees.assert_same(trees.weights(mount(golden / "run") / "weights" / STEP), state)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_it_is_bridge_s_merge_rounded_once(made, mount, case):
    shown = merged_compare(mount, made("ml2", case))
    _, told = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
    assert not any(told[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_the_adapter_is_bridge_s_export_and_peft_merges_it(made, mount, case):
    folder = made("ml2", case)
    shown = mount(folder / "run", f"model={folder}/hf") / "adapter" / checkpoint_of(case)
    exported = loras(folder / "lora.safetensors")
    if exported:
        trees.assert_same(trees.tensors(shown / "adapter_model.safetensors"), exported)
    if case.startswith(OF_EXPERTS):
        return
    base = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float64)
    merged = peft.PeftModel.from_pretrained(base, shown, autocast_adapter_dtype=False).merge_and_unload()
    want = trees.tensors(folder / "merged.safetensors")
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(tensor, want[name], rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_exact_merge_is_refused_by_name(made, command, case):
    folder = made("ml2", case)
    views = json.loads(command("show", folder / "run" / STEP, "-o", f"model={folder}/hf", "--json").stdout)["info"]["views"]
    tensor, words = REFUSED[case]
    for view in ("adapter", "merged"):
        assert views[view]["state"] == "none" and views[view]["why_id"] == "other_lora"
        assert tensor in views[view]["why"] and words in views[view]["why"]

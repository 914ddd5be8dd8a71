"""Checkpoints of Megatron-FSDP (fsdp_dtensor), which make/megatron_fsdp.py saves with megatron-core's own functions. What
is resumed from them is in test_megatron_optimizer.py."""

import argparse
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from transformers import AutoModelForCausalLM

import trees
from launches import MEGATRON_FSDP, MEGATRON_FSDP_OF_4

STEP = "iter_0000002"
ALL = MEGATRON_FSDP + [pytest.param(*c, marks=pytest.mark.long) for c in MEGATRON_FSDP_OF_4]
LLAMA = "llama-tp2-fsdp"


@pytest.mark.parametrize("launch,case", ALL)
def test_weights_are_what_save_pretrained_writes(made, mount, tmp_path, launch, case):
    folder = made(launch, case)
    AutoModelForCausalLM.from_pretrained(folder / "live/param", dtype=torch.float32).save_pretrained(tmp_path / "want")
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    assert (shown / "model.safetensors").read_bytes() == (tmp_path / "want/model.safetensors").read_bytes()
    assert (shown / "config.json").read_bytes() == (folder / "hf/config.json").read_bytes()


@pytest.mark.parametrize("launch,case", ALL)
def test_ranks_hold_unequal_parts(made, launch, case):
    """Else the tests would not prove that such parts are read."""
    if "tp2-fsdp" in case:
        return  # each of the two ranks has a half
    chunks = [[tuple(c.sizes) for c in t.chunks] for t in dcp.FileSystemReader(made(launch, case) / "run" / STEP)
              .read_metadata().state_dict_metadata.values() if hasattr(t, "chunks")]
    assert [c for c in chunks if len(set(c)) > 1]


def test_what_it_is_is_said(made, command):
    folder = made("mf2", LLAMA)
    said = command("show", folder / "run" / STEP, "-o", f"model={folder}/hf").stdout
    assert "Megatron-FSDP checkpoint (fsdp_dtensor)" in said and "from_pretrained" in said
    assert "Megatron-Core does not save which parameters" not in said and "wrapper" not in said


def test_without_a_config_the_names_are_megatrons(made, mount):
    m = mount(made("mf2", "qwen3_moe-grouped-fsdp") / "run")
    names = trees.weights(m / "weights" / STEP)
    assert "decoder.layers.1.mlp.experts.experts.3.linear_fc1.weight_v" in names
    for view in ("full", "universal"):
        assert "config.json is missing" in (m / view / STEP / "UNSHARD_PROBLEM.txt").read_text()


def changed(folder, where, change):
    """The run as `change` leaves it, saved again by torch."""
    (where / "run").mkdir(parents=True)
    dcp_to_torch_save(folder / "run" / STEP, where / "all.pt")
    state = torch.load(where / "all.pt", weights_only=False)
    change(state)
    torch.save(state, where / "all.pt")
    torch_save_to_dcp(where / "all.pt", where / "run" / STEP)
    return where / "run"


OUTPUT = "module.module.module.output_layer.weight"
PROBLEMS = {
    "args": (lambda s: s.update(args=argparse.Namespace(num_attention_heads=1234)), ("weights", "full", "universal"),
             "but the model was trained with 1234 (num_attention_heads in its arguments)"),
    "tensor": (lambda s: s["model"].update({"module.decoder.layers.0.self_attention.in_proj.weight": torch.ones(2)}),
               ("weights", "full"), "decoder.layers.0.self_attention.in_proj.weight is a tensor that a model of type"),
    "layer": (lambda s: s["model"].pop("module.decoder.layers.1.mlp.linear_fc1.weight_v"), ("weights", "full"),
              "decoder.layers.1.mlp.linear_fc1.weight"),
    "decay": (lambda s: s["optimizer"]["param_to_group_meta"].update(
        {OUTPUT: s["optimizer"]["param_to_group_meta"]["module.module.module.decoder.final_layernorm.weight"]}),
        ("full", "universal"), "output_layer.weight is in a param group without weight decay"),
    "values": (lambda s: s["optimizer"]["param_to_group_meta"][OUTPUT].update(lr=0.5), ("full", "universal"),
               "its param groups differ in lr, and by Megatron-Core's rule they differ in weight decay alone"),
    "group": (lambda s: s["optimizer"]["param_to_group_meta"].update(
        {"module.module.module.other": s["optimizer"]["param_to_group_meta"][OUTPUT]}), ("full", "universal"),
        "other is in a param group with weight decay, and is no tensor"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_fits_no_rule_is_refused_by_name(made, mount, tmp_path, name):
    change, views, said = PROBLEMS[name]
    folder = made("mf2", LLAMA)
    m = mount(changed(folder, tmp_path / "changed", change), f"model={folder}/hf,settle=0")
    for view in views:
        shown = m / view / STEP
        assert said in (shown / "UNSHARD_PROBLEM.txt").read_text() and not (shown / "model.safetensors").exists(), view
    if "weights" not in views:
        assert (m / "weights" / STEP / "model.safetensors").exists()


def test_a_lost_shard_is_named(made, mount, tmp_path):
    folder = made("mf2", LLAMA)
    run = shutil.copytree(folder / "run", tmp_path / "run")
    (run / STEP / "__1_0.distcp").unlink()
    assert "__1_0.distcp" in (mount(run, f"model={folder}/hf,settle=0") / "weights" / STEP / "UNSHARD_PROBLEM.txt").read_text()

"""Experts that are transposed in published files: qwen3_vl_moe has [E, 2F, H] in memory and [E, H, 2F] on the Hub. What
transformers reads and writes is the oracle; of Megatron-Core's checkpoints, Megatron-Bridge's export is another
(test_megatron_bridge.py)."""

import json
import re
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText, Qwen3VLMoeForConditionalGeneration

import trees
from launches import cases
from test_megatron import STEP
from test_names import BY_TYPE, assert_files_equal, build, families, problems, saved_sharded
from test_python import unshard

EXPERTS = re.compile(r".*\.mlp\.experts\.(gate_up|down)_proj")
PREFIX = {"lightning-fsdp": "model."}  # of the names that a LightningModule has


def turned(tensors):
    return {n: t.transpose(1, 2).contiguous() if EXPERTS.fullmatch(n) else t for n, t in tensors.items()}


def on_the_hub(folder, where):
    """What save_pretrained wrote, with the experts as the Hub has them."""
    shutil.copytree(folder, where)
    save_file(turned(trees.weights(folder)), where / "model.safetensors", metadata={"format": "pt"})
    return where


@pytest.fixture
def pair(tmp_path):
    """A model, its checkpoint, what save_pretrained writes of it, and the same as on the Hub."""
    model = build("qwen3_vl_moe")
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "saved")
    on_the_hub(tmp_path / "saved", tmp_path / "hub")
    return model


def loaded(folder, **settings):
    return Qwen3VLMoeForConditionalGeneration.from_pretrained(folder, **settings).state_dict()


def shown_at(m, case):
    where = {"f2": "ckpt", "z1": "global_step2", "z3": "global_step2", "verl-f2": "global_step_2/actor",
             "lightning-fsdp": "step=2"}
    return m / "weights" / where[case], where[case]


@pytest.mark.parametrize("launch,case", cases("w2"))
def test_experts_of_every_framework_have_the_base_models_order(made, mount, launch, case):
    folder = made(launch, case)
    prefix = PREFIX.get(case, "")
    m = mount(folder / "run", f"model={folder.parent}/base" + (f",strip={prefix}" if prefix else ""))
    shown, ckpt = shown_at(m, case)
    base, got = trees.weights(folder.parent / "base"), trees.weights(shown)
    assert {n: t.shape for n, t in got.items()} == {n: t.shape for n, t in base.items()}
    live = {n.removeprefix(prefix): t for n, t in trees.tensors(folder / "live.safetensors").items()}
    trees.assert_same(got, turned(live))
    trees.assert_same(loaded(shown, dtype=live["lm_head.weight"].dtype), live)
    assert "4 tensors of experts are transposed, as in the base model" in problems(m, ckpt)


@pytest.mark.parametrize("case", ["z1", "z3"])
def test_the_fp32_copies_too(made, mount, case):
    folder = made("w2", case)
    states = trees.tensors(folder / "states.safetensors")
    want = turned({n.removesuffix("|fp32"): t for n, t in states.items() if n.endswith("|fp32")})
    m = mount(folder / "run", f"model={folder.parent}/base")
    trees.assert_same(trees.weights(m / "weights-fp32/global_step2"), want)


@pytest.mark.parametrize("options", ["", ",max_shard_size=3KB"], ids=["one", "several"])
def test_the_base_decides_between_two_orders(pair, mount, tmp_path, options):
    """Without a base model, and with one that transformers saved: what save_pretrained writes."""
    pair.save_pretrained(tmp_path / "split", max_shard_size="3KB")
    for base, folder in ((None, "saved"), ("saved", "saved"), ("split", "saved"), ("hub", "hub")):
        m = mount(tmp_path / "src", (f"model={tmp_path}/{base}" if base else "rng=keep") + options)
        got, want = trees.weights(m / "weights/ckpt"), trees.weights(tmp_path / folder)
        trees.assert_same(got, want)
        if not options:
            assert_files_equal(m / "weights/ckpt", tmp_path / folder)
        trees.assert_same(loaded(m / "weights/ckpt"), pair.state_dict())
        assert ("experts are transposed" in problems(m)) == (folder == "hub")


def test_what_is_in_memory_as_on_the_hub_stays_and_turns(pair, mount, tmp_path):
    """transformers 4.57 has the Hub's order in memory."""
    run = tmp_path / "old"
    dist_cp.save({"model": turned(pair.state_dict())}, checkpoint_id=run / "ckpt", no_dist=True)
    pair.config.save_pretrained(run)
    for base, folder in ((None, "hub"), ("hub", "hub"), ("saved", "saved")):
        m = mount(run, f"model={tmp_path}/{base}" if base else "rng=keep")
        assert_files_equal(m / "weights/ckpt", tmp_path / folder)
        trees.assert_same(loaded(m / "weights/ckpt"), pair.state_dict())


def split(folder, where):
    """The same in two files with an index; experts in both."""
    shutil.copytree(folder, where, ignore=shutil.ignore_patterns("model.safetensors"))
    held = trees.weights(folder)
    of = {n: f"model-0000{1 + (i % 2)}-of-00002.safetensors" for i, n in enumerate(sorted(held))}
    for file in set(of.values()):
        save_file({n: t for n, t in held.items() if of[n] == file}, where / file, metadata={"format": "pt"})
    (where / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": of}))
    return where


def test_a_base_of_several_files_and_of_none(pair, mount, tmp_path):
    base = split(tmp_path / "hub", tmp_path / "base")
    want = trees.weights(tmp_path / "hub")
    trees.assert_same(trees.weights(mount(tmp_path / "src", f"model={base}") / "weights/ckpt"), want)
    (base / "model-00002-of-00002.safetensors").unlink()
    m = mount(tmp_path / "src", f"model={base}")
    assert_files_equal(m / "weights/ckpt", tmp_path / "saved")
    assert "does not have the file with model.language_model.layers." in problems(m)
    assert "experts are shown as they were saved" in problems(m)


def test_a_damaged_base_is_named(pair, mount, tmp_path):
    base = split(tmp_path / "hub", tmp_path / "base")
    (base / "model-00002-of-00002.safetensors").write_bytes(b"\0" * 40)
    m = mount(tmp_path / "src", f"model={base}")
    assert_files_equal(m / "weights/ckpt", tmp_path / "saved")
    assert "the model directory cannot be used" in problems(m) and "model-00002-of" in problems(m)


def test_a_base_of_another_size_does_not_count(pair, mount, tmp_path):
    name, kind, config, settings = BY_TYPE["qwen3_vl_moe"]
    more = settings | {"text_config": settings["text_config"] | {"moe_intermediate_size": 6}}
    families.build((name, kind, config, more)).save_pretrained(tmp_path / "other")
    m = mount(tmp_path / "src", f"model={tmp_path}/other")
    assert_files_equal(m / "weights/ckpt", tmp_path / "saved")
    assert "the base model's shapes are not used" in problems(m)


def test_names_in_memory_are_in_memorys_order(pair, mount, tmp_path):
    m = mount(tmp_path / "src", f"names=memory,model={tmp_path}/hub")
    trees.assert_same(trees.weights(m / "weights/ckpt"), pair.state_dict())


def test_what_resumes_is_in_memorys_order(made, mount):
    folder = made("w2", "f2")
    live, m = trees.tensors(folder / "live.safetensors"), mount(folder / "run", f"model={folder.parent}/base")
    state = {n: torch.empty_like(t) for n, t in live.items()}
    dist_cp.load({"model": state}, no_dist=True, checkpoint_id=m / "dcp/ckpt")
    trees.assert_same(state, live)


def square():
    """gate_up_proj has as many rows as columns."""
    name, kind, config, settings = BY_TYPE["qwen3_vl_moe"]
    more = settings | {"text_config": settings["text_config"] | {"moe_intermediate_size": 4}}
    torch.manual_seed(3)
    return families.build((name, kind, config, more))


def test_a_square_matrix_is_refused_beside_a_transposed_base(mount, tmp_path, command):
    """transformers does not transpose it, and reads another model without a word; others transpose it."""
    model = square()
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "saved")
    hub = on_the_hub(tmp_path / "saved", tmp_path / "hub")
    gate = "model.language_model.layers.0.mlp.experts.gate_up_proj"
    assert not torch.equal(loaded(hub)[gate], model.state_dict()[gate])

    m = mount(tmp_path / "src", f"model={hub}")
    said = (m / "weights/ckpt/UNSHARD_PROBLEM.txt").read_text()
    assert f"{gate} has the shape [3, 8, 8]" in said and "names=memory" in said
    assert not (m / "weights/ckpt/model.safetensors").exists()
    for options in ("rng=keep", f"model={tmp_path}/saved", f"names=memory,model={hub}"):
        m = mount(tmp_path / "src", options)
        trees.assert_same(loaded(m / "weights/ckpt"), model.state_dict())


@pytest.mark.parametrize("launch,case", [("mc2", "qwen3_vl_moe-ep2"), ("mc2", "qwen3_vl_moe-one-by-one"),
                                         ("mv2", "qwen3_vl_moe-ep2-bf16")])
def test_megatrons_experts_have_the_base_models_order(made, mount, tmp_path, launch, case):
    folder = made(launch, case)
    hub = on_the_hub(folder / "hf", tmp_path / "hub")
    m = mount(folder / "run", f"model={hub}")
    assert_files_equal(m / "weights" / STEP, hub)
    got, want = (AutoModelForImageTextToText.from_pretrained(f, dtype="auto").state_dict()
                 for f in (m / "weights" / STEP, folder / "hf"))
    trees.assert_same(got, want)


def test_parts_are_read_as_tensors(made, mount):
    folder = made("w2", "z1")
    name = "model.language_model.layers.1.mlp.experts.gate_up_proj"
    want = turned(trees.tensors(folder / "live.safetensors"))[name]
    options = {"model": [str(folder.parent / "base")]}
    with unshard.safe_open(folder / "run/global_step2", **options) as f:
        assert torch.equal(f.get_slice(name)[1:4, 3:9, 2:5], want[1:4, 3:9, 2:5])

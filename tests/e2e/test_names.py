"""Published names: what weights/ holds against save_pretrained of the same state, for every family that
tests/names knows, and with a base model's own names."""

import json
import re
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
import transformers
from safetensors.torch import save_file
from transformers.conversion_mapping import get_model_conversion_mapping

import trees
from conftest import ROOT
from launches import RENAMED_FAMILIES

sys.path.insert(0, str(ROOT / "tests/names"))
import families  # noqa: E402

BY_TYPE = {family[0]: family for family in families.FAMILIES}


def build(name, dtype=torch.float32):
    torch.manual_seed(3)
    return families.build(BY_TYPE[name]).to(dtype)


def as_loaded(model):
    """The model, as if it had been loaded from published files: every conversion was used."""
    model._weight_conversions = get_model_conversion_mapping(model, add_legacy=False) or None
    return model


def saved_sharded(model, run):
    """A DCP checkpoint of the model in memory, with its config beside it."""
    dist_cp.save({"model": model.state_dict()}, checkpoint_id=run / "ckpt", no_dist=True)
    model.config.save_pretrained(run)


def assert_files_equal(shown, want):
    names = sorted(p.name for p in want.glob("model*"))
    assert sorted(p.name for p in shown.glob("model*")) == names
    for name in names:
        got, expected = (shown / name).read_bytes(), (want / name).read_bytes()
        if name.endswith(".json"):
            got, expected = json.loads(got), json.loads(expected)
            assert got["weight_map"] == expected["weight_map"]
            assert got["metadata"]["total_size"] == expected["metadata"]["total_size"]
        else:
            assert got == expected, name


def problems(m, ckpt="ckpt"):
    path = m / f"weights/{ckpt}/.unshard/problems.txt"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("name", BY_TYPE)
def test_weights_are_what_save_pretrained_writes(mount, tmp_path, name):
    model = as_loaded(build(name))
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "want")
    model.save_pretrained(tmp_path / "split", max_shard_size="3KB")
    assert_files_equal(mount(tmp_path / "src") / "weights/ckpt", tmp_path / "want")
    assert_files_equal(mount(tmp_path / "src", "max_shard_size=3KB") / "weights/ckpt",
                       tmp_path / "split")


@pytest.mark.parametrize("loaded", [False, True], ids=["new", "loaded"])
@pytest.mark.parametrize("name", BY_TYPE)
def test_what_a_trainer_saved_has_the_names_in_memory(mount, tmp_path, name, loaded):
    """A Trainer without FSDP saves by save_pretrained; view full gives each tensor of the model back."""
    model = build(name)
    (as_loaded(model) if loaded else model).save_pretrained(tmp_path / "run/checkpoint-2", max_shard_size="3KB")
    (tmp_path / "run/checkpoint-2/trainer_state.json").write_text(json.dumps({"global_step": 2, "max_steps": 4}))
    got = trees.weights(mount(tmp_path / "run") / "full/checkpoint-2")
    want = model.state_dict()
    assert not [n for n in want.keys() - got.keys() if n not in model.all_tied_weights_keys]
    trees.assert_same(got, {n: want[n] for n in got})


@pytest.mark.parametrize("name", ["mixtral", "llava", "qwen3_moe", "qwen2_5_vl", "gemma3",
                                  "deepseek_v3", "granitemoe", "qwen3_5_moe"])
def test_from_pretrained_takes_published_names(mount, tmp_path, name):
    model = as_loaded(build(name))
    saved_sharded(model, tmp_path / "src")
    shown = mount(tmp_path / "src") / "weights/ckpt"
    loaded, info = type(model).from_pretrained(shown, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    trees.assert_same(loaded.state_dict(), model.state_dict())


# What vLLM's build_expert_params_mapping asks for in its models of these families; those that are fused on the
# hub too, and those that are renamed alone, have loaders of their own.
@pytest.mark.parametrize("name", ["mixtral", "minimax_m2", "phimoe", "qwen2_moe", "qwen3_moe", "qwen3_next",
                                  "olmoe", "deepseek_v2", "deepseek_v3", "glm4_moe", "dots1", "ernie4_5_moe"])
def test_experts_have_names_that_vllm_maps(mount, tmp_path, name):
    saved_sharded(build(name), tmp_path / "src")
    shown = trees.weights(mount(tmp_path / "src") / "weights/ckpt")
    experts = [n for n in shown if ".experts." in n]
    mapped = re.compile(r"\.experts\.\d+\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight$")
    assert experts and not [n for n in experts if not mapped.search(n)]


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("launch,case", RENAMED_FAMILIES, ids=["-".join(c) for c in RENAMED_FAMILIES])
def test_trainer_checkpoints_have_the_names_of_the_base(made, mount, launch, case, step):
    """A model that was never loaded is saved under names of its own; as a base model it decides."""
    folder = made(launch, case)
    m = mount(folder / "run", f"model={folder}/pretrained-1")
    assert_files_equal(m / f"weights/checkpoint-{step}", folder / f"pretrained-{step}")
    assert "names of the base model" in problems(m, f"checkpoint-{step}")


@pytest.mark.parametrize("launch,case", RENAMED_FAMILIES, ids=["-".join(c) for c in RENAMED_FAMILIES])
def test_names_in_memory_where_they_are_asked_for(made, mount, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run", "names=memory")
    trees.assert_same(trees.weights(m / "weights/checkpoint-2"),
                      trees.tensors(folder / "live-2.safetensors"))
    assert "names=memory" in problems(m, "checkpoint-2")


@pytest.mark.parametrize("launch,case", RENAMED_FAMILIES, ids=["-".join(c) for c in RENAMED_FAMILIES])
def test_what_resumes_has_the_names_in_memory(made, mount, launch, case):
    folder = made(launch, case)
    live = trees.tensors(folder / "live-2.safetensors")
    m = mount(folder / "run")
    trees.assert_same(trees.weights(m / "full/checkpoint-2"), live)
    state = {n: torch.empty_like(t) for n, t in live.items()}
    dist_cp.load({"model": state}, no_dist=True,
                 checkpoint_id=m / "dcp/checkpoint-2/pytorch_model_fsdp_0")
    trees.assert_same(state, live)


@pytest.mark.parametrize("fused", [False, True], ids=["experts", "fused"])
def test_the_base_decides_between_two_layouts(mount, tmp_path, fused):
    """qwen3_5_moe is on the hub with fused experts, and save_pretrained takes them apart unless the base had them."""
    model = build("qwen3_5_moe")
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "base", save_original_format=not fused)
    m = mount(tmp_path / "src", f"model={tmp_path}/base")
    assert_files_equal(m / "weights/ckpt", tmp_path / "base")
    assert ("mlp.experts.gate_up_proj" in str(list(trees.weights(m / "weights/ckpt")))) == fused


def test_a_base_of_several_files(mount, tmp_path):
    model = build("llava")
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "base", max_shard_size="3KB")
    model.save_pretrained(tmp_path / "want")
    m = mount(tmp_path / "src", f"model={tmp_path}/base")
    assert_files_equal(m / "weights/ckpt", tmp_path / "want")


def test_what_the_base_has_more_is_told(mount, tmp_path):
    model = build("deepseek_v3")
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "base")
    held = trees.weights(tmp_path / "base") | {"model.layers.3.eh_proj.weight": torch.zeros(2)}
    save_file(held, tmp_path / "base/model.safetensors", metadata={"format": "pt"})
    m = mount(tmp_path / "src", f"model={tmp_path}/base")
    assert "model.layers.3.eh_proj.weight" in problems(m)
    assert "model.layers.3.eh_proj.weight" not in trees.weights(m / "weights/ckpt")


def test_a_base_with_other_names_does_not_count(mount, tmp_path):
    model = as_loaded(build("mixtral"))
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "want")
    build("llama").save_pretrained(tmp_path / "base")
    m = mount(tmp_path / "src", f"model={tmp_path}/base")
    assert_files_equal(m / "weights/ckpt", tmp_path / "want")
    assert "its names are not used" in problems(m)


def test_names_that_are_published_stay(mount, tmp_path):
    """transformers 4 holds in memory what it publishes: the names found decide, no version."""
    model = as_loaded(build("qwen3_moe"))
    model.save_pretrained(tmp_path / "want")
    state = trees.weights(tmp_path / "want")
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    model.config.save_pretrained(tmp_path / "src")
    assert_files_equal(mount(tmp_path / "src") / "weights/ckpt", tmp_path / "want")


def test_a_published_directory_keeps_its_names(mount, tmp_path):
    """The hub's qwen3_5_moe has fused experts: an inference directory that has them too is published as it is."""
    model = build("qwen3_5_moe")
    model.save_pretrained(tmp_path / "src/base", save_original_format=False)
    want = {n: t.bfloat16() for n, t in trees.weights(tmp_path / "src/base").items()}
    assert "model.language_model.layers.0.mlp.experts.gate_up_proj" in want
    trees.assert_same(trees.weights(mount(tmp_path / "src") / "weights-bf16/base"), want)


def test_shards_of_safetensors_hold_names_in_memory(mount, tmp_path):
    """What torch's HuggingFaceStorageWriter leaves is no inference directory, though its files are safetensors."""
    model = as_loaded(build("qwen3_moe"))
    writer = dist_cp.HuggingFaceStorageWriter(path=str(tmp_path / "src/ckpt"), save_distributed=True)
    dist_cp.save(model.state_dict(), storage_writer=writer, no_dist=True)
    model.config.save_pretrained(tmp_path / "src/ckpt")
    model.save_pretrained(tmp_path / "want")
    assert_files_equal(mount(tmp_path / "src") / "weights/ckpt", tmp_path / "want")


def test_experts_that_cannot_be_cut_keep_their_names(mount, tmp_path):
    model = build("qwen3_moe")
    state = model.state_dict() | {"model.layers.0.mlp.experts.gate_up_proj": torch.zeros(3, 7, 8)}
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    model.config.save_pretrained(tmp_path / "src")
    m = mount(tmp_path / "src")
    trees.assert_same(trees.weights(m / "weights/ckpt"), state)
    assert "model.layers.0.mlp.experts.gate_up_proj" in problems(m)


@pytest.mark.parametrize("view,dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_casts_of_slices(mount, tmp_path, view, dtype):
    model = as_loaded(build("mixtral"))
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "want")
    want = {n: t.to(dtype) for n, t in trees.weights(tmp_path / "want").items()}
    trees.assert_same(trees.weights(mount(tmp_path / "src") / f"weights-{view}/ckpt"), want)


def test_strip_comes_before_names_are_published(mount, tmp_path):
    model = as_loaded(build("mixtral"))
    state = {f"net.{n}": t for n, t in model.state_dict().items()}
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    model.config.save_pretrained(tmp_path / "src")
    model.save_pretrained(tmp_path / "want")
    assert_files_equal(mount(tmp_path / "src", "strip=net.") / "weights/ckpt", tmp_path / "want")


def test_show_and_provenance_say_which_names(mount, tmp_path, command):
    saved_sharded(build("mixtral"), tmp_path / "src")
    m = mount(tmp_path / "src")
    said = f"transformers {transformers.__version__} publishes for model type mixtral"
    notes = json.loads((m / "weights/ckpt/.unshard/provenance.json").read_text())["notes"]
    assert [n for n in notes if said in n]
    assert said in command("show", tmp_path / "src/ckpt").stdout


@pytest.mark.long
@pytest.mark.parametrize("script", ["generate.py", "prefixes.py", "renames.py", "ties.py"])
def test_the_tables_are_of_the_installed_transformers(script):
    """Also: each published tensor is one contiguous slice, and the slices hold each element once."""
    done = subprocess.run([sys.executable, ROOT / "tests/names" / script, "--check"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]

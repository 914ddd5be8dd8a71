"""Megatron-Core's torch_dist directories (real ones: tests/golden/dcp/make_megatron.py), read as what they
are besides: DCP directories."""

import json
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader

import trees
from conftest import ROOT

NAME = "iter_0000010"


@pytest.fixture
def source(tmp_path):
    return shutil.copytree(ROOT / "tests/golden/dcp/megatron", tmp_path / "source")


def live(source):
    return trees.tensors(source / "live.safetensors")


def is_weight(name):
    return not name.startswith("optimizer.")


def test_weights_are_stacked_under_their_own_names(source, mount):
    want = {n: t for n, t in live(source).items() if is_weight(n)}
    assert want["decoder.layers.self_attention.linear_qkv.weight"].shape == (2, 12, 4)
    mounted = mount(source)
    trees.assert_same(trees.weights(mounted / "weights" / NAME), want)
    trees.assert_same(trees.weights(mounted / "weights-bf16" / NAME),
                      {n: t.bfloat16() for n, t in want.items()})


def test_dcp_is_passed_through_and_loads(source, mount):
    """Plain torch reads the metadata, all_local_plans and all, and every tensor out of it."""
    shown = mount(source) / "dcp" / NAME
    assert trees.listing(shown) == trees.listing(source / NAME)
    for name in trees.listing(shown):
        assert (shown / name).read_bytes() == (source / NAME / name).read_bytes(), name
    metadata = FileSystemReader(str(shown)).read_metadata()
    assert len(metadata.all_local_plans) == 2 and metadata.planner_data is None
    want = live(source)
    got = {n: torch.zeros_like(t) for n, t in want.items()}
    dcp.load(got, checkpoint_id=str(shown), no_dist=True)
    trees.assert_same(got, want)


def test_what_else_was_saved_is_listed(source, mount, command):
    info = json.loads((mount(source) / "weights" / NAME / ".unshard/info.json").read_text())
    assert info["framework"] == "Megatron-Core distributed checkpoint"
    assert info["step"] == 10 and info["world_size"] == 2 and info["finished"]
    assert [o["name"] for o in info["objects"]] == [
        "decoder.layers.self_attention.core_attention._extra_state/shard_0_2",
        "decoder.layers.self_attention.core_attention._extra_state/shard_1_2",
        "rng_state/shard_0.0_1.1"]
    assert "rng_state/shard_0.0_1.1" in command("show", source / NAME).stdout
    tensors = json.loads((mount(source) / "weights" / NAME / ".unshard/tensors.json").read_text())
    moments = {t["name"] for t in tensors if t["state"] == "exp_avg"}
    assert moments == {n.removeprefix("optimizer.state.exp_avg.") for n in live(source)
                       if not is_weight(n)}


def test_the_optimizer_is_not_taken_apart(source, mount, command):
    """Its param groups are Megatron's own: no damage, and no optimizer made up."""
    mounted = mount(source)
    for view in ("full", "full-fsdp", "universal"):
        assert not (mounted / view / NAME).exists()
    assert "keeps its optimizer's param groups in common.pt" in command("show", source / NAME).stdout
    assert " ok" in command("ls", source).stdout


def test_a_lost_shard_is_named(source, mount):
    (source / NAME / "__1_0.distcp").unlink()
    problem = mount(source) / "weights" / NAME / "UNSHARD_PROBLEM.txt"
    assert "__1_0.distcp" in problem.read_text()

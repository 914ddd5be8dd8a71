"""Models in which several names share one tensor, and not only lm_head: what weights/ shows against save_pretrained,
byte for byte, and what from_pretrained makes of it."""

import json
import sys

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from safetensors.torch import load_file

import conftest
import trees
from launches import TIED

sys.path.append(str(conftest.MAKE))
import tied_families  # noqa: E402


def build(name):
    torch.manual_seed(3)
    return tied_families.build(name)


def saved_sharded(model, run):
    """Both names of what is tied, as FSDP and torch.distributed.checkpoint save them, and config.json."""
    dist_cp.save({"model": model.state_dict()}, checkpoint_id=run / "ckpt", no_dist=True)
    model.config.save_pretrained(run)


def assert_loads(cls, shown, native):
    loaded, info = cls.from_pretrained(shown, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    trees.assert_same(loaded.state_dict(), cls.from_pretrained(native).state_dict())


@pytest.mark.parametrize("name", tied_families.FAMILIES)
def test_weights_are_what_save_pretrained_writes(mount, tmp_path, name):
    model = build(name)
    saved_sharded(model, tmp_path / "src")
    model.save_pretrained(tmp_path / "want")
    shown = mount(tmp_path / "src") / "weights/ckpt"
    assert trees.weights(shown).keys() == load_file(tmp_path / "want/model.safetensors").keys()
    assert (shown / "model.safetensors").read_bytes() == (tmp_path / "want/model.safetensors").read_bytes()
    assert_loads(type(model), shown, tmp_path / "want")


@pytest.mark.parametrize("launch,case", TIED)
def test_shards_of_two_ranks(made, mount, launch, case):
    folder = made(launch, case)
    shown = mount(folder / "run") / "weights/ckpt"
    assert (shown / "model.safetensors").read_bytes() == (folder / "native/model.safetensors").read_bytes()
    assert_loads(tied_families.FAMILIES[case.split("-")[0]][0], shown, folder / "native")


def test_what_was_trained_apart_is_kept(mount, tmp_path):
    """encoder.embed_tokens has other bytes than shared: it is no second name, and from_pretrained gets it."""
    model = build("t5")
    tensors = model.state_dict() | {"encoder.embed_tokens.weight": model.shared.weight.detach() + 1}
    dist_cp.save({"model": tensors}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    model.config.save_pretrained(tmp_path / "src")
    shown = mount(tmp_path / "src") / "weights/ckpt"
    got = trees.weights(shown)
    assert {n for n in got if "embed" in n or "shared" in n} == {"shared.weight", "encoder.embed_tokens.weight"}
    trees.assert_same(got, {n: tensors[n] for n in got})
    assert "encoder.embed_tokens.weight" in (shown / ".unshard/problems.txt").read_text()


def test_what_the_model_computes_is_left_out_with_a_note(mount, tmp_path):
    saved_sharded(build("marian_untied"), tmp_path / "src")
    notes = json.loads((mount(tmp_path / "src") / "weights/ckpt/.unshard/provenance.json").read_text())["notes"]
    assert sorted(n.split()[0] for n in notes if "the model computes it" in n) == [
        "model.decoder.embed_positions.weight", "model.encoder.embed_positions.weight"]

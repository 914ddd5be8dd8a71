"""Models that save_pretrained writes under other names than they have in memory, resumed: a Trainer loads by the names in
memory, so what it saved without FSDP it cannot load itself."""

import json

import pytest
import torch
from safetensors.torch import load_file

import conftest
import trees

CKPT = "checkpoint-2"
PLAIN = ["qwen3_moe", "mixtral", "llava"]
SHARDED = {"mixtral": ("t2", "mixtral-f2-fp32"), "llava": ("t2", "llava-f1-fp32")}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    out = tmp_path_factory.mktemp("renamed")
    conftest.launch("renamed_run.py", 0, out, [f"save:{family}" for family in PLAIN])
    return out


@pytest.mark.parametrize("family", PLAIN)
def test_what_a_trainer_saved_and_cannot_load(saved, mount, command, family):
    run = saved / family / "run"
    m = mount(run, "store=none")
    conftest.launch("renamed_run.py", 0, saved, [f"resume:{family}:{family}-native:{run / CKPT}",
                                                 f"resume:{family}:{family}-full:{m / 'full' / CKPT}"])
    want, native, full = (json.loads((saved / f"{name}.json").read_text())
                          for name in (family, f"{family}-native", f"{family}-full"))
    assert len(want) == 2 and full == want
    # What check says of the native resume is so. (A transformers that mends it needs neither.)
    assert native != want
    loaded = load_file(saved / f"{family}-native.safetensors")
    live = load_file(saved / f"{family}-full.safetensors")
    left = {n for n, t in live.items() if t.is_floating_point() and not torch.equal(loaded[n], t)}
    assert left
    notes = [p for p in json.loads(command("check", run / CKPT, "--json").stdout)["findings"]
             if p["id"] == "resume_leaves_new"]
    in_file = load_file(run / CKPT / "model.safetensors")
    assert [n["severity"] for n in notes] == ["note"] and notes[0]["tensor"] in in_file
    assert f" {len(in_file.keys() - live.keys())} " in notes[0]["text"]
    assert (m / "weights" / CKPT / "model.safetensors").read_bytes() == (run / CKPT / "model.safetensors").read_bytes()


@pytest.mark.parametrize("family", SHARDED)
def test_shards_are_resumed_in_one_process(saved, made, mount, family):
    folder = made(*SHARDED[family])
    m = mount(folder / "run", "store=none")
    conftest.launch("renamed_run.py", 0, saved, [f"resume:{family}:{family}-shards:{m / 'full' / CKPT}"])
    live = trees.tensors(folder / "live-2.safetensors")
    trees.assert_same(trees.tensors(saved / f"{family}-shards.safetensors"), live)


def test_an_expert_that_is_not_there(saved, mount, copied):
    """Nothing is put together of what is not whole: the files are as they were saved, and the view says why."""
    run = copied(saved / "qwen3_moe/run")
    path = run / CKPT / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.experts.3.up_proj.weight"]
    from safetensors.torch import save_file
    save_file(tensors, path, metadata={"format": "pt"})
    m = mount(run, "store=none")
    assert (m / "full" / CKPT / "model.safetensors").read_bytes() == path.read_bytes()
    assert "model.layers.1.mlp.experts." in (m / "full" / CKPT / ".unshard/problems.txt").read_text()


def test_what_an_older_version_saved_stays(saved, mount, copied):
    """Before transformers 5 a model's names in memory were those in its files."""
    run = copied(saved / "qwen3_moe/run")
    config = json.loads((run / CKPT / "config.json").read_text())
    config["transformers_version"] = "4.57.1"
    (run / CKPT / "config.json").write_text(json.dumps(config))
    m = mount(run, "store=none")
    assert (m / "full" / CKPT / "model.safetensors").read_bytes() == (run / CKPT / "model.safetensors").read_bytes()

"""Two models in one state of Accelerate's, with an optimizer each."""

import os
import sys

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import conftest
import trees
sys.path.insert(0, str(conftest.MAKE))
import models  # noqa: E402

CASES = ["f1-two", "f2-two"]


@pytest.mark.parametrize("case", CASES)
def test_weights_show_both(made, mount, case):
    folder = made("a2", case)
    m = mount(folder / "run", "max_shard_size=1KB")
    live = [trees.tensors(folder / f"live-{k}.safetensors") for k in (0, 1)]
    assert not torch.equal(live[0]["emb.weight"], live[1]["emb.weight"])
    for k, part in enumerate(("", "model_1")):
        trees.assert_same(trees.weights(m / "weights/state" / part), live[k])
        trees.assert_same(trees.weights(m / "weights-bf16/state" / part),
                          {n: t.bfloat16() if t.is_floating_point() else t for n, t in live[k].items()})


@pytest.mark.parametrize("case", CASES)
def test_full_fsdp_has_the_files_that_accelerate_would_have_saved(made, mount, tmp_path, case):
    folder = made("a2", case)
    shown = mount(folder / "run") / "full-fsdp/state"
    for k, end in enumerate(("", "_1")):
        trees.assert_same(torch.load(shown / f"pytorch_model_fsdp{end}.bin"),
                          trees.tensors(folder / f"live-{k}.safetensors"))
        dcp_to_torch_save(folder / f"run/state/optimizer_{k}", tmp_path / f"{k}.pt")
        want = torch.load(tmp_path / f"{k}.pt")["optimizer"]["state"]
        got = torch.load(shown / f"optimizer{end}.bin")["state"]
        assert got.keys() == want.keys()
        for name, states in want.items():
            assert all(torch.equal(got[name][s], t) for s, t in states.items()), name


@pytest.mark.parametrize("case", CASES)
def test_accelerate_loads_full_in_one_process(made, mount, case):
    folder = made("a2", case)
    shown = mount(folder / "run", "rng=hide") / "full/state"
    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True)
    pairs = []
    for _ in range(2):
        model = models.Odd()
        pairs.append(accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2)))
    accelerator.load_state(shown)
    AcceleratorState._reset_state(True)
    for k, (model, optimizer) in enumerate(pairs):
        trees.assert_same(model.state_dict(), trees.tensors(folder / f"live-{k}.safetensors"))
        assert {float(s["step"]) for s in optimizer.state_dict()["state"].values()} == {2.0 + k}


def test_show_says_where_each_is(made, command):
    shown = command("show", made("a2", "f2-two") / "run/state").stdout
    assert ("pytorch_model_fsdp_1 is a further model of this checkpoint: weights shows it in model_1/ or in a pipeline's "
            "component, full as pytorch_model_1.bin, full-fsdp as pytorch_model_fsdp_1.bin, dcp as it is") in shown


def test_damage_of_the_second_is_no_damage_of_the_first(made, mount, copied, command):
    state = copied(made("a2", "f2-two") / "run") / "state"
    os.truncate(state / "pytorch_model_fsdp_1/__1_0.distcp", 100)
    told = command("check", state, "-o", "settle=0", check=False)
    assert told.returncode == 1 and "pytorch_model_fsdp_1/__1_0.distcp" in told.stdout
    m = mount(state.parent)
    assert sorted(os.listdir(m / "weights/state")) == ["model.safetensors"]
    assert "model_1 is not shown" in (m / "weights/state/.unshard/problems.txt").read_text()
    assert "UNSHARD_PROBLEM.txt" in os.listdir(m / "full/state")

"""veRL's and EasyR1's per-rank files through the mount: every tensor is the live one, bit for bit."""

import json

import pytest
import torch

import trees
from damage import edit
from launches import RANKS

ACTOR = "run/global_step_2/actor"
# FSDP1's flat units say nothing of the parameters in them.
FLAT = [(n, c) for n, c in RANKS if c.startswith("verl-f1") and "orig" not in c]


@pytest.mark.parametrize("launch, case", RANKS)
def test_weights_are_the_live_ones(made, mount, launch, case):
    top = made(launch, case)
    shown = mount(top) / "weights" / ACTOR
    trees.assert_same(trees.weights(shown), trees.tensors(top / "live/model.safetensors"))


def moments(path):
    state = torch.load(path, weights_only=True)
    names = [n for g in state["param_groups"] for n in g["params"]]
    return names, {f"{n} {k}": t for n, s in state["state"].items() for k, t in s.items()}


@pytest.mark.parametrize("launch, case", [x for x in RANKS if x not in FLAT])
def test_the_optimizer_is_the_live_one(made, mount, launch, case):
    top = made(launch, case)
    live = trees.tensors(top / "live/optim.safetensors")
    mounted = mount(top)
    names, by_name = moments(mounted / "full-fsdp" / ACTOR / "optimizer.bin")
    trees.assert_same(by_name, live)
    numbers, by_number = moments(mounted / "full" / ACTOR / "optimizer.pt")
    assert numbers == list(range(len(names)))
    named = {f"{names[int(k.split()[0])]} {k.split()[1]}": t for k, t in by_number.items()}
    trees.assert_same(named, live)


@pytest.mark.parametrize("launch, case", RANKS)
def test_what_was_inferred_is_said(made, mount, launch, case):
    if (launch, case) in FLAT:
        return
    info = mount(made(launch, case)) / "full" / ACTOR / ".unshard/provenance.json"
    inferred = json.loads(info.read_text())["inferred"]
    assert bool(inferred) == case.startswith("verl")


@pytest.mark.parametrize("launch, case", FLAT)
def test_flat_units_are_refused_with_the_reason(made, mount, command, launch, case):
    top = made(launch, case)
    mounted = mount(top)
    assert not (mounted / "full" / ACTOR).exists()
    assert "FSDP1 (use_orig_params=False) stored" in command("show", top / ACTOR).stdout
    assert " ok" in command("ls", top).stdout


def test_equal_shapes_in_another_order_are_served_as_what_they_are(made, mount, copied):
    """Two parameters of equal shape cannot be told apart by shapes: numbers alone say whose a state is,
    and provenance says that they were followed."""
    top = copied(made("v3", "verl-f2"))

    def swap(state):
        s = state["state"]
        a, b = [i for i in s if s[i]["exp_avg"].shape == (10, 10)]
        s[a], s[b] = s[b], s[a]

    before = moments(mount(made("v3", "verl-f2")) / "full-fsdp" / ACTOR / "optimizer.bin")[1]
    for path in (top / ACTOR).glob("optim_*.pt"):
        edit(path, swap)
    after = moments(mount(top) / "full-fsdp" / ACTOR / "optimizer.bin")[1]
    changed = {k.split()[0] for k in before if not torch.equal(before[k], after[k])}
    assert len(changed) == 2


def test_trackers_say_when_a_save_has_ended(made, mount, copied, eventually):
    top = copied(made("v2", "easyr1-f2"))
    tracker = top / "run/checkpoint_tracker.json"
    last = tracker.read_text()
    tracker.unlink()
    fresh = top / ACTOR / "fresh"
    fresh.touch()
    full = mount(top, "settle=3600", changing=True) / "full" / ACTOR
    assert not full.exists()
    tracker.write_text(last)
    fresh.unlink()
    eventually(full.exists)

"""Optimizers other than Adam: what they keep is shown whole, and a view that cannot express it says so."""

import json

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import trees
from conftest import MAKE, launch
from launches import OPTIMIZERS, cases

CASES = [case for _, case in OPTIMIZERS]
LAUNCH_OF = {case: launch for launch, case in OPTIMIZERS}
ZERO = [case for case in CASES if case.startswith("z")]
PLAIN = {"dcp-adafactor": {"step", "RMS"}}  # states that are numbers


def where(case):
    return "run/global_step3" if case in ZERO else "run/ckpt"


def truth(folder):
    """{name: {state: tensor}} of the live optimizer; ZeRO's fp32 copies are none of it."""
    states = {}
    for key, tensor in trees.tensors(folder / "states.safetensors").items():
        name, state = key.split("|")
        if state != "fp32":
            states.setdefault(name, {})[state] = tensor
    return states


def assert_states(got, want):
    """Every tensor that was live; `step` is kept once a group by some, and is then shown with each parameter."""
    assert got.keys() >= want.keys()
    for name, states in want.items():
        assert got[name].keys() >= states.keys() - {"step"}, name
        for state, tensor in states.items():
            assert torch.equal(got[name][state].reshape(tensor.shape), tensor), (name, state)


@pytest.mark.parametrize("case", CASES)
def test_a_sound_checkpoint_is_sound(made, command, case):
    assert json.loads(command("check", made(LAUNCH_OF[case], case) / "run", "--json").stdout)["problems"] == 0


@pytest.mark.parametrize("case", CASES)
def test_weights_are_the_live_ones(made, mount, case):
    folder = made(LAUNCH_OF[case], case)
    trees.assert_same(trees.weights(mount(folder) / "weights" / where(case)), trees.tensors(folder / "live.safetensors"))


@pytest.mark.parametrize("case", CASES)
def test_full_has_all_states(made, mount, case):
    """By the names of full-fsdp, and by the numbers of one process's optimizer in the same order."""
    folder = made(LAUNCH_OF[case], case)
    m = mount(folder)
    named = torch.load(m / "full-fsdp" / where(case) / "optimizer.bin")
    assert_states(named["state"], truth(folder))
    numbered = torch.load(next((m / "full" / where(case)).glob("optimizer.*")))
    assert {k for s in named["state"].values() for k in s} >= PLAIN.get(case, set())
    names = [n for g in named["param_groups"] for n in g["params"]]
    assert_states({names[i]: s for i, s in numbered["state"].items()}, truth(folder))


@pytest.mark.parametrize("case", CASES)
def test_dcp_has_all_states(made, mount, tmp_path, case):
    folder = made(LAUNCH_OF[case], case)
    dcp_to_torch_save(mount(folder) / "dcp" / where(case), tmp_path / "one.pt")
    saved = torch.load(tmp_path / "one.pt")
    assert_states(saved["optimizer"].get("state", {}), truth(folder))
    assert saved["optimizer"]["param_groups"]


@pytest.mark.parametrize("case", CASES)
def test_universal_says_what_it_cannot_express(made, mount, command, case):
    folder = made(LAUNCH_OF[case], case)
    assert not (mount(folder) / "universal" / where(case)).exists()
    line = next(x for x in command("show", folder / where(case)).stdout.splitlines() if x.startswith("  universal "))
    assert "not available" in line
    assert any(why in line for why in ("exp_avg, exp_avg_sq and step only", "has no states yet",
                                       "step is not a tensor: this view can show no other states")), line


@pytest.mark.parametrize("case", ["dcp-sgd", "dcp-momentum", "z2-sgd", "z2-lion", "z3-sgd"])
def test_without_states_fsdp2_loads_no_full_state_dict(made, mount, command, case):
    folder = made(LAUNCH_OF[case], case)
    m = mount(folder)
    for view, has in (("full-fsdp", case.endswith("-sgd")), ("full", False)):
        assert ("FSDP2 cannot load it" in (m / view / where(case) / ".unshard/problems.txt").read_text()) == has
    assert command("show", folder / where(case)).stdout.count("FSDP2 cannot load it") == case.endswith("-sgd")


@pytest.mark.parametrize("case", ["z2-adafactor", "z3-adafactor"])
def test_a_number_of_each_rank_is_of_no_parameter(made, mount, command, case):
    """Adafactor's RMS under ZeRO is that of a rank's part."""
    folder = made(LAUNCH_OF[case], case)
    told = json.loads(command("check", folder / "run", "--json").stdout)["findings"]
    assert ("zero_state_of_ranks", "note") in [(f["id"], f["severity"]) for f in told]
    m = mount(folder)
    states = torch.load(m / "full-fsdp" / where(case) / "optimizer.bin")["state"]
    assert states and not any("RMS" in s for s in states.values())
    assert (m / "world-3" / where(case)).is_dir()
    assert not (m / "world-3" / where(case) / "UNSHARD_PROBLEM.txt").exists()


# What a script saves that passes optimizer.state_dict() itself to torch.distributed.checkpoint.
WHOLE = [case for _, case in cases("ro2") if not case.startswith("fsdp1")]


@pytest.mark.parametrize("case", WHOLE)
def test_an_optimizer_with_numbers_goes_on_from_full(made, mount, case, monkeypatch):
    """One process takes the step that the ranks took after they had saved: all bits are theirs."""
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(MAKE)
    raw = __import__("raw_optimizer")
    folder = made("ro2", case)
    full = mount(folder) / "full/run/ckpt"
    model = raw.Net()
    optimizer = raw.optimizer_of(case.split("-")[1], model)
    model.load_state_dict(trees.weights(full))
    optimizer.load_state_dict(torch.load(full / "optimizer.pt", weights_only=True))
    raw.one_step(model, optimizer, raw.batches(each=False)[-1])
    trees.assert_same({**model.state_dict(), **raw.held(optimizer)}, trees.tensors(folder / "live.safetensors"))


@pytest.mark.parametrize("case", WHOLE)
def test_numbers_are_in_no_view_of_names(made, mount, command, tmp_path, case):
    folder = made("ro2", case)
    told = json.loads(command("check", folder / "run", "--json").stdout)
    assert told["problems"] == 0 and not told["findings"]
    m = mount(folder)
    for view in ("full-fsdp", "universal"):
        assert not (m / view / "run/ckpt").exists()
        assert f"  {view:13}  not available: ckpt: the optimizer's parameters have numbers in place of names" in \
            command("show", folder / "run/ckpt").stdout
    dcp_to_torch_save(m / "dcp/run/ckpt", tmp_path / "one.pt")
    own, shown = torch.load(tmp_path / "one.pt"), torch.load(m / "full/run/ckpt/optimizer.pt")
    assert [g["params"] for g in shown["param_groups"]] == [g["params"] for g in own["optimizer"]["param_groups"]]


def test_parts_of_flat_parameters_are_no_optimizer(made, mount, command):
    """FSDP1's optimizer.state_dict() is each rank's part of flat parameters, and the save kept one rank's."""
    folder = made("ro2", "fsdp1-groups")
    told = json.loads(command("check", folder / "run", "--json").stdout)["findings"]
    assert [(f["id"], f["severity"]) for f in told] == [("numbered_state_unlike", "note")], told
    m = mount(folder)
    assert not (m / "full/run/ckpt").exists()
    assert (m / "weights/run/ckpt/model.safetensors").exists()


@pytest.mark.long
def test_a_trainer_goes_on(mount, command, tmp_path):
    """With Lion, SGD, SGD with momentum, amsgrad, Muon and a schedule-free AdamW, saved by FSDP2 on two ranks: from each
    view as FSDP2 itself does on one rank. A FULL_STATE_DICT of plain SGD, which has no states, torch 2.13 cannot load, whoever wrote it."""
    names = ["lion", "sgd", "momentum", "amsgrad", "muon", "schedulefree"]
    source, out = tmp_path / "source", tmp_path / "out"
    for folder in (source, out):
        folder.mkdir()
    launch("optimizers_trainer.py", 2, source, [f"sharded:{n}" for n in names])
    assert json.loads(command("check", source, "--json", "-o", "settle=0").stdout)["problems"] == 0
    m = mount(source)

    def losses(world, how, view):
        cases = [f"{how}:{n}:{view}/{n}/checkpoint-2" for n in names]
        launch("optimizers_trainer.py", world, out, cases)
        return {n: json.loads((out / f"{how}-{n}-{i}.json").read_text()) for i, n in enumerate(names)}

    native = losses(1, "sharded", source)
    assert all(len(x) == 2 for x in native.values()) and len({tuple(x) for x in native.values()}) == len(names)
    assert losses(1, "sharded", m / "dcp") == native
    assert losses(0, "plain", m / "full") == native
    full = losses(1, "full", m / "full-fsdp")
    assert {n: full[n] for n in names if n != "sgd"} == {n: native[n] for n in names if n != "sgd"}


@pytest.mark.long
def test_an_engine_goes_on(made, mount, tmp_path):
    """At ZeRO stages 2 and 3. Two ranks load from world-2 and hold what they load from the checkpoint itself, also after
    a step; three ranks load from world-3 and hold what the two held when they saved. Without Adagrad at stage 3, whose
    checkpoint DeepSpeed 0.19 does not load itself (its parameter groups have another size then)."""
    cases = [case for case in ZERO if case != "z3-adagrad"]

    def loaded(name, world, source):
        launch("optimizers.py", world, tmp_path / name, [f"{case}:{source(case)}" for case in cases])
        return tmp_path / name

    shown = {case: mount(made(LAUNCH_OF[case], case)) for case in cases}
    own = loaded("own", 2, lambda case: made(LAUNCH_OF[case], case) / where(case))
    two = loaded("two", 2, lambda case: shown[case] / "world-2" / where(case))
    three = loaded("three", 3, lambda case: shown[case] / "world-3" / where(case))
    for case in cases:
        for file in ("live.safetensors", "states.safetensors"):
            live = trees.tensors(made(LAUNCH_OF[case], case) / file)
            for after in ("loaded", ""):
                trees.assert_same(trees.tensors(two / case / after / file), trees.tensors(own / case / after / file))
            trees.assert_same(trees.tensors(three / case / "loaded" / file), live)
            assert any(not torch.equal(t, live[n]) for n, t in trees.tensors(three / case / file).items())

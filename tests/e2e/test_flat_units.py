"""FSDP1's flat units in veRL's optimizer files, which say nothing of the parameters in them: refused, or
named by torch's order of traversal when the user says so, or by a unit map from the training."""

import json
import os

import pytest
import torch

import trees
from launches import RANKS

ACTOR = "run/global_step_2/actor"
FLAT = [(n, c) for n, c in RANKS if c.startswith("verl-f1") and "orig" not in c]
ASSUME = "assume=fsdp-units"


def moments(folder):
    """name and state -> tensor, of the optimizer as one file; twice the same, by names and by numbers."""
    state = torch.load(folder("full-fsdp") / "optimizer.bin", weights_only=True)
    names = [n for g in state["param_groups"] for n in g["params"]]
    by_name = {f"{n} {k}": t for n, s in state["state"].items() for k, t in s.items()}
    numbered = torch.load(folder("full") / "optimizer.pt", weights_only=True)
    assert numbered["param_groups"][0]["params"] == list(range(len(names)))
    trees.assert_same({f"{names[n]} {k}": t for n, s in numbered["state"].items()
                       for k, t in s.items()}, by_name)
    return by_name


def through(mounted):
    return moments(lambda view: mounted / view / ACTOR)


def provenance(mounted):
    return json.loads((mounted / "full" / ACTOR / ".unshard/provenance.json").read_text())


def live(top):
    return trees.tensors(top / "live/optim.safetensors")


def swapped(units):
    """The same sizes and another order: what no size can tell."""
    root = units["units"][0]["params"]
    a, b = [i for i, p in enumerate(root) if p["shape"] == [13, 10]]
    root[a], root[b] = root[b], root[a]
    return {root[a]["name"]: root[b]["name"], root[b]["name"]: root[a]["name"]}


@pytest.mark.parametrize("launch, case", FLAT)
def test_assumed_units_are_the_live_ones(made, mount, launch, case):
    top = made(launch, case)
    mounted = mount(top, ASSUME)
    trees.assert_same(through(mounted), live(top))
    assert provenance(mounted)["flat_units"].startswith("assumed: ")
    assert len(set(provenance(mounted)["inferred"])) == 14
    assert "assumed" in (mounted / "full" / ACTOR / ".unshard/problems.txt").read_text()
    assert not (mount(top) / "full" / ACTOR).exists()


@pytest.mark.parametrize("launch, case", FLAT)
def test_an_imported_unit_map_names_them(made, mount, copied, command, launch, case):
    top = copied(made(launch, case))
    assert command("meta", "import", top / ACTOR, top / "units.json").stdout.startswith("1 fact ")
    mounted = mount(top)
    trees.assert_same(through(mounted), live(top))
    assert provenance(mounted)["flat_units"].startswith("imported: ")


def test_sizes_cannot_tell_equal_shapes_apart(made, mount, copied, command, tmp_path):
    """A unit map is obeyed to the letter, over what would be assumed; hence nothing is assumed unasked."""
    top = copied(made("v2", "verl-f1"))
    units = json.loads((top / "units.json").read_text())
    other = swapped(units)
    (tmp_path / "swapped.json").write_text(json.dumps(units))
    before = mount(top)
    assert not (before / "full" / ACTOR).exists()
    said = command("show", top / ACTOR).stdout
    assert "the model's 14 parameters in " in said
    assert "import a unit map (unshard meta import FILE), or mount with -o assume=fsdp-units" in said
    command("meta", "import", top / ACTOR, tmp_path / "swapped.json")
    want = live(top)
    changed = {f"{other.get(k.split()[0], k.split()[0])} {k.split()[1]}": t for k, t in want.items()}
    assert not torch.equal(changed["emb.weight exp_avg"], want["emb.weight exp_avg"])
    trees.assert_same(through(mount(top)), changed)
    trees.assert_same(through(mount(top, ASSUME)), changed)


def test_a_unit_map_belongs_to_the_files_it_was_imported_for(made, mount, copied, command, eventually):
    top = copied(made("v2", "verl-f1"))
    command("meta", "import", top / ACTOR, top / "units.json")
    mounted = mount(top, changing=True)
    assert (mounted / "full" / ACTOR).exists()
    os.utime(top / ACTOR / "optim_world_size_2_rank_1.pt")
    eventually(lambda: not (mounted / "full" / ACTOR).exists())
    assert "the unit map was imported when the checkpoint had other files" in \
        command("show", top / ACTOR).stdout
    command("meta", "unset", top / ACTOR, "fsdp_units")
    command("meta", "import", top / "run", top / "units.json")  # the run's: of all its checkpoints
    eventually((mounted / "full" / ACTOR).exists)
    trees.assert_same(through(mounted), live(top))


# what becomes of the unit map -> the sentence
REFUSED = {
    "another shape": (lambda u: u["units"][0]["params"][0].update(shape=[1, 9]),
                      "has shape [1, 9] in the unit map, but"),
    "another name": (lambda u: u["units"][0]["params"][0].update(name="two_rows"),
                     "has two_rows, which is not a parameter of the model"),
    "too few units": (lambda u: u["units"].pop(), "the number of units is 2 in the unit map, but 3 in the optimizer"),
    "units in another order": (lambda u: u["units"].reverse(),
                               "but the optimizer's unit has"),
    "another version": (lambda u: u.update(unshard_fsdp_units=2), "unshard_fsdp_units is not 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_unit_map_that_does_not_fit_is_not_taken(made, copied, command, tmp_path, name):
    change, sentence = REFUSED[name]
    top = copied(made("v2", "verl-f1"))
    units = json.loads((top / "units.json").read_text())
    change(units)
    (tmp_path / "units.json").write_text(json.dumps(units))
    done = command("meta", "import", top / ACTOR, tmp_path / "units.json", check=False)
    assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert command("meta", "list", top / ACTOR).stdout == ""


def test_a_unit_map_for_an_optimizer_that_needs_none_is_not_taken(made, copied, command):
    top = copied(made("v2", "verl-f2"))
    units = made("v2", "verl-f1") / "units.json"
    done = command("meta", "import", top / ACTOR, units, check=False)
    assert done.returncode == 2 and "has no flat units" in done.stderr


def test_a_unit_map_of_a_run_that_does_not_fit_is_told(made, mount, copied, command, tmp_path):
    top = copied(made("v2", "verl-f1"))
    units = json.loads((top / "units.json").read_text())
    units["units"][1]["params"].pop()
    (tmp_path / "units.json").write_text(json.dumps(units))
    command("meta", "import", top / "run", tmp_path / "units.json")
    mounted = mount(top)
    assert "no unit of the unit map has the model's parameter layers.0.bias" in \
        (mounted / "full" / ACTOR / "UNSHARD_PROBLEM.txt").read_text()
    trees.assert_same(trees.weights(mounted / "weights" / ACTOR),
                      trees.tensors(top / "live/model.safetensors"))


def test_only_what_is_known_can_be_assumed(made, command):
    done = command("ls", made("v2", "verl-f1"), "-o", "assume=luck", check=False)
    assert done.returncode and "assume=luck: expected fsdp-units" in done.stderr

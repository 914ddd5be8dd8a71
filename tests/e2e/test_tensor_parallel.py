"""DeepSpeed checkpoints of AutoTP, through the mount: what tensor parallelism cut is compared with what DeepSpeed's own
layers gather of the live model and its optimizer, bit for bit, and resumed at other numbers of ranks, with the losses that
the run itself went on with."""

import json
import os
import re
import shutil

import pytest
import torch

import conftest
import trees
from launches import LAUNCHES, MORE

os.environ["DS_ACCELERATOR"] = "cpu"
OFTEN_SAVED = LAUNCHES["tp4"][2]
CASES = [*OFTEN_SAVED, *MORE["tp4"]]
TAG = "global_step3"
UNREAD = r"\[(zero_map_version|zero_map_unknown|zero_slice_unmapped)\]"  # sound as far as unshard knows
STATES = ("fp32", "exp_avg", "exp_avg_sq")
TOOL = "z2-fp32-tp2"  # the case that DeepSpeed's own converter converts
# NAME: what loads it, the view, the case that was saved, the number of ranks. Equal losses are of fp32: of another cut, sums
# are the same but for their last bits.
LOADS = {
    "same-cut": ("z1-bf16-tp2", "universal", "z1-bf16-tp2", 4),
    "two-to-four": ("z2-fp32-tp4", "universal", "z2-fp32-tp2", 4),
    "four-to-two": ("z2-fp32-tp2", "universal", "z2-fp32-tp4", 4),
    "four-to-none": ("z2-fp32-tp1", "universal", "z2-fp32-tp4", 2),
    "world-z1": ("z1-bf16-tp2", "world-4", "z1-bf16-tp2", 4),
    "world-z3": ("z3-bf16-tp2", "world-4", "z3-bf16-tp2", 4),
    "world-z0": ("z0-bf16-tp2", "world-4", "z0-bf16-tp2", 4),
    "world-less": ("z2-fp32-tp2", "world-2", "z2-fp32-tp2", 2),
}
# What is loaded in every round: each view, the same cut, another and none. The rest, --long.
OFTEN = ("same-cut", "four-to-two", "four-to-none", "world-z3", "world-less")


def told(folder):
    """The sentence of a view that is refused."""
    assert os.listdir(folder) == ["UNSHARD_PROBLEM.txt"]
    return (folder / "UNSHARD_PROBLEM.txt").read_text().split("\n\n")[1]


@pytest.fixture(scope="module")
def runs(made, chosen, tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    for case in chosen(CASES, OFTEN_SAVED):
        shutil.copytree(made("tp4", case), base / case)
    return base


@pytest.fixture(scope="module")
def views(runs, tmp_path_factory):
    mnt = conftest.mounted(tmp_path_factory.mktemp("tp"), runs)
    yield mnt
    conftest.detach(mnt)


@pytest.fixture(scope="module")
def resumed(views, chosen, tmp_path_factory):
    """NAME/{states,live}.safetensors and info.json of each loading."""
    base = tmp_path_factory.mktemp("resumed")
    for world in (2, 4):
        conftest.launch("tensor_parallel.py", world, base, [
            f"load:{by}:{views}/{view}/{case}/run:{name}{':universal' * (view == 'universal')}"
            for name in chosen(LOADS, OFTEN) for by, view, case, ranks in [LOADS[name]] if ranks == world])
    return base


def universal_states(folder):
    """"NAME|STATE" -> tensor, of all names that trained parameters have."""
    return {f"{p.name}|{s}": torch.load(p / f"{s}.pt")["param"]
            for p in (folder / "zero").iterdir() if p.is_dir() for s in STATES}


def live_states(runs, case):
    """The tied head is there under both of its names."""
    held = trees.tensors(runs / case / "states.safetensors")
    return held | {f"head.weight|{s}": held[f"emb.weight|{s}"] for s in STATES}


@pytest.mark.parametrize("case", conftest.or_long(CASES, OFTEN_SAVED))
def test_what_was_cut_is_whole(runs, views, case):
    live = trees.tensors(runs / case / "live.safetensors")
    trees.assert_same(trees.weights(views / "weights" / case / "run" / TAG), live)
    held = live_states(runs, case)
    trees.assert_same(universal_states(views / "universal" / case / "run" / TAG / TAG), held)
    full = torch.load(views / "full" / case / "run" / TAG / "optimizer.bin", weights_only=True)
    shapes = sorted(tuple(s["exp_avg"].shape) for s in full["state"].values())
    assert shapes == sorted(tuple(t.shape) for k, t in held.items()
                            if k.endswith("|exp_avg") and not k.startswith("head."))


def test_deepspeeds_own_converter_makes_the_same(runs, views, tmp_path, mount):
    tag = tmp_path / "run" / TAG
    conftest.to_universal(runs / TOOL / "run" / TAG, tag)
    ours = universal_states(views / "universal" / TOOL / "run" / TAG / TAG)
    for name, want in ours.items():
        parameter, state = name.split("|")
        if not name.startswith("head."):
            found = torch.load(tag / "zero" / parameter / f"{state}.pt", weights_only=False)["param"]
            assert torch.equal(found, want), name
    m = mount(tmp_path / "run")
    trees.assert_same(trees.weights(m / "weights" / TAG), trees.tensors(runs / TOOL / "live.safetensors"))
    trees.assert_same(universal_states(m / "universal" / TAG / TAG), ours)


@pytest.mark.parametrize("name", conftest.or_long(LOADS, OFTEN))
def test_it_is_resumed(runs, resumed, name):
    by, _, case, _ = LOADS[name]
    live = {k: t for k, t in trees.tensors(runs / case / "live.safetensors").items() if k not in ("calls",)}
    got = trees.tensors(resumed / name / "live.safetensors")
    trees.assert_same({k: got[k] for k in live}, live)
    trees.assert_same(trees.tensors(resumed / name / "states.safetensors"),
                      trees.tensors(runs / case / "states.safetensors"))
    was, now = (json.loads((d / "info.json").read_text()) for d in (runs / case, resumed / name))
    assert now["global_steps"] == was["global_steps"] and now["lr"] == was["lr"]
    if by == case:
        assert now["losses"] == was["losses"]
    else:
        assert now["losses"] == pytest.approx(was["losses"], rel=1e-5)


def test_the_cut_stays_in_world_n(runs, views, command, tmp_path):
    assert not (views / "world-3" / TOOL / "run" / TAG).exists()
    done = command("export", runs / TOOL / "run" / TAG, tmp_path / "out", "--view", "world-3", check=False)
    assert done.returncode == 1
    assert (f"{TAG} was saved with tensor parallelism of 2 ranks, which stays in world-N: N must be a multiple of it, "
            "not 3") in done.stderr


# -- damage --

def maps_of(saved, name):
    return saved["universal_checkpoint_info"]["affine_map"]["params"][f"^{name}$".replace(".", r"\.")]


def rewritten(names, change):
    def rewrite(tag):
        import deepspeed  # noqa: F401: the files name its classes

        for name in names:
            saved = torch.load(tag / name, weights_only=False)
            change(saved)
            torch.save(saved, tag / name)
    return rewrite


MODELS = ("mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt")
SHARD = "zero_pp_rank_0_mp_rank_01_optim_states.pt"
UP, OUT = "blocks.0.up.weight", "blocks.0.out.weight"
MAP = "the map that says how tensor parallelism cut"


def lost(name):
    return lambda tag: (tag / name).unlink()


def without_pieces(saved):
    maps_of(saved, UP)["ranks"][1]["pieces"] = []


def without_a_rank(saved):
    del maps_of(saved, UP)["ranks"][1]


def too_large(saved):
    maps_of(saved, UP)["logical_shape"] = [18, 12]


def twice(saved):
    ranks = maps_of(saved, OUT)["ranks"]
    ranks[1]["pieces"][0]["source"] = ranks[0]["pieces"][0]["source"]


def scaled(saved):
    maps_of(saved, UP)["ranks"][0]["pieces"][0]["scale"] = 0.5


def of_version_2(saved):
    saved["universal_checkpoint_info"]["affine_map"]["version"] = 2


def unmapped(saved):
    del saved["universal_checkpoint_info"]["affine_map"]["params"][r"^blocks\.0\.up\.weight$"]


def another_slice(saved):
    saved["module"][UP] = saved["module"][UP][:-1].clone()


# What is done, what is said, and whether the weights are still served.
DAMAGE = {
    "no-model-file": (lost(MODELS[1]), "no model file was found (mp_rank_01_model_states.pt, or one for each rank): only a "
                      "model file records which parameters the optimizer's shards hold", False),
    "no-shard": (lost(SHARD), f"{SHARD} (data-parallel rank 0) is missing: expected the "
                 "optimizer's shards of 2 ranks, found 1", True),
    "no-pieces": (rewritten(MODELS, without_pieces), f"{MODELS[0]}: {MAP} {UP} does not cover rank 1's slice: expected 96 "
                  "elements, found 0", False),
    "no-rank": (rewritten(MODELS, without_a_rank), f"{MODELS[0]}: {MAP} {UP} does not cover rank 1's slice", False),
    "too-large": (rewritten(MODELS, too_large), f"{MODELS[0]}: {MAP} {UP} does not cover it: expected 216 elements, found 204",
                  False),
    "twice": (rewritten(MODELS, twice), f"{MODELS[0]}: {MAP} {OUT} gives an element of rank 1 to rank 0 too", False),
    "scaled": (rewritten(MODELS, scaled), f"{MODELS[0]}: {MAP} {UP} cannot be used at rank 0: the rank holds it multiplied by "
               "a factor", False),
    "version": (rewritten(MODELS, of_version_2), f"{MODELS[0]}: tensor parallelism stored its maps in version 2, and unshard "
                "reads version 1", False),
    "differ": (rewritten(MODELS[1:], unmapped), f"{MODELS[1]} (rank 1): {MAP} {UP} is not that of {MODELS[0]}: the files are "
               "of different saves", False),
    "unmapped": (rewritten(MODELS, unmapped), f"{MODELS[0]} (rank 0): no map says how {UP} was cut", False),
    "slice": (rewritten(MODELS[1:], another_slice), f"{MODELS[1]} (rank 1): {UP} has shape [7, 12], but the map of its "
              "slices says [8, 12]", False),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(runs, tmp_path, mount, command, name):
    damage, text, weights = DAMAGE[name]
    source = tmp_path / "source"
    shutil.copytree(runs / TOOL / "run", source)
    damage(source / TAG)
    done = command("check", source, "-o", "settle=0", check=False)
    assert text in done.stdout and done.returncode == (not re.search(UNREAD, done.stdout)), done.stdout
    m = mount(source)
    if weights:
        trees.assert_same(trees.weights(m / "weights" / TAG), trees.tensors(runs / TOOL / "live.safetensors"))
    else:
        assert text in told(m / "weights" / TAG)
    if name != "slice":  # the optimizer's slices are whole
        for view in ("universal", "world-2", "full"):
            assert not (m / view / TAG).exists() or text in told(m / view / TAG), view

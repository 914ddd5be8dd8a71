"""veRL's and EasyR1's per-rank files through the mount: every tensor is the live one, bit for bit, and
what is damaged is named."""

import json
import shutil

import pytest
import torch

import trees
from launches import RANKS

ACTOR = "run/global_step_2/actor"
# FSDP1's flat units say nothing of the parameters in them.
FLAT = [(n, c) for n, c in RANKS if c.startswith("verl-f1") and "orig" not in c]
# get_state_dict knows the names even of flat units; live states of single parameters there are none.
NAMED_FLAT = [(n, c) for n, c in RANKS if c.startswith("easyr1-f1") and "orig" not in c]


@pytest.mark.parametrize("launch, case", RANKS)
def test_weights_are_the_live_ones(made, mount, launch, case):
    top = made(launch, case)
    shown = mount(top) / "weights" / ACTOR
    trees.assert_same(trees.weights(shown), trees.tensors(top / "live/model.safetensors"))


def moments(path):
    state = torch.load(path, weights_only=True)
    names = [n for g in state["param_groups"] for n in g["params"]]
    return names, {f"{n} {k}": t for n, s in state["state"].items() for k, t in s.items()}


@pytest.mark.parametrize("launch, case", [x for x in RANKS if x not in FLAT + NAMED_FLAT])
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
    assert "flat units (FSDP1 with use_orig_params=False)" in command("show", top / ACTOR).stdout
    assert " ok" in command("ls", top).stdout


def edit(path, change):
    """Change the state dict of one rank; its wrappers need a process group to be loaded."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world, rank = (int(path.stem.split("_")[i]) for i in (-3, -1))
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        state = torch.load(path, weights_only=False)
        change(state)
        torch.save(state, path)
    finally:
        dist.destroy_process_group()


def model(actor, rank):
    return actor / f"model_world_size_3_rank_{rank}.pt"


def optim(actor, rank):
    return actor / f"optim_world_size_3_rank_{rank}.pt"


def local(tensor, change):
    tensor._local_tensor = change(tensor._local_tensor)


def on_all(actor, change):
    for rank in range(3):
        edit(optim(actor, rank), change)


def swap_states(state):
    s = state["state"]
    s[0], s[3] = s[3], s[0]


def split_group(state):
    group = state["param_groups"][0]
    state["param_groups"] = [dict(group, params=group["params"][:4]),
                             dict(group, params=group["params"][4:])]


def short_group(state):
    state["param_groups"][0]["params"].pop()
    state["state"].pop(len(state["param_groups"][0]["params"]), None)


def bf16_squares(state):
    from torch.distributed.tensor import DTensor

    t = state["state"][0]["exp_avg_sq"]
    state["state"][0]["exp_avg_sq"] = DTensor.from_local(
        t._local_tensor.bfloat16(), t.device_mesh, t.placements, run_check=False, shape=t.shape,
        stride=t.stride())


def swap_files(actor):
    spare = actor / "spare"
    model(actor, 0).rename(spare)
    model(actor, 1).rename(model(actor, 0))
    spare.rename(model(actor, 1))


# name -> (what happens to a copy of v3/verl-f2, what it keeps from being served, the sentence)
BROKEN = {
    "rank missing": (lambda a: model(a, 2).unlink(), "weights",
                     "model_world_size_3_rank_2.pt: the file is missing"),
    "empty": (lambda a: model(a, 1).write_bytes(b""), "weights",
              "model_world_size_3_rank_1.pt: zip: no end record in 0 bytes"),
    "cut": (lambda a: model(a, 1).write_bytes(model(a, 1).read_bytes()[:9000]), "weights",
            "model_world_size_3_rank_1.pt: zip: no end record in 9000 bytes"),
    "name missing": (lambda a: edit(model(a, 1), lambda s: s.pop("emb.weight")), "weights",
                     "emb.weight: rows 5 to 9 of 13 are in no shard"),
    "row missing": (lambda a: edit(model(a, 1), lambda s: local(s["emb.weight"], lambda t: t[:-1])),
                    "weights", "emb.weight: this rank holds a part of shape [4, 10]; expected [5"),
    "type": (lambda a: edit(model(a, 1), lambda s: local(s["emb.weight"], lambda t: t.bfloat16())),
             "weights", "emb.weight: its data are bfloat16, but it is declared as float32"),
    "two worlds": (lambda a: (shutil.copy(model(a, 0), a / "model_world_size_2_rank_0.pt"),
                              (a / "fsdp_config.json").unlink()), "weights",
                   "holds files of world sizes 2 and 3, and nothing says which are current"),
    "another world": (lambda a: (a / "fsdp_config.json").write_text('{"world_size": 4}'), "weights",
                      "fsdp_config.json says world size 4, but the files are of world size 3"),
    "optimizer of a rank missing": (lambda a: optim(a, 1).unlink(), "optimizer",
                                    "optim_world_size_3_rank_1.pt: the file is missing"),
    "optimizer's type": (lambda a: edit(optim(a, 1), lambda s: local(
        s["state"][0]["exp_avg"], lambda t: t.bfloat16())), "optimizer",
        "state.0.exp_avg: its data are bfloat16, but it is declared as float32"),
    "optimizer's types": (lambda a: on_all(a, bf16_squares), "optimizer",
                          "is float32, but its exp_avg_sq is bfloat16"),
    "optimizer in another order": (lambda a: on_all(a, swap_states), "optimizer",
                                   "which is the parameter of that number in the model's order"),
    "optimizer of two groups": (lambda a: on_all(a, split_group), "unsaid",
                                "numbers its parameters over 2 param groups"),
    "optimizer of fewer parameters": (lambda a: on_all(a, short_group), "unsaid",
                                      "the optimizer numbers 12 parameters, the model has 13"),
    "stale world": (lambda a: shutil.copy(model(a, 0), a / "model_world_size_2_rank_0.pt"), "note",
                    "those of 3 are read, as fsdp_config.json says"),
    "files swapped": (swap_files, "note", "was written by rank 1, which its name denies"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named(made, mount, copied, command, name):
    breaks, keeps, sentence = BROKEN[name]
    top = copied(made("v3", "verl-f2"))
    breaks(top / ACTOR)
    mounted = mount(top)
    weights, full = mounted / "weights" / ACTOR, mounted / "full" / ACTOR
    problem = "UNSHARD_PROBLEM.txt"
    assert (weights / problem).exists() == (keeps == "weights")
    assert (full / problem).exists() == (keeps in ("weights", "optimizer"))
    assert full.exists() == (keeps != "unsaid")
    told = command("show", top / ACTOR, check=False).stdout
    assert sentence in told
    if keeps in ("weights", "optimizer"):
        assert sentence in (full / problem).read_text()
    if keeps != "weights":
        trees.assert_same(trees.weights(weights), trees.tensors(top / "live/model.safetensors"))


def test_parts_that_do_not_add_up_are_refused(made, mount, copied):
    """FSDP1 saves stretches of parameters that say neither where they begin nor how long the whole is."""
    top = copied(made("v3", "verl-f1orig"))

    def cut(state):
        first = state["state"][min(state["state"])]
        for key in ("exp_avg", "exp_avg_sq"):
            first[key] = first[key][:-1].clone()

    edit(optim(top / ACTOR, 1), cut)
    problem = mount(top) / "full" / ACTOR / "UNSHARD_PROBLEM.txt"
    assert "elements together; expected" in problem.read_text()


def test_equal_shapes_in_another_order_are_served_as_what_they_are(made, mount, copied):
    """Two parameters of equal shape cannot be told apart by shapes: numbers alone say whose a state is,
    and provenance says that they were followed."""
    top = copied(made("v3", "verl-f2"))

    def swap(state):
        s = state["state"]
        a, b = [i for i in s if s[i]["exp_avg"].shape == (10, 10)]
        s[a], s[b] = s[b], s[a]

    before = moments(mount(made("v3", "verl-f2")) / "full-fsdp" / ACTOR / "optimizer.bin")[1]
    on_all(top / ACTOR, swap)
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

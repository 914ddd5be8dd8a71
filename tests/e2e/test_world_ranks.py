"""world-N of per-rank files: the managers' own way of loading takes them at N ranks, and then every
state is the live one, bit for bit."""

import io
import json
import math
import pickle
import types
import zipfile

import pytest
import torch

import conftest
import trees
from launches import RANKS

ACTOR = "run/global_step_2/actor"
# What was saved at one number of ranks is loaded at others: fewer, more than rows, and as many.
LOADED = {1: [("v3", "easyr1-f1"), ("v3", "verl-f2"), ("v4", "verl-f2-hsdp")],
          2: [("v3", "verl-f2"), ("v4", "easyr1-f1-hsdp")],
          3: [("v2", "verl-f2-bf16"), ("v3", "easyr1-f2")],
          4: [("v2", "easyr1-f1orig"), ("v2", "easyr1-f2"), ("v4", "verl-f2-hsdp")]}
LONG = {2: [("v3", "easyr1-f1-bf16")], 3: [("v4", "easyr1-f2-hsdp"), ("v3", "easyr1-f1")],
        4: [("v2", "verl-f2"), ("v4", "easyr1-f1-hsdp")]}  # the same with --long alone


@pytest.mark.parametrize("world", LOADED)
def test_the_managers_load_other_worlds(made, mount, chosen, tmp_path, world):
    jobs, tops = [], {}
    for launch, case in LOADED[world] + chosen(LONG.get(world, []), ()):
        tops[case] = made(launch, case)
        jobs.append(f"{case}={mount(tops[case]) / f'world-{world}' / ACTOR}")
    conftest.launch("ranks_load.py", world, tmp_path / "out", jobs)
    for case, top in tops.items():
        for kind in ("model", "optim"):
            trees.assert_same(trees.tensors(tmp_path / "out" / case / f"{kind}.safetensors"),
                              trees.tensors(top / f"live/{kind}.safetensors"))
        rest = json.loads((tmp_path / "out" / case / "rest.json").read_text())
        assert rest["group"]["weight_decay"] == 0.01 and rest["group"]["lr"] == 0.01
        assert rest["schedule"]["last_epoch"] == 1
        saved_at = int(next((top / ACTOR).glob("model_*")).name.split("_")[3])
        assert rest["has_rng"] == (saved_at == world)


class Named:
    """A class or function of torch's: its name, what it is called with, and the state it is given."""

    name = args = state = None

    def __new__(cls, *args):
        made = object.__new__(cls)
        made.args = args
        return made

    def __setstate__(self, state):
        self.state = state


class Ordered(dict):
    state = None

    def __setstate__(self, state):
        self.state = state


def plain(value):
    """What can be compared: names, numbers, texts, bytes. Hashes are found out again by who needs one."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Named):
        args = value.args
        if "_rebuild_tensor" in type(value).__name__:  # its storage may be longer, by FSDP2's padding
            elems = math.prod(args[2])
            assert args[1] == 0
            args = [args[0].cls, args[0].bytes[:elems * args[0].itemsize], *args[2:]]
        return [type(value).__name__, plain(args), plain(value.state)]
    if isinstance(value, dict):
        return [type(value).__name__, plain(getattr(value, "state", None)),
                [[k, plain(v)] for k, v in value.items() if k != "_hash"]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [plain(v) for v in value]]
    return value


def symbolic(path):
    """What a torch file says, whatever torch wrote it: bytes in place of storages, names of classes."""
    file = zipfile.ZipFile(path)
    top = file.namelist()[0].split("/")[0]

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            return Ordered if name == "OrderedDict" else type(f"{module}.{name}", (Named,), {})

        def persistent_load(self, pid):
            record = file.open(f"{top}/data/{pid[2]}")
            record._expected_crc = None  # 0 for a part of a tensor; torch does not look at it
            data = record.read()
            return types.SimpleNamespace(cls=plain(pid[1]), bytes=data,
                                         itemsize=len(data) // pid[4] if pid[4] else 0)

    return plain(Unpickler(io.BytesIO(file.read(f"{top}/data.pkl"))).load())


OLD = conftest.ROOT / "tests/golden/rank_files/torch2.1.2"


@pytest.mark.parametrize("launch, case", [(None, "torch 2.1.2"), ("v3", "verl-f2"),
                                          ("v3", "easyr1-f1-bf16"), ("v3", "easyr1-f2")])
def test_the_same_world_is_written_as_it_was(made, mount, launch, case):
    """Every class, field and number of the torch that saved it, so that it loads wherever that did."""
    saved = made(launch, case) / ACTOR if launch else OLD
    shown = mount(saved) / "world-3"
    files = [p.name for p in saved.glob("*_world_size_3_rank_*.pt")]
    assert len(files) == (9 if launch else 3)
    for name in files:
        assert symbolic(shown / name) == symbolic(saved / name), name


def test_a_directory_is_what_the_manager_saves(made, mount, copied):
    top = copied(made("v3", "verl-f2"))
    (top / ACTOR / "huggingface").mkdir()
    (top / ACTOR / "huggingface/config.json").write_text('{"model_type": "odd"}')
    actor = mount(top) / "world-2" / ACTOR
    assert trees.listing(actor) == sorted(
        [f"{kind}_world_size_2_rank_{r}.pt" for kind in ("model", "optim", "extra_state")
         for r in range(2)] + ["fsdp_config.json", "huggingface/config.json"])
    was = (top / ACTOR / "fsdp_config.json").read_text()
    assert (actor / "fsdp_config.json").read_text() == was.replace("3", "2")
    assert (actor / "huggingface/config.json").read_bytes() == \
        (top / ACTOR / "huggingface/config.json").read_bytes()
    assert "latest_checkpointed_iteration.txt" in {p.name for p in actor.parents[1].iterdir()}


def test_random_states_are_each_ranks_own(made, mount):
    top = made("v3", "verl-f2")

    def extra(world, *options):
        actor = mount(top, *options) / f"world-{world}" / ACTOR
        found = [torch.load(actor / f"extra_state_world_size_{world}_rank_{r}.pt",
                            weights_only=False) for r in range(world)]
        assert all(x["lr_scheduler"]["last_epoch"] == 1 for x in found)
        notes = json.loads((actor / ".unshard/provenance.json").read_text())["notes"]
        return ["rng" in x for x in found], " ".join(notes)

    assert extra(3) == ([True] * 3, "")
    with_none, said = extra(4)
    assert with_none == [False] * 4 and "the random states were saved by 3 ranks and are left out" in said
    with_three, said = extra(4, "rng=keep")
    assert with_three == [True] * 3 + [False] and "are left out for the additional ranks" in said
    assert extra(3, "rng=hide")[0] == [False] * 3


@pytest.mark.parametrize("launch, case, why", [
    ("v3", "verl-f1orig", "the optimizer's state is that of FSDP1's flat units"),
    ("v2", "verl-f1", "flat units (FSDP1 with use_orig_params=False)"),
    ("v3", "verl-f1orig-st", "the optimizer's state is that of FSDP1's flat units")])
def test_what_cannot_be_sharded_anew_is_not_shown(made, mount, launch, case, why):
    mounted = mount(made(launch, case))
    assert not (mounted / "world-2" / ACTOR).exists()
    assert "world-2" not in {p.name for p in mounted.path.iterdir()}


def test_weights_without_an_optimizer_are_written_alone(made, mount, copied):
    """ShardedTensors are no DTensors; a manager that was told to save the model alone finds it alone."""
    top = copied(made("v3", "verl-f1orig-st"))
    for path in (top / ACTOR).glob("optim_*"):
        path.unlink()
    assert not (mount(top) / "world-2" / ACTOR).exists()
    top = copied(made("v3", "verl-f1orig"), "other")
    for path in [*(top / ACTOR).glob("optim_*"), *(top / ACTOR).glob("extra_*")]:
        path.unlink()
    actor = mount(top) / "world-2" / ACTOR
    assert [n for n in trees.listing(actor) if n.endswith(".pt")] == [
        "model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"]


def test_damage_is_told_in_its_place(made, mount, copied):
    top = copied(made("v3", "verl-f2"))
    (top / ACTOR / "optim_world_size_3_rank_1.pt").unlink()
    actor = mount(top) / "world-2" / ACTOR
    assert trees.listing(actor) == ["UNSHARD_PROBLEM.txt"]
    assert "optim_world_size_3_rank_1.pt is missing: it holds rank 1's pieces" in \
        (actor / "UNSHARD_PROBLEM.txt").read_text()


def test_what_one_rank_lost_is_taken_from_its_replica(made, mount, copied):
    """HSDP: the sharded form cannot be loaded any more where it was saved, and is whole all the same."""
    whole = mount(made("v4", "verl-f2-hsdp")) / "world-2" / ACTOR
    top = copied(made("v4", "verl-f2-hsdp"))
    for kind in ("model", "optim", "extra_state"):
        (top / ACTOR / f"{kind}_world_size_4_rank_3.pt").unlink()
    rest = mount(top) / "world-2" / ACTOR
    assert trees.listing(rest) == trees.listing(whole)
    for name in trees.listing(whole):
        if name.endswith(".pt"):
            assert symbolic(rest / name) == symbolic(whole / name), name

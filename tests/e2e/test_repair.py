"""`unshard check --repair OUT`: what torch loads from the copy is what was saved, and nothing else changed."""

import copy
import json
import fcntl
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import TensorMeta

import trees
from conftest import LAUNCHER, LONGEST_S, ROOT, UNSHARD

GOLDEN = ROOT / "tests/golden"
MOMENTS = ("exp_avg", "exp_avg_sq")


def repair(command, source, out, *args):
    before = trees.fingerprint(source)
    done = command("check", source, "--repair", out, "--json", "-o", "settle=0", *args, check=False)
    assert trees.fingerprint(source) == before
    assert done.returncode in (0, 1), done.stderr
    shown = json.loads(done.stdout)
    sound = "nothing to repair" in shown.get("why", "")
    unreadable = any(c["kind"] == "unreadable" for c in shown["changes"])
    assert (shown["repaired"] is None) == ("why" in shown) == (not os.path.exists(out))
    assert done.returncode == (1 if unreadable or ("why" in shown and not sound) else 0)
    assert not [n for n in os.listdir(os.path.dirname(out)) if ".partial" in n]
    return shown


def repaired(command, source, out):
    """What changed: kinds by path below SOURCE."""
    shown = repair(command, source, out)
    assert shown["repaired"] == str(out)
    again = command("check", out, "--deep", "--json", "-o", "settle=0", check=False)
    assert [f for f in json.loads(again.stdout)["findings"] if f["severity"] == "problem"] == []
    return {c["path"].split("/", 1)[1]: (c["kind"], c["text"]) for c in shown["changes"]}


def refused(command, source, out):
    return repair(command, source, out)["why"]


def assert_sound(command, source, out):
    """Nothing is written, and that is said."""
    shown = repair(command, source, out)
    assert shown == {"repaired": None, "changes": [],
                     "why": "nothing to repair: no problem was found that a copy could fix. Data was not read: --deep reads it. "
                            "Nothing was written"}


def load(path):
    return torch.load(path, weights_only=False)


def assert_same_but(out, source, *changed):
    """Every file is there, byte for byte and with its times, but for these."""
    a, b = trees.fingerprint(source), trees.fingerprint(out)
    assert set(a) - set(changed) == set(b) - set(changed)
    for name in set(a) - set(changed):
        if (source / name).is_file() and not (source / name).is_symlink():
            assert a[name][1:] == b[name][1:], name


def leaves(value, name=""):
    if isinstance(value, torch.Tensor):
        yield name, value
    for key, v in (value.items() if isinstance(value, dict) else
                   enumerate(value) if isinstance(value, (list, tuple)) else ()):
        yield from leaves(v, f"{name}.{key}" if name else str(key))


def locals_of(path):
    return {name: getattr(t, "_local_tensor", t) for name, t in leaves(load(path))}


def assert_one_type(path):
    """Wrapper, description and data of every tensor say the same."""
    for name, t in leaves(load(path)):
        if isinstance(t, DTensor):
            assert t.dtype == t._local_tensor.dtype == t._spec.tensor_meta.dtype, name


def retyped(t, dtype):
    """The DTensor in another type, as a rank would have saved it."""
    spec = copy.copy(t._spec)
    spec.tensor_meta = TensorMeta(spec.tensor_meta.shape, spec.tensor_meta.stride, dtype)
    return DTensor(t._local_tensor.to(dtype), spec, requires_grad=False)


@pytest.fixture
def ranks(tmp_path):
    where = tmp_path / "run/global_step_2/actor"
    shutil.copytree(GOLDEN / "ranks/fsdp2", where)
    return where


# -- one type --

def test_one_moment_of_one_rank(command, ranks, tmp_path):
    path = ranks / "optim_world_size_2_rank_1.pt"
    state = load(path)
    state["state"][0]["exp_avg"] = retyped(state["state"][0]["exp_avg"], torch.bfloat16)
    torch.save(state, path)
    want = {n: t.float() if n == "state.0.exp_avg" else t for n, t in locals_of(path).items()}
    changed = repaired(command, ranks, tmp_path / "out")
    assert changed == {path.name: ("dtype", "state.0.exp_avg from bfloat16 to float32, the dtype of most "
                                   "elements: no value changed")}
    trees.assert_same(locals_of(tmp_path / "out" / path.name), want)
    assert_one_type(tmp_path / "out" / path.name)
    assert_same_but(tmp_path / "out", ranks, path.name)
    got = torch.load(tmp_path / "out" / path.name, weights_only=True)
    assert got["param_groups"] == state["param_groups"]


def test_a_wrapper_that_says_something_else(command, ranks, tmp_path):
    path = ranks / "optim_world_size_2_rank_1.pt"
    state = load(path)
    local = state["state"][1]["exp_avg_sq"]._local_tensor
    state["state"][1]["exp_avg_sq"]._local_tensor = local.bfloat16()
    torch.save(state, path)
    changed = repaired(command, ranks, tmp_path / "out")
    assert changed[path.name][0] == "dtype"
    assert_one_type(tmp_path / "out" / path.name)
    got = locals_of(tmp_path / "out" / path.name)["state.1.exp_avg_sq"]
    trees.assert_same({"": got}, {"": local.bfloat16().float()})


def test_narrowing_says_how_many_values_were_rounded(command, ranks, tmp_path):
    torch.manual_seed(0)
    for rank in (0, 1):
        path = ranks / f"optim_world_size_2_rank_{rank}.pt"
        state = load(path)
        for number, values in state["state"].items():
            for key in MOMENTS:
                values[key]._local_tensor.copy_(torch.randn(values[key]._local_tensor.shape))
                if (rank, number, key) != (1, 0, "exp_avg"):
                    values[key] = retyped(values[key], torch.bfloat16)
        torch.save(state, path)
    odd = load(path)["state"][0]["exp_avg"]._local_tensor
    odd[0, 0], odd[0, 1] = 1.5, 1.0 + 2 ** -20
    state["state"][0]["exp_avg"]._local_tensor.copy_(odd)
    torch.save(state, path)
    changed = repaired(command, ranks, tmp_path / "out")
    assert changed == {path.name: ("dtype", "state.0.exp_avg from float32 to bfloat16, the dtype of most "
                                   "elements: 1 of 2 values were rounded")}
    got = locals_of(tmp_path / "out" / path.name)["state.0.exp_avg"]
    trees.assert_same({"": got}, {"": odd.bfloat16()})
    assert_one_type(tmp_path / "out" / path.name)


def test_a_weight_of_one_rank(command, ranks, tmp_path):
    path = ranks / "model_world_size_2_rank_1.pt"
    state = load(path)
    for name in ("lin.weight", "lin.bias"):
        state[name] = retyped(state[name], torch.float16)
    torch.save(state, path)
    want = {n: t.float() if n.startswith("lin.") else t for n, t in locals_of(path).items()}
    changed = repaired(command, ranks, tmp_path / "out")
    assert changed[path.name][1].startswith("lin.weight and 1 more from float16 to float32")
    trees.assert_same(locals_of(tmp_path / "out" / path.name), want)
    assert_one_type(tmp_path / "out" / path.name)
    got = load(tmp_path / "out" / path.name)
    assert type(got) is type(state) and got._metadata == state._metadata and list(got) == list(state)


@pytest.mark.parametrize("launch,case,files", [("v2", "verl-f1orig", "optim_world_size_*_rank_1.pt"),
                                               ("v2", "easyr1-f2", "optim_world_size_*_rank_1.pt"),
                                               ("a2", "f2-ranks", "optimizer_0_rank1.bin")])
def test_what_veRL_EasyR1_and_Accelerate_save(command, made, tmp_path, launch, case, files):
    source = shutil.copytree(made(launch, case) / "run", tmp_path / "run")
    [path] = source.rglob(files)
    state = load(path)
    owner = next(k for k, v in state["state"].items() if v["exp_avg"].numel())
    old = state["state"][owner]["exp_avg"]
    state["state"][owner]["exp_avg"] = retyped(old, torch.bfloat16) if isinstance(old, DTensor) else \
        old.bfloat16()
    torch.save(state, path)
    want = {n: t.float() if n == f"state.{owner}.exp_avg" else t for n, t in locals_of(path).items()}
    changed = repaired(command, source, tmp_path / "out")
    name = str(path.relative_to(source))
    assert {k: v[0] for k, v in changed.items()} == {name: "dtype"}
    trees.assert_same(locals_of(tmp_path / "out" / name), want)
    assert_same_but(tmp_path / "out", source, name)


def test_sharded_tensors(command, made, tmp_path):
    source = shutil.copytree(made("v3", "verl-f1orig-st") / "run", tmp_path / "run")
    [path] = source.rglob("model_world_size_3_rank_1.pt")
    name, tensor = str(path.relative_to(source)), "conv.weight"

    def sharded(*args):
        LAUNCHER.run(ROOT / "tests/e2e/sharded_tensors.py", ["1", "3", *args], 0, {})

    sharded("dump", path, tmp_path / "before")
    sharded("retype", path, tensor, "bfloat16")
    assert repaired(command, source, tmp_path / "out")[name][0] == "dtype"
    sharded("dump", tmp_path / "out" / name, tmp_path / "after")
    want = trees.tensors(tmp_path / "before")
    assert f"{tensor} 0" in want
    want[f"{tensor} 0"] = want[f"{tensor} 0"].bfloat16().float()
    trees.assert_same(trees.tensors(tmp_path / "after"), want)


def test_a_tie_is_not_decided(command, ranks, tmp_path):
    for rank in (0, 1):
        path = ranks / f"optim_world_size_2_rank_{rank}.pt"
        state = load(path)
        state["state"][0]["exp_avg"] = retyped(state["state"][0]["exp_avg"], torch.bfloat16)
        torch.save(state, path)
    assert "no dtype of state.0.exp_avg" in refused(command, ranks, tmp_path / "out")
    done = command("check", ranks, "--repair", tmp_path / "out", "-o", "settle=0", check=False)
    assert done.returncode == 1 and done.stdout == "" and "no sound copy can be made" in done.stderr


@pytest.mark.parametrize("key", MOMENTS)
def test_a_moment_of_a_deepspeed_shard(command, tmp_path, key):
    source = shutil.copytree(GOLDEN / "zero/z2_w3", tmp_path / "run")
    shutil.rmtree(source / "global_step2_universal")
    path = source / "global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    state = load(path)
    held = state["optimizer_state_dict"]["base_optimizer_state"]["state"][0]
    held[key] = held[key].bfloat16()
    torch.save(state, path)
    changed = repaired(command, source, tmp_path / "out")
    name = str(path.relative_to(source))
    assert changed[name][0] == "dtype" and "from bfloat16 to float32" in changed[name][1]
    got = load(tmp_path / "out" / name)
    trees.assert_same({n: t.detach() for n, t in leaves(got)},
                      {n: t.detach().float() if t.dtype == torch.bfloat16 else t.detach()
                       for n, t in leaves(state)})
    assert type(got["optimizer_state_dict"]["loss_scaler"]) is \
        type(state["optimizer_state_dict"]["loss_scaler"])


# -- files of another world size --

def add_stale(ranks, *names):
    for name in names:
        shutil.copy(ranks / "model_world_size_2_rank_0.pt", ranks / name)


STALE = ["model_world_size_3_rank_0.pt", "optim_world_size_3_rank_2.pt",
         "extra_state_world_size_3_rank_1.pt"]


@pytest.mark.parametrize("config", [True, False])
def test_files_of_another_world_are_left_out(command, ranks, tmp_path, config):
    add_stale(ranks, *STALE)
    if config:
        (ranks / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 2}')
    shown = repaired(command, ranks, tmp_path / "out")
    assert {n: kind for n, (kind, _) in shown.items()} == {n: "stale" for n in STALE}
    why = "fsdp_config.json names it" if config else "no other save is complete"
    assert all(f"and the save on 2 is current ({why})" in text for _, text in shown.values())
    assert_same_but(tmp_path / "out", ranks, *STALE)


def test_which_world_is_current_must_be_said(command, ranks, tmp_path):
    for rank in range(3):
        add_stale(ranks, f"model_world_size_3_rank_{rank}.pt")
    assert "neither fsdp_config.json nor" in refused(command, ranks, tmp_path / "out")
    (ranks / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 4}')
    refused(command, ranks, tmp_path / "out")


# -- trackers --

@pytest.fixture
def steps(ranks):
    """A run of steps 2 and 10; the later one lacks a rank."""
    run = ranks.parents[1]
    shutil.copytree(ranks, run / "global_step_10/actor")
    (run / "global_step_10/actor/model_world_size_2_rank_1.pt").unlink()
    return run


def verl(run):
    for config in run.glob("*/actor"):
        (config / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 2}')


@pytest.mark.parametrize("tracker", ["10", "", "no number", "7", None])
def test_verls_tracker(command, steps, tmp_path, tracker):
    verl(steps)
    path = steps / "latest_checkpointed_iteration.txt"
    if tracker is not None:
        path.write_text(tracker)
    changed = repaired(command, steps, tmp_path / "out")
    assert {n: kind for n, (kind, _) in changed.items()} == {path.name: "tracker",
                                                             "global_step_10": "left_out"}
    assert (tmp_path / "out" / path.name).read_text() == "2"
    assert sorted(os.listdir(tmp_path / "out")) == ["global_step_2", path.name]
    assert "model_world_size_2_rank_1.pt" in changed["global_step_10"][1]


def test_a_tracker_that_names_a_sound_step_stays(command, steps, tmp_path):
    verl(steps)
    (steps / "latest_checkpointed_iteration.txt").write_text("2")
    changed = repaired(command, steps, tmp_path / "out")
    assert {n: kind for n, (kind, _) in changed.items()} == {"global_step_10": "left_out"}
    assert "model_world_size_2_rank_1.pt" in changed["global_step_10"][1]
    assert (tmp_path / "out/latest_checkpointed_iteration.txt").read_text() == "2"
    shutil.rmtree(steps / "global_step_10")
    assert_sound(command, steps, tmp_path / "again")


def test_easyr1s_tracker(command, steps, tmp_path):
    path = steps / "checkpoint_tracker.json"
    path.write_text(json.dumps({"best_global_step": 2, "best_val_reward_score": 0.25, "last_global_step": 10,
                                "last_actor_path": "/old/global_step_10/actor"}))
    repaired(command, steps, tmp_path / "out")
    assert json.loads((tmp_path / "out" / path.name).read_text()) == \
        {"best_global_step": 2, "best_val_reward_score": 0.25, "last_global_step": 2}
    path.write_text('{"best_global_step": 10, "best_val_reward_score": 0.5, "last_global_step"')
    repaired(command, steps, tmp_path / "out2")
    assert json.loads((tmp_path / "out2" / path.name).read_text()) == {"last_global_step": 2}


@pytest.mark.parametrize("latest", [None, "global_step9", ""])
def test_deepspeeds_latest(command, tmp_path, latest):
    source = shutil.copytree(GOLDEN / "zero/z3_w2", tmp_path / "run")
    shutil.rmtree(source / "global_step2_universal")
    want = (source / "latest").read_text()
    (source / "latest").unlink()
    if latest is not None:
        (source / "latest").write_text(latest)
    assert repaired(command, source, tmp_path / "out")["latest"][0] == "tracker"
    assert (tmp_path / "out/latest").read_text() == want
    assert_same_but(tmp_path / "out", source, "latest")


def test_a_tag_that_is_not_whole_is_left_out(command, tmp_path):
    source = shutil.copytree(GOLDEN / "zero/z2_w3", tmp_path / "run")
    shutil.rmtree(source / "global_step2_universal")
    shutil.copytree(source / "global_step2", source / "global_step10")
    (source / "global_step10/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    (source / "latest").write_text("global_step10")
    changed = repaired(command, source, tmp_path / "out")
    assert {n: kind for n, (kind, _) in changed.items()} == {"latest": "tracker",
                                                             "global_step10": "left_out"}
    assert (tmp_path / "out/latest").read_text() == "global_step2"
    assert not (tmp_path / "out/global_step10").exists()


def test_tags_without_numbers_have_no_last_one(command, tmp_path):
    source = shutil.copytree(GOLDEN / "zero/z2_w3", tmp_path / "run")
    (source / "latest").unlink()
    shutil.copytree(source / "global_step2", source / "best")
    assert "do not show which tag is the last" in refused(command, source, tmp_path / "out")
    shutil.rmtree(source / "global_step2")
    assert repaired(command, source, tmp_path / "out")["latest"][0] == "tracker"
    assert (tmp_path / "out/latest").read_text() == "best"


def test_a_trainers_checkpoint_without_latest(command, made, tmp_path):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    source = shutil.copytree(made("h2", "z2-bf16") / "run", tmp_path / "run")
    [path] = source.glob("checkpoint-2/latest")
    want = path.read_text()
    path.unlink()
    assert repaired(command, source, tmp_path / "out")["checkpoint-2/latest"][0] == "tracker"
    assert (tmp_path / "out/checkpoint-2/latest").read_text() == want
    trees.assert_same(get_fp32_state_dict_from_zero_checkpoint(tmp_path / "out/checkpoint-2"),
                      get_fp32_state_dict_from_zero_checkpoint(made("h2", "z2-bf16") / "run/checkpoint-2"))


@pytest.mark.parametrize("n", [1, 2])
def test_an_output_dir_of_deepspeed_checkpoints_has_no_tracker(command, tmp_path, n):
    for step in range(1, n + 1):
        trainer_checkpoint(tmp_path / "run", step)
    assert_sound(command, tmp_path / "run", tmp_path / "out")


def test_only_the_checkpoint_without_latest_gets_one(command, tmp_path):
    for step in (1, 2):
        trainer_checkpoint(tmp_path / "run", step)
    (tmp_path / "run/checkpoint-1/latest").unlink()
    changed = repaired(command, tmp_path / "run", tmp_path / "out")
    assert changed == {"checkpoint-1/latest": ("tracker", "new: it names global_step2, the last sound checkpoint")}
    assert_same_but(tmp_path / "out", tmp_path / "run", "checkpoint-1/latest")


def trainer_checkpoint(run, step):
    """A tag of DeepSpeed's as a Trainer has it: checkpoint-N/global_step2, and latest beside it."""
    where = run / f"checkpoint-{step}"
    shutil.copytree(GOLDEN / "zero/z2_w3", where)
    shutil.rmtree(where / "global_step2_universal")
    (where / "latest").write_text("global_step2")
    state = json.loads((GOLDEN / "run/checkpoint-2/trainer_state.json").read_text())
    (where / "trainer_state.json").write_text(json.dumps({**state, "global_step": step}))
    for rank in range(3):
        states = torch.load(GOLDEN / "run/checkpoint-2/rng_state_0.pth", weights_only=False)
        torch.save(states, where / f"rng_state_{rank}.pth")  # its records have the file's name


def test_no_tracker_is_made_for_ranks_that_nobody_tracks(command, steps, tmp_path):
    """Without fsdp_config.json and without a tracker, nothing says whose steps these are."""
    shutil.rmtree(steps / "global_step_10")
    assert_sound(command, steps, tmp_path / "out")
    (steps / "latest_checkpointed_iteration.txt").write_text("7")
    assert repaired(command, steps, tmp_path / "out")["latest_checkpointed_iteration.txt"][0] == "tracker"
    assert sorted(os.listdir(tmp_path / "out")) == ["global_step_2", "latest_checkpointed_iteration.txt"]


def test_verls_missing_tracker_lies_beside_its_steps(command, ranks, tmp_path):
    """Also where the files lie in global_step_N itself, and where the run is not the top directory."""
    run = tmp_path / "top/run"
    run.mkdir(parents=True)
    shutil.copytree(ranks, run / "global_step_2")
    (run / "global_step_2/fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 2}')
    assert list(repaired(command, tmp_path / "top", tmp_path / "out")) == \
        ["run/latest_checkpointed_iteration.txt"]


def test_a_tracker_that_cannot_be_repaired_is_said(command, tmp_path):
    """Accelerate's only tag is no global_stepN; `check` finds fault with `latest`, so a copy would as well."""
    where = tmp_path / "run"
    shutil.copytree(GOLDEN / "zero/z2_w3/global_step2", where / "pytorch_model")
    (where / "random_states_0.pkl").write_bytes(b"")
    (where / "latest").write_text("gone")
    assert "latest names gone, and no such tag exists" in refused(command, where, tmp_path / "out")


# -- what cannot be read --

def closed(command, source, out, directory):
    """A repair by somebody to whom the directory is closed."""
    mode = directory.stat().st_mode & 0o777
    directory.chmod(0o700 if os.getuid() == 0 else 0)
    try:
        return as_nobody(source, out)
    finally:
        directory.chmod(mode)


def as_nobody(source, out):
    who = {}
    if os.getuid() == 0:
        user = pwd.getpwnam("nobody")
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    done = subprocess.run([UNSHARD, "check", source, "--repair", out, "--json", "-o", "settle=0,log=/dev/null"],
                          capture_output=True, text=True, timeout=LONGEST_S, cwd="/",
                          env={**os.environ, "XDG_STATE_HOME": "/nonexistent"}, **who)
    assert done.returncode in (0, 1), done.stderr
    shown = json.loads(done.stdout)
    return done.returncode, shown, {c["path"]: c["kind"] for c in shown["changes"]}


@pytest.fixture
def open_dir():
    """A directory that everybody may look and write into."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o777)
        yield Path(path)


@pytest.fixture
def shared(ranks, open_dir):
    """A run of two steps; the first has a stale file, and veRL's tracker names the second."""
    run = open_dir / "run"
    for step in (2, 10):
        shutil.copytree(ranks, run / f"global_step_{step}/actor")
        (run / f"global_step_{step}/actor/fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 2}')
    add_stale(run / "global_step_2/actor", STALE[0])
    (run / "latest_checkpointed_iteration.txt").write_text("10")
    return run


@pytest.mark.parametrize("name", ["lost+found", "notes/of/somebody", "global_step_2/actor/a/b/c/d/e"])
def test_a_directory_that_cannot_be_read_is_passed_over(command, shared, open_dir, name):
    (shared / name).mkdir(parents=True)
    (shared / name / "inside").write_text("secret")
    out = open_dir / "out"
    code, shown, changes = closed(command, shared, out, shared / name)
    stale = f"run/global_step_2/actor/{STALE[0]}"
    assert code == 1 and shown["repaired"] == str(out)
    assert changes == {f"run/{name}": "unreadable", stale: "stale"}
    [text] = [c["text"] for c in shown["changes"] if c["kind"] == "unreadable"]
    assert text.startswith("left out: ") and "Permission denied" in text
    assert not (out / name).exists()
    assert_same_but(out, shared, name, f"{name}/inside", stale.split("/", 1)[1])


def test_nothing_is_wrong_but_what_cannot_be_read(command, shared, open_dir):
    (shared / "global_step_2/actor" / STALE[0]).unlink()
    out = open_dir / "out"
    for name in ("global_step_10", "global_step_10/actor"):
        code, shown, changes = closed(command, shared, out, shared / name)
        assert code == 1 and changes == {f"run/{name}": "unreadable"}
        assert shown["repaired"] is None and not out.exists()
        assert shown["why"] == "nothing to repair: no problem was found in what could be read. Nothing was written"


@pytest.mark.parametrize("name", ["global_step_10", "global_step_10/actor"])
def test_the_copys_tracker_names_what_is_in_it(command, shared, open_dir, name):
    out = open_dir / "out"
    code, shown, changes = closed(command, shared, out, shared / name)
    assert code == 1 and shown["repaired"] == str(out)
    assert changes == {f"run/{name}": "unreadable", f"run/global_step_2/actor/{STALE[0]}": "stale",
                       "run/latest_checkpointed_iteration.txt": "tracker"}
    assert (out / "latest_checkpointed_iteration.txt").read_text() == "2"
    assert "before, global_step_10, which cannot be read" in str(shown)
    assert sorted(os.listdir(out)) == ["global_step_2", "latest_checkpointed_iteration.txt"]


def test_a_checkpoint_with_a_directory_that_cannot_be_read_is_passed_over(command, shared, open_dir):
    """Checkpoints with a closed directory of shards, or of one parameter, beside one that can be repaired."""
    shutil.copytree(GOLDEN / "run/checkpoint-2", shared / "checkpoint-2")
    shutil.copytree(GOLDEN / "zero/z2_w3", shared / "zero")
    universal = shared / "zero/global_step2_universal"
    parameter = next(p for p in sorted((universal / "zero").iterdir()) if p.is_dir())
    stale = f"run/global_step_2/actor/{STALE[0]}"
    for n, (directory, gone) in enumerate([(shared / "checkpoint-2/optimizer_0", "checkpoint-2"),
                                           (parameter, "zero/global_step2_universal")]):
        out = open_dir / f"out{n}"
        code, shown, changes = closed(command, shared, out, directory)
        assert code == 1 and shown["repaired"] == str(out)
        assert changes == {f"run/{gone}": "unreadable", stale: "stale"}
        assert str(directory) in str(shown["changes"])
        assert not (out / gone).exists() and (out / "global_step_10").exists()


def test_what_cannot_be_read_is_named_where_nothing_can_be_derived(command, shared, open_dir):
    for step in shared.glob("global_step_*"):
        (step / "actor/model_world_size_2_rank_1.pt").unlink()
    (shared / "lost+found").mkdir()
    code, shown, changes = closed(command, shared, open_dir / "out", shared / "lost+found")
    assert code == 1 and shown["repaired"] is None and "model_world_size_2_rank_1.pt" in shown["why"]
    assert changes == {"run/lost+found": "unreadable"}


def test_lines_about_what_cannot_be_read(ranks, tmp_path, faults):
    add_stale(ranks, STALE[0])
    run = ranks.parents[1]
    (run / "lost+found").mkdir()

    def lines(out):
        with faults.armed("open", path="run/lost+found", nth=0):
            done = subprocess.run([UNSHARD, "check", run, "--repair", out, "-o", "settle=0"],
                                  capture_output=True, text=True, env=faults.env, timeout=LONGEST_S)
        assert done.returncode == 1 and done.stderr == ""
        return done.stdout

    unreadable = f"{run}/lost+found\n  unreadable  left out: it cannot be read: {run}/lost+found: Input/output error\n"
    text = lines(tmp_path / "out")
    assert unreadable in text
    assert text.endswith(f"\n\n{tmp_path}/out is a sound copy, with 1 change; what could not be read is not in it\n")
    (ranks / STALE[0]).unlink()
    assert lines(tmp_path / "none") == \
        f"{unreadable}\n{run}: nothing to repair: no problem was found in what could be read. Nothing was written\n"
    assert not (tmp_path / "none").exists()


# -- where, and how --

def test_where_a_copy_may_go(command, ranks, tmp_path):
    add_stale(ranks, *STALE)
    def status(out):
        done = command("check", ranks, "--repair", out, "-o", "settle=0", check=False)
        return done.returncode, done.stdout + done.stderr

    (tmp_path / "full/x").mkdir(parents=True)
    (tmp_path / "link").symlink_to(ranks)
    before = trees.fingerprint(tmp_path)
    for out, why in [(ranks, "is inside"), (ranks / "deeper", "is inside"), (tmp_path / "link/copy", "is inside"),
                     (tmp_path / "full", "not an empty directory"), (tmp_path / "none/out", "No such file"),
                     (tmp_path / "link", "is a link")]:
        code, text = status(out)
        assert code == 2 and why in text, (out, text)
    assert trees.fingerprint(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert status(tmp_path / "empty")[0] == 0
    assert (tmp_path / "empty/model_world_size_2_rank_0.pt").exists()


def test_lines_for_people(command, ranks, tmp_path):
    add_stale(ranks, STALE[0])
    done = command("check", ranks, "--repair", tmp_path / "out", "-o", "settle=0")
    assert done.stdout.startswith(f"{ranks}/{STALE[0]}\n  stale       left out: it belongs to a save on 3 ranks")
    assert done.stdout.endswith(f"\n\n{tmp_path / 'out'} is a sound copy, with 1 change\n")


def test_a_sound_checkpoint_needs_none(command, ranks, tmp_path):
    assert_sound(command, ranks, tmp_path / "out")
    done = command("check", ranks, "--repair", tmp_path / "out", "-o", "settle=0")
    assert done.stdout == (f"{ranks}: nothing to repair: no problem was found that a copy could fix. Data was not read: "
                           "--deep reads it. Nothing was written\n")
    assert done.stderr == "" and not (tmp_path / "out").exists()


def test_a_save_that_goes_on_is_not_copied(command, ranks, tmp_path):
    add_stale(ranks, *STALE)
    done = command("check", ranks, "--repair", tmp_path / "out", "-o", "settle=3600", check=False)
    assert done.returncode == 1 and "still being saved" in done.stderr
    assert not (tmp_path / "out").exists()


def test_what_does_not_help_is_removed(command, ranks, tmp_path):
    """Two things are wrong, and only one of them can be put right."""
    add_stale(ranks, *STALE)
    path = ranks / "optim_world_size_2_rank_0.pt"
    path.write_bytes(path.read_bytes()[:-300])
    text = refused(command, ranks, tmp_path / "out")
    assert path.name in text and "not sound either" in text


@pytest.mark.parametrize("umask,folder,file", [(0o022, 0o750, 0o640), (0o077, 0o700, 0o600)])
def test_modes_are_the_sources_less_the_umask(command, ranks, tmp_path, umask, folder, file):
    path = ranks / "optim_world_size_2_rank_1.pt"
    state = load(path)
    state["state"][0]["exp_avg"] = retyped(state["state"][0]["exp_avg"], torch.bfloat16)
    torch.save(state, path)
    for at in [ranks.parent.parent, *ranks.parent.parent.rglob("*")]:
        at.chmod(0o750 if at.is_dir() else 0o640)
    before = os.umask(umask)
    try:
        assert repair(command, ranks.parent.parent, tmp_path / "out")["repaired"]
    finally:
        os.umask(before)
    modes = {at.is_dir(): set() for at in (tmp_path / "out").rglob("*")}
    for at in [tmp_path / "out", *(tmp_path / "out").rglob("*")]:
        modes[at.is_dir()].add(at.stat().st_mode & 0o777)
    assert modes == {True: {folder}, False: {file}}


def test_links_and_empty_directories_are_copied(command, ranks, tmp_path):
    add_stale(ranks, *STALE)
    (ranks / "huggingface/none").mkdir(parents=True)
    (ranks / "huggingface/readme").write_text("text")
    (ranks / "readme").symlink_to("huggingface/readme")
    os.chmod(ranks / "huggingface/readme", 0o440)
    repaired(command, ranks, tmp_path / "out")
    assert os.readlink(tmp_path / "out/readme") == "huggingface/readme"
    assert (tmp_path / "out/huggingface/none").is_dir()
    assert_same_but(tmp_path / "out", ranks, *STALE)


def test_what_a_killed_repair_left_goes_with_the_next(ranks, tmp_path, faults, eventually):
    """Of this very OUT, and not while its repair goes on: that holds a lock."""
    add_stale(ranks, *STALE)
    args = [UNSHARD, "check", ranks, "--repair", tmp_path / "out", "-o", "settle=0"]
    faults.arm("write", path=".partial-", action="hold")
    killed = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=faults.env)
    eventually(lambda: faults.struck)
    killed.kill()
    killed.wait()
    faults.disarm()
    left = {n for n in os.listdir(tmp_path) if ".partial-" in n}
    assert len(left) == 1
    alive, other = tmp_path / "out.partial-Living", tmp_path / "other.partial-Xxxxxx"
    alive.mkdir()
    other.mkdir()
    lock = os.open(alive, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    faults.pass_time(120)  # longer than a copy that is not locked yet may be
    done = subprocess.run(args, capture_output=True, text=True, env=faults.env, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    assert {n for n in os.listdir(tmp_path) if ".partial-" in n} == {alive.name, other.name}
    os.close(lock)


def test_an_interrupted_copy_leaves_nothing(ranks, tmp_path, faults, eventually):
    add_stale(ranks, *STALE)
    before = trees.fingerprint(ranks)
    faults.arm("write", path=".partial-", action="hold")
    run = subprocess.Popen([UNSHARD, "check", ranks, "--repair", tmp_path / "out", "-o", "settle=0"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=faults.env)
    eventually(lambda: faults.struck)
    assert [n for n in os.listdir(tmp_path) if ".partial-" in n]
    run.send_signal(signal.SIGINT)
    faults.disarm()
    _, text = run.communicate(timeout=LONGEST_S)
    assert trees.fingerprint(ranks) == before
    assert not re.search(r"partial", " ".join(os.listdir(tmp_path)))
    assert run.returncode == 2 and "interrupted" in text and not (tmp_path / "out").exists()


# -- a Trainer's runs --

@pytest.fixture
def trained(made, tmp_path):
    shutil.copytree(made("u2", "f2") / "run", tmp_path / "run")
    return tmp_path / "run"


def test_a_trainer_state_is_written(command, trained, tmp_path):
    """It is what the view full shows, and a Trainer takes it; assumed values are in the list of changes."""
    from transformers import TrainerState

    lost = json.loads((trained / "checkpoint-2/trainer_state.json").read_text())
    for change in ("missing", "cut"):
        state = trained / "checkpoint-2/trainer_state.json"
        state.unlink(missing_ok=True)
        if change == "cut":
            state.write_text('{"global_step": 2,')
        changed = repaired(command, trained, tmp_path / change)
        assert list(changed) == ["checkpoint-2/trainer_state.json"]
        kind, text = changed["checkpoint-2/trainer_state.json"]
        assert kind == "trainer_state" and "assumed: total_flos = 0" in text
        made = tmp_path / change / "checkpoint-2/trainer_state.json"
        assert json.loads(made.read_text()) == {k: v for k, v in lost.items() if k != "best_global_step"} | {"total_flos": 0}
        assert TrainerState.load_from_json(str(made)).global_step == 2
        assert_same_but(tmp_path / change, trained, "checkpoint-2/trainer_state.json")


def test_damaged_checkpoints_of_a_run_are_left_out(command, trained, tmp_path):
    os.truncate(trained / "checkpoint-4/optimizer_0/__0_0.distcp", 1000)
    changed = repaired(command, trained, tmp_path / "out")
    assert list(changed) == ["checkpoint-4"] and changed["checkpoint-4"][0] == "left_out"
    assert "__0_0.distcp is truncated" in changed["checkpoint-4"][1]
    assert "its weights can still be used" in changed["checkpoint-4"][1]
    assert "checkpoint-4" not in os.listdir(tmp_path / "out")
    os.truncate(trained / "checkpoint-4/pytorch_model_fsdp_0/__0_0.distcp", 1000)
    assert "weights can still" not in repaired(command, trained, tmp_path / "again")["checkpoint-4"][1]


def test_what_can_be_used_instead_is_named(command, trained, tmp_path):
    os.truncate(trained / "checkpoint-4/optimizer_0/__0_0.distcp", 1000)
    said = refused(command, trained / "checkpoint-4", tmp_path / "out")
    assert "its weights can still be used: unshard export writes them" in said
    assert "resume from checkpoint-2, the newest sound checkpoint before it" in said
    os.truncate(trained / "checkpoint-2/optimizer_0/__0_0.distcp", 1000)
    said = refused(command, trained / "checkpoint-4", tmp_path / "out")
    assert "newest sound" not in said
    assert "no sound copy can be made" in refused(command, trained, tmp_path / "out")


def test_it_can_write_nowhere_else(copied, faults, tmp_path):
    """Landlock, as for export: asked for before the first write."""
    run = copied(GOLDEN / "run", "run")
    (run / "checkpoint-2/trainer_state.json").unlink()
    out = tmp_path / "out"
    with faults.armed("write", nth=1, action="hold", path=f"{out}.partial"):
        writes = subprocess.Popen([UNSHARD, "check", run, "--repair", out, "-o", "settle=0,store=none"], env=faults.env,
                                  stdout=subprocess.DEVNULL)
        while not faults.struck:
            assert writes.poll() is None
        assert "NoNewPrivs:\t1" in Path(f"/proc/{writes.pid}/status").read_text()
    assert writes.wait(LONGEST_S) == 0
    assert (out / "checkpoint-2/trainer_state.json").exists()

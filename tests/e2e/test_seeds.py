"""The failures that users reported, one test each: natively, with the framework itself, it is the error of
the report; through the mount it is gone, or where nothing can take it away, named by `unshard check`.

Lightning's (KeyError 'optimizer_0', 'optimizer_states', "contains only the model") are in
test_lightning.py, its DeepSpeedStrategy with another number of GPUs in test_lightning_deepspeed.py."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import conftest
import trees
from damage import edit, rewrap

SHARDED = "SHARDED_STATE_DICT"
CKPT = "checkpoint-2"
ACTOR = "run/global_step_2/actor"


# -- Trainer with FSDP --

@pytest.fixture(scope="module")
def once(request):
    """test_resume.py resumes again what such runs save; here --long alone does."""
    return not request.config.getoption("--long")


@pytest.fixture(scope="module")
def trainer(made, once, tmp_path_factory):
    """name -> how the run went, or the error's text."""
    base = tmp_path_factory.mktemp("trainer")
    source, mnt, spec = base / "runs", base / "mnt", base / "spec.json"
    shutil.copytree(made("r2", "f2") / "run", source / "f2")
    shutil.copytree(source / "f2", source / "stateless")
    (source / f"stateless/{CKPT}/trainer_state.json").unlink()
    shutil.copytree(source / "f2", source / "older")
    state = source / f"older/{CKPT}/trainer_state.json"
    state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "train_batch_size"}))
    mnt.mkdir()
    kind = "trainer once" if once else "trainer"
    conftest.unshard("mount", source, mnt, "-o", "settle=0,store=none")
    try:
        spec.write_text(json.dumps([
            ["native", kind, str(source / "f2" / CKPT), 2, SHARDED],
            ["native-older", kind, str(source / "older" / CKPT), 2, SHARDED],
            ["older", kind, str(mnt / "dcp/older" / CKPT), 2, SHARDED],
            ["native-stateless", kind, str(source / "stateless" / CKPT), 2, SHARDED],
            ["stateless", kind, str(mnt / "dcp/stateless" / CKPT), 2, SHARDED],
            ["only-model", "only_model", None, 2, SHARDED, str(base / "refused")],
            ["only-model-unchecked", "only_model unchecked", None, 2, SHARDED, str(base / "let-pass")]]))
        conftest.launch("resume_run.py", 1, base / "out", [str(spec)])
        yield base, json.loads((base / "out").read_text())
    finally:
        conftest.detach(mnt)


def test_trainer_state_is_missing(trainer, once):
    """FileNotFoundError: trainer_state.json, when training is to go on."""
    _, results = trainer
    assert results["native-stateless"].startswith("FileNotFoundError: ")
    assert "trainer_state.json" in results["native-stateless"]
    assert conftest.went_on(results["stateless"], once) == conftest.went_on(results["native"], once)
    assert results["native"]["step"] == 4


def test_trainer_state_of_an_older_version(trainer, once):
    """TypeError: unsupported operand type(s) for //: 'NoneType' and 'int' (a state without train_batch_size)."""
    _, results = trainer
    assert results["native-older"].startswith("TypeError: ")
    assert conftest.went_on(results["older"], once) == conftest.went_on(results["native"], once)


def test_sharded_with_save_only_model(trainer, command):
    """FileNotFoundError: trainer_state.json at the first save (transformers PR 36627), today refused at the
    start. No weights are ever written: nothing can show them, and `check` says so beforehand."""
    base, results = trainer
    assert results["only-model-unchecked"].startswith("FileNotFoundError: ")
    assert "checkpoint-1/trainer_state.json" in results["only-model-unchecked"]
    assert results["only-model"].startswith("ValueError: save_only_model option is not compatible")
    assert not list((base / "let-pass").glob("checkpoint-*"))
    (base / "arguments.json").write_text(json.dumps({
        "output_dir": str(base / "let-pass"), "save_only_model": True, "fsdp": "full_shard",
        "fsdp_config": {"state_dict_type": SHARDED, "version": 2}}))
    done = command("check", "--config", base / "arguments.json", check=False)
    assert done.returncode == 1 and "[sharded_save_only_model]" in done.stdout


# -- per-rank files: veRL, EasyR1 --

def loaded_natively(base, world, case, actor, sound=None):
    """What each rank's loading and next save ends with; that of `sound`, first, ends well."""
    sounds = [f"said:sound:{case}={sound}"] if sound else []
    conftest.generated("ranks_load.py", world, base, [*sounds, f"said:said:{case}={actor}"])
    if sound:
        assert {(base / f"sound-{rank}.txt").read_text() for rank in range(world)} == {"nothing"}
    return [(base / f"said-{rank}.txt").read_text() for rank in range(world)]


def plain_optimizer(mounted):
    """name -> state in a plain AdamW that has loaded full/."""
    live = trees.weights(mounted / "weights" / ACTOR)
    state, named = (torch.load(mounted / path, weights_only=True) for path in (
        f"full/{ACTOR}/optimizer.pt", f"full-fsdp/{ACTOR}/optimizer.bin"))
    names = [n for g in named["param_groups"] for n in g["params"]]
    optimizer = torch.optim.AdamW([torch.nn.Parameter(live[n].clone()) for n in names])
    optimizer.load_state_dict(state)
    return {n: optimizer.state[p] for n, p in zip(names, optimizer.param_groups[0]["params"])}


def test_a_state_lost_on_one_rank(made, copied, mount, command, tmp_path):
    """AssertionError: Manually calculated _sharded_numel_padded is incorrect (EasyR1 issues 226, 244, 275),
    which says neither which file nor which parameter: `check` does. The weights are served."""
    top = copied(made("v2", "verl-f1orig"))
    victim = top / ACTOR / "optim_world_size_2_rank_1.pt"

    def lose(state):
        whose = [k for k, v in state["state"].items() if v["exp_avg"].numel()]
        state["state"].pop(whose[0])

    edit(victim, lose)
    said = loaded_natively(tmp_path / "lost", 2, "verl-f1orig", top / ACTOR,
                           made("v2", "verl-f1orig") / ACTOR)
    assert any("Manually calculated _sharded_numel_padded is incorrect" in text for text in said)
    done = command("check", top, "-o", "settle=0", check=False)
    assert done.returncode == 1
    assert "the ranks' pieces of optimizer state state.4.exp_avg have 55 elements together; expected 100, " \
        "those of layers.0.weight" in done.stdout
    mounted = mount(top)
    trees.assert_same(trees.weights(mounted / "weights" / ACTOR),
                      trees.tensors(top / "live/model.safetensors"))
    assert (mounted / "full" / ACTOR / "UNSHARD_PROBLEM.txt").exists()


@pytest.fixture
def flat_units(made, copied):
    """FSDP1's flat units, with names: a copy of EasyR1's files."""
    return copied(made("v3", "easyr1-f1"))


def on_all(top, change):
    for rank in range(3):
        edit(top / ACTOR / f"optim_world_size_3_rank_{rank}.pt", change)


VICTIM, OTHER = "layers.0.weight", "layers.0.bias"  # of one unit


def test_states_of_several_types_in_one_unit(made, flat_units, mount, tmp_path):
    """ValueError: All unflattened parameters comprising a single flat parameter must have .. the same
    dtype. A plain optimizer has no units, and takes them from full/."""
    def round_it(state):
        for name in ("exp_avg", "exp_avg_sq"):
            state["state"][VICTIM][name] = rewrap(state["state"][VICTIM][name], torch.Tensor.bfloat16)

    before = plain_optimizer(mount(flat_units, changing=True))
    on_all(flat_units, round_it)
    said = loaded_natively(tmp_path / "types", 3, "easyr1-f1", flat_units / ACTOR,
                           made("v3", "easyr1-f1") / ACTOR)
    assert any(text.startswith("ValueError: All unflattened parameters") and "same dtype" in text
               for text in said)
    after = plain_optimizer(mount(flat_units))
    for name, state in before.items():
        want = {k: v.bfloat16().float() if name == VICTIM and k != "step" else v
                for k, v in state.items()}
        trees.assert_same(after[name], want)


def test_a_state_lost_on_all_ranks(flat_units, mount, tmp_path):
    """RuntimeError: Missing optimizer state for parameter .. in checkpoint. A plain optimizer begins that
    parameter's anew and goes on with the others."""
    on_all(flat_units, lambda state: state["state"].pop(VICTIM))
    said = loaded_natively(tmp_path / "lost", 3, "easyr1-f1", flat_units / ACTOR)
    assert any(f"Missing optimizer state for parameter '{VICTIM}'" in text for text in said)
    held = plain_optimizer(mount(flat_units))
    assert not held[VICTIM] and set(held[OTHER]) == {"step", "exp_avg", "exp_avg_sq"}


# -- Trainer with DeepSpeed --

@pytest.fixture(scope="module")
def deepspeed(made, tmp_path_factory):
    """NAME/{error.txt,losses.json} of runs of three processes that go on from what two saved."""
    base = tmp_path_factory.mktemp("deepspeed")
    native, mnt = made("h2", "z2-bf16") / "run" / CKPT, base / "mnt"
    converted, alone = base / "source/converted" / CKPT, base / "source/alone" / CKPT
    shutil.copytree(native, converted)
    conftest.to_universal(native / "global_step2", converted / "global_step2_universal", options=["--inject_missing_state"])
    # All that somebody keeps who keeps the converted one.
    shutil.copytree(converted, alone, ignore=lambda folder, names: {
        n for n in names if Path(folder) == converted and
        n not in ("global_step2_universal", "latest_universal", "scheduler.pt", "config.json")})
    shutil.copytree(native, base / "source/native" / CKPT)
    mnt.mkdir()
    # How often it logged is in none of these files.
    conftest.unshard("mount", base / "source", mnt, "-o", "settle=0,store=none,fact=logging_steps=1")
    try:
        conftest.generated("deepspeed_trainer.py", 3, base / "out", [
            f"resume:z2-bf16:tied:{base}/source/native/{CKPT}:native:fail",
            f"resume:z2-bf16:tied:{converted}:converted:fail",
            f"resume:z2-bf16:tied:{alone}:alone:universal:fail",
            f"resume:z2-bf16:tied:{mnt}/world-3/native/{CKPT}:world",
            f"resume:z2-bf16:tied:{mnt}/universal/alone/{CKPT}:universal:universal"])
        yield base / "out"
    finally:
        conftest.detach(mnt)


def losses(run):
    got = json.loads((run / "losses.json").read_text())
    assert {"3", "4"} <= set(got)
    return [got["3"], got["4"]]


def test_another_number_of_gpus(deepspeed):
    """ZeRORuntimeException: .. DP world size of 2 but the current world size is 3."""
    error = (deepspeed / "native/error.txt").read_text()
    assert error.startswith("ZeRORuntimeException: ")
    assert "DP world size of 2 but the current world size is 3" in error
    assert losses(deepspeed / "world")


def test_a_universal_checkpoint_that_a_trainer_does_not_go_on_from(deepspeed):
    """Made by DeepSpeed's own tool: beside the native one a Trainer does not look at it, and alone it has no
    trainer_state.json (or, under another name, is no checkpoint to it)."""
    assert (deepspeed / "converted/error.txt").read_text().startswith("ZeRORuntimeException: ")
    error = (deepspeed / "alone/error.txt").read_text()
    assert error.startswith("FileNotFoundError: ") and "trainer_state.json" in error
    assert losses(deepspeed / "universal") == losses(deepspeed / "world")

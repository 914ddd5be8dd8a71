"""What the command and a mount say about one thing is the same everywhere, once, and names the fix that works."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

from conftest import LONGEST_S, ROOT, UNSHARD

GOLDEN = ROOT / "tests/golden"

SHARD = "pytorch_model_fsdp_0/__0_0.distcp"
YOUNG = "settle=3600"  # all that was just copied may still be written


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(GOLDEN / "run", tmp_path / "runs/llama")


def info(command, checkpoint, *options):
    return json.loads(command("show", checkpoint, "--json", *options, check=False).stdout)["info"]


# -- a save that goes on --

def test_saving_is_the_one_answer(command, mount, run):
    checkpoint = run / "checkpoint-2"
    (checkpoint / SHARD).unlink()
    (checkpoint / "trainer_state.json").unlink()
    said = f"still being saved: {SHARD} is not complete yet"
    listed = command("ls", run, "-o", YOUNG)
    assert f"{checkpoint}  hf_fsdp" in listed.stdout and " saving\n" in listed.stdout and said in listed.stdout
    shown = command("show", checkpoint, "-o", YOUNG)
    assert shown.stdout.count(said) == 1 and "copy it back" not in shown.stdout
    assert "weights        saving: see problems below" in shown.stdout
    checked = command("check", run, "-o", YOUNG, check=False)
    assert said in checked.stdout and "[still_saving]" in checked.stdout and "0 problems, 0 notes, 1 not judged" in checked.stdout
    m = mount(run, YOUNG)
    assert os.listdir(m / "weights") == ["config.json"] or not (m / "weights/checkpoint-2").exists()
    assert "__0_0" not in (m / ".unshard/problems.txt").read_text()
    for done in (listed, shown, checked):
        assert done.stderr == ""
    assert [p["id"] for p in info(command, checkpoint, "-o", YOUNG)["problems"]] == ["still_saving"]
    # and damage once nothing changes any more
    assert " damaged\n" in command("ls", run, "-o", "settle=0", check=False).stdout


def test_a_save_that_has_only_begun(command, tmp_path):
    (tmp_path / "runs/checkpoint-4").mkdir(parents=True)
    assert "saving" in command("ls", tmp_path / "runs", "-o", YOUNG).stdout
    assert "[still_saving]" in command("check", tmp_path / "runs", "-o", YOUNG, check=False).stdout
    assert "still being saved" in command("show", tmp_path / "runs/checkpoint-4", "-o", YOUNG, check=False).stderr


# -- views --

ZERO = GOLDEN / "zero/z2_w3/global_step2"


def test_show_lists_world_n(command, run):
    views = info(command, ZERO, "-o", "settle=0")["views"]
    assert views["world-N"]["state"] == "ok" and "/world-N/global_step2" in views["world-N"]["usage"]
    assert info(command, run / "checkpoint-2")["views"]["world-N"]["state"] == "none"


def test_show_of_one_view_shows_that_one(command):
    views = info(command, ZERO, "-o", "settle=0,view=world-3")["views"]
    assert list(views) == ["world-3"] and "MOUNTPOINT/global_step2" in views["world-3"]["usage"]


@pytest.mark.parametrize("source", [ZERO, GOLDEN / "ranks/fsdp2"])
def test_the_full_fsdp_line_of_what_no_trainer_saved_loads(command, mount, tmp_path, source):
    """A plain engine's and a manager's: the line that show prints, run in one process."""
    copy = shutil.copytree(source, tmp_path / "runs" / source.name)
    line = info(command, copy, "-o", "settle=0")["views"]["full-fsdp"]["usage"]
    at = mount(copy.parent, "settle=0") / "full-fsdp" / copy.name
    saved = torch.load(at / "optimizer.bin")
    weights = torch.load(at / "pytorch_model_fsdp.bin")
    model = torch.nn.Module()
    for name, state in saved["state"].items():
        owner, _, last = name.rpartition(".")
        if owner and not hasattr(model, owner):
            model.add_module(owner, torch.nn.Module())
        model.get_submodule(owner).register_parameter(last, torch.nn.Parameter(torch.zeros(state["exp_avg"].shape)))
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": [parameters[n] for n in g["params"]]} for g in saved["param_groups"]])
    exec(line.replace("MOUNTPOINT", str(at.parent.parent)), {"torch": torch, "model": model, "optimizer": optimizer,
         "set_optimizer_state_dict": set_optimizer_state_dict, "StateDictOptions": StateDictOptions})
    for name, parameter in parameters.items():
        for key, value in saved["state"][name].items():
            assert torch.equal(optimizer.state[parameter][key], value), (name, key)
        assert weights[name].shape == parameter.shape
    assert [g["lr"] for g in optimizer.param_groups] == [g["lr"] for g in saved["param_groups"]]


@pytest.mark.parametrize("options", [(), ("max_shard_size=1KB",)], ids=["one file", "several"])
def test_every_line_names_what_is_there(command, mount, tmp_path, options):
    """Of all samples, some of which have no optimizer, or no config."""
    source = shutil.copytree(GOLDEN, tmp_path / "golden", ignore=shutil.ignore_patterns("check", "names"))
    m = mount(source, "settle=0", *options)
    seen = 0
    for checkpoint in json.loads(command("ls", source, "--json", "-o", "settle=0", check=False).stdout):
        at = source / checkpoint["path"]
        views = info(command, at, "-o", ",".join(["settle=0", *options]))["views"]
        for view in views.values():
            for line in re.findall(r'"MOUNTPOINT/([^"]*)"', view["usage"] or ""):
                view_name, _, path = line.replace("world-N", "world-2").partition("/")
                found = m / view_name / Path(checkpoint["path"]).parent
                assert list(found.glob(path)), (checkpoint["path"], view["usage"])
                seen += 1
    assert seen > 50


def test_show_says_how_to_write_its_lines_for_either_mount(command, mount, run):
    """Of the run's directory, and of the one above it."""
    shown = command("show", run / "checkpoint-2").stdout
    assert f"(MOUNTPOINT: where you mount {run}; if you mount {run.parent} instead, write llama/checkpoint-2 for checkpoint-2)" \
        in shown
    line = info(command, run / "checkpoint-2")["views"]["full"]["usage"].split('"')[1]
    assert Path(line.replace("MOUNTPOINT", str(mount(run)))).is_dir()
    above = line.replace("MOUNTPOINT", str(mount(run.parent)))
    assert not Path(above).exists() and Path(above.replace("checkpoint-2", "llama/checkpoint-2")).is_dir()


def test_without_a_config_from_pretrained_is_not_offered(command, run):
    (run / "config.json").unlink()
    told = info(command, run / "checkpoint-2")
    assert "load_file(" in told["views"]["weights"]["usage"] and "-o model=DIR" in told["views"]["weights"]["usage"]
    assert [p["id"] for p in told["problems"]] == ["no_config"]


# -- problems of a whole mount --

def test_a_problem_is_said_once(command, run):
    """By each command, though every view has it; with the path once."""
    checkpoint = run / "checkpoint-2"
    (checkpoint / SHARD).unlink()
    for verb, path in (("ls", run), ("show", checkpoint), ("check", run)):
        lines = [line for line in command(verb, path, "-o", "settle=0", check=False).stdout.splitlines() if "is missing" in line]
        assert len(lines) == 1 and lines[0].count(SHARD) == 1 and lines[0].count(str(checkpoint)) <= 1, lines


def test_what_is_not_supported_is_not_called_damaged(command, tmp_path):
    folder = shutil.copytree(GOLDEN / "zero/z2_w3/global_step2", tmp_path / "run/global_step2")
    for path in folder.glob("*model_states.pt"):
        state = torch.load(path, weights_only=False)
        torch.save({**state, "ds_autoep_layers": [{"module_path": "model.layers.0.mlp"}]}, path)
    shown = command("show", folder, "-o", "settle=0", check=False).stdout
    assert "AutoEP" in shown and "cannot be shown: see problems below" in shown and "damaged" not in shown
    views = json.loads(command("show", folder, "--json", "-o", "settle=0", check=False).stdout)["info"]["views"]
    assert "AutoEP" in views["weights"]["why"]
    assert views["weights"]["state"] == "unsupported" and "damaged" not in {v["state"] for v in views.values()}, views
    listed = command("ls", tmp_path, "--json", "-o", "settle=0", check=False)
    assert [c["state"] for c in json.loads(listed.stdout)] == ["unsupported"] and listed.returncode == 1, listed


def test_the_mounts_problems_are_said_once(mount, run):
    os.truncate(run / "checkpoint-2" / SHARD, 1000)
    m = mount(run, "settle=0", changing=True)
    for view in os.listdir(m):
        os.listdir(m / view / "checkpoint-2") if (m / view / "checkpoint-2").exists() else None
    lines = [line for line in (m / ".unshard/problems.txt").read_text().splitlines() if line]
    assert len(lines) == len(set(lines)) == sum(SHARD in line for line in lines) and lines
    assert all(line.startswith("checkpoint-2: ") and line.count("checkpoint-2") == 1 for line in lines)


def test_a_view_that_does_not_apply_is_no_problem(mount, tmp_path):
    source = shutil.copytree(GOLDEN / "ranks/fsdp2", tmp_path / "runs/global_step_2/actor").parent.parent
    m = mount(source, "settle=0")
    for view in os.listdir(m):
        os.listdir(m / view)
        (m / view / "global_step_2/actor").exists()
    assert "distributed checkpoint" not in (m / ".unshard/problems.txt").read_text()


# -- options --

@pytest.mark.parametrize("option, said", [
    ("model=nope={run}", "found no directory nope below"),
    ("cache_dir=/nope", "cache_dir=/nope: No such file or directory"),
    ("cache_dir={run}/config.json", "Not a directory"),
    ("view=weigths", "the views are adapter, dcp, ema, full, full-fsdp, mean-K, merged, torch_dist, torch_dist-ep, "
                     "universal, weights, weights-bf16, weights-fp16, weights-fp32, weights-fp8, world-N"),
])
def test_options_that_cannot_work_are_refused(command, run, mnt, option, said):
    done = command("mount", run, mnt, "-o", option.format(run=run), check=False)
    assert done.returncode == 2 and said in done.stderr and not os.path.ismount(mnt)


def test_every_verb_knows_the_store(command, run, tmp_path):
    for verb in ("ls", "show", "check", "warm", "mount"):
        assert "--store FILE|none" in command(verb, "--help").stdout
    command("check", run, "--store", tmp_path / "store.db")


# -- one checkpoint --

def test_a_checkpoint_by_itself_has_its_runs_config(mount, run):
    m = mount(run / "checkpoint-2")
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= set(os.listdir(m / "weights"))
    assert (m / "weights/config.json").read_bytes() == (run / "config.json").read_bytes()
    assert f"{run}, the directory above SOURCE" in (m / "weights/.unshard/problems.txt").read_text()


def test_what_is_above_is_not_followed_out_of_it(mount, run, tmp_path):
    (tmp_path / "secret.json").write_bytes((run / "config.json").read_bytes())
    (run / "config.json").unlink()
    (run / "config.json").symlink_to(tmp_path / "secret.json")
    m = mount(run / "checkpoint-2")
    assert "config.json" not in os.listdir(m / "weights")


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_checkpoint_by_itself_has_its_runs_tracker(command, tmp_path, above):
    actor = shutil.copytree(GOLDEN / "ranks/fsdp2", tmp_path / "run/global_step_2/actor")
    (tmp_path / "run/latest_checkpointed_iteration.txt").write_text("2")
    source = [actor, actor.parent, actor.parent.parent][above]
    assert "[save_end_unknown]" not in command("check", source, "-o", "settle=0").stdout
    (tmp_path / "run/latest_checkpointed_iteration.txt").unlink()
    assert "[save_end_unknown]" in command("check", source, "-o", "settle=0").stdout


# -- links --

def test_a_checkpoint_is_listed_once_whatever_links_to_it(command, mount, run):
    (run / "best").symlink_to("checkpoint-2")
    assert command("ls", run).stdout.count("hf_fsdp") == 1
    assert "1 checkpoint:" in command("check", run, "-o", "settle=0").stdout
    assert "1 checkpoint:" in command("check", run / "best", "-o", "settle=0").stdout
    assert (mount(run) / "weights/best/model.safetensors").exists()


# -- paths --

@pytest.mark.parametrize("typed", ["runs", "runs/", "./runs", "{top}/runs"])
def test_paths_can_be_pasted_back(run, tmp_path, typed):
    os.truncate(run / "checkpoint-2" / SHARD, 1000)
    typed = typed.format(top=tmp_path)
    for verb in ("ls", "check"):
        done = subprocess.run([UNSHARD, verb, typed, "-o", "settle=0"], cwd=tmp_path, capture_output=True, text=True,
                              timeout=LONGEST_S)
        path = next(word for word in done.stdout.split() if word.endswith("checkpoint-2"))
        assert path.startswith(typed) and (tmp_path / path).is_dir()
        assert done.stderr == "", "said twice"
        problem = next(line for line in done.stdout.splitlines() if "__0_0" in line)
        assert problem.count("llama") == (verb == "ls")


# -- commands --

@pytest.mark.parametrize("typed, meant", [("lst", "'ls'"), ("chek", "'check'"), ("unmount", "'umount'"), ("x", None)])
def test_a_mistyped_command_gets_one_line(command, typed, meant):
    done = command(typed, check=False)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert meant is None or f"did you mean {meant}?" in done.stderr


def test_show_of_a_run_points_to_ls(command, run):
    done = command("show", run.parent, check=False)
    assert done.returncode == 2
    assert f"1 checkpoint is below it: list them with `unshard ls {run.parent}`" in done.stderr
    done = command("show", run.parent.parent / "runs/llama/checkpoint-2/optimizer_0/..", check=False)
    assert done.returncode == 0


# -- mounting --

def test_a_source_without_checkpoints_is_said(command, mnt, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no checkpoint found below" in command("mount", tmp_path / "empty", mnt).stderr
    command("umount", mnt)


def test_checkpoints_behind_a_link_are_not_said_to_be_absent(command, run, mnt, tmp_path):
    (tmp_path / "links").mkdir()
    (tmp_path / "links/best").symlink_to(run)
    done = command("mount", tmp_path / "links", mnt, "-o", f"settle=0,follow={run.parent}")
    assert "no checkpoint" not in done.stderr and (mnt / "weights/best/checkpoint-2/model.safetensors").exists()
    command("umount", mnt)


@pytest.mark.parametrize("where, said", [("mnt", "is not empty"), ("runs", "its path cannot be used until you unmount")])
def test_what_a_mount_covers_is_said(command, run, tmp_path, where, said):
    (tmp_path / "mnt").mkdir()
    (tmp_path / "mnt/x").touch()
    done = command("mount", run, tmp_path / where)
    command("umount", tmp_path / where)
    assert said in done.stderr and "no checkpoint" not in done.stderr

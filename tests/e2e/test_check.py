"""`unshard check`: checkpoints and configs, by the command."""

import errno
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import LONGEST_S, MAKE, ROOT, UNSHARD

sys.path[:0] = [str(ROOT / "tests/docs"), str(MAKE)]
import generate  # noqa: E402
import models  # noqa: E402

GOLDEN = ROOT / "tests/golden"
CONFIGS = GOLDEN / "check"


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(GOLDEN / "run", tmp_path / "run")


def findings(done):
    return [(f["path"], f["check"], f["severity"]) for f in json.loads(done.stdout)["findings"]]


def check(command, *args):
    return command("check", *args, "-o", "settle=0", check=False)


def test_a_sound_run(command, run):
    done = check(command, run)
    assert (done.returncode, done.stdout) == (0, "1 checkpoint: 0 problems, 0 notes\n")
    done = check(command, run / "checkpoint-2", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"checkpoints": 1, "problems": 0, "notes": 0, "not_judged": 0,
                                       "saving": 0, "findings": []}


def test_arguments_as_torch_saves_them_are_no_config(command, tmp_path):
    torch.save({"output_dir": "runs"}, tmp_path / "training_args.bin")
    done = command("check", "--config", tmp_path / "training_args.bin", check=False)
    assert done.returncode == 2 and "a file of torch.save: expected JSON or YAML" in done.stderr


def test_each_damaged_shard_is_named(command, tmp_path):
    """Not the first alone, at which a view stops; by show, too."""
    run = shutil.copytree(GOLDEN / "older/accelerate0.29.3-torch2.2.2_f1_sh_w3/run", tmp_path / "run")
    (run / "ckpt/pytorch_model_fsdp_0/__1_0.distcp").unlink()
    os.truncate(run / "ckpt/pytorch_model_fsdp_0/__2_0.distcp", 10)
    found = json.loads(check(command, run, "--json").stdout)["findings"]
    shown = json.loads(command("show", run / "ckpt", "--json", "-o", "settle=0", check=False).stdout)["info"]["problems"]
    for problems in found, shown:
        assert [(f["id"], Path(f["file"]).name, f["rank"]) for f in problems if f["severity"] == "problem"] == \
            [("shard_missing", "__1_0.distcp", 1), ("shard_cut", "__2_0.distcp", 2)]


@pytest.mark.parametrize("launch,case,found", [
    ("u2", "full", []), ("u2", "accfull", [("run/state", "config", "note")]), ("r2", "f2", [("run/checkpoint-2", "config", "note"),
                                                                              ("run/checkpoint-4", "config", "note")]),
    ("u0", "plain", []), ("u0", "acc", [("run/state", "config", "note")])])
def test_whole_files_are_sound(command, made, launch, case, found):
    """FULL_STATE_DICT: random states of two ranks, and files that rank 0 wrote. Accelerate: no trainer_state.json."""
    done = check(command, made(launch, case) / "run", "--json")
    assert done.returncode == 0 and findings(done) == found


def test_random_states_of_a_rank_that_are_gone(command, made, copied):
    run = copied(made("u2", "full") / "run", "run")
    (run / "checkpoint-4/rng_state_0.pth").unlink()
    assert findings(check(command, run, "--json")) == [("run/checkpoint-4", "rng", "problem")]


@pytest.mark.parametrize("launch,case", [("r2", "f2"), ("u2", "full"), ("u0", "plain")])
def test_a_state_of_an_older_version(command, made, copied, launch, case):
    """Without train_batch_size, which is no damage (and a Trainer of this version fails: test_seeds.py)."""
    run = copied(made(launch, case) / "run", "run")
    state = run / "checkpoint-2/trainer_state.json"
    state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "train_batch_size"}))
    done = check(command, run, "--json")
    assert done.returncode == 0
    assert [f["text"] for f in json.loads(done.stdout)["findings"] if f["check"] != "config"] == [
        "trainer_state.json of checkpoint-2 has no train_batch_size, which older versions of transformers and other "
        "trainers do not write: the Trainer of transformers 5.23 ends with a TypeError when it resumes from this file; "
        "resume from a mount, whose views add the key, or with the version that saved the checkpoint"]


FIELDS = {"id", "severity", "scope", "code", "file", "rank", "tensor", "expected", "found", "text",
          "advice"}


def test_json_has_the_particulars(command, run):
    """So that no program reads sentences."""
    shard = run / "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp"
    os.truncate(shard, 100)
    found = json.loads(check(command, run, "--json").stdout)["findings"]
    assert all(set(f) == FIELDS | {"path", "check", "view"} for f in found)
    damage = [f for f in found if f["file"] and f["file"].endswith("__1_0.distcp")]
    assert damage and all(f["code"] == -errno.EBADMSG and f["scope"] == "weights" for f in damage)
    assert all(f["advice"] is None or f["advice"] in f["text"] for f in found)
    (run / "checkpoint-2/optimizer_0/.metadata").unlink()
    known = json.loads(command("show", run / "checkpoint-2", "--json", "-o", "settle=0", check=False).stdout)
    assert known["info"]["problems"] and all(set(p) == FIELDS for p in known["info"]["problems"])
    found = json.loads(check(command, run, "--json").stdout)["findings"]
    assert known["info"]["problems"][0]["id"] in [f["id"] for f in found]


def test_a_path_is_judged_as_a_mount_of_it_judges(command, mount, run, tmp_path):
    """Shards that are links into a directory beside SOURCE, which neither follows without leave."""
    stored = shutil.move(run / "checkpoint-2/pytorch_model_fsdp_0", tmp_path / "stored")
    (run / "checkpoint-2/pytorch_model_fsdp_0").mkdir()
    for file in stored.iterdir():
        (run / "checkpoint-2/pytorch_model_fsdp_0" / file.name).symlink_to(file)
    states = []
    for options in ("settle=0", f"settle=0,follow={stored}"):
        [listed] = json.loads(command("ls", run, "--json", "-o", options, check=False).stdout)
        checked = command("check", run, "-o", options, check=False).returncode
        m = mount(run, options)
        weights = (m / "weights/checkpoint-2/model.safetensors").exists()
        assert (listed["state"] == "ok") == (checked == 0) == weights
        states.append(weights)
    assert states == [False, True]


NOT_READ = ["link_not_followed"]


@pytest.mark.parametrize("sample", generate.SAMPLES, ids=lambda s: s.replace("/", "-"))
def test_a_link_that_is_not_followed_is_no_damage(command, tmp_path, sample):
    """Each file of each format in turn. What is behind such a link may be sound: nothing is said about it."""
    outside = shutil.copytree(GOLDEN / sample, tmp_path / "outside" / Path(sample).name)
    whole = findings(check(command, outside, "--json"))
    seen = 0
    for file in sorted(p for p in outside.rglob("*") if p.is_file()):
        shutil.rmtree(tmp_path / "inside", ignore_errors=True)
        checkpoint = shutil.copytree(outside, tmp_path / "inside" / outside.name)
        link = checkpoint / file.relative_to(outside)
        link.unlink()
        link.symlink_to(file)
        done = check(command, checkpoint, "--json")
        found = json.loads(done.stdout)["findings"]
        new = [f for f in found if f["severity"] != "note" and (f["path"], f["check"], f["severity"]) not in whole]
        assert [f["id"] for f in new] in ([], NOT_READ), file
        [listed] = json.loads(command("ls", checkpoint, "--json", "-o", "settle=0", check=False).stdout)
        assert listed["state"] != "damaged", file
        if not new:
            continue
        seen += 1
        assert done.returncode == 3 and f"add -o follow={file.parent}" in new[0]["advice"]
        done = check(command, checkpoint, "--json", "-o", f"follow={file.parent}")
        assert findings(done) == whole, file
    assert seen


def test_a_checkpoint_that_is_not_recognised_because_of_a_link(command, run, tmp_path):
    for part in ("pytorch_model_fsdp_0", "optimizer_0"):
        shutil.move(run / "checkpoint-2" / part, tmp_path / "a,b" / part)
        (run / "checkpoint-2" / part).symlink_to(tmp_path / "a,b" / part)
    done = check(command, run, "--json")
    [f] = json.loads(done.stdout)["findings"]
    assert (done.returncode, [f["id"]]) == (3, NOT_READ)
    option = f["advice"].rpartition("-o ")[2]
    assert option == f"follow={tmp_path}/a\\,b"
    assert check(command, run, "-o", option).returncode == 0


def test_a_part_of_a_checkpoint(command, run):
    for verb, status in (("check", 3), ("ls", 1), ("show", 1)):
        done = command(verb, run / "checkpoint-2/optimizer_0", "-o", "settle=0", check=False)
        assert done.returncode == status
        assert f"name {run}/checkpoint-2 instead" in done.stdout and "damaged" not in done.stdout
    for part in (".", "pytorch_model_fsdp_0"):
        assert check(command, run / "checkpoint-2" / part).returncode == 0


def test_no_view_shows_a_door_to_shards(mount, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    (run / "best").symlink_to(other)
    (run / "best.safetensors").symlink_to(other / "config.json")
    (run / "again").symlink_to("checkpoint-2")
    m = mount(run)
    for view in os.listdir(m):
        assert not {"best", "best.safetensors"} & set(os.listdir(m / view))
        assert not os.path.lexists(m / view / "best") and (m / view / "again").is_symlink()
    m = mount(run, f"follow={other}")
    assert (m / "weights/best/checkpoint-2/model.safetensors").exists()


def test_several_paths(command, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other/run")
    (other / "checkpoint-2/scheduler.pt").unlink()
    done = check(command, run, other, tmp_path / "other/run/checkpoint-2")
    assert done.returncode == 1
    assert done.stdout.count(f"{other}/checkpoint-2\n") == 2 and done.stdout.endswith("3 checkpoints: 2 problems, 0 notes\n")
    shown = json.loads(check(command, other, run, "--json").stdout)
    assert (shown["checkpoints"], shown["problems"]) == (2, 1)
    assert [f["path"] for f in shown["findings"]] == [f"{other}/checkpoint-2"]
    assert check(command, run, run).returncode == 0
    done = check(command, run, tmp_path / "none")
    assert done.returncode == 2 and "1 checkpoint: 0 problems" in done.stdout and "none: No such file" in done.stderr
    done = command("ls", run, other, "-o", "settle=0")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [f"{run}/checkpoint-2", f"{other}/checkpoint-2"]
    assert [c["path"] for c in json.loads(command("ls", run, other, "--json").stdout)] == \
        [f"{run}/checkpoint-2", f"{other}/checkpoint-2"]
    done = command("ls", run, tmp_path / "none", check=False)
    assert done.returncode == 2 and str(run) in done.stdout
    assert command("check", "--repair", tmp_path / "out", run, other, check=False).returncode == 2


def test_mounts_inside_the_source(command, run):
    (run / "mnt").mkdir()
    alone = command("ls", run, "-o", "settle=0").stdout
    done = command("mount", run, run / "mnt", "--store", "none")
    try:
        assert f"{run / 'mnt'} is inside {run}" in done.stderr
        assert (run / "mnt/weights/checkpoint-2").exists()
        assert command("ls", run, "-o", "settle=0").stdout == alone
        assert check(command, run).stdout.endswith("1 checkpoint: 0 problems, 0 notes\n")
    finally:
        command("umount", run / "mnt")


def test_the_current_directory(command, run):
    done = subprocess.run([UNSHARD, "check", ".", "-o", "settle=0"], cwd=run, capture_output=True,
                          text=True, timeout=LONGEST_S)
    assert (done.returncode, done.stdout) == (0, "1 checkpoint: 0 problems, 0 notes\n")


def test_every_checkpoint_of_a_run(command, run):
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-3")
    (run / "checkpoint-3/scheduler.pt").unlink()
    (run / "checkpoint-10").mkdir()
    (run / "sub/last.ckpt").mkdir(parents=True)
    done = check(command, run, "--json")
    assert done.returncode == 1
    assert findings(done) == [("run/checkpoint-3", "mixed", "note"),  # its files record step 2
                              ("run/checkpoint-3", "scheduler", "problem"),
                              ("run/checkpoint-10", "empty", "problem"),
                              ("run/sub/last.ckpt", "empty", "problem")]
    text = check(command, run).stdout
    assert text.index("run/checkpoint-3\n") < text.index("run/checkpoint-10\n")
    assert text.endswith("2 checkpoints: 3 problems, 1 note\n")
    # One of them alone, by its path.
    assert findings(check(command, run / "checkpoint-10", "--json")) == \
        [("checkpoint-10", "empty", "problem")]


def test_notes_are_not_problems(command, run):
    (run / "config.json").unlink()
    done = check(command, run)
    assert done.returncode == 0
    assert "note        no config.json was found for the weights" in done.stdout and "[config_missing]" in done.stdout


def test_damage_is_named(command, run):
    (run / "checkpoint-2/pytorch_model_fsdp_0/.metadata").unlink()
    done = check(command, run, "--json")
    assert done.returncode == 1
    texts = [f["text"] for f in json.loads(done.stdout)["findings"] if f["severity"] == "problem"]
    assert any(".metadata" in text for text in texts), texts
    assert done.stderr == ""


def test_a_save_that_goes_on(command, run):
    (run / "checkpoint-2/trainer_state.json").unlink()
    done = command("check", run, "--json", "-o", "settle=3600", check=False)
    assert findings(done) == [("run/checkpoint-2", "saving", "not judged")]
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["problems"], shown["notes"], shown["not_judged"], shown["saving"]) == (3, 0, 0, 1, 1)
    assert command("check", run, "-o", "settle=3600", check=False).stdout.endswith(
        "1 checkpoint: 0 problems, 0 notes, 1 not judged\n")
    assert check(command, run).returncode == 1


def test_a_problem_says_more_than_a_save(command, run):
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-4")
    (run / "checkpoint-2/trainer_state.json").unlink()
    (run / "checkpoint-4/scheduler.pt").unlink()
    done = command("check", run, "--json", "-o", "settle=3600", check=False)
    assert done.returncode == 1 and json.loads(done.stdout)["saving"] == 1


def test_waiting_for_a_save(command, run):
    (run / "checkpoint-2/trainer_state.json").unlink()
    for limit in ("--wait=1", "--wait=2"):
        done = command("check", limit, run, "-o", "settle=3600", check=False)
        assert (done.returncode, "1 checkpoint is still being saved: waiting" in done.stderr) == (3, True)
    done = command("check", "--wait", run, "-o", "settle=2", "--json", check=False)
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["saving"]) == (1, 0) and shown["problems"]
    for wrong in ("--wait=", "--wait=0", "--wait=-1", "--wait=1x"):
        assert command("check", wrong, run, check=False).returncode == 2


@pytest.mark.parametrize("page", ["tools/unshard.1", "docs/check.md"])
def test_the_line_for_a_job_script(run, tmp_path, page):
    """Run as it is written, on a checkpoint that was truncated a moment ago. A save settles after three seconds instead of
    sixty."""
    [line] = [line for line in (ROOT / page).read_text().splitlines() if line.startswith('unshard check') and "|| exit 1" in line]
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin/unshard"
    shim.write_text(f'#!/bin/sh\nexec {UNSHARD} "$@" -o settle=3\n')
    shim.chmod(0o755)

    def job(checkpoint):
        env = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}", "checkpoint": str(checkpoint)}
        return subprocess.run(["sh", "-c", f"{line}\necho began"], env=env, capture_output=True, text=True,
                              timeout=LONGEST_S)

    done = job(run / "checkpoint-2")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "began")
    os.truncate(run / "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp", 100)
    done = job(run / "checkpoint-2")
    assert done.returncode == 1 and not done.stdout.endswith("began\n") and "__1_0.distcp" in done.stdout
    assert job(run / "checkpoint-5").returncode == 1

def test_nothing_is_written(command, run):
    before = {p: os.lstat(p).st_mtime_ns for p in run.rglob("*")}
    check(command, run)
    assert {p: os.lstat(p).st_mtime_ns for p in run.rglob("*")} == before


def test_names_that_would_draw_on_the_terminal(command, tmp_path):
    (tmp_path / "run/\x1b[31m/checkpoint-1").mkdir(parents=True)
    done = check(command, tmp_path / "run")
    assert done.returncode == 1 and "\x1b" not in done.stdout
    assert findings(check(command, tmp_path / "run", "--json"))[0][0] == "run/\x1b[31m/checkpoint-1"


@pytest.mark.parametrize("args", [[], ["/nonexistent"], ["a", "b"], ["--config"],
                                  ["--config", "/nonexistent"], ["--versions", "torch=2", "."],
                                  ["--config", str(CONFIGS / "empty.json")],
                                  ["--config", str(CONFIGS / "unknown.yaml")],
                                  ["--config", str(CONFIGS / "broken.json")],
                                  ["--config", str(CONFIGS / "broken.yaml")],
                                  ["--config", str(CONFIGS / "aliases.yaml")],
                                  ["--config", str(CONFIGS)],
                                  ["--config", str(CONFIGS / "output_dir.good.json"), "."],
                                  ["--config", str(CONFIGS / "output_dir.good.json"),
                                   "--versions", "torch"]])
def test_what_cannot_run_says_why_and_exits_2(command, args):
    done = command("check", *args, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.strip()


VERSIONS = "transformers=5.23.0,accelerate=1.15.0,lightning=2.6.6,deepspeed=0.15.4,torch=2.13.0"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.good.*")), ids=lambda p: p.stem)
def test_good_configs(command, path):
    done = command("check", "--config", path, "--versions", VERSIONS, "--json", check=False)
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["problems"], shown["not_judged"]) == (0, 0, 0)
    assert shown["configs"][0]["kind"] in ("TrainingArguments", "Accelerate config",
                                           "DeepSpeed config", "LightningCLI config")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.bad.*")), ids=lambda p: p.stem)
def test_bad_configs(command, path):
    done = command("check", "--config", path, "--versions",
                   "accelerate=1.5.2,lightning=2.2.0,torch=2.5.1", "--json",
                   check=False)
    shown = json.loads(done.stdout)
    assert shown["findings"] and done.returncode == (1 if shown["problems"] else 0)
    assert all(f["text"] and f["path"] == str(path) for f in shown["findings"])


def test_versions_are_not_guessed(command):
    done = command("check", "--config", CONFIGS / "fsdp2_torch.bad.yaml")
    assert "not judged  this depends on the version of torch, which is not known "\
        "(name it with --versions torch=...): " in done.stdout
    assert "[fsdp2_torch]" in done.stdout
    assert done.stdout.endswith("(Accelerate config): 0 problems, 0 notes, 2 not judged\n")


def test_two_configs_are_one_training(command, tmp_path):
    arguments = tmp_path / "arguments.json"
    arguments.write_text(json.dumps({"output_dir": str(tmp_path / "out"), "save_only_model": True}))
    accelerate = CONFIGS / "fsdp2_torch.good.yaml"
    for one in (arguments, accelerate):
        assert command("check", "--config", one).returncode == 0
    done = command("check", "--config", arguments, "--config", accelerate, check=False)
    assert done.returncode == 1
    assert "[sharded_save_only_model]" in done.stdout


def test_an_output_dir_on_the_mount(command, mount, run, tmp_path):
    m = mount(run)
    config = tmp_path / "arguments.json"
    for where in ("weights", "weights/checkpoint-2", "new/deeper"):
        config.write_text(json.dumps({"output_dir": str(m / where)}))
        done = command("check", "--config", config, check=False)
        assert done.returncode == 1 and "is on an unshard mount" in done.stdout
    config.write_text(json.dumps({"output_dir": str(tmp_path / "out")}))
    assert command("check", "--config", config).returncode == 0
    assert not (tmp_path / "out").exists()


@pytest.fixture
def outsider():
    """A directory, and `unshard` run in it by somebody to whom what has mode 0700 there is closed."""
    place = Path(tempfile.mkdtemp(prefix="unshard-check-", dir="/var/tmp"))
    place.chmod(0o755)
    binary = shutil.copy(UNSHARD, place / "unshard")
    who = {}
    if os.getuid() == 0:
        user = pwd.getpwnam("nobody")
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def unshard(*args):
        return subprocess.run([binary, *map(str, args)], capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], "HOME": "/"}, **who)

    yield place, unshard
    for closed in place.rglob("*"):
        if closed.is_dir():
            closed.chmod(0o755)
    shutil.rmtree(place)


def close(directory):
    directory.mkdir(exist_ok=True)
    directory.chmod(0o700 if os.getuid() == 0 else 0)


def test_directories_that_cannot_be_read_are_named_and_passed_over(outsider):
    place, unshard = outsider
    run = shutil.copytree(GOLDEN / "run", place / "run")
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-7")
    close(run / "lost+found")
    close(run / "checkpoint-7")
    done = unshard("check", run, "--json", "-o", "settle=0,store=none")
    shown = json.loads(done.stdout)
    assert done.returncode == 3 and (shown["checkpoints"], shown["not_judged"], shown["saving"]) == (1, 2, 0)
    assert [(f["path"], f["id"], f["severity"], f["file"]) for f in shown["findings"]] == [
        ("run/checkpoint-7", "unreadable_directory", "not judged", "run/checkpoint-7"),
        ("run/lost+found", "unreadable_directory", "not judged", "run/lost+found")]
    assert all("Permission denied" in f["text"] for f in shown["findings"])
    done = unshard("check", run, "-o", "settle=0,store=none")
    assert done.returncode == 3
    assert done.stdout.endswith("1 checkpoint: 0 problems, 0 notes, 2 not judged\n")

    done = unshard("ls", run, "--store", "none")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any(line.startswith(f"{run}/checkpoint-2 ") and "ok" in line for line in lines)
    assert "lost+found" in done.stderr + done.stdout and "checkpoint-7" in done.stderr + done.stdout
    found = json.loads(unshard("ls", run, "--json", "--store", "none").stdout)
    assert [(c["path"], c["state"]) for c in found] == [
        ("checkpoint-2", "ok"), ("checkpoint-7", "unreadable"), ("lost+found", "unreadable")]


def test_what_cannot_be_read_at_all(outsider):
    place, unshard = outsider
    close(place / "run")
    done = unshard("check", place / "run", "-o", "store=none")
    assert done.returncode == 2 and "Permission denied" in done.stderr
    assert unshard("ls", place / "run", "--store", "none").returncode == 2


# -- two models in one directory --

def of_two_models(command, source):
    found = json.loads(command("check", source, "--json", "-o", "settle=0,store=none", check=False).stdout)["findings"]
    assert all(Path(f["file"]).parent.name == Path(f["path"]).name for f in found if f["id"] == "model_beside")
    return [(Path(f["file"]).name, f["severity"], f["text"].split(": the views show ")[1].split(";")[0]) for f in found
            if f["id"] == "model_beside"]


def test_which_of_two_models_is_shown(command, tmp_path):
    """from_pretrained takes model.safetensors first, then its index, then pytorch_model.bin."""
    folder = tmp_path / "model"
    models.even_llama(torch.float32).save_pretrained(folder, max_shard_size="30KB")
    (folder / "model.safetensors.index.json").rename(tmp_path / "index")
    tensors = {n: t for f in folder.glob("model-*") for n, t in load_file(f).items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    assert of_two_models(command, folder) == []  # parts without an index are no model
    (tmp_path / "index").rename(folder / "model.safetensors.index.json")
    [(file, severity, shown)] = of_two_models(command, folder)
    assert (file, severity) == ("pytorch_model.bin", "note") and shown.startswith("model-00001-of-")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert of_two_models(command, folder) == [
        ("model.safetensors.index.json", "note", "model.safetensors"), ("pytorch_model.bin", "note", "model.safetensors")]


def test_a_model_beside_shards(command, copied):
    run = copied(GOLDEN / "run", "run")
    save_file({"w": torch.ones(3)}, run / "checkpoint-2/model.safetensors")
    assert of_two_models(command, run) == [("model.safetensors", "note", "__0_0.distcp")]


def test_what_a_trainer_writes_in_two_forms_is_no_other_model(command, made):
    run = made("u2", "full") / "run"
    assert (run / "checkpoint-4/model.safetensors").exists() and (run / "checkpoint-4/pytorch_model_fsdp.bin").exists()
    assert of_two_models(command, run) == []

"""The `unshard` command: verbs, exit codes, words for people and JSON for programs."""

import json
import os
import shutil
import subprocess

import pytest

import trees
from conftest import LONGEST_S, ROOT, UNSHARD

GOLDEN = ROOT / "tests/golden"


@pytest.fixture
def run(made):
    return made("t2", "tied-f1-fp32") / "run"


def test_help_and_version(command):
    assert "mount" in command("--help").stdout
    for verb in ("mount", "umount", "ls", "show"):
        assert verb in command(verb, "--help").stdout
    assert command("--version").stdout.split()[-1][0].isdigit()
    assert command("-v").stdout == command("-V").stdout == command("--version").stdout


def test_show_has_the_size_that_ls_has(command):
    """Of the checkpoint's own files. What its views borrow is counted apart."""
    options = ("-o", "settle=0,store=none")
    listed, = json.loads(command("ls", GOLDEN / "run", "--json", *options).stdout)
    info = json.loads(command("show", GOLDEN / "run/checkpoint-2", "--json", *options).stdout)["info"]
    own = [p for p in (GOLDEN / "run/checkpoint-2").rglob("*") if p.is_file()]
    assert info["source_bytes"] - info["borrowed_bytes"] == listed["size_bytes"] == sum(p.stat().st_size for p in own)
    assert info["files_borrowed"] == 4 and info["files"] - 4 == len(own)
    shown = command("show", GOLDEN / "run/checkpoint-2", *options).stdout
    assert "  source      10 files, 250.2 kB\n  borrowed    4 files, 4.2 kB\n" in shown


@pytest.mark.parametrize("args", [["frobnicate"], ["mount"], ["mount", "/nonexistent"], ["ls"],
                                  ["ls", "/nonexistent"], ["show", "/nonexistent"],
                                  ["umount", "/nonexistent"],
                                  ["mount", "/nonexistent", "/tmp"],
                                  ["mount", "/tmp", "/nonexistent/mnt"],
                                  ["mount", "/tmp", "/tmp", "-o", "no_such_option"],
                                  ["mount", "/tmp", "/tmp", "-o", "max_shard_size=much"]])
def test_what_cannot_run_says_why_and_exits_2(command, args):
    done = command(*args, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() and "Traceback" not in done.stderr
    assert "/nonexistent" not in args or len(args) < 2 or args == ["mount", "/nonexistent"] or \
        "/nonexistent" in done.stderr


def test_a_usage_error_names_the_operand(command):
    for line, sentence in {"show": "CHECKPOINT is missing", "mount a": "MOUNTPOINT is missing", "mount a b c": "c is one argument too many",
                           "ls": "SOURCE is missing", "check": "CHECKPOINT-or-RUN is missing", "diff a": "B is missing",
                           "mounts x": "x is one argument too many", "explain a b": "b is one argument too many"}.items():
        done = command(*line.split(), check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(f"unshard {line.split()[0]}: {sentence}\nusage: unshard {line.split()[0]} ")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["ls"], ["ls", "--json"], ["show"], ["check"],
                                  ["check", "--json"], ["meta", "export"], ["meta", "export", "/dev/full"]])
def test_output_that_cannot_be_written(run, args):
    """A full disk: what is not there was not done."""
    paths = {"ls": [run], "show": [run / "checkpoint-2"], "check": [run]}.get(args[0], [])
    with open("/dev/full", "w") as full:
        done = subprocess.run([UNSHARD, *args, *paths], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=LONGEST_S)
    where = "/dev/full" if "/dev/full" in args else "stdout"
    assert done.returncode == 2
    assert f"unshard: {where}: No space left on device\n" in done.stderr


def test_input_that_cannot_be_read(run):
    done = subprocess.run([UNSHARD, "meta", "import", run], capture_output=True, text=True, timeout=LONGEST_S)
    assert (done.returncode, done.stderr) == (2, f"unshard: {run}: Is a directory\n")


def test_ls(command, run):
    lines = command("ls", run).stdout.splitlines()
    for step in ("1", "2"):
        line = next(x for x in lines if f"checkpoint-{step}" in x).split()
        assert "hf_fsdp" in line and "ok" in line and step in line and "2" in line


def test_ls_json(command, run):
    found = json.loads(command("ls", run, "--json").stdout)
    rows = {row["path"]: row for row in found}
    assert sorted(rows) == ["checkpoint-1", "checkpoint-2"]
    row = rows["checkpoint-2"]
    assert (row["format"], row["step"], row["world_size"], row["state"]) == ("hf_fsdp", 2, 2, "ok")
    sources = run / "checkpoint-2"
    assert row["size_bytes"] == sum(p.stat().st_size for p in sources.rglob("*") if p.is_file())


@pytest.mark.parametrize("below", ["checkpoint-2", "epoch_1", "step_2", "checkpoints/checkpoint_0", "global_step_3"])
def test_a_final_model_beside_checkpoints_hides_none(command, mount, tmp_path, below):
    """As trainer.save_model() leaves it in output_dir."""
    run = tmp_path / "runs/llama"
    shutil.copytree(GOLDEN / "run/checkpoint-2", run / below)
    shutil.copyfile(GOLDEN / "run.model.safetensors", run / "model.safetensors")
    shutil.copyfile(GOLDEN / "run/config.json", run / "config.json")
    listed = json.loads(command("ls", run.parent, "--json", "-o", "store=none").stdout)
    assert [row["path"] for row in listed] == [f"llama/{below}"]
    m = mount(run.parent, "store=none")
    want = (GOLDEN / "run.model.safetensors").read_bytes()
    assert (m / "weights/llama/model.safetensors").read_bytes() == want
    assert (m / "weights/llama" / below / "model.safetensors").read_bytes() == want


def test_a_model_alone_is_a_checkpoint(command, tmp_path):
    (tmp_path / "runs/llama/checkpoints").mkdir(parents=True)
    (tmp_path / "runs/llama/checkpoint-new").mkdir()
    shutil.copyfile(GOLDEN / "run.model.safetensors", tmp_path / "runs/llama/model.safetensors")
    assert [row["path"] for row in json.loads(command("ls", tmp_path / "runs", "--json", "-o", "store=none").stdout)] == ["llama"]


def test_show(command, run):
    text = command("show", run / "checkpoint-2").stdout
    assert "model.embed_tokens" in text and "model.layers.*" in text and len(text.splitlines()) < 50
    every = command("show", run / "checkpoint-2", "--tensors").stdout
    assert "model.embed_tokens.weight" in every and "101" in every
    some = command("show", run / "checkpoint-2", "--tensors=*.embed_tokens.*").stdout
    assert "model.embed_tokens.weight" in some and "model.norm.weight" not in some
    assert "from_pretrained(" in text
    assert "weights-bf16" in text and "dcp" in text


def test_show_json_names_every_tensor(command, made, run):
    shown = json.loads(command("show", run / "checkpoint-2", "--json").stdout)
    tensors = {t["name"]: t for t in shown["tensors"] if t["role"] == "weight"}
    live = trees.tensors(made("t2", "tied-f1-fp32") / "live-2.safetensors")
    assert sorted(tensors) == sorted(live)
    for name, t in live.items():
        assert tensors[name]["shape"] == list(t.shape) and tensors[name]["pieces"]
    assert shown["info"]["views"]["weights"]["state"] == "ok"


def test_problems_exit_1(command, copied, run):
    run = copied(run)
    os.truncate(run / "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp", 2000)
    for path in run.rglob("*"):
        os.utime(path, (1, 1))
    done = command("ls", run, check=False)
    assert done.returncode == 1 and "damaged" in done.stdout
    done = command("show", run / "checkpoint-2", check=False)
    assert done.returncode == 1 and "__1_0.distcp" in done.stdout + done.stderr
    assert command("show", run / "checkpoint-1").returncode == 0


def test_mount_returns_when_live_and_umount_ends_it(command, run, mnt):
    done = command("mount", run, mnt, "-o", "settle=0")
    assert (mnt / "weights/checkpoint-2/model.safetensors").stat().st_size > 1000
    command("umount", mnt)
    assert not os.path.ismount(mnt) and list(mnt.iterdir()) == []
    assert command("umount", mnt, check=False).returncode != 0
    assert "log" in (done.stdout + done.stderr).lower(), "says where the log is"


def test_foreground_logs_to_stderr(command, copied, run, mnt, eventually):
    run = copied(run)
    (run / "checkpoint-2/pytorch_model_fsdp_0/.metadata").write_bytes(b"junk")
    server = subprocess.Popen([UNSHARD, "mount", run, mnt, "-f", "-o", "settle=0"],
                              stderr=subprocess.PIPE, text=True)
    eventually(lambda: os.path.ismount(mnt))
    names = os.listdir(mnt / "weights/checkpoint-2")
    command("umount", mnt)
    assert names == ["UNSHARD_PROBLEM.txt"]
    _, err = server.communicate(timeout=LONGEST_S)
    assert server.returncode == 0 and ".metadata" in err


def test_log_file(command, run, copied, mnt, tmp_path):
    run = copied(run)
    (run / "checkpoint-2/pytorch_model_fsdp_0/.metadata").write_bytes(b"junk")
    log = tmp_path / "log"
    command("mount", run, mnt, "-o", f"settle=0,log={log}")
    names = os.listdir(mnt / "weights/checkpoint-2")
    command("umount", mnt)
    assert names == ["UNSHARD_PROBLEM.txt"]
    assert ".metadata" in log.read_text()


def test_the_mounts_own_descriptions(mount, run):
    m = mount(run)
    base = m / "weights/checkpoint-2/.unshard"
    info = json.loads((base / "info.json").read_text())
    assert info["format"] == "hf_fsdp" and info["step"] == 2 and info["world_size"] == 2
    assert any(t["name"] == "model.norm.weight"
               for t in json.loads((base / "tensors.json").read_text()))
    provenance = json.loads((base / "provenance.json").read_text())
    assert provenance["files"]["model.safetensors"]["origin"]
    assert (base / "problems.txt").exists()
    root = m / ".unshard"
    assert json.loads((root / "stats.json").read_text())
    assert (root / "errors.log").read_text() == "" and (root / "problems.txt").exists()
    assert "# " in (root / "metrics.prom").read_text()


@pytest.mark.parametrize("verb", ["mount", "umount", "ls", "show", "check", "seal", "warm", "meta", "explain"])
def test_a_usage_error_names_the_command(command, verb):
    done = command(verb, "--no-such-option", check=False)
    assert done.returncode == 2 and done.stderr.startswith(f"unshard {verb}: "), done.stderr


def test_json_is_utf8_whatever_names_are(run, tmp_path):
    name = b"caf\xe9 \xff\xed\xa0\x80 \xc3\xa9"
    shutil.copytree(os.fsencode(run), os.fsencode(tmp_path) + b"/" + name)
    for verb in ("ls", "check"):
        done = subprocess.run([UNSHARD, verb, tmp_path, "--json", "-o", "store=none,settle=0"],
                              capture_output=True, timeout=LONGEST_S)
        told = done.stdout.decode("utf-8")
        assert json.loads(told) and ("caf\ufffd" in told or verb == "check")


def test_names_cannot_write_lines_of_the_log(run, mnt, tmp_path, command):
    """A name with a line break, in a sentence of the log and of problems.txt."""
    name = "new\nline error: forged"
    copy = shutil.copytree(run, tmp_path / "runs" / name)
    (copy / "checkpoint-2/pytorch_model_fsdp_0/.metadata").write_bytes(b"junk")
    log = tmp_path / "log"
    command("mount", tmp_path / "runs", mnt, "-o", f"settle=0,store=none,log={log}")
    try:
        (mnt / "weights" / name / "checkpoint-2/UNSHARD_PROBLEM.txt").read_text()
        told = log.read_text() + (mnt / ".unshard/problems.txt").read_text()
        assert "forged" in told
        assert not [line for line in told.splitlines() if line.startswith("line error")]
    finally:
        command("umount", mnt)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_log_is_no_pipe_and_no_link_of_another_user(run, mnt, tmp_path, kind):
    log = tmp_path / "log"
    if kind == "pipe":
        os.mkfifo(log)
    else:
        (tmp_path / "precious").write_text("as it was\n")
        log.symlink_to(tmp_path / "precious")
        os.lchown(log, 4321, 4321)
    done = subprocess.run([UNSHARD, "mount", run, mnt, "-o", f"store=none,log={log}"],
                          capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 2 and "log=" in done.stderr
    assert not os.path.ismount(mnt)
    assert kind == "pipe" or (tmp_path / "precious").read_text() == "as it was\n"

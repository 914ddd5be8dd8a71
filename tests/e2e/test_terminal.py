"""What people see: answers first, lines as wide as the terminal, colours only where they help, and each thing once."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from conftest import LONGEST_S, ROOT, UNSHARD

GOLDEN = ROOT / "tests/golden"


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(GOLDEN / "run", tmp_path / "runs/llama")


def in_terminal(columns, *args, **env):
    """-> what the command prints to a terminal of so many columns."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {"TERM": "xterm", **os.environ, **env}
    environment.pop("COLUMNS", None)
    with subprocess.Popen([UNSHARD, *args], stdout=its, stderr=its, stdin=its, env={**environment, "TERM": env.get("TERM", "xterm")}) as done:
        os.close(its)
        printed = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # EIO: the other end is closed
                break
            if not part:
                break
            printed += part
        done.wait(timeout=LONGEST_S)
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_text_is_wrapped_to_the_terminal(run, columns):
    """Lines to copy stay whole."""
    for text in (in_terminal(columns, "check", GOLDEN / "zero/other", "-o", "settle=0,store=none"),
                 in_terminal(columns, "show", run / "checkpoint-2", "-o", "settle=0,store=none"),
                 in_terminal(columns, "show", "--help")):
        long = [line for line in plain(text).split("\n") if len(line) > columns]
        assert all("MOUNTPOINT/" in line or "bfloat16" in line or max(map(len, line.split())) > columns - 30 for line in long), long
        assert max(map(len, plain(text).split("\n"))) > min(columns, 80) * 2 // 3


def test_a_pipe_gets_whole_lines(command, run):
    shown = command("show", run / "checkpoint-2", "-o", "settle=0,store=none").stdout
    assert max(map(len, shown.split("\n"))) > 300
    assert "\x1b" not in shown


def test_colours_where_they_help(run):
    (run / "checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp").unlink()
    ls = ("ls", run, "-o", "settle=0,store=none")
    assert "\x1b[1;31mdamaged\x1b[0m" in in_terminal(200, *ls)
    assert "\x1b" not in in_terminal(200, *ls, NO_COLOR="1")
    assert "\x1b" not in in_terminal(200, *ls, TERM="dumb")
    assert "\x1b" not in in_terminal(200, "ls", GOLDEN / "run", "-o", "settle=0,store=none")


def test_wide_characters_take_two_columns(command, tmp_path):
    for name in ("模型", "läma", "ab"):
        shutil.copytree(GOLDEN / "run", tmp_path / "runs" / name)
    lines = command("ls", tmp_path / "runs", "-o", "settle=0,store=none").stdout.splitlines()
    columns = {sum(2 if c > "\u2e80" else 1 for c in line.partition("hf_fsdp")[0]) for line in lines[1:]}
    assert len(lines) == 4 and len(columns) == 1


def test_show_answers_first_with_the_path_of_the_mount(command, run, mount):
    checkpoint = run / "checkpoint-2"
    lines = command("show", checkpoint).stdout.splitlines()
    assert lines[1:3] == ["to resume the training",
                          '  trainer.train(resume_from_checkpoint="MOUNTPOINT/dcp/checkpoint-2")  '
                          "# with FSDP, SHARDED_STATE_DICT, any number of ranks"]
    assert lines[4] == '  AutoModelForCausalLM.from_pretrained("MOUNTPOINT/weights/checkpoint-2")'
    for source, below in ((run.parent, "/llama/checkpoint-2"), (run, "/checkpoint-2"), (checkpoint, "")):
        m = mount(source)
        text = command("show", checkpoint).stdout
        for view in ("dcp", "weights", "full"):
            path = f"{m.path}/{view}{below}"
            assert f'("{path}")' in text.replace("resume_from_checkpoint=", "") and os.path.isdir(path)
        assert "MOUNTPOINT" not in text
        command("umount", m.path)


def test_show_hides_what_never_applies_and_names_warnings_once(command, run):
    shown = command("show", run / "checkpoint-2").stdout
    assert "adapter" not in shown and "world-N" not in shown and "(4 views of other kinds of checkpoints: --all)" in shown
    assert shown.count("all sub-groups of parameters one `step`") == 1
    views = shown.split("\nviews\n")[1]
    assert views.index("  universal ") < views.index("all sub-groups of parameters") < views.index("  weights ")
    every = command("show", run / "checkpoint-2", "--all").stdout
    assert "holds no PEFT adapter" in every and "is not a DeepSpeed ZeRO checkpoint" in every
    assert re.search(r"^  model.layers.\*  +9  bfloat16  step, exp_avg, exp_avg_sq$", shown, re.M)


def test_a_mount_says_what_a_user_needs_to_know_in_three_lines(run, mnt, command, tmp_path):
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-4")
    (run / "config.json").rename(tmp_path / "config.json")
    (mnt / "a-file").write_text("")
    done = command("mount", run.parent, mnt, "-o", "settle=0")
    try:
        lines = done.stderr.splitlines()
        assert len(lines) == 3 and all(line.startswith("unshard: ") for line in lines)
        assert f"{run.parent} is shown at {mnt}" in lines[0] and "is not empty" in lines[1]
        assert "2 of 2 checkpoints have no config.json" in lines[2] and "-o model=" in lines[2]
    finally:
        command("umount", mnt)
    again = command("mount", run.parent, mnt, "-o", f"settle=0,model={run}")
    command("umount", mnt)
    assert "config.json" in again.stderr  # the directory has none either
    (run / "config.json").write_text((tmp_path / "config.json").read_text())
    last = command("mount", run.parent, mnt, "-o", "settle=0")
    command("umount", mnt)
    assert "config.json" not in last.stderr


def test_check_says_once_per_run_what_the_run_lacks(command, run):
    for step in (4, 6, 8):
        shutil.copytree(run / "checkpoint-2", run / f"checkpoint-{step}")
    (run / "config.json").unlink()
    text = command("check", run.parent, "-o", "settle=0").stdout
    assert text.count("no config.json was found") == 1
    assert "[config_missing] holds for 3 more of llama: checkpoint-4, checkpoint-6, checkpoint-8" in text
    assert "notes" in text.splitlines()[-1]


def test_check_says_once_per_run_what_holds_for_its_checkpoints(command, tmp_path):
    """In JSON each checkpoint has its own."""
    run = tmp_path / "run"
    for step in (1, 2, 3):
        shutil.copytree(GOLDEN / "ranks/fsdp2", run / f"global_step_{step}/actor")
    text = command("check", run, "-o", "settle=0").stdout
    assert text.count("the file that is written last was not found") == 1
    assert "[save_end_unknown] holds for 2 more: global_step_2/actor, global_step_3/actor" in text
    found = json.loads(command("check", run, "-o", "settle=0", "--json").stdout)["findings"]
    assert [f["id"] for f in found] == ["save_end_unknown"] * 3


def test_notes_that_differ_are_each_said(command, run):
    for step in (4, 6):
        shutil.copytree(run / "checkpoint-2", run / f"checkpoint-{step}")
    text = command("check", run, "-o", "settle=0").stdout
    assert "the directory's name has 4" in text and "the directory's name has 6" in text


def test_model_of_the_hugging_face_cache(command, run, mount, tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    model = tmp_path / "hf/hub/models--org--base"
    snapshot = model / "snapshots/0123abc"
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs/main").write_text("0123abc")
    (run / "config.json").rename(snapshot / "config.json")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert (mount(run.parent, "model=org/base") / "weights/llama/checkpoint-2/config.json").exists()
    assert (mount(run.parent, "model=llama=org/base") / "weights/llama/checkpoint-2/config.json").exists()
    (model / "refs/main").unlink()  # downloaded by its hash
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf/hub"))
    monkeypatch.delenv("HF_HOME")
    assert (mount(run.parent, "model=org/base") / "weights/llama/checkpoint-2/config.json").exists()
    done = command("show", run / "checkpoint-2", "-o", "model=org/other", check=False)
    assert done.returncode == 2 and "no model of this name in the Hugging Face cache" in done.stderr


def test_a_config_above_the_directory_checkpoints(command, run, mount):
    """Accelerate with automatic names, and Lightning."""
    (run / "checkpoints").mkdir()
    (run / "checkpoint-2").rename(run / "checkpoints/checkpoint_0")
    assert (mount(run.parent) / "weights/llama/checkpoints/checkpoint_0/config.json").exists()


def test_stats_are_drawn_again_in_a_terminal(run, mount):
    """On the whole screen, with what was read meanwhile, until Ctrl-C."""
    m = mount(run.parent)
    ours, its = pty.openpty()
    screens = [""]

    def drawn(shows):
        while not shows(screens[-1]):
            assert select.select([ours], [], [], LONGEST_S)[0]
            screens[:] = (screens[-1] + os.read(ours, 65536).decode()).split("\x1b[H\x1b[2J")[-2:]
        return True

    with subprocess.Popen([UNSHARD, "stats", m.path], stdin=its, stdout=its, stderr=its, start_new_session=True,
                          preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as live:
        os.close(its)
        assert drawn(lambda screen: "(Ctrl-C ends this)" in screen) and "llama/checkpoint-2" not in screens[-1]
        (m / "weights/llama/checkpoint-2/model.safetensors").read_bytes()
        assert drawn(lambda screen: "(Ctrl-C ends this)" in screen and re.search(r"^  weights +llama/checkpoint-2 ", screen, re.M))
        assert screens[-1].startswith(str(m.path))
        os.write(ours, b"\x03")
        assert live.wait(timeout=LONGEST_S) == -2  # SIGINT
    os.close(ours)


# What lies in the run's directory, and what of its own in the checkpoint, besides what every Trainer writes there.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
LEFT = {
    "Trainer, TRL: save_model at the end": (("config.json", *TOKENIZER, "training_args.bin", "README.md"), ()),
    "axolotl: before the first step": (("config.json", *TOKENIZER, "debug.log"), ()),
    "LLaMA-Factory: save_model at the end, a processor with each checkpoint":
        (("config.json", *TOKENIZER, "training_args.bin", "trainer_log.jsonl", "all_results.json"), TOKENIZER),
    "veRL: with each checkpoint": ((), ("huggingface/config.json", *(f"huggingface/{name}" for name in TOKENIZER))),
}


@pytest.mark.parametrize("framework", LEFT)
def test_the_config_where_each_framework_leaves_it(command, run, mount, framework):
    of_run, of_checkpoint = LEFT[framework]
    ours = {name: (run / name).read_bytes() for name in ("config.json", *TOKENIZER)}
    for name in ours:
        (run / name).unlink()
    for folder, names in ((run, of_run), (run / "checkpoint-2", of_checkpoint)):
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(ours.get(Path(name).name, b""))
    shown = mount(run.parent) / "weights/llama/checkpoint-2"
    assert {name: (shown / name).read_bytes() for name in ours} == ours
    assert "config" not in command("check", run, "-o", "settle=0").stdout


def test_a_log_file_where_there_is_no_syslog(command, run, mnt, tmp_path):
    log = tmp_path / "state/unshard/mount.log"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    if os.path.exists("/dev/log"):
        said = command("mount", run.parent, mnt, "-o", "settle=0", env=environment).stderr
        command("umount", mnt)
        assert "log lines go to syslog" in said and not log.exists()
        return
    for store in ("", ",store=none"):
        done = command("mount", run.parent, mnt, "-o", f"settle=0{store}", env=environment)
        command("umount", mnt)
        assert f"log lines go to {log}" in done.stderr and f"shows {run.parent} at {mnt}" in log.read_text()
        with open(log, "a") as grown:
            grown.truncate(9 << 20)
    command("mount", run.parent, mnt, "-o", "settle=0", env=environment)
    command("umount", mnt)
    assert log.stat().st_size < 1 << 20 and (tmp_path / "state/unshard/mount.log.1").stat().st_size == 9 << 20

"""Every command of README.md and docs/ runs, in the order in which it stands there, and prints what is shown.
Those of docs/howto/ run in test_howto.py."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import compiled
import trees
from conftest import LONGEST_S, ROOT, UNSHARD
from documents import FENCE, PAGES, must_print_what_is_shown, run_blocks, script

VIEWS, RESUMING = PAGES["docs/views.md"], PAGES["docs/resume.md"]
ROW = re.compile(r"^\|[^|]*\| `([\w-]+)` \| `(.*?)` \|$", re.M)
LINES = [line for _, line in ROW.findall(VIEWS)]
RESUME = [line for _, line in ROW.findall(RESUMING) if "/llama/" in line]
DEEPSPEED = [(view, line) for view, line in ROW.findall(RESUMING) if "/RUN/checkpoint-2" in line]


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_whether_it_is_run(name):
    for how, kind, block in FENCE.findall(PAGES[name]):
        if kind in ("console", "sh", "bash") and not how.startswith("file: "):
            assert how == "run" or how.startswith(("illustrative: ", "run by: ")), block
            assert kind == "console" and block.startswith("$ "), block
    if name == "README.md":
        assert len(run_blocks(PAGES[name])) >= 12


@pytest.fixture
def checkout(tmp_path):
    """The tracked files of the project, as a fresh clone would have them."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in tracked.stdout.decode().split("\0"):
        if name and not name.startswith(("tests/e2e", "tests/unit", "tests/bench", "tests/fuzz")):
            target = tmp_path / "unshard" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return tmp_path / "unshard"


@pytest.fixture
def place(made, checkout):
    """What the lines to write name: a checkout with runs, a base model and a mountpoint."""
    llama = made("t2", "tied-f1-fp32")
    shutil.copytree(llama / "run", checkout / "runs/llama")
    shutil.copytree(made("d2", "fsdp2") / "run", checkout / "runs/dcp")
    (checkout / "mnt").mkdir()
    return checkout


@pytest.fixture
def sample(checkout, request):
    """Where the reader of a page stands: README.md begins at a fresh clone, the others after its "Load a model"."""
    if request.param != "README.md":
        shutil.copytree(ROOT / "tests/golden/run", checkout / "runs/llama")
        (checkout / "mnt").mkdir()
    yield request.param, checkout
    subprocess.run([UNSHARD, "umount", checkout / "mnt"], capture_output=True, timeout=LONGEST_S)


@contextlib.contextmanager
def environment(place, installed, by_make):
    home, temporary = place.parent / "home", place.parent / "tmp"
    home.mkdir()
    temporary.mkdir()
    path = [f"{sys.prefix}/bin", os.environ["PATH"]] + ([str(UNSHARD.parent)] if installed else [])
    found = {**os.environ, "HOME": str(home), "TMPDIR": str(temporary), "XDG_STATE_HOME": str(home / "state"),
             "PATH": ":".join(path), "UNSHARD_VENV": sys.prefix}
    if by_make:
        yield found
    else:  # as tools/quickstart builds
        with compiled.as_dev(place, home) as build:
            yield {**found, **build}


# In mounts of its own, without those of other tests: `unshard mounts` lists every mount that it sees, and fails if one of
# them does not answer.
ALONE = ("unshare", "--mount", "bash", "-c", r"""
awk '$3 == "fuse.unshard" { print $2 }' /proc/mounts | while read -r where; do umount -l "$(printf %b "$where")"; done
exec bash -c "$0" """)


@pytest.mark.parametrize("sample", [name for name in PAGES if run_blocks(PAGES[name]) and "/howto/" not in name],
                         indirect=True)
def test_commands(sample, request):
    """A page that builds by cmake's own choice, which is make, does so with --long."""
    name, place = sample
    by_make = request.config.getoption("--long")
    steps = run_blocks(PAGES[name])
    with environment(place, name != "README.md", by_make) as environ:
        done = subprocess.run([*ALONE, script(steps)], cwd=place, env=environ, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LONGEST_S)
    must_print_what_is_shown(name, steps, done.stdout)
    assert not os.path.ismount(place / "mnt")
    assert not list((place.parent / "tmp").glob("unshard*"))  # tools/quickstart cleans up


def test_the_first_screen():
    """Where to get it and the two commands."""
    screen = "".join(PAGES["README.md"].splitlines(keepends=True)[:40])
    assert re.search(r"`git clone URL.*`tools/quickstart`.*`tests/run` installs.*`pip install \.`", screen, re.S)
    assert "\n$ tools/quickstart\n" in screen and "\n$ tests/run\n" in screen


def test_the_recorded_terminal_is_what_the_commands_print():
    done = subprocess.run([sys.executable, ROOT / "tests/docs/terminal.py", "--check", UNSHARD], capture_output=True,
                          text=True, timeout=LONGEST_S)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}\nrun tests/docs/terminal.py"


def test_the_drawn_map_is_what_show_writes(tmp_path):
    shutil.copytree(ROOT / "tests/golden/run", tmp_path / "llama")
    subprocess.run([UNSHARD, "show", "llama/checkpoint-2", "--svg", "map.svg", "-o", "settle=0,store=none"], cwd=tmp_path,
                   check=True, capture_output=True, timeout=LONGEST_S)
    assert (tmp_path / "map.svg").read_text() == (ROOT / "docs/pictures/map.svg").read_text()


def test_an_install_stays_below_its_prefix(tmp_path):
    """And what it installs names the command that it installed."""
    prefix = tmp_path / "there"
    done = subprocess.run(["cmake", "--install", UNSHARD.parents[1], "--prefix", prefix], capture_output=True, text=True,
                          timeout=LONGEST_S, check=True)
    installed = re.findall(r"^-- (?:Installing|Up-to-date): (.*)$", done.stdout, re.M)
    assert len(installed) > 10 and all(path.startswith(f"{prefix}/") for path in installed)
    for manager in ("system", "user"):
        assert f"ExecStart={prefix}/bin/unshard mount" in (prefix / f"lib/systemd/{manager}/unshard@.service").read_text()


def test_quickstart_loads_the_model_without_transformers(mount, tmp_path):
    (tmp_path / "transformers.py").write_text("raise ImportError")
    mnt = mount(ROOT / "tests/golden/run")
    done = subprocess.run([sys.executable, ROOT / "tools/quickstart.py", mnt, "checkpoint-2"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=LONGEST_S, check=True)
    tensors = load_file(ROOT / "tests/golden/run.model.safetensors")
    assert f"{len(tensors)} tensors, {sum(map(torch.numel, tensors.values()))} parameters" in done.stdout


def test_the_lines_to_write(place, made, mount, monkeypatch):
    """Each line of the table, with the names its reader would have imported."""
    assert len(LINES) == 7
    mount(place / "runs", at=place / "mnt")
    monkeypatch.chdir(place)
    state_dict = {"model": {"emb.weight": torch.zeros(13, 10)}}
    names = {"AutoModelForCausalLM": AutoModelForCausalLM, "safe_open": safe_open, "dcp": dcp,
             "load_file": load_file, "os": os, "state_dict": state_dict}
    results = [eval(line, names) for line in LINES]
    live = trees.tensors(made("t2", "tied-f1-fp32") / "live-2.safetensors")
    assert results[0].dtype == torch.float32 and results[1].dtype == torch.bfloat16
    for model in (results[0], results[2]):
        assert torch.equal(model.model.norm.weight, live["model.norm.weight"])
    assert torch.equal(results[3], live["model.norm.weight"])
    assert results[4]["model.norm.weight"].dtype == torch.float16
    plain = trees.tensors(made("d2", "fsdp2") / "live-0.safetensors")
    assert torch.equal(results[5]["emb.weight"], plain["model.emb.weight"])
    assert torch.equal(state_dict["model"]["emb.weight"], plain["model.emb.weight"])


def test_quickstart_without_a_way_to_install_says_the_line(checkout, tmp_path):
    """Not root, no sudo, no package: exit 2 and the one line to type."""
    bare = tmp_path / "bin"
    bare.mkdir()
    for tool in ("bash", "dirname", "grep", "cat"):
        (bare / tool).symlink_to(shutil.which(tool))
    for name, text in {"apt-get": "exit 9", "apt-cache": "exit 9", "dpkg-query": "exit 1",
                       "id": "echo 1000"}.items():
        (bare / name).write_text(f"#!/bin/bash\n{text}\n")
        (bare / name).chmod(0o755)
    done = subprocess.run([checkout / "tools/quickstart"], env={"PATH": str(bare)},
                          capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 2, done.stderr
    assert "apt-get install" in done.stderr and "libfuse3-dev" in done.stderr


def lines_of(checkpoint):
    """The line of each view. Not the text of show: another test may have mounted the run, and then it has that path."""
    done = subprocess.run([UNSHARD, "show", checkpoint, "--json", "-o", "settle=0"], capture_output=True, text=True, check=True)
    return "\n".join(view["usage"] or "" for view in json.loads(done.stdout)["info"]["views"].values())


def test_the_lines_for_resuming_are_what_show_prints(made):
    """That they resume is shown in test_resume.py."""
    run = made("t2", "tied-f1-fp32") / "run"
    shown = lines_of(run / "checkpoint-2")
    assert len(RESUME) == 3
    for line in RESUME:
        assert line.replace("mnt/", "MOUNTPOINT/").replace("/llama/", "/") in shown


def test_the_lines_for_deepspeed_are_what_show_prints(made, mount):
    """That they resume is shown in test_deepspeed.py and test_zero_views.py. show lists no world-N."""
    run = made("h2", "z2-bf16") / "run"
    shown = lines_of(run / "checkpoint-2")
    m = mount(run)
    assert len(DEEPSPEED) == 6
    for view, line in DEEPSPEED:
        assert f'"mnt/{view}/RUN/checkpoint-2"' in line
        assert os.listdir(m / view / "checkpoint-2")
        if not view.startswith("world"):
            assert line.replace("mnt/", "MOUNTPOINT/").replace("/RUN/", "/") in shown

"""Every command of the README runs, in the order in which it stands there."""

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
from transformers.trainer_utils import get_last_checkpoint

import trees
from conftest import LONGEST_S, ROOT, UNSHARD

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"<!-- ([^>]*?) -->\n```sh\n(.*?)```", README, re.S)
RESUME = re.findall(r"^\|[^|]*\| `(trainer\.train.*?)` \|$", README, re.M)
ROWS = re.findall(r"^\|[^|]*\| `([\w-]+)` \| `(.*?)` \|$", README, re.M)
LINES = [line for _, line in ROWS if "/RUN/" not in line]
DEEPSPEED = [(view, line) for view, line in ROWS if "/RUN/" in line]


def test_every_block_says_whether_it_is_run():
    assert len(BLOCKS) == README.count("```sh") >= 6
    for how, _ in BLOCKS:
        assert how == "run" or how.startswith(("illustrative: ", "run by: "))


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
    """Where the README's reader stands: a checkout with runs, a base model and a mountpoint."""
    llama = made("t2", "tied-f1-fp32")
    shutil.copytree(llama / "run", checkout / "runs/llama")
    shutil.copytree(made("d2", "fsdp2") / "run", checkout / "runs/dcp")
    shutil.copytree(llama / "pretrained-2", checkout / "base-model")
    (checkout / "mnt").mkdir()
    return checkout


def environment():
    return {**os.environ, "PATH": f"{UNSHARD.parent}:{os.environ['PATH']}",
            "UNSHARD_VENV": sys.prefix}


@pytest.mark.parametrize("i", [i for i, (how, _) in enumerate(BLOCKS) if how == "run"])
def test_commands(place, i):
    done = subprocess.run(["bash", "-euxo", "pipefail", "-c", BLOCKS[i][1]], cwd=place,
                          env=environment(), capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert not os.path.ismount(place / "mnt")
    if "quickstart" in BLOCKS[i][1]:
        assert "byte for byte what save_pretrained wrote" in done.stdout
        assert "AutoModelForCausalLM: " in done.stdout


def test_the_lines_to_write(place, made, mount, monkeypatch):
    """Each line of the table, with the names its reader would have imported."""
    assert len(LINES) == 7
    mount(place / "runs", at=place / "mnt")
    monkeypatch.chdir(place)
    state_dict = {"model": {"emb.weight": torch.zeros(13, 10)}}
    names = {"AutoModelForCausalLM": AutoModelForCausalLM, "safe_open": safe_open, "dcp": dcp,
             "load_file": load_file, "get_last_checkpoint": get_last_checkpoint,
             "state_dict": state_dict}
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


def test_the_lines_for_resuming_are_what_show_prints(made):
    """That they resume is shown in test_resume.py."""
    run = made("t2", "tied-f1-fp32") / "run"
    shown = subprocess.run([UNSHARD, "show", run / "checkpoint-2"], capture_output=True, text=True,
                           check=True).stdout
    assert len(RESUME) == 3
    for line in RESUME:
        assert line.replace("mnt/", "MOUNTPOINT/").replace("/llama/", "/") in shown


def test_the_lines_for_deepspeed_are_what_show_prints(made, mount):
    """That they resume is shown in test_deepspeed.py and test_zero_views.py. show lists no world-N."""
    run = made("h2", "z2-bf16") / "run"
    shown = subprocess.run([UNSHARD, "show", run / "checkpoint-2"], capture_output=True, text=True,
                           check=True).stdout
    m = mount(run)
    assert len(DEEPSPEED) == 6
    for view, line in DEEPSPEED:
        assert f'"mnt/{view}/RUN/checkpoint-2"' in line
        assert os.listdir(m / view / "checkpoint-2")
        if not view.startswith("world"):
            assert line.replace("mnt/", "MOUNTPOINT/").replace("/RUN/", "/") in shown

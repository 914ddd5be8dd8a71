"""`latest`: the made name of a run's newest whole checkpoint."""

import json
import os

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from transformers.trainer_utils import get_last_checkpoint

import conftest

LONGEST_STALL_S = 1  # what reload.py calls a stall

def reloaded(run, shown, saves, loads):
    """What make/reload.py prints."""
    failed, output = conftest.LAUNCHER.ask(conftest.MAKE / "reload.py", [run, shown, saves, loads], 0, {})
    assert failed == "0", output[-8000:]
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("saves,loads", [(3, 10), pytest.param(40, 500, marks=pytest.mark.long)])
def test_loads_while_a_run_is_saved(mount, tmp_path, saves, loads):
    """Each load is of one save, none is of an older one than the load before, and each save reaches every reader
    before the next begins. No load stalls."""
    run = tmp_path / "source/run"
    run.mkdir(parents=True)
    m = mount(tmp_path / "source", "settle=60,max_shard_size=500KB", changing=True)
    readers = reloaded(run, m / "weights/run", saves, loads)
    assert len(readers["seen"]) == 8
    for _, times, seen in readers["seen"]:
        assert times >= loads
        assert seen == list(range(seen[0], saves + 1))
    assert readers.pop("stall") < LONGEST_STALL_S, readers


def save(run, step):
    dist_cp.save({"model": {"w": torch.full((4,), float(step))}}, checkpoint_id=run / f"checkpoint-{step}", no_dist=True)


def test_what_was_looked_for_before_it_was_there(mount, tmp_path):
    """The kernel keeps no absence of a name that the link then leads to."""
    run = tmp_path / "source/run"
    save(run, 1)
    shown = mount(tmp_path / "source", changing=True) / "weights/run"
    assert os.readlink(shown / "latest") == "checkpoint-1"
    for step in range(2, 5):
        assert not (shown / f"checkpoint-{step}").exists()
        save(run, step)
        assert os.readlink(shown / "latest") == f"checkpoint-{step}"
        assert (shown / "latest/model.safetensors").stat().st_ino == \
            (shown / f"checkpoint-{step}/model.safetensors").stat().st_ino


def test_what_is_open_keeps_its_checkpoint(mount, tmp_path):
    run = tmp_path / "source/run"
    save(run, 1)
    shown = mount(tmp_path / "source", changing=True) / "weights/run"
    folder = os.open(shown / "latest", os.O_RDONLY)
    with open(shown / "latest/model.safetensors", "rb") as file:
        save(run, 2)
        assert file.read() == (shown / "checkpoint-1/model.safetensors").read_bytes()
    assert os.readlink(shown / "latest") == "checkpoint-2"
    assert os.stat("model.safetensors", dir_fd=folder).st_ino == \
        (shown / "checkpoint-1/model.safetensors").stat().st_ino
    os.close(folder)


def test_it_is_no_checkpoint_more(made, mount, command, tmp_path):
    """To a Trainer, to who walks the tree, and to a copy."""
    m = mount(made("t2", "tied-f1-fp32") / "run")
    for view in ("weights", "full", "dcp", "universal"):
        assert os.readlink(m / view / "latest") == "checkpoint-2"
        assert "latest" not in os.listdir(m / view)
    assert get_last_checkpoint(str(m / "full")) == str(m / "full/checkpoint-2")


def test_deepspeed_s_own_mark_stays(made, mount):
    m = mount(made("e2", "z2-bf16") / "run")
    mark = (m.source / "latest").read_text()
    for view in ("weights", "full", "universal", "world-2"):
        assert (m / view / "latest").read_text() == mark


def test_checkpoints_that_are_one_file(mount, tmp_path):
    """Where they are shown as directories."""
    (tmp_path / "source/run").mkdir(parents=True)
    for step in (9, 10):
        torch.save({"model": {"w": torch.full((4,), float(step))}}, tmp_path / f"source/run/model-{step}.pt")
    m = mount(tmp_path / "source")
    assert os.readlink(m / "weights/run/latest") == "model-10.pt"
    assert (m / "weights/run/latest/model.safetensors").exists()
    assert not os.path.lexists(m / "full/run/latest")

"""Files that changed places since unshard opened the checkpoint before: the metadata store remembers which file was
which. What is moved, restored or saved again honestly gives no finding."""

import json
import os
import shutil

import pytest

from conftest import ROOT, eventually
from random_damage import rename_round

FSDP = ROOT / "tests/golden/run"  # two FSDP2 ranks, saved by transformers' Trainer
WEIGHTS = ["checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp", "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp"]
ROUND = ["scheduler.pt", "rng_state_0.pth", "optimizer_0/__0_0.distcp"]


@pytest.fixture
def run(tmp_path):
    """A run whose files differ in the times of their last change."""
    where = tmp_path / "source/run"
    shutil.copytree(FSDP, where)
    for n, path in enumerate(sorted(where.rglob("*.*"))):
        os.utime(path, (1700000000 + n, 1700000000 + n))
    return where


@pytest.fixture
def found(command, tmp_path):
    """found(PATH) -> which files changed places, by check with a store of the test's own."""
    def look(path):
        done = command("check", path, "--json", "-o", f"settle=0,store={tmp_path}/store.db", check=False)
        assert done.returncode in (0, 1), done.stderr
        return [(f["file"].split("run/")[-1], f.get("rank"), f["severity"]) for f in json.loads(done.stdout)["findings"]
                if f["id"] == "files_changed_places"]
    return look


def test_shards_that_changed_places(run, found):
    assert found(run) == []
    rename_round(run, WEIGHTS)
    for _ in range(2):  # what was remembered stays
        assert found(run) == [(name, rank, "problem") for rank, name in enumerate(WEIGHTS)]
    rename_round(run, WEIGHTS)
    assert found(run) == []


def test_three_that_went_round(run, found):
    found(run)
    rename_round(run / "checkpoint-2", ROUND)
    assert sorted(f[0].removeprefix("checkpoint-2/") for f in found(run)) == sorted(ROUND)


def test_a_mount_shows_no_view_that_needs_them(run, mount, tmp_path):
    mnt = mount(run.parent, f"store={tmp_path}/store.db", changing=True)
    assert "model.safetensors" in os.listdir(mnt / "weights/run/checkpoint-2")
    rename_round(run, WEIGHTS)
    eventually(lambda: os.listdir(mnt / "weights/run/checkpoint-2") == ["UNSHARD_PROBLEM.txt"])
    text = (mnt / "weights/run/checkpoint-2/UNSHARD_PROBLEM.txt").read_text()
    assert "__0_0.distcp (rank 0) is the file that was" in text and "files changed places" in text


def test_a_seal_settles_it(run, found, command, tmp_path):
    rename_round(run, WEIGHTS)  # as it was saved, and so as it was opened
    found(run)
    rename_round(run, WEIGHTS)
    assert len(found(run)) == 2
    store = ("-o", f"settle=0,store={tmp_path}/store.db")
    refused = command("seal", run, *store, check=False)
    assert refused.returncode == 1 and "files changed places" in refused.stdout
    command("seal", run, "--again", *store)
    assert found(run) == []


def moved(run):
    """Its own name is another's then."""
    run.rename(run.with_name("elsewhere"))
    shutil.copytree(FSDP, run)


def exchanged_checkpoints(run):
    """Whole directories under each other's names."""
    rename_round(run, ["checkpoint-1", "checkpoint-2"])


def restored(run):
    """The numbers of its inodes are used again, in another order."""
    files = sorted(p for p in run.rglob("*") if p.is_file())
    backup = [(p, p.read_bytes(), p.stat()) for p in files]
    for p in files:
        p.unlink()
    for p, data, st in reversed(backup):
        p.write_bytes(data)
        os.utime(p, ns=(st.st_atime_ns, st.st_mtime_ns))


def saved_again(run):
    for name in WEIGHTS:
        (run / name).write_bytes((run / name).read_bytes())


def saved_again_beside(run):
    """As torch's writers do: a new file is given the name."""
    for name in WEIGHTS:
        new = run / f"{name}.tmp"
        shutil.copyfile(run / name, new)
        new.rename(run / name)


def kept_as_older(run):
    """A trainer keeps its last state under another name, and writes a new one."""
    state = run / "checkpoint-2/scheduler.pt"
    old = run / "checkpoint-2/rng_state_0.pth"
    data = state.read_bytes()
    state.rename(old)
    state.write_bytes(data)


@pytest.mark.parametrize("honest", [moved, exchanged_checkpoints, restored, saved_again, saved_again_beside,
                                    kept_as_older])
def test_no_false_finding(run, found, honest):
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-1")
    assert found(run.parent) == []
    honest(run)
    assert found(run.parent) == []

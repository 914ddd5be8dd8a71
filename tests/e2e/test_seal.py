"""`unshard seal` on checkpoints that frameworks saved: what changed since is found, named, and not shown."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from conftest import ROOT

sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("UNSHARD_LIBRARY", str(ROOT / "build/dev/lib/libunshard.so.0"))
import unshard  # noqa: E402

FSDP = ROOT / "tests/golden/run"  # two FSDP2 ranks, saved by transformers' Trainer


def findings(command, source, *args):
    done = command("check", source, "--json", *args, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["findings"]


@pytest.fixture
def copy(tmp_path):
    """A run, and where its seals are."""
    shutil.copytree(FSDP, tmp_path / "run")
    return tmp_path / "run", f"seals={tmp_path}/seals,store=none,settle=0"


def swap(a, b):
    a.rename(a.with_name("x"))
    b.rename(a)
    a.with_name("x").rename(b)


def test_swapped_rank_files_of_fsdp(copy, command, mount, tmp_path):
    run, options = copy
    optimizer = run / "checkpoint-2/optimizer_0"
    sealed = command("seal", run, "-o", options)
    assert "sealed: 10 files" in sealed.stdout
    assert findings(command, run, "--deep", "-o", options) == []
    swap(optimizer / "__0_0.distcp", optimizer / "__1_0.distcp")
    found = findings(command, run, "-o", options)
    assert [(f["id"], f["rank"], f["file"].split("checkpoint-2/")[1]) for f in found] == [
        ("sealed_files_exchanged", rank, f"optimizer_0/__{rank}_0.distcp") for rank in (0, 1)]
    assert all(f["tensor"].startswith("optimizer.state.") for f in found)
    mnt = mount(run, f"seals={tmp_path}/seals")
    assert sorted(os.listdir(mnt / "full/checkpoint-2")) == ["UNSHARD_PROBLEM.txt"]
    assert "__1_0.distcp" in (mnt / "full/checkpoint-2/UNSHARD_PROBLEM.txt").read_text()
    assert "model.safetensors" in os.listdir(mnt / "weights/checkpoint-2")
    assert "when the checkpoint was sealed" in (mnt / "weights/checkpoint-2/.unshard/problems.txt").read_text()


def test_a_bit_of_safetensors(tmp_path, command):
    """No checksum in the file, no change of size or time: only all bytes tell."""
    where = tmp_path / "runs/model"
    where.mkdir(parents=True)
    save_file({"a.weight": torch.rand(40, 40), "b.weight": torch.rand(40, 40)}, where / "model.safetensors",
              metadata={"format": "pt"})
    shutil.copy(FSDP / "config.json", where)
    options = ["-o", f"seals={tmp_path}/seals,store=none,settle=0"]
    before = {f["id"] for f in findings(command, where, "--deep", *options)}
    command("seal", where, *options)
    file = where / "model.safetensors"
    times = file.stat()
    data = bytearray(file.read_bytes())
    data[-2000] ^= 1  # of b.weight, which is the last
    with open(file, "r+b") as out:
        out.write(data)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert {f["id"] for f in findings(command, where, *options)} <= before
    found = [f for f in findings(command, where, "--deep", *options) if f["check"] == "seal"]
    assert [(f["id"], f["tensor"]) for f in found] == [("sealed_file_differs", "b.weight")]
    assert "more piece" not in found[0]["text"]


def test_sha256sum_and_another_place(copy, command, tmp_path):
    run, options = copy
    command("seal", run, "-o", options)
    seal = tmp_path / "seals/checkpoint-2.sha256"
    assert str(tmp_path) not in seal.read_text()
    done = subprocess.run(["sha256sum", "-c", "--strict", "--quiet", seal], cwd=run / "checkpoint-2", check=False,
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    elsewhere = tmp_path / "another/place/run"
    shutil.copytree(run, elsewhere)  # as a restored backup: other times
    assert findings(command, elsewhere, "--deep", "-o", options) == []
    assert [f["id"] for f in findings(command, elsewhere, "-o", options)] == []  # copytree keeps times
    (elsewhere / "checkpoint-2/rng_state_0.pth").write_bytes(b"half")
    assert [f["id"] for f in findings(command, elsewhere, "-o", options) if f["check"] == "seal"] == [
        "sealed_file_resized"]
    done = subprocess.run(["sha256sum", "-c", "--status", seal], cwd=elsewhere / "checkpoint-2", check=False)
    assert done.returncode == 1


def test_a_sealed_file_behind_a_link_that_is_not_followed(copy, command, tmp_path):
    run, options = copy
    state = run / "checkpoint-2/of_a_script.txt"
    state.write_text("custom")
    command("seal", run, "-o", options)
    state.rename(tmp_path / "elsewhere")
    state.symlink_to(tmp_path / "elsewhere")
    for how in ([], ["--deep"]):
        assert ("sealed_file_not_read", "note") in [(f["id"], f["severity"])
                                                    for f in findings(command, run, *how, "-o", options)]
    assert findings(command, run, "--deep", "-o", f"{options},follow={tmp_path}") == []


def test_exit_statuses(copy, command):
    run, options = copy
    (run / "checkpoint-2/trainer_state.json").unlink()
    (run / "checkpoint-2/scheduler.pt").touch()
    saving = command("seal", run, "-o", options.replace("settle=0", "settle=600"), check=False)
    assert saving.returncode == 3 and "still being saved" in saving.stdout
    os.truncate(run / "checkpoint-2/optimizer_0/__1_0.distcp", 100)
    damaged = command("seal", run, "-o", options, check=False)
    assert damaged.returncode == 1 and "not sealed" in damaged.stdout
    inside = command("seal", run, "-o", "settle=0", "--seals", run / "seals", check=False)
    assert inside.returncode == 2 and "nothing is ever written" in inside.stderr
    assert not (run / "seals").exists()


def test_python(copy, tmp_path):
    run, _ = copy
    how = {"seals": tmp_path / "seals", "settle_seconds": 0}
    assert [(s.state, s.files, s.pieces) for s in unshard.seal(run / "checkpoint-2", **how)] == [("sealed", 10, 79)]
    assert [s.state for s in unshard.seal(run / "checkpoint-2", **how)] == ["sealed before"]
    swap(run / "checkpoint-2/rng_state_0.pth", run / "checkpoint-2/rng_state_1.pth")
    assert {f.id for f in unshard.check(run / "checkpoint-2", **how)} == {"sealed_files_exchanged"}
    assert [s.state for s in unshard.seal(run / "checkpoint-2", **how)] == ["differs"]
    assert [s.state for s in unshard.seal(run / "checkpoint-2", again=True, **how)] == ["sealed"]
    assert unshard.check(run / "checkpoint-2", **how) == []

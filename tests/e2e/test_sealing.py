"""`mount -o seal=auto`: checkpoints are sealed while a mount serves, once each, and give way to readers."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from conftest import ROOT, eventually, is_mounted, serving
from processes import alive

FSDP = ROOT / "tests/golden/run"  # two FSDP2 ranks, saved by transformers' Trainer
MIB = 1 << 20


def stats(mnt):
    return json.loads((mnt / ".unshard/stats.json").read_text())


def sealed(mnt, n):
    return stats(mnt)["seals_made"] == n


def model(folder, mib):
    folder.mkdir(parents=True)
    save_file({"a.weight": torch.zeros(mib // 2, MIB, dtype=torch.bfloat16)}, folder / "model.safetensors",
              metadata={"format": "pt"})
    shutil.copy(FSDP / "config.json", folder)
    return sum(f.stat().st_size for f in folder.iterdir())


def findings(command, source, *args):
    done = command("check", source, "--json", *args, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [(f["id"], f["file"].split("/")[-1]) for f in json.loads(done.stdout)["findings"] if f["check"] == "seal"]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def auto(tmp_path):
    return f"seal=auto,seals={tmp_path}/seals"


def swapped(checkpoint):
    a, b = (checkpoint / f"optimizer_0/__{rank}_0.distcp" for rank in (0, 1))
    a.rename(a.with_name("x"))
    b.rename(a)
    a.with_name("x").rename(b)


def half_copied(checkpoint):
    path = checkpoint / "optimizer_0/__1_0.distcp"
    size = path.stat().st_size
    os.truncate(path, size // 2)
    os.truncate(path, size)


def rotted(checkpoint):
    path = checkpoint / "optimizer_0/__1_0.distcp"
    times, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with open(path, "r+b") as f:
        f.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("damage,found", [
    (swapped, [("sealed_files_exchanged", "__0_0.distcp"), ("sealed_files_exchanged", "__1_0.distcp")]),
    (half_copied, [("sealed_file_differs", "__1_0.distcp")]),
    (rotted, [("sealed_file_differs", "__1_0.distcp")])])
def test_what_settles_is_sealed_and_damage_is_found(mount, command, source, auto, faults, tmp_path, damage, found):
    """Saved while the mount serves, sealed when settled, damaged then."""
    mnt = mount(source, auto, "settle=300", changing=True, faults=faults)
    shutil.copytree(FSDP, source / "llama")
    checkpoint = source / "llama/checkpoint-2"
    eventually(lambda: (mnt / "full/llama/checkpoint-2/optimizer.pt").exists())
    time.sleep(3)  # longer than from one look to the next
    assert sealed(mnt, 0)
    faults.pass_time(301)
    eventually(lambda: sealed(mnt, 1))
    assert (tmp_path / "seals/llama/checkpoint-2.sha256").exists()
    seals = ("-o", f"seals={tmp_path}/seals,store=none,settle=0")
    assert not findings(command, source, "--deep", *seals)
    damage(checkpoint)
    assert findings(command, source, "--deep", *seals) == found
    if damage is not rotted:  # neither size nor time shows that
        eventually(lambda: os.listdir(mnt / "full/llama/checkpoint-2") == ["UNSHARD_PROBLEM.txt"])
        eventually(lambda: stats(mnt)["seals_differ"] == 1)
    assert sealed(mnt, 1)


def test_seals_in_the_store(mount, command, source, tmp_path):
    store = f"store={tmp_path}/store.db"
    shutil.copytree(FSDP, source / "llama")
    mnt = mount(source, "seal=auto", store, changing=True)
    eventually(lambda: sealed(mnt, 1))
    swapped(source / "llama/checkpoint-2")
    assert len(findings(command, source, "-o", f"{store},settle=0")) == 2
    assert "seals            1" in command("store", "show", "--store", tmp_path / "store.db").stdout
    assert "sealed                 1 checkpoint" in command("stats", mnt).stdout


def test_no_work_twice(mount, command, source, auto):
    shutil.copytree(FSDP, source / "llama")
    mnt = mount(source, auto, changing=True)
    eventually(lambda: sealed(mnt, 1))
    command("umount", mnt)
    new = model(source / "new", 2)  # is looked at after the other
    mnt = mount(source, auto)
    eventually(lambda: sealed(mnt, 1))
    assert stats(mnt)["seal_read_bytes"] == new
    time.sleep(5)  # two looks
    assert stats(mnt)["seal_read_bytes"] == new


def test_what_is_damaged_is_not_sealed(mount, source, auto, tmp_path):
    shutil.copytree(FSDP, source / "llama")
    os.truncate(source / "llama/checkpoint-2/optimizer_0/__1_0.distcp", 100)
    mnt = mount(source, auto, f"log={tmp_path}/log")
    eventually(lambda: stats(mnt)["not_sealed"] == 1)
    time.sleep(5)
    assert sealed(mnt, 0)
    assert (tmp_path / "log").read_text().count("llama/checkpoint-2: not sealed: ") == 1


def test_unmounting_ends_it(mount, command, source, auto, tmp_path):
    model(source / "large", 100)
    mnt = mount(source, auto, "seal_rate=1MiB")
    eventually(lambda: stats(mnt)["seal_read_bytes"])
    pid = mnt.pid()
    command("umount", mnt)
    eventually(lambda: not alive(pid), within=60)  # of the 100 s that it would have read for
    assert not list((tmp_path / "seals").iterdir())
    mnt = mount(source, auto)
    eventually(lambda: sealed(mnt, 1))


def test_a_checkpoint_that_changes_meanwhile(mount, command, source, auto, tmp_path):
    """What is sealed is one state of the checkpoint, the last one."""
    size = model(source / "model", 8)
    mnt = mount(source, auto, "seal_rate=2MiB", changing=True)
    eventually(lambda: stats(mnt)["seal_read_bytes"])
    with open(source / "model/model.safetensors", "r+b") as f:
        f.seek(-2, os.SEEK_END)
        f.write(b"\0\x40")
    eventually(lambda: sealed(mnt, 1))
    assert stats(mnt)["seal_read_bytes"] > size
    assert not findings(command, source, "--deep", "-o", f"seals={tmp_path}/seals,store=none,settle=0")


@pytest.fixture
def held(faults):
    """held(PATH, program): a read of the mount that waits for as long as the test wants."""
    threads = []

    def hold(path, source):
        faults.arm("read", action="hold", path=source, nth=1)
        thread = threading.Thread(target=path.read_bytes)
        thread.start()
        threads.append(thread)
        eventually(lambda: faults.struck)

    yield hold
    faults.disarm()
    for thread in threads:
        thread.join()


def test_readers_come_first(mount, source, auto, faults, held, tmp_path):
    """While a program waits for a read, 1 MiB is read each 200 ms, and so the checkpoint is sealed in the end."""
    model(source / "small", 2)
    model(tmp_path / "large", 32)
    mnt = mount(source, auto, "cache=sources", changing=True, faults=faults)
    eventually(lambda: sealed(mnt, 1))
    before = stats(mnt)["seal_read_bytes"]
    held(mnt / "weights/small/model.safetensors", source / "small/model.safetensors")
    began = time.monotonic()
    (tmp_path / "large").rename(source / "large")
    eventually(lambda: stats(mnt)["seal_read_bytes"] > before + 2 * MIB, every=0.01)
    read = stats(mnt)["seal_read_bytes"] - before
    assert read <= ((time.monotonic() - began) / 0.2 + 2) * MIB
    faults.disarm()
    eventually(lambda: sealed(mnt, 2))


def test_a_source_that_hangs(mount, command, source, auto, faults):
    model(source / "far", 2)
    faults.arm("read", action="hold", path=source / "far/model.safetensors", nth=1)
    model(source / "near", 2)
    mnt = mount(source, auto, faults=faults)
    eventually(lambda: faults.struck)
    assert (mnt / "weights/near/model.safetensors").read_bytes() == (source / "near/model.safetensors").read_bytes()
    command("umount", mnt)
    assert not is_mounted(mnt)
    eventually(lambda: not serving(mnt))
    faults.disarm()


def test_where_no_seal_can_be_kept(mnt, command, source):
    for options, sentence in (("seal=auto,store=none", "metadata store"),
                              (f"seal=auto,seals={source}/seals", "nothing is ever written"),
                              ("seal=yes", "expected auto"), ("seal_rate=5MB", "seal=auto")):
        done = command("mount", source, mnt, "-o", options, check=False)
        assert done.returncode == 2 and sentence in done.stderr, done
        assert not is_mounted(mnt) and not list(source.iterdir())

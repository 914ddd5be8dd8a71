"""Extended attributes of a mount: user.unshard.view, generation, source, sha256."""

import errno
import hashlib
import json
import os
import shutil
import subprocess

import pytest

import trees

VIEWS = ["weights", "weights-bf16", "full", "full-fsdp", "dcp", "universal"]


@pytest.fixture
def run(made):
    return made("t2", "tied-f1-fp32") / "run"


def attribute(path, name):
    return os.getxattr(path, f"user.unshard.{name}").decode()


def files(top):
    return [p for p in sorted(top.rglob("*")) if p.is_file() and not p.is_symlink()]


@pytest.mark.parametrize("view", VIEWS)
def test_the_extents_of_every_file_are_its_bytes(run, mount, view):
    """What a program reads from the shards by the map is what the mount returns, and the sum is that of the bytes."""
    checkpoint = mount(run) / view / "checkpoint-2"
    direct = 0
    for path in files(checkpoint):
        data = path.read_bytes()
        assert attribute(path, "view") == view
        assert attribute(path, "sha256") == hashlib.sha256(data).hexdigest()
        source, at = json.loads(attribute(path, "source")), 0
        for extent in source["extents"]:
            assert extent["at"] == at and extent["length"] > 0
            at += extent["length"]
            wanted = data[extent["at"]:at]
            if extent["from"] == "file":
                assert extent["file"].startswith(f"{run}/"), extent
                with open(extent["file"], "rb") as file:
                    file.seek(extent["offset"])
                    assert file.read(extent["length"]) == wanted, (path, extent)
                direct += extent["length"]
            else:
                assert extent["from"] in ("computed", "zeros")
                assert extent["from"] != "zeros" or not any(wanted)
        assert at == source["size_bytes"] == len(data)
    assert direct > 0


def test_weights_that_are_cast_are_computed_and_others_lie_in_shards(run, mount):
    m = mount(run)
    length = {}  # bytes by view and origin
    for view in ("weights", "weights-fp16"):
        for path in (m / view / "checkpoint-2").glob("*.safetensors"):
            for extent in json.loads(attribute(path, "source"))["extents"]:
                length[view, extent["from"]] = length.get((view, extent["from"]), 0) + extent["length"]
    for view in ("weights", "weights-fp16"):
        lying = [t for t in trees.weights(m / view / "checkpoint-2").values()
                 if view == "weights" or not t.dtype.is_floating_point]
        assert length.get((view, "file"), 0) == sum(t.numel() * t.element_size() for t in lying)


def test_a_generation_changes_with_the_source(run, copied, mount):
    run = copied(run)
    m = mount(run, changing=True)
    one, other = (m / "weights" / f"checkpoint-{n}" / "model.safetensors" for n in (1, 2))
    first = attribute(one, "generation")
    assert len(first) == 16 and int(first, 16) and first != attribute(other, "generation")
    assert first == attribute(m / "full/checkpoint-1", "generation")
    again = mount(run, changing=True)
    assert first == attribute(again / "weights/checkpoint-1/model.safetensors", "generation")
    shard = run / "checkpoint-1/pytorch_model_fsdp_0/__0_0.distcp"
    os.utime(shard, ns=(shard.stat().st_mtime_ns + 10**9,) * 2)
    assert first != attribute(mount(run, changing=True) / "weights/checkpoint-1/model.safetensors", "generation")


def test_what_is_listed_can_be_read_and_costs_nothing(run, mount, tmp_path):
    """Programs that copy files read all that is listed: neither the whole content nor a map that is too long."""
    m = mount(run)
    shown = m / "weights/checkpoint-2/model.safetensors"
    assert sorted(os.listxattr(shown)) == ["user.unshard.generation", "user.unshard.view"]
    assert os.listxattr(m / "weights/checkpoint-2") == os.listxattr(shown)
    assert os.listxattr(m) == os.listxattr(m / ".unshard/stats.json") == []
    for name in ("user.unshard.nothing", "user.other"):
        with pytest.raises(OSError) as failed:
            os.getxattr(shown, name)
        assert failed.value.errno == errno.ENODATA
    with pytest.raises(OSError) as failed:
        os.getxattr(m / "weights/checkpoint-2", "user.unshard.sha256")
    assert failed.value.errno == errno.ENODATA
    done = subprocess.run(["tar", "--xattrs", "-cf", tmp_path / "x.tar", "-C", m / "weights", "checkpoint-2"],
                          capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    shutil.copytree(m / "weights/checkpoint-2", tmp_path / "copy")  # copies attributes as well
    assert (tmp_path / "copy/model.safetensors").read_bytes() == shown.read_bytes()


def test_ls_asks_for_no_attribute_of_each_file(run, mount):
    """ls -l looks for a security context and an access list until it is told that the file system has none."""
    traced = subprocess.run(["strace", "-f", "-e", "trace=getxattr,lgetxattr", "ls", "-lR", mount(run) / "weights"],
                            capture_output=True, text=True, timeout=600, check=True)
    entries = [line for line in traced.stdout.splitlines() if line[:1] in "-dl"]
    asked = [line for line in traced.stderr.splitlines() if "getxattr(" in line]
    assert 0 < len(asked) <= 3 < len(entries), asked

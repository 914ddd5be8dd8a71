"""-o reads=: the ways in which a mount reads shards give the same bytes, and none gives bytes of a shard that has changed."""

import errno
import json
import os

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

from conftest import unshard

WAYS = ["cached", "ordered", "direct", "auto"]


@pytest.fixture
def run(tmp_path):
    """A checkpoint whose tensors are longer than what is read past the page cache (64 KiB), and a short one."""
    torch.manual_seed(3)
    weights = {"a.weight": torch.randn(1500, 1000), "b.bias": torch.randn(7), "c.weight": torch.randn(3000, 700)}
    where = tmp_path / "runs/checkpoint-1/pytorch_model_fsdp_0"
    dcp.save({"model": weights}, checkpoint_id=where, no_dist=True)
    shard, = where.glob("*.distcp")
    return tmp_path / "runs", shard, weights


def forget(path):
    """The page cache's copy."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_gives_the_same_bytes(run, mount, way):
    source, shard, weights = run
    m = mount(source, f"reads={way}")
    forget(shard)
    got = load_file(m / "weights/checkpoint-1/model.safetensors")
    assert got.keys() == weights.keys() and all(torch.equal(got[name], t) for name, t in weights.items())
    direct = json.loads((m / ".unshard/stats.json").read_text())["direct_read_bytes"]
    assert direct == 0 or way == "direct"
    if way == "direct" and takes_direct(shard):
        assert direct >= sum(t.nbytes for t in weights.values()) // 2


def takes_direct(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("way", WAYS)
def test_no_way_gives_bytes_of_a_changed_shard(run, mount, way):
    source, shard, _ = run
    m = mount(source, f"reads={way}", changing=True)
    with open(m / "weights/checkpoint-1/model.safetensors", "rb") as f:
        f.read(1 << 20)
        with open(shard, "r+b") as s:
            s.seek(6 << 20)
            s.write(b"changed")
        forget(shard)
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with pytest.raises(OSError) as e:
            os.pread(f.fileno(), 1 << 20, 12 << 20)
        assert e.value.errno == errno.ESTALE


def test_another_word_is_refused(run, mnt):
    done = unshard("mount", run[0], mnt, "-o", "reads=fast", check=False)
    assert done.returncode != 0 and "reads=fast: expected cached, ordered, direct or auto" in done.stderr


@pytest.mark.long
def test_the_way_that_was_found_is_logged_and_remembered(tmp_path, mnt):
    """A file of 600 MB, once by each of two mounts. The kernel reports what is cached to the shard's owner."""
    torch.manual_seed(3)
    where = tmp_path / "runs/checkpoint-1/pytorch_model_fsdp_0"
    dcp.save({"model": {"a.weight": torch.randn(30000, 5000)}}, checkpoint_id=where, no_dist=True)
    shard, = where.glob("*.distcp")
    said = []
    for n in range(2):
        log = tmp_path / f"log-{n}"
        unshard("mount", tmp_path / "runs", mnt, "-o", f"settle=0,reads=auto,store={tmp_path / 'store.db'},log={log}")
        try:
            forget(shard)
            with open(mnt / "weights/checkpoint-1/model.safetensors", "rb") as f:
                while f.read(1 << 20):
                    pass
        finally:
            unshard("umount", mnt)
        said.append([line for line in log.read_text().splitlines() if "is read with reads=" in line])
    assert len(said[0]) == 1 and "ordered 0, " in said[0][0] and not said[1]

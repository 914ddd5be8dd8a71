"""What a machine may lack, or take away: room on a disk, the disk itself, descriptors, an answer to the kernel, the right
time. An error at that moment, with its cause; never other bytes; and all is well when it is back."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint._extension import ZStandard
import torch.distributed.checkpoint as dcp

import trees
from conftest import LONGEST_S, UNSHARD, fill, is_mounted
from processes import alive
from test_faults import content, is_right_or_an_error
from test_network import Network, network  # noqa: F401

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CKPT = "checkpoint-2"
DAY_S = 86400
FEW = 20


def started(*args, **how):
    return subprocess.run([str(UNSHARD), *map(str, args)], capture_output=True, text=True, timeout=LONGEST_S, **how)


# -- full disks; a full one for the store: test_store.py --

@pytest.fixture
def packed(tmp_path):
    """A checkpoint whose one tensor is larger unpacked than half a megabyte. -> (directory, tensor)"""
    big = torch.arange(300_000).float()
    dcp.save({"model": {"big": big}}, no_dist=True,
             storage_writer=FileSystemWriter(tmp_path / "src/ckpt", _extensions=[ZStandard()]))
    return tmp_path / "src", big


def test_no_room_for_what_is_unpacked(packed, small, mount):
    source, big = packed
    m = mount(source, "mem=1", f"cache_dir={small}")
    path = m / "weights/ckpt/model.safetensors"
    with pytest.raises(OSError) as failed:
        path.read_bytes()
    assert failed.value.errno == errno.ENOSPC
    assert f"{small}: no space left for decoded data" in (m / ".unshard/errors.log").read_text()
    subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
    trees.assert_same(trees.tensors(path), {"big": big})


def filled_while_it_writes(args, small, first, faults, eventually):
    """(exit status, what it said) of a command that had room at the beginning, and none from its first write on."""
    faults.arm("write", action="hold", path=small / first)
    copying = subprocess.Popen([UNSHARD, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=faults.env)
    eventually(lambda: faults.struck)
    fill(small)
    faults.disarm()
    _, said = copying.communicate(timeout=LONGEST_S)
    (small / "filler").unlink()
    return copying.returncode, said


def test_an_export_has_its_room_set_aside(small, faults, eventually, tmp_path):
    """A disk that is full at the beginning: test_export.py."""
    args = ("export", GOLDEN / "run" / CKPT, small / "out", "-o", "settle=0,store=none")
    assert filled_while_it_writes(args, small, "out.partial/model", faults, eventually) == (0, "")
    started("export", GOLDEN / "run" / CKPT, tmp_path / "want", "-o", "settle=0,store=none")
    assert content(small / "out") == content(tmp_path / "want")


def test_a_disk_that_fills_under_a_repair(small, faults, eventually, tmp_path):
    source = shutil.copytree(GOLDEN / "ranks/fsdp2", tmp_path / "actor")
    shutil.copy(source / "model_world_size_2_rank_0.pt", source / "model_world_size_3_rank_0.pt")
    before = trees.fingerprint(source)
    args = ("check", source, "--repair", small / "out", "-o", "settle=0,store=none")
    code, said = filled_while_it_writes(args, small, "out.partial-", faults, eventually)
    assert code == 2 and os.strerror(errno.ENOSPC) in said and str(small / "out") in said
    assert os.listdir(small) == []
    assert started(*args).returncode == 0
    assert os.listdir(small) == ["out"]
    assert trees.fingerprint(source) == before


# -- vanishing disks --

def test_a_source_that_is_unmounted_lazily_is_read_to_its_end(small, tmp_path, mount):
    """What holds it open keeps it."""
    source = tmp_path / "disk"
    source.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", source], check=True)
    shutil.copytree(GOLDEN / "run" / CKPT, source / CKPT)
    m = mount(source, "store=none", changing=True)
    want = content(m.path)
    subprocess.run(["umount", "-l", source], check=True)
    assert not os.listdir(source)
    assert content(m.path) == want


def codes(seen):
    return {value for value in seen.values() if isinstance(value, int)}


@pytest.fixture
def served(network, mount, faults):  # noqa: F811
    """A mount of a directory in which another program's file system lies, and what it shows. Calls of that program
    fail when `faults` says so."""
    source = network.path.parent / "above"
    source.mkdir()
    network.path = source / "far"
    network.path.mkdir()
    network.up(env=faults.env)
    m = mount(source, "store=none", changing=True)
    return m, content(m.path)


def test_a_source_that_fails_for_a_while(network, served, faults, eventually):  # noqa: F811
    m, want = served
    with faults.armed("open", "stat", "read", "readdir", nth=0, program="renumber_fs", path=network.source):
        seen = content(m.path)
    assert faults.struck and errno.EIO in codes(seen)
    is_right_or_an_error(seen, want)
    eventually(lambda: content(m.path) == want)


def test_a_source_whose_program_dies(network, served, eventually):  # noqa: F811
    m, want = served
    network.process.kill()
    network.process.wait()
    seen = content(m.path)
    assert errno.ENOTCONN in codes(seen)
    is_right_or_an_error(seen, want)
    subprocess.run(["umount", "-l", network.path], check=True)
    network.up()
    eventually(lambda: content(m.path) == want)


# -- few descriptors --

def few():
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))


def test_twenty_descriptors_are_enough(tmp_path, mnt, mount):
    """For every view of checkpoints of each family, and four readers at once."""
    source = tmp_path / "golden"
    for name in ("run", "dcp/zstd", "ranks/fsdp2", "zero/z3_w2"):
        shutil.copytree(GOLDEN / name, source / name)
    want = content(mount(source, "store=none").path)
    done = started("mount", source, mnt, "-o", f"settle=0,store={tmp_path / 'store.db'}", preexec_fn=few)
    assert done.returncode == 0, done.stderr
    readers = [subprocess.Popen(["find", mnt, "-type", "f", "-exec", "cat", "{}", "+"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE) for _ in range(4)]
    assert [r.communicate()[1] for r in readers] == [b""] * 4
    assert content(mnt) == want
    assert started("umount", mnt).returncode == 0


@pytest.mark.parametrize("args", [("ls", "{golden}/zero", "--json"), ("show", "{golden}/zero/z3_w2/global_step2", "--json"),
                                  ("check", "{golden}/zero/z3_w2", "--deep", "--json")], ids=lambda a: a[0])
def test_commands_need_no_more(args):
    args = [a.format(golden=GOLDEN) for a in args] + ["-o", "settle=0,store=none"]
    assert started(*args, preexec_fn=few).stdout == started(*args).stdout


# -- answers that the kernel does not get --

@pytest.mark.parametrize("code", [errno.EIO, errno.ENOMEM, errno.ENOENT, errno.EINTR], ids=errno.errorcode.get)
def test_an_answer_that_is_lost(tmp_path, mount, faults, eventually, code):
    """Worse than a kernel, which ends a request whose answer it cannot take: that reader waits. Others do not, and the
    mount ends as it should."""
    m = mount(shutil.copytree(GOLDEN / "run", tmp_path / "run"), "store=none", faults=faults)
    path = m / f"weights/{CKPT}/model.safetensors"
    want = (m / f"full/{CKPT}/optimizer.pt").read_bytes()
    pid = m.pid()
    with open(path, "rb") as held:
        os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        faults.arm("write", path="/dev/fuse", error=code)
        reader = subprocess.Popen(["cat"], stdin=held, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        eventually(lambda: faults.struck)
        faults.disarm()
    for _ in range(3):
        with open(m / f"full/{CKPT}/optimizer.pt", "rb") as other:
            os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert other.read() == want
    os.kill(pid, signal.SIGTERM)
    got = reader.communicate()[0]
    assert reader.returncode != 0 or got == (GOLDEN / "run.model.safetensors").read_bytes()
    eventually(lambda: not is_mounted(m) and not alive(pid))


MAPPER = """
import mmap, os, sys
with open(sys.argv[1], "rb") as f:
    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    sys.stdout.buffer.write(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:])
"""


@pytest.mark.sanitized
def test_a_map_whose_page_cannot_be_read(tmp_path, mount, faults):
    """SIGBUS, which is all that a map can be told; the cause is in the log, and the next one has the bytes."""
    m = mount(shutil.copytree(GOLDEN / "run", tmp_path / "run"), "store=none", faults=faults)
    path = m / f"weights/{CKPT}/model.safetensors"
    want = path.read_bytes()

    def mapped():
        return subprocess.run([sys.executable, "-c", MAPPER, path], capture_output=True)

    faults.arm("read", path=".distcp", nth=1 << 40)
    assert mapped().stdout == want
    reads = faults.seen
    assert reads
    for nth in range(1, reads + 1):
        with faults.armed("read", path=".distcp", nth=nth):
            done = mapped()
        assert done.returncode == -signal.SIGBUS or (done.returncode == 0 and done.stdout == want), nth
        assert mapped().stdout == want, nth
    assert ".distcp" in (m / ".unshard/errors.log").read_text()


# -- a clock that is set --

def shows(m):
    return CKPT in os.listdir(m / "weights")


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_clock_that_is_set(tmp_path, mount, faults, eventually, jump_s):
    """What is remembered of a directory ages by the time that passes, not by the clock: what changes is seen, what does
    not stays, with its inode number."""
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    m = mount(run, f"store={tmp_path / 'store.db'}", faults=faults, changing=True)
    path = m / f"weights/{CKPT}/model.safetensors"
    want, ino = path.read_bytes(), path.stat().st_ino
    for _ in range(2):
        faults.set_clock(jump_s)
        jump_s = -jump_s
        faults.pass_time(2)
        assert path.read_bytes() == want and path.stat().st_ino == ino
        (run / CKPT / "scheduler.pt").touch()
        faults.pass_time(2)
        eventually(lambda: path.stat().st_ino != ino)
        assert path.read_bytes() == want
        ino = path.stat().st_ino
    facts = started("meta", "set", run, "seed=1", "--store", tmp_path / "store.db", env=faults.env)
    assert facts.returncode == 0
    faults.set_clock(-DAY_S)
    listed = started("meta", "list", run, "--json", "--store", tmp_path / "store.db", env=faults.env)
    assert json.loads(listed.stdout)[0]["value"] == 1


def test_a_save_that_goes_on_while_the_clock_is_set(tmp_path, mount, faults, eventually):
    """Hidden as long as its newest file is younger than `settle`, by the clock that gave the file its time: set back,
    files of the future are as old as a save that has ended."""
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    (run / CKPT / "trainer_state.json").unlink()
    metadata = run / CKPT / "pytorch_model_fsdp_0/.metadata"
    kept = metadata.read_bytes()
    metadata.unlink()
    for path in (run / CKPT).rglob("*"):
        os.utime(path)
    m = mount(run, "settle=3600", faults=faults, changing=True)
    assert not shows(m)
    faults.set_clock(DAY_S)
    faults.pass_time(2)
    eventually(lambda: shows(m))
    assert not (m / f"weights/{CKPT}/model.safetensors").exists()
    faults.set_clock(-DAY_S)
    faults.pass_time(2)
    eventually(lambda: not shows(m))
    metadata.write_bytes(kept)
    faults.pass_time(3600)
    eventually(lambda: (m / f"weights/{CKPT}/model.safetensors").exists())
    assert (m / f"weights/{CKPT}/model.safetensors").read_bytes() == (GOLDEN / "run.model.safetensors").read_bytes()


def asking(path):
    return subprocess.Popen(["cat", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def is_in_open(pid):
    """Waits in the system call."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("257", "56")  # openat's number; arm64: 56


def test_who_waits_for_crcs_can_give_up_whatever_the_clock_says(tmp_path, mount, faults, eventually):
    """The second asker waits for the first, which is held at its first read."""
    m = mount(shutil.copytree(GOLDEN / "run", tmp_path / "run"), "store=none,crc=exact", faults=faults)
    path = m / f"full/{CKPT}/optimizer.pt"
    size = path.stat().st_size
    faults.set_clock(DAY_S)  # between a deadline and the wait for it
    with faults.armed("read", action="hold", path=".distcp"):
        askers = [asking(path)]
        eventually(lambda: faults.struck)
        askers.append(asking(path))
        eventually(lambda: is_in_open(askers[1].pid))
        askers[1].send_signal(signal.SIGINT)
        assert askers[1].wait() == -signal.SIGINT
        assert askers[0].poll() is None
    assert len(askers[0].communicate()[0]) == size
    askers[1].stdout.close()

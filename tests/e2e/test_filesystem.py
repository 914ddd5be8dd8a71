"""The mount as a file system: ordinary tools, read-only in every way, links, places, users."""

import errno
import hashlib
import json
import mmap
import os
import pwd
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from transformers.trainer_utils import get_last_checkpoint

import trees
from conftest import LONGEST_S

SHOWN = "weights/checkpoint-2/model.safetensors"


@pytest.fixture
def run(made):
    return made("t2", "tied-f1-fp32") / "run"


@pytest.fixture
def m(run, mount):
    return mount(run)


@pytest.fixture
def expected(made):
    return (made("t2", "tied-f1-fp32") / "pretrained-2/model.safetensors").read_bytes()


def sh(*command, **kwargs):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True,
                          timeout=LONGEST_S, **kwargs).stdout


def test_the_root_lists_the_views(m):
    assert {"dcp", "weights", "weights-bf16", "weights-fp16",
            "weights-fp32"} <= set(os.listdir(m))


def test_unknown_views_are_not_there(m):
    for name in ("weights-int8", "weights-BF16", "weights-", "nothing"):
        assert not (m / name).exists()


def test_get_last_checkpoint(m):
    assert get_last_checkpoint(str(m / "weights")) == str(m / "weights/checkpoint-2")
    assert get_last_checkpoint(str(m / "dcp")) == str(m / "dcp/checkpoint-2")


def test_ls_and_find(m):
    assert sh("ls", m / "weights/checkpoint-2").split() == ["config.json", "model.safetensors"]
    found = sh("find", m / "weights", "-type", "f").splitlines()
    assert sorted(found) == sorted(str(m / p) for p in (
        "weights/config.json", "weights/checkpoint-1/config.json", SHOWN,
        "weights/checkpoint-1/model.safetensors", "weights/checkpoint-2/config.json"))
    assert ".unshard" not in sh("ls", "-aR", m)


def test_cp_tar_rsync_sha256sum(m, tmp_path, expected):
    want = hashlib.sha256(expected).hexdigest()
    assert sh("sha256sum", m / SHOWN).split()[0] == want
    sh("cp", "-r", m / "weights", tmp_path / "cp")
    sh("rsync", "-a", f"{m}/weights/", tmp_path / "rsync/")
    sh("tar", "-cf", tmp_path / "t.tar", "-C", m, "weights")
    shutil.unpack_archive(tmp_path / "t.tar", tmp_path / "tar")
    for copy in (tmp_path / "cp", tmp_path / "rsync", tmp_path / "tar/weights"):
        assert (copy / "checkpoint-2/model.safetensors").read_bytes() == expected
        assert trees.listing(copy) == trees.listing(m / "weights")
    assert sh("rsync", "-a", "-i", f"{m}/weights/", tmp_path / "rsync/") == ""


def test_a_warm_lookup_does_not_look_at_source(m):
    """The kernel asks for each absent name; inside a checkpoint that is known nobody else is asked."""
    def looks():
        return json.loads((m / ".unshard/stats.json").read_text())["source_looks"]

    ckpt = m / "weights/checkpoint-2"
    os.listdir(ckpt)
    (ckpt / "model.safetensors").read_bytes()
    costs = []
    for i in range(6):  # in one of them at least the checkpoint is not compared with its files
        looks()
        once = -looks() + looks()
        before = looks()
        for k in range(50):
            assert not (ckpt / f"absent-{i}-{k}").exists()
        costs.append(looks() - before - once)
    assert min(costs) <= 0, costs
    assert max(costs) < 50, costs


def test_df(m):
    assert str(m) in sh("df", m)
    assert os.statvfs(m).f_flag & os.ST_RDONLY


def test_reads_of_every_kind(m, tmp_path, expected):
    path = m / SHOWN
    with open(path, "rb") as f:
        for flags in ("ACCESS_READ", "MAP_SHARED", "MAP_PRIVATE"):
            how = ({"access": mmap.ACCESS_READ} if flags == "ACCESS_READ" else
                   {"flags": getattr(mmap, flags), "prot": mmap.PROT_READ})
            with mmap.mmap(f.fileno(), 0, **how) as mapped:
                assert mapped[:] == expected
    fd = os.open(path, os.O_RDONLY)
    for off, n in ((0, 1), (7, 9), (len(expected) - 3, 100), (len(expected), 5), (1 << 40, 5)):
        assert os.pread(fd, n, off) == expected[off:off + n]
    out = os.open(tmp_path / "sent", os.O_RDWR | os.O_CREAT)
    assert os.sendfile(out, fd, 0, len(expected)) == len(expected)
    assert (tmp_path / "sent").read_bytes() == expected
    os.close(out)
    os.close(fd)


WRITES = {
    "create": lambda d: open(d / "new", "w"),
    "write": lambda d: open(d / "config.json", "r+"),
    "append": lambda d: open(d / "config.json", "a"),
    "truncate": lambda d: os.truncate(d / "config.json", 0),
    "unlink": lambda d: os.unlink(d / "config.json"),
    "rename": lambda d: os.rename(d / "config.json", d / "x"),
    "link": lambda d: os.link(d / "config.json", d / "x"),
    "symlink": lambda d: os.symlink("config.json", d / "x"),
    "mkdir": lambda d: os.mkdir(d / "x"),
    "rmdir": lambda d: os.rmdir(d),
    "mknod": lambda d: os.mkfifo(d / "x"),
    "chmod": lambda d: os.chmod(d / "config.json", 0o600),
    "chown": lambda d: os.chown(d / "config.json", os.getuid(), os.getgid()),
    "utime": lambda d: os.utime(d / "config.json"),
    "setxattr": lambda d: os.setxattr(d / "config.json", "user.x", b"1"),
    "removexattr": lambda d: os.removexattr(d / "config.json", "user.x"),
}


@pytest.mark.parametrize("operation", WRITES)
def test_every_write_says_read_only(m, operation):
    with pytest.raises(OSError) as failed:
        WRITES[operation](m / "weights/checkpoint-2")
    assert failed.value.errno == errno.EROFS


def test_modes_owners_times(run, copied, mount):
    run = copied(run)
    os.chmod(run / "checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp", 0o640)
    shard = run / "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp"
    os.chmod(shard, 0o664)
    if os.getuid() == 0:
        subprocess.run(["chown", "-R", "4321:1234", run / "checkpoint-2"], check=True)
    # No shard is newer than what its save writes last.
    for file in shard, shard.parent / ".metadata", run / "checkpoint-2/trainer_state.json":
        os.utime(file, ns=(1, 2_000_000_000_123_456_789))
    st = os.stat(mount(run) / SHOWN)
    assert stat.S_IMODE(st.st_mode) == 0o440
    assert st.st_mtime_ns == 2_000_000_000_123_456_789
    if os.getuid() == 0:
        assert (st.st_uid, st.st_gid) == (4321, 1234)


def test_inode_numbers_are_stable_across_mounts_and_new_with_the_source(run, copied, mount):
    run = copied(run)
    one, two = mount(run, changing=True), mount(run, changing=True)
    ino = os.stat(one / SHOWN).st_ino
    assert ino == os.stat(two / SHOWN).st_ino != os.stat(one / SHOWN.replace("-2", "-1")).st_ino
    shard = run / "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp"
    shard.write_bytes(shard.read_bytes())
    assert os.stat(mount(run) / SHOWN).st_ino != ino


# Each changes what some view shows of some checkpoint.
OPTIONS = ["", "experts=split", "experts=fused", "max_shard_size=1MB", "rng=hide", "mean=ema:0.5", "mean=wsm", "adapters=a:1",
           "adapters=a:2", "fact=train_batch_size=4", "strip=model.", "names=memory"]


def test_inode_numbers_differ_with_the_options_that_change_what_is_shown(run, mount):
    """Files of two mounts may have equal names, sizes and times, and other bytes: a program that copies both, and looks at
    inode number and time to see what has changed, must not take one for the other."""
    shown = {}
    for options in OPTIONS + OPTIONS[:2]:
        folder = mount(run, *filter(None, [options]), changing=True) / SHOWN.rpartition("/")[0]
        shown.setdefault(options, set()).add((folder / "config.json").stat().st_ino)
    assert all(len(found) == 1 for found in shown.values())
    assert len(set().union(*shown.values())) == len(OPTIONS)


def inodes(m):
    return {str(p.relative_to(m)): os.lstat(p).st_ino for p in sorted(Path(m).rglob("*"))}


def test_inode_numbers_do_not_hang_on_device_numbers(run, mount):
    """Another host, or the next mount: the same files below another st_dev. Here it is a mount of ours
    that gives the number out."""
    below = [mount(run, "view=dcp", changing=True) for _ in range(2)]
    assert os.stat(below[0]).st_dev != os.stat(below[1]).st_dev
    one, two = (inodes(mount(m.path, changing=True)) for m in below)
    assert len(one) > 50 and one == two


def test_source_is_one_checkpoint(run, mount, expected, copied):
    m = mount(run / "checkpoint-2")
    assert (m / "weights/model.safetensors").read_bytes() == expected
    alone = copied(run / "checkpoint-2")
    live = trees.weights(mount(alone) / "weights")
    assert "lm_head.weight" in live  # no config is known here, so nothing ties
    m = mount(alone, f"model={run}")
    assert (m / "weights/model.safetensors").read_bytes() == expected


def test_one_view_at_the_root(run, mount, expected):
    m = mount(run, "view=weights")
    assert sorted(os.listdir(m)) == ["checkpoint-1", "checkpoint-2", "config.json"]
    assert (m / "checkpoint-2/model.safetensors").read_bytes() == expected
    assert sorted(os.listdir(mount(run, "view=dcp") / "checkpoint-2")) == \
        sorted(os.listdir(run / "checkpoint-2"))


@pytest.mark.parametrize("where,shown", [
    ("mnt", ["checkpoint-1", "checkpoint-2", "config.json"]),
    ("deep/mnt", ["checkpoint-1", "checkpoint-2", "config.json", "deep"]),
    ("checkpoint-2", ["checkpoint-1", "config.json"])])
def test_mountpoint_inside_source(made, run, copied, mount, where, shown):
    """The mount is never scanned, so that what it covers is not in it."""
    run = copied(run)
    (run / where).mkdir(parents=True, exist_ok=True)
    m = mount(run, at=run / where, changing=True)
    assert sorted(os.listdir(m / "weights")) == shown
    assert where != "deep/mnt" or os.listdir(m / "weights/deep") == []
    assert (m / "weights/checkpoint-1/model.safetensors").read_bytes() == \
        (made("t2", "tied-f1-fp32") / "pretrained-1/model.safetensors").read_bytes()


def test_mounted_over_itself(run, copied, mount, expected):
    run = copied(run)
    m = mount(run, at=run, changing=True)
    assert (m / SHOWN).read_bytes() == expected
    assert sorted(os.listdir(run / "weights")) == ["checkpoint-1", "checkpoint-2", "config.json"]


def test_relative_links_stay_in_the_view(run, copied, mount, expected):
    run = copied(run)
    (run / "best").symlink_to("checkpoint-2")
    (run / "abs").symlink_to(run / "checkpoint-2")
    (run / "out").symlink_to("../elsewhere")
    m = mount(run)
    assert os.readlink(m / "weights/best") == "checkpoint-2"
    assert (m / "weights/best/model.safetensors").read_bytes() == expected
    assert sorted(os.listdir(m / "dcp/best")) == sorted(os.listdir(run / "checkpoint-2"))
    assert not (m / "weights/out").exists()


def test_links_outside_are_followed_only_where_allowed(run, copied, mount, tmp_path, expected):
    outside = copied(run, "outside")
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(run / "config.json", source)
    (source / "checkpoint-2").symlink_to(outside / "checkpoint-2")
    assert not (mount(source) / SHOWN).exists()
    assert (mount(source, f"follow={outside}") / SHOWN).read_bytes() == expected


def test_a_stale_mount_is_recognised(run, mount, kill_daemon, command, tmp_path):
    m = mount(run)
    kill_daemon(m)
    with pytest.raises(OSError) as failed:
        os.listdir(m)
    assert failed.value.errno == errno.ENOTCONN
    done = command("mount", run, m, check=False)
    assert done.returncode == 2
    assert "umount" in done.stderr and str(m) in done.stderr
    command("umount", m)
    command("mount", run, m)
    assert (m / "weights").is_dir()


FAULT = """
import hashlib, mmap, os, random, sys
with open(sys.argv[1], "rb") as f:
    held = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
os.read(0, 1)
order = list(range(0, len(held), 4096))
random.Random(int(sys.argv[2])).shuffle(order)
for at in order:
    held[at]
print(hashlib.sha256(held).hexdigest())
"""


@pytest.mark.sanitized
def test_32_processes_fault_the_same_mapping_at_once(mount, tmp_path):
    import torch
    import torch.distributed.checkpoint as dist_cp

    torch.manual_seed(0)
    state = {f"w{i}": torch.randn(1 << 18) for i in range(32)}
    dist_cp.save({"model": state}, checkpoint_id=tmp_path / "src/ckpt", no_dist=True)
    path = mount(tmp_path / "src") / "weights/ckpt/model.safetensors"
    gate_read, gate_write = os.pipe()
    running = [subprocess.Popen([sys.executable, "-S", "-c", FAULT, path, str(i)], stdin=gate_read,
                                stdout=subprocess.PIPE, text=True) for i in range(32)]
    os.write(gate_write, b"x" * 32)
    digests = {p.communicate(timeout=LONGEST_S)[0] for p in running}
    assert digests == {hashlib.sha256(path.read_bytes()).hexdigest() + "\n"}
    trees.assert_same(trees.tensors(path), state)


@pytest.mark.sanitized
def test_many_threads_read_many_files(m):
    files = [p for p in Path(m).rglob("*") if p.is_file()]
    want = [p.read_bytes() for p in files]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(4):
            assert list(pool.map(Path.read_bytes, files)) == want


@pytest.mark.sanitized
@pytest.mark.parametrize("option", ["cache=both", "cache=mount", "cache=sources", "crc=exact", "mem=1"])
def test_many_threads_close_what_they_have_just_read(run, mount, option):
    """The kernel may close a file as soon as it has the bytes that it asked for, while another thread answers."""
    m = mount(run, option)
    files = [p for p in Path(m).rglob("*") if p.is_file()]
    want = [p.read_bytes() for p in files]

    def read(i):
        which, at = i % len(files), i * 4096 % (len(want[i % len(files)]) + 1)
        fd = os.open(files[which], os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            return os.pread(fd, 4096, at) == want[which][at:at + 4096]
        finally:
            os.close(fd)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(3000)))


@pytest.mark.sanitized
def test_unmount_while_reading(run, mount, command):
    m = mount(run)
    with open(m / SHOWN, "rb") as f:
        f.read(1)
        command("umount", m)
    assert not os.path.ismount(m)


def test_unprivileged_by_fusermount3(run, unprivileged, expected):
    shutil.copytree(run, unprivileged.place / "run")
    with unprivileged.mounted(unprivileged.place / "run") as mnt:
        got = unprivileged.run("sha256sum", mnt / SHOWN)
        assert got.stdout.split()[0] == hashlib.sha256(expected).hexdigest(), got.stderr
        if os.getuid() == 0:
            with pytest.raises(PermissionError):
                os.listdir(mnt)
    assert not os.path.ismount(mnt)


def test_an_unreadable_checkpoint_hides_no_other(run, unprivileged, expected):
    """Of somebody else: its name is seen, nothing of it is, and what is beside it is served."""
    copy = shutil.copytree(run, unprivileged.place / "run")
    unprivileged.lock(copy / "checkpoint-1")
    shown = unprivileged("show", copy / "checkpoint-2", "--store", "none")
    assert "hf_fsdp" in shown.stdout
    refused = unprivileged("show", copy / "checkpoint-1", "--store", "none", check=False)
    assert refused.returncode == 2 and "Permission denied" in refused.stderr
    with unprivileged.mounted(copy, "store=none") as mnt:
        got = unprivileged.run("sha256sum", mnt / SHOWN)
        assert got.stdout.split()[0] == hashlib.sha256(expected).hexdigest(), got.stderr
        first = unprivileged.run("ls", mnt / "weights/checkpoint-1")
        assert first.returncode != 0 and "model" not in first.stdout


def closed_shard(source):
    os.chmod(source / "run/checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp", 0o600)


def closed_directory(source):
    os.chmod(source / "run/checkpoint-2/pytorch_model_fsdp_0", 0o700)


def closed_metadata(source):
    os.chmod(source / "run/checkpoint-2/pytorch_model_fsdp_0/.metadata", 0o600)


def closed_to_the_directorys_owner(source):
    somebody = pwd.getpwnam("nobody").pw_uid
    os.chown(source / "run/checkpoint-2", somebody, -1)
    closed_shard(source)


def a_link_behind_a_closed_directory(source):
    (source / "closed").mkdir(mode=0o700)
    os.rename(source / "run/checkpoint-2", source / "closed/checkpoint-2")
    os.symlink(source / "closed/checkpoint-2", source / "run/checkpoint-2")


def a_linked_part_behind_a_closed_directory(source):
    (source / "closed").mkdir(mode=0o700)
    part = source / "run/checkpoint-2/pytorch_model_fsdp_0"
    os.rename(part / "__0_0.distcp", source / "closed/shard")
    os.symlink(source / "closed/shard", part / "__0_0.distcp")


CLOSED = [closed_shard, closed_directory, closed_metadata, closed_to_the_directorys_owner,
          a_link_behind_a_closed_directory, a_linked_part_behind_a_closed_directory]


@pytest.mark.parametrize("close", CLOSED)
def test_others_may_do_no_more_than_in_source(run, unprivileged, mount, expected, close):
    if os.getuid() != 0:
        pytest.fail("needs root: run the tests as root or by sudo")
    somebody, source = unprivileged.run, unprivileged.place / "source"
    source.mkdir(mode=0o755)
    shutil.copytree(run, source / "run")
    close(source)
    m = mount(source, "allow_other,store=none", at=unprivileged.place / "mnt", changing=True)
    shown = SHOWN.replace("weights/", "weights/run/")
    first = shown.replace("-2", "-1")
    assert (m / shown).read_bytes() == expected
    assert somebody("cat", m / shown).returncode != 0
    assert somebody("wc", "-c", m / first).returncode == 0
    told = m / "weights/run/checkpoint-2/.unshard/info.json"
    if close not in (closed_shard, closed_to_the_directorys_owner, a_linked_part_behind_a_closed_directory):
        assert somebody("cat", told).returncode != 0
    assert somebody("cat", m / "weights/run/checkpoint-1/.unshard/info.json").returncode == 0
    assert somebody("cat", m / ".unshard/stats.json").returncode == 0
    assert somebody("cat", m / ".unshard/problems.txt").returncode != 0


def test_allow_other_checks_permissions(run, unprivileged, mount):
    if os.getuid() != 0:
        pytest.fail("needs root: run the tests as root or by sudo")
    somebody, place = unprivileged.run, unprivileged.place
    shutil.copytree(run, place / "run")
    os.chmod(place / "run/checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp", 0o600)
    m = mount(place / "run", "allow_other", at=place / "mnt", changing=True)
    assert "default_permissions" in next(
        line for line in Path("/proc/self/mounts").read_text().splitlines() if str(m) in line)
    assert somebody("cat", m / "weights/checkpoint-1/config.json").returncode == 0
    assert somebody("cat", m / SHOWN).returncode != 0
    subprocess.run(["cat", m / SHOWN], check=True, capture_output=True)

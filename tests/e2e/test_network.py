"""Sources on file systems that keep less than a disk does: tests/fuse/renumber_fs.c gives each file another inode
number every second, and, where told so, times of whole seconds; rclone numbers files as it comes to know them."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from conftest import ROOT, UNSHARD, eventually
from networks import RCLONE_S, Network, of_opens, of_reads, requests

sys.path.insert(0, str(ROOT / "tests/bench"))
import checkpoints  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden/run"
CHANGES = 4  # of the inode numbers, during which readers read
LONG_S = 600


@pytest.fixture
def network(tmp_path, copied, made):
    """A run of two checkpoints, below renumber_fs."""
    path = tmp_path / "network"
    path.mkdir()
    net = Network(copied(made("t2", "tied-f1-fp32") / "run"), path)
    yield net
    net.end()


def up_and_resting(net, *how):
    """Nothing of SOURCE has changed for two hours, and what renumber_fs is asked for is counted."""
    at = time.time() - 2 * 3600
    for path in [*net.source.rglob("*"), net.source]:
        os.utime(path, (at, at))
    net.counts = net.path.with_suffix(".counts")
    net.up(" ".join(["pages kept=1", f"counts={net.counts}", *how]))


@pytest.fixture
def hundred(tmp_path, request):
    """A run of a hundred checkpoints below renumber_fs."""
    net = Network(tmp_path / "run", tmp_path / "network")
    net.path.mkdir()
    shutil.copytree(GOLDEN, net.source, ignore=shutil.ignore_patterns("checkpoint-*", "optimizer_0"))
    for step in range(1, 101):
        shutil.copytree(GOLDEN / "checkpoint-2", net.source / f"checkpoint-{step}",
                        ignore=shutil.ignore_patterns("optimizer_0"))
    up_and_resting(net, *getattr(request, "param", ()))
    yield net
    net.end()


def asked_for(net, *command):
    """How many requests the command costs, when what was asked for before is not known any more."""
    time.sleep(1.2)
    before = sum(requests(net.counts).values())
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sum(requests(net.counts).values()) - before


def test_listing_a_run_again_asks_for_its_directories_alone(hundred, mount):
    m = mount(hundred.path, changing=True)
    first = asked_for(hundred, "ls", m / "weights")
    again, long = (asked_for(hundred, "ls", *option, m / "weights") for option in ((), ("-l",)))
    source = asked_for(hundred, "ls", "-lR", hundred.path)
    print(f"{first} requests, again {again}, with -l {long}; ls -lR of the source {source}")
    assert len(os.listdir(m / "weights")) >= 100
    assert max(again, long) <= 250
    assert max(again, long) < source


LISTED_AGAIN = 110  # requests: for each checkpoint its other directory, and four for the run


def test_listing_all_checkpoints_of_a_run_again_looks_at_none_of_their_files(hundred, mount):
    """What the client keeps, it keeps for a second: where a listing takes longer, it may be asked for more."""
    m = mount(hundred.path, changing=True)
    asked_for(hundred, "ls", "-lR", m / "weights")
    eventually(lambda: asked_for(hundred, "ls", "-lR", m / "weights") <= LISTED_AGAIN)
    files = [path for path in (m / "weights/checkpoint-100").iterdir()]
    assert files and all(path.read_bytes() for path in files)


@pytest.mark.long
@pytest.mark.parametrize("hundred", [["every=15000"]], indirect=True)
def test_a_look_holds_while_the_run_is_listed(hundred, mount):
    """The last checkpoint is listed seconds after it was seen in the listing of the run."""
    m = mount(hundred.path, changing=True)
    asked_for(hundred, "ls", "-lR", m / "weights")
    asked = [asked_for(hundred, "ls", "-lR", m / "weights") for _ in range(3)]
    print(asked)
    assert min(asked) <= 250


RANKS, ITEMS = 64, 16  # of a rank


@pytest.fixture
def many_ranks(tmp_path):
    """A checkpoint of so many ranks below renumber_fs."""
    net = Network(tmp_path / "run", tmp_path / "network")
    net.path.mkdir()
    tensors = {f"layer.{i}.weight": torch.randn(12 * RANKS, 512) for i in range(ITEMS)}
    checkpoints.write_run(net.source, {}, tensors, RANKS)
    up_and_resting(net)
    yield net
    net.end()


def test_a_first_load_opens_each_shard_once(many_ranks, mount, command):
    """And asks once for each. Nor does the mount open them. Identities are asked for once a second, and if nobody reads for
    a second shards are closed, and opened again."""
    took_s = tries = 1
    while took_s >= 1 and tries < 5:
        before = requests(many_ranks.counts)
        m = mount(many_ranks.path, "store=none", changing=True)
        assert requests(many_ranks.counts)["open"] - before["open"] <= 3  # .metadata, config.json, the first shard
        path = m / "weights/checkpoint-1/model.safetensors"
        before, began = requests(many_ranks.counts), time.monotonic()
        assert len(path.read_bytes()) == path.stat().st_size
        took_s, tries = time.monotonic() - began, tries + 1
        asked = {kind: many - before[kind] for kind, many in requests(many_ranks.counts).items()}
        print(f"{took_s:.1f} s, {asked}")
        assert asked["open"] <= RANKS * (1 + int(took_s)) + 3  # .metadata, config.json, and the first shard once more
        assert asked["read"] < RANKS * ITEMS  # headers and elements of a short item are one request
        assert asked["getattr"] <= (RANKS + 2) * (1 + int(took_s))  # directories
        command("umount", m)


def load(net, mount, command, *how):
    """Mounts it over the file system as it is then, reads the model; what was asked for, and the mount's figures."""
    net.end()
    up_and_resting(net, *how)
    m = mount(net.path, "store=none", changing=True)
    path = m / "weights/checkpoint-1/model.safetensors"
    size, before = path.stat().st_size, requests(net.counts)
    assert len(path.read_bytes()) == size
    asked = {kind: many - before[kind] for kind, many in requests(net.counts).items()}
    figures = json.loads((m / ".unshard/stats.json").read_text())
    command("umount", m)
    return asked, figures


@pytest.mark.parametrize("kind", ["ceph-fuse", "juicefs"])
def test_attributes_are_asked_for_less_often_than_bytes(many_ranks, mount, command, kind):
    """Where the client lets the kernel keep none, as that of CephFS: once for both ends of an item, and once for each
    shard of which a request has elements. For each read the kernel asks once itself, by libfuse's settings here."""
    asked, figures = load(many_ranks, mount, command, "kept=0", f"type={kind}")
    ours = asked["getattr"] - figures["source_reads"]
    print(asked, ours, figures["source_reads"])
    of_opening = 8 * RANKS  # at most
    assert figures["items_resolved"] >= RANKS * ITEMS
    assert ours <= figures["source_reads"] - RANKS * ITEMS + of_opening


@pytest.mark.parametrize("kind, in_order", [("ceph-fuse", True), ("juicefs", True), ("rclone", True),
                                            ("sshfs", False), ("s3fs", False)])
def test_shards_are_read_in_order_where_clients_want_that(many_ranks, mount, command, kind, in_order):
    """By default on rclone, JuiceFS and ceph-fuse."""
    figures = load(many_ranks, mount, command, f"type={kind}")[1]
    assert (figures["ordered_read_bytes"] > 0) is in_order


@pytest.mark.long
def test_a_memo_spares_metadata_headers_and_opens_in_turn(many_ranks, mount, command, tmp_path):
    """A node that has never seen the checkpoint opens the shards and what it shows as it is, each once, and no .metadata.
    Where an open takes long, shards are opened together."""
    want = (mount(many_ranks.source, "store=none", changing=True) / "weights/checkpoint-1/model.safetensors").read_bytes()
    asked, opened = {}, tmp_path / "opened"
    for memos in ((), (f"memos={tmp_path}/memos",)):
        many_ranks.end()
        up_and_resting(many_ranks, "every=10000", f"opened={opened}")
        command("warm", many_ranks.source, "--write", tmp_path / "memos", "--store", "none", "-o", "settle=0")
        opened.write_bytes(b"")
        before = requests(many_ranks.counts)
        m = mount(many_ranks.path, "store=none", *memos, changing=True)
        assert (m / "weights/checkpoint-1/model.safetensors").read_bytes() == want
        names = opened.read_text().split()
        now = requests(many_ranks.counts)
        asked[bool(memos)] = {kind: now[kind] - before[kind] for kind in now}
        shards = [name for name in names if name.endswith(".distcp")]
        figures = json.loads((m / ".unshard/stats.json").read_text())
        assert len(set(shards)) == RANKS
        assert any(name.endswith(".metadata") for name in names) is not bool(memos)
        assert (figures["items_resolved"] == 0) is bool(memos)
        at_once, held = of_opens(many_ranks.counts)
        assert at_once > 4 and held <= RANKS + 3
        command("umount", m)
    print(asked)
    assert asked[True]["read"] < asked[False]["read"] and asked[True]["open"] <= asked[False]["open"] - 1


FEW = 48  # descriptors


@pytest.mark.long
def test_shards_that_are_opened_together_stay_below_the_limit(many_ranks, mount, command, tmp_path):
    want = (mount(many_ranks.source, "store=none", changing=True) / "weights/checkpoint-1/model.safetensors").read_bytes()
    many_ranks.end()
    up_and_resting(many_ranks, "every=2000")
    command("warm", many_ranks.source, "--write", tmp_path / "memos", "--store", "none", "-o", "settle=0")
    program = tmp_path / "few"
    program.write_text(f"#!/bin/sh\nulimit -n {FEW} && exec '{UNSHARD}' \"$@\"\n")
    program.chmod(0o755)
    path = tmp_path / "few_mnt"
    path.mkdir()
    subprocess.run([program, "mount", many_ranks.path, path, "-o", f"settle=0,store=none,memos={tmp_path}/memos"], check=True)
    try:
        assert (path / "weights/checkpoint-1/model.safetensors").read_bytes() == want
    finally:
        subprocess.run(["fusermount3", "-uz", path], check=True)
    assert 0 < of_opens(many_ranks.counts)[1] <= FEW // 8 + 1 < RANKS


def open_shards(m):
    """The daemon's descriptors, by path."""
    found = []
    for fd in Path(f"/proc/{m.pid()}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(fd))
    return [name for name in found if name.endswith(".distcp")]


def test_a_shard_stays_open_while_its_checkpoint_is_read(many_ranks, mount):
    """A client may forget what it fetched of a file when that is closed (s3fs)."""
    m = mount(many_ranks.path, "store=none", changing=True)
    path = m / "weights/checkpoint-1/model.safetensors"
    size, gap_s, tries = path.stat().st_size, 1, 0
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

        def read(n, at):
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert len(os.pread(f.fileno(), n, at)) == n

        while gap_s >= 0.9 and tries < 5:
            read(size // ITEMS, 0)  # a tensor: parts of all shards
            before, began = requests(many_ranks.counts)["open"], time.monotonic()
            gap_s, tries, last = 0, tries + 1, began
            while last - began < 2.5:
                read(4096, size // 2)
                now = time.monotonic()
                gap_s, last = max(gap_s, now - last), now
            read(size // ITEMS, 0)
            gap_s = max(gap_s, time.monotonic() - last)
        assert gap_s >= 0.9 or requests(many_ranks.counts)["open"] == before
        eventually(lambda: not open_shards(m))


def test_a_new_snapshot_opens_no_shard_that_the_old_one_has_open(network, mount, made):
    """A client may give who opens a file what it keeps of the one that had its name, for as long as that is open (s3fs)."""
    network.up()
    m = mount(network.path, changing=True)
    path = m / "weights/checkpoint-1/model.safetensors"
    old, new = ((made("t2", "tied-f1-fp32") / f"pretrained-{i}/model.safetensors").read_bytes() for i in (1, 2))
    assert path.read_bytes() == old
    with open(path, "rb", buffering=0) as held:
        save_unseen(network.source)
        for shard in shards_of(network.source):
            os.utime(shard)

        def is_new():
            with contextlib.suppress(OSError):
                os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                os.pread(held.fileno(), len(old), 0)
            data, shards = read_or_stale(path), open_shards(m)
            assert len(set(shards)) == len(shards)
            return data == new and shards

        eventually(is_new)


@pytest.fixture(params=["pages", "direct"])
def slow(request, tmp_path):
    """Checkpoints of one rank below renumber_fs, whose reads take 50 ms: short items, and long ones."""
    net = Network(tmp_path / "run", tmp_path / "network")
    net.path.mkdir()
    for name, n, rows in ("short", ITEMS, 4), ("long", 2, 4096):
        checkpoints.write_run(net.source / name, {}, {f"layer.{i}.weight": torch.randn(rows, 512) for i in range(n)}, 1)
    net.counts, net.how = tmp_path / "counts", request.param
    net.up(f"kept=1 counts={net.counts} delay=50000 {net.how}")
    yield net
    net.end()


def test_items_that_lie_together_are_one_read_or_several_at_once(slow, mount):
    """Headers of items one behind the other are wanted together. Where the kernel keeps what it has read, one request
    brings them all; where it keeps nothing, they are read at once, and nothing is asked for that would be read again."""
    weights = mount(slow.path, "store=none", changing=True) / "weights"
    path = weights / "short/checkpoint-1/model.safetensors"
    path.stat()
    reads = requests(slow.counts)["read"]
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert len(f.read(4096)) == 4096
    reads, at_once = requests(slow.counts)["read"] - reads, of_reads(slow.counts)[1]
    print(f"{slow.how}: {reads} reads, {at_once} at once")
    assert (reads <= 2 if slow.how == "pages" else at_once > 5)

    path = weights / "long/checkpoint-1/model.safetensors"
    path.stat()
    before = of_reads(slow.counts)[0]
    size = len(path.read_bytes())
    print(f"{of_reads(slow.counts)[0] - before} bytes for {size}")
    assert of_reads(slow.counts)[0] - before < 1.3 * size


def test_a_file_that_a_view_copies_is_opened_once(hundred, mount):
    """Its open compares it with what was listed, and its reads go on from there."""
    directory = mount(hundred.path, "store=none", changing=True) / "weights/checkpoint-2"
    names = [name for name in os.listdir(directory) if "tokenizer" in name]
    asked_for(hundred, "ls", directory)
    before = requests(hundred.counts)
    for name in names:
        assert (directory / name).read_bytes() == (hundred.source / name).read_bytes()
    asked = {kind: many - before[kind] for kind, many in requests(hundred.counts).items()}
    assert asked["open"] == asked["read"] == len(names) > 0


def read_or_stale(path):
    """None: what it was looked up as has changed meanwhile."""
    try:
        return path.read_bytes()
    except OSError as e:
        assert e.errno == errno.ESTALE
        return None


@pytest.mark.parametrize("how", [[], ["-lR"]], ids=["run", "checkpoints"])
def test_what_a_listing_passes_over_is_seen_by_what_opens_a_file(network, mount, made, how):
    """A shard that was written over changes no directory."""
    up_and_resting(network)
    m = mount(network.path, changing=True)
    path = m / "weights/checkpoint-1/model.safetensors"
    old, new = ((made("t2", "tied-f1-fp32") / f"pretrained-{i}/model.safetensors").read_bytes() for i in (1, 2))
    assert path.read_bytes() == old
    asked = [asked_for(network, "ls", *how, m / "weights") for _ in range(3)]
    save_unseen(network.source)
    for shard in shards_of(network.source):
        os.utime(shard)
    assert asked_for(network, "ls", *how, m / "weights") <= max(asked[1:])
    assert read_or_stale(path) in (new, None)
    eventually(lambda: path.read_bytes() == new)


def test_a_listing_sees_what_comes_to_a_checkpoint_that_rests_and_what_goes(network, mount):
    up_and_resting(network)
    m = mount(network.path, changing=True)
    asked_for(network, "ls", m / "weights")  # opens them
    asked = asked_for(network, "ls", m / "weights")
    (network.source / "checkpoint-1/new").touch()
    assert asked_for(network, "ls", m / "weights") > asked + 2
    shutil.rmtree(network.source / "checkpoint-2")
    eventually(lambda: "checkpoint-2" not in os.listdir(m / "weights"))


LISTS_S = 300  # dir_records.h: for so long a listing of a checkpoint passes over what was written over


@pytest.mark.long
def test_a_listing_of_a_checkpoint_sees_within_minutes_what_was_written_over(network, mount):
    up_and_resting(network)
    m = mount(network.path, changing=True)
    for _ in range(2):
        asked_for(network, "ls", "-lR", m / "weights")

    def listed():
        directory = m / "weights/checkpoint-1"
        return {name: (directory / name).stat().st_ino for name in os.listdir(directory)}

    before = listed()
    save_unseen(network.source)
    for shard in shards_of(network.source):
        os.utime(shard)
    eventually(lambda: listed() != before, within=2 * LISTS_S, every=10)
    assert listed().keys() == before.keys()


@pytest.fixture(params=["fine", "coarse"])
def times(request):
    return request.param


@pytest.fixture(params=["fine", "coarse", "rclone"])
def kind(request):
    return request.param


def read_while_numbers_change(net, m, want, times_changed, until):
    """Whole files anew, and one file that stays open, around the page cache: no error, no other bytes, no other
    inode number."""
    path = m / "weights/checkpoint-1/model.safetensors"
    shard = next(net.path.glob("checkpoint-1/**/*.distcp"))
    was, ino, n = shard.stat().st_ino, path.stat().st_ino, 0
    changed = 0
    held = os.open(path, os.O_RDONLY)
    while changed < times_changed or time.monotonic() < until:
        os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(held, len(want), 0) == want
        assert path.read_bytes() == want
        assert path.stat().st_ino == ino
        n += 1
        now = shard.stat().st_ino
        changed, was = changed + (now != was), now
    os.close(held)
    assert "ESTALE" not in (m / ".unshard/errors.log").read_text()
    return n, changed


def hold(network, made, mount, how, changes, until=0.0):
    network.up(how)
    want = (made("t2", "tied-f1-fp32") / "pretrained-1/model.safetensors").read_bytes()
    m = mount(network.path, changing=True)
    n, changed = read_while_numbers_change(network, m, want, changes, until)
    print(f"{n} reads, {changed} times other inode numbers")
    assert not (m / ".unshard/errors.log").read_text()


def test_inode_numbers_that_do_not_last(network, made, mount, times):
    hold(network, made, mount, times, CHANGES)


def test_rclone_reads_its_directories_again(network, made, mount):
    hold(network, made, mount, "rclone", 0, time.monotonic() + 3 * RCLONE_S)


@pytest.mark.long
def test_ten_minutes_of_readers(network, made, mount, kind):
    hold(network, made, mount, kind, 0 if kind == "rclone" else CHANGES, time.monotonic() + LONG_S)


def test_what_was_learned_holds_after_a_remount(network, mount, command, tmp_path, kind):
    inodes = set()

    def mounted_once():
        network.up(kind)
        m = mount(network.path, f"store={tmp_path / 'store.db'}", changing=True)
        path = m / "weights/checkpoint-1/model.safetensors"
        assert path.read_bytes()
        inodes.add(path.stat().st_ino)
        stats = json.loads((m / ".unshard/stats.json").read_text())
        command("umount", m)
        network.down()
        return stats["catalogs_remembered"] and not stats["catalogs_opened"]

    eventually(mounted_once)  # what changed a moment ago is not kept
    assert len(inodes) == 1


@pytest.mark.sanitized
@pytest.mark.parametrize("how", ["replaced", "written to", "cut"])
def test_a_source_that_changes_is_stale_within_one_read(network, mount, times, how):
    network.up(times)
    m = mount(network.path, changing=True)
    held = os.open(m / "weights/checkpoint-1/model.safetensors", os.O_RDONLY)
    size = os.fstat(held).st_size
    assert len(os.pread(held, size, 0)) == size
    for shard in network.source.glob("checkpoint-1/pytorch_model_fsdp_0/*.distcp"):
        data = shard.read_bytes()
        if how == "replaced":
            shard.with_suffix(".new").write_bytes(data)
            shard.with_suffix(".new").rename(shard)
        elif how == "cut":
            os.truncate(shard, len(data) // 2)
        else:
            shard.write_bytes(data)
    os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)
    with pytest.raises(OSError) as failed:
        os.pread(held, size, 0)
    assert failed.value.errno == errno.ESTALE
    os.close(held)


def test_rclone_shows_a_source_that_changes_when_it_reads_its_directory_again(network, mount, made):
    """Old bytes or new ones until then, or an error."""
    network.up("rclone")
    m = mount(network.path, changing=True)
    path = m / "weights/checkpoint-1/model.safetensors"
    old, new = ((made("t2", "tied-f1-fp32") / f"pretrained-{i}/model.safetensors").read_bytes() for i in (1, 2))
    assert path.read_bytes() == old
    for shard in network.source.glob("checkpoint-1/pytorch_model_fsdp_0/*"):
        shutil.copy(str(shard).replace("checkpoint-1", "checkpoint-2"), shard.with_suffix(".new"))
        shard.with_suffix(".new").rename(shard)

    def is_new():
        found = path.read_bytes()
        assert found in (old, new)
        return found == new

    eventually(is_new)


def shards_of(source, step=1):
    return sorted((source / f"checkpoint-{step}/pytorch_model_fsdp_0").iterdir())


def save_unseen(source):
    """checkpoint-2's bytes over those of checkpoint-1, with the times that these had: two saves in one second, to a file
    system whose times are of whole seconds."""
    for shard, other in zip(shards_of(source), shards_of(source, 2)):
        times, data = shard.stat(), other.read_bytes()
        assert len(data) == times.st_size
        with open(shard, "r+b") as f:
            f.write(data)
        os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_what_was_read_while_it_was_young_is_read_again_when_it_has_settled(network, mount, made, faults):
    """From storage: the kernel has the old pages under the same times."""
    for path in [*network.source.glob("checkpoint-1/**/*"), network.source / "checkpoint-1"]:
        os.utime(path)
    network.up("pages kept=1")
    m = mount(network.path, "settle=60", changing=True, faults=faults)
    path = m / "weights/checkpoint-1/model.safetensors"
    old, new = ((made("t2", "tied-f1-fp32") / f"pretrained-{i}/model.safetensors").read_bytes() for i in (1, 2))
    assert path.read_bytes() == old
    save_unseen(network.source)
    assert path.read_bytes() == old  # which nobody can see to be so
    faults.pass_time(70)
    eventually(lambda: path.read_bytes() == new, within=20)


def test_pages_of_two_saves_are_dropped_when_the_change_is_seen(network, mount, made):
    """What the kernel kept of a shard stays under the times of the save that was written over it, as below CephFS: cat
    gets bytes of both, until the mount has seen the change."""
    network.up("torn kept=1")
    m = mount(network.path, "settle=0", changing=True)
    path = m / "weights/checkpoint-1/model.safetensors"
    old, new = ((made("t2", "tied-f1-fp32") / f"pretrained-{i}/model.safetensors").read_bytes() for i in (1, 2))
    assert path.read_bytes() == old
    shards = [shard for shard in shards_of(network.path) if shard.suffix == ".distcp"]
    before = [shard.read_bytes() for shard in shards]
    for shard, data in zip(shards, before):
        with open(shard, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, len(data) // 2, os.POSIX_FADV_DONTNEED)
    after = [shard.read_bytes() for shard in shards_of(network.source, 2) if shard.suffix == ".distcp"]
    save_unseen(network.source)
    for shard in shards_of(network.source):
        os.utime(shard)
    assert all(shard.read_bytes() not in (a, b) for shard, a, b in zip(shards, before, after))
    eventually(lambda: read_or_stale(path) == new)
    assert [shard.read_bytes() for shard in shards] == after


def test_check_deep_reads_from_storage(network, command):
    network.up("pages kept=1")
    shard = next(p for p in shards_of(network.path) if p.suffix == ".distcp")
    assert command("check", network.path, "--deep").returncode == 0
    assert shard.read_bytes()
    save_unseen(network.source)
    for path in shards_of(network.source):
        damaged, times = bytearray(path.read_bytes()), path.stat()
        if path.suffix == ".distcp":
            damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert command("check", network.path, "--deep", check=False).returncode != 0


def test_a_source_that_hangs_stalls_its_own_readers_and_ctrl_c_ends_them(network, mount, made, tmp_path):
    source = tmp_path / "both"
    shutil.copytree(made("t2", "tied-f1-fp32") / "run", source / "near")
    network.path.rmdir()
    network.path = source / "far"
    network.path.mkdir()
    network.up()
    m = mount(source, changing=True)
    near, far = (m / f"weights/{name}/checkpoint-1/model.safetensors" for name in ("near", "far"))
    want = near.read_bytes()
    assert far.read_bytes() == want
    held = [os.open(far, os.O_RDONLY) for _ in range(8)]
    network.stop()
    os.posix_fadvise(held[0], 0, 0, os.POSIX_FADV_DONTNEED)
    # Whoever starts the tests may ignore SIGINT (a shell does for what it puts into the background).
    readers = [subprocess.Popen(["cat"], stdin=fd, stdout=subprocess.PIPE,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) for fd in held]
    before = json.loads((m / ".unshard/stats.json").read_text())["reads"]
    for _ in range(3):
        with open(near, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            assert f.read() == want
    assert json.loads((m / ".unshard/stats.json").read_text())["reads"] > before
    assert all(r.poll() is None for r in readers)
    for r in readers:
        r.send_signal(signal.SIGINT)
    assert [r.wait() for r in readers] == [-signal.SIGINT] * len(readers)
    network.go_on()
    for fd in held:
        os.close(fd)
    for r in readers:
        r.stdout.close()


@pytest.mark.parametrize("kind, settle, warned", [("sshfs", "", None), ("sshfs", "settle=8", 20), ("s3fs", "", 900),
                                                  ("rclone", "", 300), ("s3fs", "settle=900", None),
                                                  ("s3fs", "settle=0", None), ("other", "settle=1", None)])
def test_mount_warns_where_settle_is_shorter_than_the_clients_cache(network, command, mnt, kind, settle, warned):
    network.up(f"type={kind}")
    done = command("mount", network.path, mnt, *(["-o", settle] if settle else []))
    said = " ".join(done.stderr.split())
    assert ("s late" in said) == (warned is not None)
    assert not warned or (f"fuse.{kind}" in said and f"up to {warned} s" in said and f"-o settle={warned}," in said)
    command("umount", mnt)


@pytest.mark.parametrize("how", ["touched", "rclone"])
def test_a_directorys_time_is_no_files(network, mount, command, how, tmp_path):
    """rclone gives directories the time of its own mount: files of views stay the same, and rsync copies none again."""
    def files(m):
        return {str(path.relative_to(m.path)): (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino)
                for path in m.path.rglob("*") if path.is_file()}

    def mounted_once():
        network.up(how)
        m = mount(network.path, changing=True)
        found = files(m)
        copied = subprocess.run(["rsync", "-a", "--out-format=%o %n", f"{m}/weights/", tmp_path / "copy"],
                                check=True, capture_output=True, text=True).stdout.splitlines()
        command("umount", m)
        network.down()
        return found, [line for line in copied if not line.endswith("/")]

    first, copied = mounted_once()
    assert any(name.startswith("weights/") for name in first) and copied
    time.sleep(1.1)  # the next mount is of another second
    again, copied = mounted_once()
    assert again == first
    assert not copied

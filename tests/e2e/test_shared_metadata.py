"""Memos: checkpoints that one machine describes (unshard warm --write) and others open without reading their metadata
(-o memos=)."""

import contextlib
import ctypes
import ctypes.util
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint

from conftest import ROOT, UNSHARD, fill
from fingerprints import fingerprint

sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("UNSHARD_LIBRARY", str(ROOT / "build/dev/lib/libunshard.so.0"))
import unshard  # noqa: E402
import unshard.dcp  # noqa: E402

GOLDEN = ROOT / "tests/golden"
HEAD = struct.Struct("<8sIIQQQQ32s")
EACH = ["run", "dcp", "zero/z0_w1", "zero/z1_bf16_optimizer_w2", "zero/z2_w3", "zero/z3_w2", "ranks", "older"]


def settle(path, seconds=3600):
    """All files below were written an hour ago; a change time cannot be set, so a moment passes."""
    for f in sorted(path.rglob("*")):
        os.utime(f, ns=(time.time_ns() - seconds * 10**9,) * 2)
    time.sleep(0.2)


@pytest.fixture
def run(tmp_path):
    """A run of one checkpoint."""
    shutil.copytree(GOLDEN / "run", tmp_path / "a/run")
    settle(tmp_path / "a/run")
    return tmp_path / "a/run"


@pytest.fixture
def write(command, tmp_path):
    """write(SOURCE) -> the directory of memos"""
    def call(source, **kwargs):
        command("warm", source, "--write", tmp_path / "memos", "--store", "none", "-o", "settle=0", **kwargs)
        return tmp_path / "memos"

    return call


def test_what_changed_a_moment_ago_is_waited_for(run, write):
    soon = time.time_ns() + 10**9
    os.utime(run / "checkpoint-2/trainer_state.json", ns=(soon, soon))
    the_memo(write(run))
    assert time.time_ns() > soon


def stats(mounted):
    figures = json.loads((mounted / ".unshard/stats.json").read_text())
    return {k: figures[k] for k in ("catalogs_opened", "catalogs_from_memos", "items_resolved")}


def copy_of(source, to):
    """As another machine sees it: another path, other inode numbers, other change times."""
    shutil.copytree(source, to, copy_function=shutil.copy2, symlinks=True)
    return to


def spoil(path):
    """What is not to be read: other bytes, with the size and the time that the file had."""
    st = path.stat()
    path.write_bytes(bytes(st.st_size))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def the_memo(memos):
    (file,) = memos.glob("*.memo")
    return file


def tree(mounted):
    """All files of all views."""
    found = {}
    for p in sorted(Path(mounted).rglob("*")):
        name = str(p.relative_to(mounted))
        found[name] = os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None
    return found


def assembled(mounted):
    """Those that unshard makes; `dcp` has the .metadata itself."""
    return {name: data for name, data in tree(mounted).items() if not name.startswith("dcp/")}


def weights(mounted):
    return (mounted / "weights/checkpoint-2/model.safetensors").read_bytes()


# -- what is read --


def test_another_machine_opens_no_metadata_and_reads_no_header(run, write, mount, tmp_path):
    """Nothing of .metadata is left in the copy, and it is served as if it were there."""
    memos = write(run)
    before = fingerprint(memos)
    plain = mount(run, "store=none")
    want = assembled(plain)
    assert stats(plain)["items_resolved"] and stats(plain)["catalogs_opened"] == 1
    other = copy_of(run, tmp_path / "b/other-name")
    for metadata in other.rglob(".metadata"):
        spoil(metadata)
    mounted = mount(other, f"store={tmp_path}/other.db", f"memos={tmp_path}/nothing:{memos}")
    assert assembled(mounted) == want
    assert stats(mounted) == {"catalogs_opened": 0, "catalogs_from_memos": 1, "items_resolved": 0}
    assert fingerprint(memos) == before


def test_one_checkpoint_finds_what_was_written_for_its_run(run, write, command, tmp_path):
    memos = write(run)
    want = command("show", run / "checkpoint-2", "--store", "none", "--json").stdout
    command("export", run / "checkpoint-2", tmp_path / "want", "--store", "none")
    for metadata in run.rglob(".metadata"):
        spoil(metadata)
    assert command("show", run / "checkpoint-2", "--store", "none", "--json", check=False).stdout != want
    with_memos = ("--store", "none", "-o", f"memos={memos},settle=0")
    assert command("show", run / "checkpoint-2", "--json", *with_memos).stdout == want
    command("export", run / "checkpoint-2", tmp_path / "out", *with_memos)
    assert tree(tmp_path / "out") == tree(tmp_path / "want")


def test_of_one_checkpoint_what_its_run_finds(run, write, mount):
    memos = write(run / "checkpoint-2")
    mounted = mount(run, "store=none", f"memos={memos}")
    assert weights(mounted) == (GOLDEN / "run.model.safetensors").read_bytes()
    assert stats(mounted) == {"catalogs_opened": 0, "catalogs_from_memos": 1, "items_resolved": 0}


def test_golden_checkpoints_in_all_views(command, mount, tmp_path):
    """Each is the same with a memo and without one, and each has one that is right."""
    for golden in EACH:
        source, memos = tmp_path / golden / "source", tmp_path / golden / "memos"
        copy_of(GOLDEN / golden, source)
        time.sleep(0.2)
        written = command("warm", source, "--write", memos, "--store", "none", "-o", "settle=0")
        n = len(list(memos.glob("*.memo")))
        assert n and f"{n} memo" in written.stdout.splitlines()[-1], golden
        plain, described = mount(source, "store=none"), mount(source, "store=none", f"memos={memos}")
        assert tree(described) == tree(plain), golden
        assert stats(described)["catalogs_from_memos"] == n, golden
        assert stats(described)["catalogs_opened"] == 0, golden
        found = json.loads(command("check", source, "--deep", "--json", "--store", "none", "-o", f"memos={memos},settle=0",
                                   check=False).stdout)
        assert "memo_differs" not in {f["id"] for f in found["findings"]}, golden


def plain_copy(run, tmp_path):
    """A copy whose metadata only a memo can stand in for."""
    other = copy_of(run, tmp_path / "plain/run")
    for metadata in other.rglob(".metadata"):
        spoil(metadata)
    return other


def test_python_reads_by_a_memo(run, write, tmp_path):
    """unshard.open, Reader and load_file of a checkpoint whose .metadata is gone: with its memo as before, without it not."""
    memos = write(run)
    want = unshard.load_file(run / "checkpoint-2", store=None, settle_seconds=0)
    other = plain_copy(run, tmp_path)
    for given in (memos, str(memos), f"/nowhere:{memos}", [tmp_path / "nothing", memos]):
        with unshard.open(other, store=None, settle_seconds=0, memos=given) as session:
            assert session.read("weights/checkpoint-2/model.safetensors") == (GOLDEN / "run.model.safetensors").read_bytes()
    options = {"store": None, "settle_seconds": 0, "memos": memos}
    read = {name: torch.zeros_like(t) for name, t in want.items()}
    torch.distributed.checkpoint.load(read, storage_reader=unshard.dcp.Reader(other / "checkpoint-2", **options))
    for got in (read, unshard.load_file(other / "checkpoint-2", **options)):
        assert got.keys() == want.keys() and all(torch.equal(got[name], want[name]) for name in want)
    with pytest.raises(unshard.Error):
        unshard.load_file(other / "checkpoint-2", store=None, settle_seconds=0)


def test_other_verbs_use_a_memo(run, write, command, tmp_path):
    """wait and diff of a checkpoint whose .metadata is gone."""
    memos = write(run)
    other = plain_copy(run, tmp_path)
    options, with_memos = ("-o", "settle=0"), ("-o", f"settle=0,memos={memos}")
    for verb in (("wait", other, "--timeout", "1"), ("diff", run / "checkpoint-2", other / "checkpoint-2", "--store", "none")):
        works = command(*verb, *with_memos, check=False)
        assert works.returncode == 0, works.stderr
        fails = command(*verb, *options, check=False)
        assert (fails.returncode, fails.stdout) != (works.returncode, works.stdout), verb


# -- memos that are not used --


def is_ignored(mount, run, memos, log, *words):
    mounted = mount(run, "store=none", f"memos={memos}", f"log={log}")
    assert weights(mounted) == (GOLDEN / "run.model.safetensors").read_bytes()
    assert stats(mounted)["catalogs_from_memos"] == 0
    assert stats(mounted)["catalogs_opened"] == 1
    lines = log.read_text()
    for word in words:
        assert word in lines


@pytest.mark.parametrize("change, why", [
    (lambda b: b[:-1], "not those that were written"),
    (lambda b: b[:40], "it is no memo"),
    (lambda b: b"", "it is no memo"),
    (lambda b: b[:100] + bytes([b[100] ^ 1]) + b[101:], "not those that were written"),
    (lambda b: b[:20] + bytes([b[20] ^ 1]) + b[21:], "not those that were written"),
    (lambda b: b[:8] + b"\1" + b[9:], "of another version"),
    (lambda b: b[:8] + b"\3" + b[9:], "of another version"),
])
def test_a_damaged_memo_is_ignored(run, write, mount, tmp_path, change, why):
    memos = write(run)
    the_memo(memos).write_bytes(change(the_memo(memos).read_bytes()))
    is_ignored(mount, run, memos, tmp_path / "log", the_memo(memos).name, why)


def test_a_memo_of_another_checkpoint_is_ignored(run, write, mount, tmp_path):
    memos = write(run)
    name = the_memo(memos).name
    other = copy_of(run, tmp_path / "other")
    (other / "checkpoint-2/scheduler.pt").touch()
    time.sleep(0.2)
    write(other)
    (second,) = (f for f in memos.glob("*.memo") if f.name != name)
    second.replace(memos / name)
    is_ignored(mount, run, memos, tmp_path / "log", name, "another checkpoint's")


def test_a_checkpoint_that_changed_ignores_its_memo(run, write, mount, tmp_path):
    memos = write(run)
    (run / "checkpoint-2/scheduler.pt").touch()
    is_ignored(mount, run, memos, tmp_path / "log", "no memo describes it as it is now")


def test_what_is_behind_a_files_times_is_found_by_check_deep(run, write, mount, command):
    """A file that was rewritten with the same size and the same modification time: SECURITY.md and docs/shared-metadata.md
    say that its memo still counts. check --deep compares the two."""
    memos = write(run)
    with_memos = ("--json", "--store", "none", "-o", f"memos={memos},settle=0")
    metadata = next((run / "checkpoint-2/pytorch_model_fsdp_0").glob(".metadata"))
    data = metadata.read_bytes()
    st = metadata.stat()
    spoil(metadata)
    wrong = json.loads(command("check", run / "checkpoint-2", "--deep", *with_memos, check=False).stdout)
    assert wrong["findings"]
    metadata.write_bytes(data)
    os.utime(metadata, ns=(st.st_atime_ns, st.st_mtime_ns))
    assert weights(mount(run, "store=none", f"memos={memos}")) == (GOLDEN / "run.model.safetensors").read_bytes()


@pytest.mark.long
def test_checkpoints_of_equal_names_and_sizes_have_memos_of_their_own(run, write, mount, tmp_path):
    """Two runs whose files differ in their times alone; and one checkpoint under two names."""
    second = copy_of(run, tmp_path / "second")
    soon = (second / "checkpoint-2/scheduler.pt").stat().st_mtime_ns + 1
    os.utime(second / "checkpoint-2/scheduler.pt", ns=(soon, soon))
    copy_of(second / "checkpoint-2", second / "checkpoint-3")
    time.sleep(0.2)
    write(run)
    memos = write(second)
    assert len(list(memos.glob("*.memo"))) == 3
    for source, n in ((run, 1), (second, 2)):
        mounted = mount(source, "store=none", f"memos={memos}")
        assert weights(mounted) == (GOLDEN / "run.model.safetensors").read_bytes()
        tree(mounted)
        assert stats(mounted)["catalogs_from_memos"] == n and stats(mounted)["catalogs_opened"] == 0


def test_two_machines_write_at_once(run, command, mount, tmp_path):
    """Readers find the one or the other, whole."""
    writers = [subprocess.Popen([UNSHARD, "warm", run, "--write", tmp_path / "memos", "--store", "none", "-o", "settle=0"],
                                stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [w.wait() for w in writers] == [0] * 4
    the_memo(tmp_path / "memos")
    assert len(list((tmp_path / "memos").iterdir())) == 1
    mounted = mount(run, "store=none", f"memos={tmp_path}/memos")
    assert weights(mounted) == (GOLDEN / "run.model.safetensors").read_bytes()
    assert stats(mounted)["catalogs_from_memos"] == 1


@pytest.mark.long
def test_a_clock_that_is_behind_makes_no_memo_that_could_be_stale(run, command, tmp_path):
    """A file of tomorrow may still be changed within its time: that is said, and nothing is written."""
    late = time.time_ns() + 86400 * 10**9
    os.utime(run / "checkpoint-2/scheduler.pt", ns=(late, late))
    done = command("warm", run, "--write", tmp_path / "memos", "--store", "none", "-o", "settle=0", check=False)
    assert done.returncode in (1, 3) and "a moment ago" in done.stdout
    assert not list((tmp_path / "memos").iterdir())


def test_a_directory_that_cannot_be_written_or_read(run, write, command, mount, small, tmp_path):
    memos = write(run)
    content = the_memo(memos).read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    failed = command("warm", run, "--write", small, "--store", "none", "-o", "settle=0", check=False)
    assert failed.returncode == 2 and "Read-only file system" in failed.stderr
    assert not list(small.glob("*.memo*"))
    the_memo(memos).unlink()
    (memos / "a directory.memo").mkdir()
    named = memos / "x"
    named.write_bytes(content)
    mounted = mount(run, "store=none", f"memos={named}:{tmp_path}/nothing:{memos}")
    assert weights(mounted) == (GOLDEN / "run.model.safetensors").read_bytes()
    assert stats(mounted)["catalogs_from_memos"] == 0


# -- wrong ones, validly sealed --


class Zstd:
    library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = library.ZSTD_decompress.restype = ctypes.c_size_t

    def compress(self, data):
        out = ctypes.create_string_buffer(2 * len(data) + 1000)
        n = self.library.ZSTD_compress(out, ctypes.c_size_t(len(out)), data, ctypes.c_size_t(len(data)), 3)
        return out.raw[:n]

    def decompress(self, data, size):
        out = ctypes.create_string_buffer(size + 1)
        assert self.library.ZSTD_decompress(out, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data))) == size
        return out.raw[:size]


def edited(file, change):
    """The memo with its three parts changed, and sealed again."""
    data = file.read_bytes()
    magic, version, zero, key, *lengths, _ = HEAD.unpack(data[:HEAD.size])
    whole = Zstd().decompress(data[HEAD.size:], sum(lengths))
    parts = [whole[:lengths[0]], whole[lengths[0]:-lengths[2] or None], whole[len(whole) - lengths[2]:]]
    parts = change(*parts)
    body = Zstd().compress(b"".join(parts))
    head = HEAD.pack(magic, version, zero, key, *map(len, parts), bytes(32))[:-32]
    file.write_bytes(head + hashlib.sha256(head + body).digest() + body)


def first_place(places, move):
    """The data of the first run of items are `move` bytes from where they were."""
    n, n_runs = struct.unpack_from("<QQ", places)
    runs = 16 + 4 * n_runs
    (at,) = struct.unpack_from("<Q", places, runs)
    assert at and len(places) in (runs + 8 * n_runs, runs + 8 * n_runs + 4 * n)
    return places[:runs] + struct.pack("<Q", at + move) + places[runs + 8:]


def test_check_deep_finds_a_wrong_memo_that_is_validly_sealed(run, write, command):
    memos = write(run)
    seals = ("--json", "--store", "none", "-o", f"memos={memos},settle=0")
    edited(the_memo(memos), lambda i, c, p: (i, c, p))
    sound = json.loads(command("check", run / "checkpoint-2", "--deep", *seals, check=False).stdout)
    assert "memo_differs" not in {f["id"] for f in sound["findings"]}
    edited(the_memo(memos), lambda i, c, p: (i, c, first_place(p, -4)))
    wrong = command("check", run / "checkpoint-2", "--deep", *seals, check=False)
    (found,) = (f for f in json.loads(wrong.stdout)["findings"] if f["id"] == "memo_differs")
    assert the_memo(memos).name in found["text"] and "where tensors lie" in found["text"]
    assert wrong.returncode == 1


@pytest.mark.parametrize("change, why", [
    (lambda i, c, p: (i, c, p[:-12]), "places of its items"),
    (lambda i, c, p: (i, c, p[:8] + bytes(8) + p[16:]), "places of its items"),
    (lambda i, c, p: (i, c, p[:16] + b"\xff\xff\xff\xff" + p[20:]), "places of its items"),
    (lambda i, c, p: (i, c, b""), "places of its items"),
    (lambda i, c, p: (i, c[:-1], p), "not a packed catalog"),
    (lambda i, c, p: (i + b"x", c, p), "list of inputs"),
    (lambda i, c, p: (i[:-1], c, p), "list of inputs"),
])
def test_what_can_be_checked_of_a_memo_is(run, write, mount, tmp_path, change, why):
    memos = write(run)
    edited(the_memo(memos), change)
    is_ignored(mount, run, memos, tmp_path / "log", "is not used for", why)


def test_a_place_behind_its_item_is_not_used(run, write, mount):
    """Then the item's own header is read."""
    memos = write(run)
    edited(the_memo(memos), lambda i, c, p: (i, c, first_place(p, 1 << 40)))
    mounted = mount(run, "store=none", f"memos={memos}")
    assert weights(mounted) == (GOLDEN / "run.model.safetensors").read_bytes()
    found = stats(mounted)
    assert found["catalogs_from_memos"] == 1 and found["items_resolved"] > 0


# -- writing --


def test_nothing_is_written_into_the_checkpoints(run, command):
    before = fingerprint(run)
    failed = command("warm", run, "--write", run / "memos", "--store", "none", "-o", "settle=0", check=False)
    assert failed.returncode == 2 and "nothing is ever written" in failed.stderr
    assert fingerprint(run) == before


def test_what_is_not_described_is_named(run, command, tmp_path):
    """A damaged checkpoint and one that is being saved have no memo."""
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-4", copy_function=shutil.copy2)
    shard = next((run / "checkpoint-4").rglob("*.distcp"))
    os.truncate(shard, 100)
    settle(run)
    done = command("warm", run, "--write", tmp_path / "memos", "--store", "none", "-o", "settle=0", check=False)
    assert done.returncode == 1
    assert "checkpoint-4: not described: " in done.stdout
    assert "1 memo written" in done.stdout
    assert [f.name for f in (tmp_path / "memos").iterdir()] == [the_memo(tmp_path / "memos").name]

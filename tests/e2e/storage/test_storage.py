"""Checkpoints on distributed file systems: what one node writes is seen by another, where the mount is. sshfs and rclone
run each time; the others with --long (tools/packages.sh has what they need)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from conftest import ROOT, UNSHARD, detach, eventually, unshard
from file_system import DEADLINE_S
from kinds import KINDS, QUICK
from trees import assert_same, tensors

sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "python")]
os.environ.setdefault("UNSHARD_LIBRARY", str(ROOT / "build/dev/lib/libunshard.so.0"))
import checkpoints  # noqa: E402
import unshard as unshard_python  # noqa: E402

GOLDEN = ROOT / "tests/golden"
SAMPLES = {"fsdp": "run", "ranks": "ranks"}
MORE_SAMPLES = {"dcp": "dcp/ranks", "zero": "zero/z2_w3", "zero3": "zero/z3_w2", "rank_files": "rank_files"}
RANKS, NODES = 8, 8
FILE = "weights/checkpoint-1/model.safetensors"
MEMORY_BYTES = 8 << 30  # that all servers and clients of a kind never need
SECOND_S = 1  # for which a look at a directory is good
SLOWER = 10  # than promised, at most: servers, clients and the mount share a busy machine; what never ends is longer


def marked(kind, *more):
    return pytest.param(kind, *more, marks=() if kind in QUICK else pytest.mark.long)


@pytest.fixture(scope="module", params=[marked(kind) for kind in KINDS])
def cluster(request):
    # In memory: where each write to the disk takes seconds, tests of servers that sync each change do not end.
    memory = shutil.disk_usage("/dev/shm").free > MEMORY_BYTES and request.param not in QUICK
    with tempfile.TemporaryDirectory(prefix=f"unshard-{request.param}-", dir="/dev/shm" if memory else None,
                                     ignore_cleanup_errors=True) as top:
        system = KINDS[request.param](Path(top).resolve())
        try:
            system.start()
            system.is_quick = request.param in QUICK
            yield system
        finally:
            system.end()


class Run:
    """Two saves of one checkpoint, on a disk; what the view of each is."""

    def __init__(self, top, rows):
        self.saves, self.views = [], []
        for i in range(2):
            torch.manual_seed(i)
            want = {f"layer.{k}.weight": torch.randn(rows, 512) for k in range(8)}
            checkpoints.write_run(top / f"save-{i}", {}, want, RANKS)
            (top / f"save-{i}/checkpoint-1/trainer_state.json").write_text(json.dumps({"global_step": 1, "log_history": []}))
            self.saves.append(top / f"save-{i}/checkpoint-1")
            mnt = top / f"mnt-{i}"
            mnt.mkdir()
            unshard("mount", top / f"save-{i}", mnt, "-o", "settle=0,store=none")
            try:
                assert_same(tensors(mnt / FILE), want)
                self.views.append((mnt / FILE).read_bytes())
            finally:
                detach(mnt)


@pytest.fixture(scope="module")
def run(tmp_path_factory, cluster):
    return Run(tmp_path_factory.mktemp("run"), 256 if cluster.is_quick else 2048)


@pytest.fixture
def shared(cluster):
    """The name of a directory of this test's own, which node "a" has made."""
    name = f"t{time.monotonic_ns()}"
    (cluster.node("a") / name).mkdir()
    return name


@pytest.fixture
def mounts(tmp_path):
    """mounts(SOURCE, "settle=5") -> the mount point."""
    made = []

    def make(source, *options):
        mnt = tmp_path / f"mnt-{len(made)}"
        mnt.mkdir()
        eventually(source.is_dir)
        unshard("mount", source, mnt, "-o", ",".join(["store=none", *options]))
        made.append(mnt)
        return mnt

    yield make
    for mnt in made:
        detach(mnt)


def in_order(save):
    """As a trainer writes: what ends the save is last."""
    return sorted((p for p in save.rglob("*") if p.is_file()), key=lambda p: (p.name == "trainer_state.json", p.name == ".metadata", p))


def write(data, path, how):
    path.parent.mkdir(parents=True, exist_ok=True)
    if how == "renamed":
        beside = path.with_name(path.name + ".part")
        beside.write_bytes(data)
        beside.rename(path)
    elif how == "in place" and path.exists():
        with open(path, "r+b") as f:
            f.write(data)
            f.truncate()
    else:
        path.write_bytes(data)


def save(source, target, how="truncated", after_each=lambda: None):
    for path in in_order(source):
        write(path.read_bytes(), target / path.relative_to(source), how)
        after_each()


def read(path):
    """None if there is nothing to read at the moment."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def files(top):
    return sorted(str(p.relative_to(top)) for p in top.rglob("*") if p.is_file())


def views_of(mnt):
    return sorted(p.name for p in mnt.iterdir() if p.is_dir())


# -- the same bytes --

def test_all_views_have_the_bytes_that_they_have_on_a_disk(cluster, shared, mounts):
    compared, samples = 0, SAMPLES if cluster.is_quick else SAMPLES | MORE_SAMPLES
    for name, sample in samples.items():
        shutil.copytree(GOLDEN / sample, cluster.node("a") / shared / name, copy_function=shutil.copyfile)
        want = files(GOLDEN / sample)
        eventually(lambda: files(cluster.node("b") / shared / name) == want)
    time.sleep(cluster.changes_seen_s)
    there = mounts(cluster.node("b") / shared, "settle=0")
    for name, sample in samples.items():
        here = mounts(GOLDEN / sample, "settle=0")
        for view in views_of(here):
            found = files(here / view)
            assert files(there / view / name) == found
            for file in found:
                assert (there / view / name / file).read_bytes() == (here / view / file).read_bytes(), f"{view}/{name}/{file}"
            compared += len(found)
    assert compared > (60 if cluster.is_quick else 200)
    assert not (there / ".unshard/errors.log").read_text()


def test_eight_nodes_load_the_same_at_once(cluster, shared, mounts, run):
    save(run.saves[0], cluster.node("a") / shared / "checkpoint-1")
    time.sleep(cluster.changes_seen_s)
    nodes = [cluster.node(f"n{i}") for i in range(NODES)]
    for node in nodes:
        eventually(lambda: files(node / shared / "checkpoint-1") == files(run.saves[0]))
    paths = [mounts(node / shared, "settle=0") / FILE for node in nodes]
    with ThreadPoolExecutor(NODES) as pool:
        assert all(data == run.views[0] for data in pool.map(Path.read_bytes, paths))
    if not cluster.is_bucket:
        assert len({path.stat().st_ino for path in paths}) == 1


# -- saves from another node --

def test_a_save_is_hidden_until_it_is_whole(cluster, shared, mounts, run):
    write(b"{}", cluster.node("a") / shared / "notes.json", "truncated")  # a bucket has no empty directory
    mnt = mounts(cluster.node("b") / shared)  # settle=60
    seen = []
    save(run.saves[0], cluster.node("a") / shared / "checkpoint-1", after_each=lambda: seen.append(read(mnt / FILE)))
    ends = [path.name for path in in_order(run.saves[0])].index(".metadata")  # from then on the weights are whole
    assert set(seen[:ends]) == {None} and set(seen) <= {None, run.views[0]}
    eventually(lambda: read(mnt / FILE) == run.views[0])


@pytest.mark.parametrize(("cluster", "how"), [marked(kind, how) for kind in KINDS for how in KINDS[kind].second_saves],
                         indirect=["cluster"])
def test_a_second_save_is_seen_whole(cluster, shared, mounts, run, how):
    """The first, an error, or the second. Where a file is written again in place, or a client opens what has a name and
    shows what it knew of it, also both, as long as it may show what was; never later."""
    target = cluster.node("a") / shared / "checkpoint-1"
    save(run.saves[0], target, how)
    mnt = mounts(cluster.node("b") / shared)
    eventually(lambda: read(mnt / FILE) == run.views[0])
    time.sleep(cluster.times_s)  # else nothing tells the second save's files from the first's
    ended = []

    def second():
        save(run.saves[1], target, how)
        ended.append(time.monotonic())

    held = os.open(mnt / FILE, os.O_RDONLY)
    writer = threading.Thread(target=second)
    writer.start()
    never_mixed = how == "renamed" and not cluster.opens_by_name
    may_mix_s = SLOWER * (cluster.changes_seen_s + SECOND_S)

    def is_second():
        began = time.monotonic()
        data = read(mnt / FILE)
        if data is not None and data not in run.views:
            assert not never_mixed, "both saves in one file"
            assert not ended or began < ended[0] + may_mix_s, "both saves in one file, long after the second has ended"
        try:  # nor does what is open
            os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)
            old = os.pread(held, len(run.views[0]), 0)
            assert not never_mixed or old in run.views
        except OSError:
            pass
        return bool(ended) and data == run.views[1]

    try:
        eventually(is_second)
    finally:
        os.close(held)
        writer.join()
    again = mounts(cluster.node("b") / shared, "settle=0")
    end = time.monotonic() + 2 * cluster.changes_seen_s
    while time.monotonic() < end:
        assert read(again / FILE) in (run.views[1], None)
        assert read(mnt / FILE) in (run.views[1], None)
    assert read(again / FILE) == run.views[1]


ROUNDS = 3  # of saves over one another
SETTLE_S = 5


@pytest.mark.parametrize("cluster", [marked("cephfs")], indirect=True)
def test_pages_from_before_a_write_in_place_are_dropped_when_it_has_settled(cluster, shared, mounts, run):
    """A client of CephFS may keep pages that were read while another node wrote. Read in a loop, by the mount and beside it."""
    target, there = (cluster.node(name) / shared / "checkpoint-1" for name in ("a", "b"))
    save(run.saves[0], target, "in place")
    mnt = mounts(cluster.node("b") / shared, f"settle={SETTLE_S}")
    eventually(lambda: read(mnt / FILE) == run.views[0])
    shards = [path.relative_to(run.saves[0]) for path in run.saves[0].rglob("*.distcp")]
    ended, torn = threading.Event(), []
    for i in range(ROUNDS):
        new = (i + 1) % 2
        ended.clear()
        writer = threading.Thread(target=lambda: (save(run.saves[new], target, "in place"), ended.set()))
        writer.start()
        while not ended.is_set():
            read(mnt / FILE)
            for shard in shards:
                read(there / shard)
        writer.join()
        torn.append(sum(read(there / shard) != (run.saves[new] / shard).read_bytes() for shard in shards))
        time.sleep(SETTLE_S)
        eventually(lambda: read(mnt / FILE) == run.views[new])
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            assert read(mnt / FILE) in (run.views[new], None)
        assert all(read(there / shard) == (run.saves[new] / shard).read_bytes() for shard in shards)
    print(f"{torn} of {len(shards)} shards had old pages beside the mount when the write had ended")


S3FS = pytest.mark.parametrize("cluster", [marked("s3fs")], indirect=True)


@S3FS
def test_s3fs_itself_shows_both_saves_in_a_file_that_is_open(cluster, shared):
    """Without unshard: what it has fetched of a file stays for all who open it, until all have closed it."""
    size = 80 << 20  # it fetches 50 MiB at a time
    there, here = (cluster.node(name) / shared / "file" for name in ("a", "b"))
    there.write_bytes(bytes(size))
    eventually(lambda: here.stat().st_size == size)
    with open(here, "rb", buffering=0) as f:
        f.read(1)
        there.write_bytes(b"2" * size)
        eventually(lambda: here.stat().st_mtime == there.stat().st_mtime)
        assert len(set(here.read_bytes())) == 2
    eventually(lambda: here.read_bytes() == b"2" * size)


@S3FS
def test_a_second_save_while_nobody_reads_is_seen_whole(cluster, shared, mounts, run):
    save(run.saves[0], cluster.node("a") / shared / "checkpoint-1")
    mnt = mounts(cluster.node("b") / shared)
    eventually(lambda: read(mnt / FILE) == run.views[0])
    time.sleep(3 * SECOND_S)  # then the shards are closed
    save(run.saves[1], cluster.node("a") / shared / "checkpoint-1")
    time.sleep(cluster.changes_seen_s + SECOND_S)
    seen = []
    eventually(lambda: seen.append(read(mnt / FILE)) or seen[-1] == run.views[1])
    assert set(seen) <= {None, run.views[1]}


@pytest.mark.parametrize("options", ["settle=0", pytest.param("settle=0,reads=auto", marks=pytest.mark.long)])
@pytest.mark.parametrize("cluster", [marked("rclone")], indirect=True)
def test_a_shard_is_read_as_one_stream(cluster, run, shared, mounts, options):
    """By default on rclone, which begins another one for each read out of order; `auto` tries nothing there."""
    save(run.saves[0], cluster.node("a") / shared / "checkpoint-1")
    mnt = mounts(cluster.node(cluster.LOGGED) / shared, options)
    before = len(cluster.streams())
    assert read(mnt / FILE) == run.views[0]
    begun = cluster.streams()[before:]
    assert len(begun) <= 2 * RANKS, begun
    assert json.loads((mnt / ".unshard/stats.json").read_text())["ordered_read_bytes"] > 0


# -- clients that hang --

# -- a metadata store there --

def begun(*command):
    return subprocess.Popen([UNSHARD, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def meta_set(store, key):
    return begun("meta", "set", GOLDEN / "run", f"{key}=1", "--store", store)


def facts_of(store):
    done = subprocess.run([UNSHARD, "meta", "list", GOLDEN / "run", "--json", "--store", store], capture_output=True,
                          text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return {f["key"] for f in json.loads(done.stdout)}


def holder_of(lock):
    """A process that has the lock of the file, and hangs."""
    process = subprocess.Popen([sys.executable, "-c", "import fcntl, struct, sys, time; f = open(sys.argv[1], 'a+');"
                                "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0));"
                                "print(flush=True); time.sleep(3600)", lock], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"\n"
    return process


def waits(program):
    """It has slept a few times, and not ended."""
    def slept():
        assert program.poll() is None, program.communicate()
        fields = Path(f"/proc/{program.pid}/status").read_text().split()
        return int(fields[fields.index("voluntary_ctxt_switches:") + 1]) > 50

    eventually(slept)
    return True


PROGRAMS = 24  # at once, on two nodes
LOCKS = pytest.mark.parametrize("cluster", [marked(kind) for kind in KINDS if KINDS[kind].has_locks], indirect=True)


def end_well(programs):
    ended = [(program.communicate(timeout=SLOWER * DEADLINE_S), program.returncode) for program in programs]
    assert not [said for said, code in ended if code]


@LOCKS
def test_facts_of_two_nodes_are_all_kept(cluster, shared):
    """Of programs that begin at once, with no store, and with one, which others clean meanwhile."""
    eventually((cluster.node("b") / shared).is_dir)
    stores, kept = [cluster.node(name) / shared / "store.db" for name in ("a", "b")], set()
    for began in ("new", "old"):
        keys = [f"{began}.{i}" for i in range(PROGRAMS)]
        cleaned = stores if began == "old" else []
        end_well([*(meta_set(stores[i % 2], key) for i, key in enumerate(keys)),
                  *(begun("store", "gc", "--days", "0", "--store", store) for store in cleaned)])
        kept |= set(keys)
        for store in stores:
            eventually(lambda: facts_of(store) == kept)
            assert unshard("store", "verify", "--store", store).returncode == 0


@LOCKS
def test_readers_of_another_node_see_each_fact_while_it_is_written(cluster, shared):
    """They take no turn: a program for each reading, and one that has the store open."""
    eventually((cluster.node("b") / shared).is_dir)
    here, there = (cluster.node(name) / shared / "store.db" for name in ("a", "b"))
    end_well([meta_set(here, "before")])
    eventually(lambda: facts_of(there) == {"before"})
    done, seen, written_s = threading.Event(), ([], []), {}
    with unshard_python.open(GOLDEN / "run", store=there) as session, ThreadPoolExecutor(len(seen)) as pool:
        def read_on(facts, into):
            while not done.is_set():
                began_s = time.monotonic()
                into.append((began_s, facts()))

        readers = [pool.submit(read_on, lambda: facts_of(there), seen[0]),
                   pool.submit(read_on, lambda: {f.key for f in session.facts()}, seen[1])]
        try:
            for i in range(RANKS):
                end_well([meta_set(here, f"set.{i}")])
                written_s[f"set.{i}"] = time.monotonic()
            for of in seen:
                eventually(lambda: of and of[-1][1] == {"before", *written_s} or any(r.done() for r in readers))
        finally:
            done.set()
        for reader in readers:
            reader.result()
    for of in seen:
        assert all(earlier <= later for (_, earlier), (_, later) in zip(of, of[1:]))
        late_s = {key: next(began_s for began_s, facts in of if key in facts) - at for key, at in written_s.items()}
        print(f"{len(of)} readings; begun so long after the write, at most, the first one that has it: {max(late_s.values()):.1f} s")
    assert not list(here.parent.glob("*.corrupt-*"))
    assert unshard("store", "verify", "--store", there).returncode == 0


@LOCKS
def test_a_killed_program_gives_its_turn_to_another_node(cluster, shared):
    eventually((cluster.node("b") / shared).is_dir)
    here, there = (cluster.node(name) / shared / "store.db" for name in ("a", "b"))
    end_well([meta_set(here, "before")])
    hangs = holder_of(f"{here}-turn")
    try:
        eventually(lambda: facts_of(there) == {"before"})
        waiting = meta_set(there, "waiting")
        assert waits(waiting)
    finally:
        hangs.kill()  # -9
        hangs.wait()
    end_well([waiting])
    for store in here, there:
        eventually(lambda: facts_of(store) == {"before", "waiting"})


def cached_in(store):
    return json.loads(unshard("store", "show", "--json", "--store", store).stdout)["cached"]


@LOCKS
def test_mounts_of_two_nodes_keep_cached_metadata_in_one_store(cluster, shared, tmp_path):
    """Nor do they lose facts that are set meanwhile."""
    eventually((cluster.node("b") / shared).is_dir)
    stores = [cluster.node(name) / shared / "store.db" for name in ("a", "b")]
    end_well([meta_set(stores[0], "first")])
    mnts, keys = [], [f"set.{i}" for i in range(RANKS)]
    try:
        for i, samples in enumerate([("run", "dcp"), ("zero", "ranks")]):
            for sample in samples:
                mnts.append(tmp_path / sample)
                mnts[-1].mkdir()
                unshard("mount", GOLDEN / sample, mnts[-1], "-o", f"store={stores[i]}")
        programs = [meta_set(stores[i % 2], key) for i, key in enumerate(keys)]
        with ThreadPoolExecutor(len(mnts)) as pool:
            list(pool.map(lambda mnt: subprocess.run(["ls", "-lR", mnt / "weights"], capture_output=True), mnts))
        end_well(programs)
    finally:
        for mnt in mnts:
            detach(mnt)
    for store in stores:
        eventually(lambda: facts_of(store) == {"first", *keys})
        assert unshard("store", "verify", "--store", store).returncode == 0
        assert (cached_in(store) > 0) == cluster.is_shown_on_open


@pytest.mark.parametrize("cluster", [marked("sshfs")], indirect=True)
def test_without_locks_a_node_keeps_no_other_out(cluster, shared):
    """docs/metadata-store.md: such a store is for one node."""
    locks = [cluster.node(name) / shared / "lock" for name in ("a", "b")]
    assert not cluster.has_locks
    locks[0].touch()
    eventually(locks[1].is_file)
    holders = [holder_of(lock) for lock in locks]  # at once
    for holder in holders:
        holder.kill()
        holder.wait()


def test_a_turn_that_hangs_is_waited_for_and_ctrl_c_ends_the_wait(cluster, shared):
    if not isinstance(cluster, KINDS["sshfs"]):
        return
    store = cluster.node("a") / shared / "store.db"
    first = meta_set(store, "before")
    assert first.wait(DEADLINE_S) == 0, first.communicate()
    hangs = holder_of(f"{store}-turn")
    try:
        eventually(lambda: facts_of(store) == {"before"})
        ended, waiting = meta_set(store, "ended"), meta_set(store, "waiting")
        assert waits(ended) and waits(waiting)
        ended.send_signal(signal.SIGINT)
        assert ended.wait(DEADLINE_S) != 0
        assert waiting.poll() is None
    finally:
        hangs.kill()
        hangs.wait()
    assert waiting.wait(DEADLINE_S) == 0, waiting.communicate()
    eventually(lambda: facts_of(store) == {"before", "waiting"})


def test_what_waits_for_a_client_that_hangs_can_be_ended(cluster, shared, mounts, run):
    save(run.saves[0], cluster.node("a") / shared / "checkpoint-1")
    time.sleep(cluster.changes_seen_s)
    mnt = mounts(cluster.node("b") / shared, "settle=0")
    assert (mnt / FILE).read_bytes() == run.views[0]
    commands = [["ls", "-lR", mnt / "weights"], ["stat", mnt / FILE], ["cat", mnt / FILE], ["ls", mnt / "dcp/checkpoint-2"]]
    waiters = []
    cluster.signal_client("b", signal.SIGSTOP)
    try:
        time.sleep(cluster.changes_seen_s)  # nothing answers from what it knew
        for command in 8 * commands:
            waiters.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(1)
        assert any(waiter.poll() is None for waiter in waiters), "none waits: this test shows nothing"
        assert json.loads((mnt / ".unshard/stats.json").read_text())
        for i, waiter in enumerate(waiters):
            waiter.send_signal(signal.SIGINT if i % 2 else signal.SIGKILL)
        for waiter in waiters:
            waiter.wait(DEADLINE_S)
    finally:
        cluster.signal_client("b", signal.SIGCONT)
    eventually(lambda: read(mnt / FILE) == run.views[0])


# -- servers that die --

def test_killed_servers_give_errors_and_then_the_right_bytes(cluster, shared, mounts, run):
    save(run.saves[0], cluster.node("a") / shared / "checkpoint-1")
    time.sleep(cluster.changes_seen_s)
    mnt = mounts(cluster.node("b") / shared, "settle=0")
    assert (mnt / FILE).read_bytes() == run.views[0]
    done, wrong = threading.Event(), []

    def reader():
        while not done.is_set():
            try:
                fd = os.open(mnt / FILE, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                with open(fd, "rb") as f:
                    data = f.read()
                if data != run.views[0]:
                    wrong.append(len(data))
            except OSError:
                time.sleep(0.05)

    readers = [threading.Thread(target=reader) for _ in range(4)]
    for r in readers:
        r.start()
    cluster.kill()
    time.sleep(1)
    cluster.restart()
    done_by_itself = ThreadPoolExecutor(1).submit(eventually, lambda: read(mnt / FILE) == run.views[0])
    assert done_by_itself.result()
    done.set()
    for r in readers:
        r.join()
    assert not wrong
    assert unshard("check", cluster.node("b") / shared, "-o", "store=none").returncode == 0

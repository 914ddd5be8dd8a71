"""kill -9 at calls that are counted, of a mount, of `meta`, of a repair and of an export: SOURCE is as it was, what is
under its name is whole, and who comes next finds nothing in the way. `--long` kills a thousand times each."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

import trees
from conftest import LONGEST_S, UNSHARD, is_mounted
from faults import ON_FILES
from test_faults import content, is_right_or_an_error

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
STALE = "model_world_size_3_rank_0.pt"


@pytest.fixture
def rounds(request):
    return 1000 if request.config.getoption("--long") else 24


@pytest.fixture
def run(tmp_path):
    """A run of one checkpoint, changed long enough ago to be remembered."""
    shutil.copytree(GOLDEN / "run", tmp_path / "runs" / "llama")
    time.sleep(0.2)
    return tmp_path / "runs" / "llama"


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def ranks(tmp_path):
    """A checkpoint that a repair has to do with."""
    where = shutil.copytree(GOLDEN / "ranks/fsdp2", tmp_path / "run/global_step_2/actor")
    shutil.copy(where / "model_world_size_2_rank_0.pt", where / STALE)
    return where


def started(*args, env=None):
    return subprocess.run([str(UNSHARD), *map(str, args)], capture_output=True, text=True, env=env, timeout=LONGEST_S)


def each_call(faults, rounds, act, path=""):
    """The numbers of the calls that kill, spread over all that act() makes; armed for each in its turn."""
    faults.arm(*ON_FILES, nth=1 << 40, path=path)
    act()
    calls = faults.seen
    faults.disarm()
    assert calls > 20
    for i in range(rounds):
        nth = 1 + i * calls // rounds
        faults.arm(*ON_FILES, nth=nth, path=path, action="kill")
        yield nth
        faults.disarm()


# -- the metadata store --


def integrity(store):
    with contextlib.closing(sqlite3.connect(store)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def facts(run, store):
    listed = json.loads(started("meta", "list", run, "--json", "--store", store).stdout)
    return {f["key"]: f["value"] for f in listed}


def test_setting_facts(run, store, faults, rounds):
    """Each line that `meta set` prints acknowledges one fact."""
    keys = [f"key{i}" for i in range(10)]
    known, cut = {}, 0

    def setting(n):
        return started("meta", "set", run, *(f"{k}={n}" for k in keys), "--store", store, env=faults.env)

    assert setting(0).returncode == 0
    for n, nth in enumerate(each_call(faults, rounds, lambda: setting(0), store), 1):
        done = setting(n)
        assert done.returncode == -signal.SIGKILL, f"call {nth} was never made"
        said = done.stdout.split()
        cut += 0 < len(said) < len(keys)
        known.update((k, int(v)) for k, v in (line.split("=") for line in said))
        if store.exists():
            integrity(store)
        got = facts(run, store)
        for key, value in known.items():
            assert got[key] >= value, f"call {nth}: {key} was acknowledged as {value}, is {got[key]}"
    assert cut > rounds / 4, "hardly any was killed between two facts"
    assert not list(store.parent.glob("*corrupt*"))


def test_remembering(run, store, faults, rounds):
    """The index of checkpoints is written anew each time, since each time the checkpoint changed."""
    started("meta", "set", run, "seed=1", "--store", store)
    scheduler = run / "checkpoint-2" / "scheduler.pt"

    def show(n):
        scheduler.chmod(0o600 + n % 2 * 0o44)
        faults.pass_time(1)  # what changed just now is not remembered
        return started("show", run / "checkpoint-2", "--store", store, env=faults.env)

    assert show(0).returncode == 0
    for n, nth in enumerate(each_call(faults, rounds, lambda: show(1), store)):
        assert show(n).returncode == -signal.SIGKILL, f"call {nth} was never made"
        integrity(store)
        assert facts(run, store) == {"seed": 1}
    assert started("show", run / "checkpoint-2", "--store", store).returncode == 0
    assert not list(store.parent.glob("*corrupt*"))


# -- a mount --


def serving(mnt):
    """Processes that mount there, or are about to."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"mount" in argv and str(mnt).encode() in argv:
                return True
    return False


def mounted_and_read(run, mnt, store, env=None):
    """All that it shows; None where it did not come to that."""
    done = started("mount", run.parent, mnt, "-o", f"settle=0,store={store}", env=env)
    return content(mnt) if done.returncode == 0 else None


def unmounted(mnt, eventually):
    """A daemon whose command was killed mounts a moment later, or not at all."""
    def ended():
        if is_mounted(mnt):
            assert started("umount", mnt).returncode == 0
        return not serving(mnt) and not is_mounted(mnt)

    eventually(ended, every=0.005)


def test_serving(run, mnt, store, faults, eventually, rounds):
    before = trees.fingerprint(run)
    want = mounted_and_read(run, mnt, store)
    unmounted(mnt, eventually)
    died = 0

    def once():
        got = mounted_and_read(run, mnt, store, faults.env)
        unmounted(mnt, eventually)
        return got

    for n, nth in enumerate(each_call(faults, rounds, once)):
        if n % 2:
            for path in store.parent.glob("store.db*"):
                path.unlink()
        got = once()
        died += faults.struck
        if got is not None:
            is_right_or_an_error(got, want)
        if store.exists():
            integrity(store)
        if n % 8 == 7:
            faults.disarm()
            assert once() == want, f"after call {nth}"
    assert died > rounds * 0.7
    assert mounted_and_read(run, mnt, store) == want
    assert trees.fingerprint(run) == before


# -- what is written --


def test_a_repair(ranks, faults, tmp_path, rounds):
    before, out = trees.fingerprint(ranks), tmp_path / "out"
    args = ("check", ranks, "--repair", out, "-o", "settle=0,store=none")
    assert started(*args).returncode == 0
    want = trees.fingerprint(out)
    assert STALE in before and STALE not in want
    shutil.rmtree(out)

    def once():
        shutil.rmtree(out, ignore_errors=True)
        return started(*args, env=faults.env)

    for nth in each_call(faults, rounds, once):
        assert once().returncode == -signal.SIGKILL, f"call {nth} was never made"
        if out.exists():
            assert trees.fingerprint(out) == want, nth
            shutil.rmtree(out)
        faults.disarm()
        faults.pass_time(120)  # longer than a copy that is not locked yet may be
        done = once()
        assert done.returncode == 0, (nth, done.stderr)
        assert trees.fingerprint(out) == want, nth
        assert sorted(os.listdir(tmp_path)) == ["faults", "out", "run"], nth
    assert trees.fingerprint(ranks) == before


def test_an_export(run, faults, tmp_path, rounds):
    before, out = trees.fingerprint(run), tmp_path / "out"
    args = ("export", run / "checkpoint-2", out, "-o", "settle=0,store=none", "--verify")
    assert started(*args).returncode == 0
    want = content(out)

    def once(*more):
        shutil.rmtree(out, ignore_errors=True)
        return started(*args, *more, env=faults.env)

    for nth in each_call(faults, rounds, once):
        assert once().returncode == -signal.SIGKILL, f"call {nth} was never made"
        if out.exists():
            assert content(out) == want, nth
        faults.disarm()
        done = once("--resume")
        assert done.returncode == 0, (nth, done.stderr)
        assert content(out) == want, nth
        assert sorted(os.listdir(tmp_path)) == ["faults", "out", "runs"], nth
    assert trees.fingerprint(run) == before

"""Calls that fail once while a mount is used and while commands run: an error or the right bytes, and with
the fault gone all is well, in the same mount and in the next. test_faults.c does the same below the mount,
for every call and every format."""

import errno
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import LONGEST_S, UNSHARD

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "run"
CKPT = "checkpoint-2"


@pytest.fixture
def run(tmp_path):
    """A run of one checkpoint, changed long enough ago to be remembered."""
    shutil.copytree(GOLDEN, tmp_path / "runs" / "llama")
    time.sleep(0.2)
    return tmp_path / "runs" / "llama"


def test_data_that_cannot_be_read(run, mount, faults):
    """Reads of the shards in their turn, each once failing and once short."""
    want = (GOLDEN.parent / "run.model.safetensors").read_bytes()

    def read(**how):
        m = mount(run.parent, "store=none", faults=faults)
        path = m / f"weights/llama/{CKPT}/model.safetensors"
        path.stat()
        with faults.armed("read", path=".distcp", **how):
            try:
                assert path.read_bytes() == want
            except OSError as e:
                assert e.errno == errno.EIO and faults.struck
                assert ".distcp" in (m / ".unshard/errors.log").read_text()
        assert path.read_bytes() == want
        return faults.seen

    reads = read(nth=1 << 40)
    assert reads > 4
    for nth in range(1, reads + 1, 1 + reads // 12):
        read(nth=nth)
        read(nth=nth, action="short")


def test_a_mount_that_cannot_serve_says_so(run, mnt, faults):
    faults.arm("thread", error=errno.EAGAIN, nth=0)
    done = subprocess.run([UNSHARD, "mount", run, mnt, "-f", "-o", "settle=0"], env=faults.env,
                          capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 2 and f"the mount at {mnt} ended" in done.stderr, done.stderr
    assert not os.path.ismount(mnt)


def test_facts_are_not_lost_to_a_failing_read(run, command, faults, tmp_path):
    """SQLite calls a read that fails damage: the store was moved aside for it."""
    store = tmp_path / "store.db"
    command("meta", "set", run, "seed=1", "--store", store)
    args = ("meta", "set", run, "max_steps=2", "--store", store)
    faults.arm("read", nth=1 << 40, path=store)
    command(*args, env=faults.env)
    for nth in range(1, faults.seen + 1):
        with faults.armed("read", nth=nth, path=store):
            command(*args, check=False, env=faults.env)
        listed = json.loads(command("meta", "list", run, "--json", "--store", store).stdout)
        assert {f["key"]: f["value"] for f in listed} == {"seed": 1, "max_steps": 2}
        assert not list(tmp_path.glob("*corrupt*"))

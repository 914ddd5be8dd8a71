"""Calls that fail once while a mount is used and while commands run: an error or the right bytes, and with
the fault gone all is well, in the same mount and in the next. test_faults.c does the same below the mount,
for every call and every format."""

import errno
import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
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


def content(top):
    """path -> bytes, or the errno of who could not be listed or read. Nothing of it is in the kernel's
    cache: each file is read anew."""
    out = {}

    def visit(folder):
        try:
            names = sorted(os.listdir(folder))
        except OSError as e:
            out[folder.relative_to(top)] = e.errno
            return
        out[folder.relative_to(top)] = names
        for name in names:
            path = folder / name
            try:
                is_dir = path.is_dir()
                out[path.relative_to(top)] = None if is_dir else path.read_bytes()
            except OSError as e:
                out[path.relative_to(top)] = e.errno
                continue
            if is_dir:
                visit(path)

    visit(Path(top))
    return out


def is_right_or_an_error(got, want):
    """Whatever was seen is as it should be; what was not seen is below a directory that said so."""
    for path, value in got.items():
        if not isinstance(value, int):
            assert value == want[path], path
    for path in want.keys() - got.keys():
        assert any(isinstance(got.get(above), int) for above in path.parents), f"{path} is missing"


def fails(call, code, path):
    return pytest.param(call, code, path, id=f"{call}-{errno.errorcode[code]}-{path}")


FAILS = [fails("open", errno.EIO, f"{CKPT}/pytorch_model_fsdp_0/.metadata"),
         fails("open", errno.EMFILE, f"{CKPT}/pytorch_model_fsdp_0/.metadata"),
         fails("read", errno.EIO, f"{CKPT}/pytorch_model_fsdp_0/.metadata"),
         fails("read", errno.EIO, f"{CKPT}/optimizer_0/.metadata"),
         fails("open", errno.EIO, f"{CKPT}/trainer_state.json"),
         fails("read", errno.EIO, f"{CKPT}/trainer_state.json"),
         fails("read", errno.EIO, f"{CKPT}/scheduler.pt"),
         fails("open", errno.EIO, "llama/config.json"),
         fails("read", errno.EIO, "llama/config.json"),
         fails("stat", errno.EIO, f"{CKPT}/pytorch_model_fsdp_0/__1_0.distcp"),
         fails("readdir", errno.EIO, f"{CKPT}"),
         fails("readdir", errno.EIO, f"{CKPT}/pytorch_model_fsdp_0"),
         fails("read", errno.EIO, "store.db"),
         fails("write", errno.ENOSPC, "store.db"),
         fails("fsync", errno.EIO, "store.db")]


@pytest.mark.sanitized
@pytest.mark.parametrize("call,code,path", FAILS)
def test_a_passing_fault_is_of_that_moment(run, mount, faults, eventually, tmp_path, call, code, path):
    store = f"store={tmp_path / 'store.db'}"
    want = content(mount(run.parent, "store=none").path)
    early = None if path == "store.db" else mount(run.parent, store, faults=faults)
    with faults.armed(call, error=code, path=path, nth=0):
        m = early or mount(run.parent, store, faults=faults)  # which opens the store, and reads it
        meanwhile = content(m.path)
    assert faults.struck, "nothing failed"
    is_right_or_an_error(meanwhile, want)
    faults.pass_time(2)  # what is known of a directory may be as old
    eventually(lambda: content(m.path) == want)
    assert content(mount(run.parent, store).path) == want


@pytest.mark.sanitized
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


@pytest.mark.sanitized
def test_a_listing_without_memory_is_whole_or_an_error(run, mount, faults):
    for i in range(40):
        (run / f"some-file-{i}").write_text("")
    m = mount(run.parent, "store=none", faults=faults)
    whole = sorted(os.listdir(m / "weights/llama"))
    assert len(whole) > 40
    faults.arm("malloc", nth=1 << 40)
    os.listdir(m / "weights/llama")
    calls = faults.seen
    assert calls > 40
    for nth in range(1, calls + 1, 1 + calls // 100):
        faults.pass_time(2)
        with faults.armed("malloc", nth=nth):
            try:
                assert sorted(os.listdir(m / "weights/llama")) == whole, nth
            except OSError as e:
                assert e.errno == errno.ENOMEM, (e, nth, calls, (m / ".unshard/errors.log").read_text())
        assert sorted(os.listdir(m / "weights/llama")) == whole


def test_a_mount_outlives_what_libfuse_cannot_allocate(run, mount, faults):
    """libfuse takes memory for each thread that it starts, and for each request."""
    want = content(mount(run.parent, "store=none").path)
    for nth in range(1, 9):
        m = mount(run.parent, "store=none", faults=faults)
        with faults.armed("malloc", library="libfuse3", nth=nth), ThreadPoolExecutor(8) as clients:
            for got in clients.map(content, [m.path] * 8):
                is_right_or_an_error(got, want)
        assert faults.struck, "nothing failed"
        assert content(m.path) == want


def test_a_mount_that_cannot_serve_says_so(run, mnt, faults):
    faults.arm("thread", error=errno.EAGAIN, nth=0)
    done = subprocess.run([UNSHARD, "mount", run, mnt, "-f", "-o", "settle=0"], env=faults.env,
                          capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 2 and f"the mount at {mnt} ended" in done.stderr, done.stderr
    assert not os.path.ismount(mnt)


# command -> how many of the calls on files fail, at most
COMMANDS = {
    "ls": lambda run: ("ls", run.parent, "--json"),
    "show": lambda run: ("show", run / CKPT, "--json"),
    "check": lambda run: ("check", run.parent, "--json"),
    "meta list": lambda run: ("meta", "list", run, "--json"),
    "ls, a table": lambda run: ("ls", run.parent),
    "show, a table": lambda run: ("show", run / CKPT, "--tensors"),
    "meta list, a table": lambda run: ("meta", "list", run),
}
LAST_CALLS = 60  # in which a command prints


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("call", ["open", "read", "stat", "malloc"])
def test_a_command_is_right_or_fails(run, command, faults, tmp_path, request, name, call):
    """Exit status 2 and a sentence, or what it always says. A check may pass over what it cannot look at
    and say so, and ls too. Without --long, a third of the calls."""
    most, step = (25, 1) if request.config.getoption("--long") else (9, 3)
    args = (*COMMANDS[name](run), "-o", f"store={tmp_path / 'store.db'}") if "meta" not in name else \
        (*COMMANDS[name](run), "--store", tmp_path / "store.db")
    command("meta", "set", run, "seed=1", "--store", tmp_path / "store.db")
    right = command(*args).stdout
    says = "out of memory" if call == "malloc" else os.strerror(errno.EIO)
    faults.arm(call, nth=1 << 40)
    command(*args, env=faults.env)
    calls = faults.seen
    printing = range(max(1, calls - LAST_CALLS), calls + 1, step) if call == "malloc" else ()
    for nth in sorted({*range(1, calls + 1, 1 + calls // most), *printing}):
        with faults.armed(call, nth=nth):
            done = command(*args, check=False, env=faults.env)
        where = f"{call} {nth} of {calls}"
        if done.returncode == 0:
            assert done.stdout == right, where
        elif (name, done.returncode) in (("ls", 1), ("ls, a table", 1), ("check", 1), ("check", 3)):
            assert says in done.stdout, where
        else:
            assert done.returncode == 2 and done.stderr.strip(), where
        assert command(*args).stdout == right, f"after {where}"


@pytest.mark.sanitized
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

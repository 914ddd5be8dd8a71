"""Checkpoints made by the real frameworks, and mounts of them.

Checkpoints are generated once (tests/e2e/make, by launcher.py) and kept in tests/e2e/.cache, in a directory whose name
has a hash of their generator, of what it imports and of the frameworks' versions. Nothing here is ever skipped: a
framework that is missing is a failure."""

import atexit
import contextlib
import fcntl
import functools
import gc
import hashlib
import importlib.metadata
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import processes
import writers
from faults import Faults
from fingerprints import fingerprint
from launches import LAUNCHES, LONG_LAUNCHES, MORE
from processes import alive

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MAKE = HERE / "make"
UNSHARD = Path(os.environ.get("UNSHARD_BIN", ROOT / "build/dev/bin/unshard"))
DEVICE_NODE = Path("/dev/fuse")
DEADLINE_S = 120  # of what comes by itself, sooner or later
ONLY_WHERE_IMPORTED = {"peft": "peft", "megatron-core": "megatron.core", "mbridge": "mbridge"}  # package -> module
KEPT_S = 7 * 86400
LONGEST_S = 1200  # what takes longer hangs, on the slowest machine

STATE = tempfile.mkdtemp(prefix="unshard-state-")  # the default metadata store of all tests
atexit.register(shutil.rmtree, STATE, ignore_errors=True)

# A shell that runs the tests in the background has them ignore Ctrl-C; what they start would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

pytest_plugins = ["side_by_side"]

OWN = {"XDG_STATE_HOME": STATE, "XDG_RUNTIME_DIR": STATE}  # of each process that tests
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", **OWN)
re._MAXCACHE = 1 << 16  # transformers has 1,000 expressions for weights' names: Python would forget and compile them again


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the slow tests too")
    parser.addoption("--seed", type=int, action="append", help="of test_random_truth.py: this one alone")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; runs with --long")
    config.addinivalue_line("markers", "sanitized: many threads, files that change, calls that fail; tests/run lets these "
                                       "run under the sanitizers, too")


def of_long_launch(item):
    given = item.callspec.params if hasattr(item, "callspec") else {}
    return any(name.startswith("launch") and value in LONG_LAUNCHES for name, value in given.items()) or \
        given.get("case") in MORE.get(given.get("launch"), ())


def or_long(names, often):
    """For parametrize: those that are not `often` are for --long."""
    return [name if name in often else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.fixture(scope="session")
def chosen(request):
    """chosen(names, often): what tests of or_long(names, often) need."""
    every = request.config.getoption("--long")
    return lambda names, often: [name for name in names if every or name in often]


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config, items):
    for item in filter(of_long_launch, items):
        item.add_marker(pytest.mark.long)
    if not config.getoption("--long"):
        kept = [i for i in items if "long" not in i.keywords]
        config.hook.pytest_deselected(items=[i for i in items if "long" in i.keywords])
        items[:] = kept


def pytest_sessionstart(session):
    for need in (UNSHARD, DEVICE_NODE):
        if not need.exists():
            raise pytest.UsageError(f"{need} is not there: the mount cannot be tested")
    LAUNCHER.start()


def pytest_process_begins(number):
    state = f"{STATE}/{number}"
    os.mkdir(state, 0o700)
    OWN.update(XDG_STATE_HOME=state, XDG_RUNTIME_DIR=state)
    os.environ.update(OWN)
    LAUNCHER.let_go()


OUTCOMES = {}  # of a whole run, in the process that forks the others: a test's id -> has it passed?


def pytest_runtest_logreport(report):
    OUTCOMES[report.nodeid] = OUTCOMES.get(report.nodeid, True) and report.passed


def pytest_sessionfinish():
    if os.environ.get("UNSHARD_RECORD"):
        writers.record(OUTCOMES)


def pytest_collection_finish():
    """What was imported by now is no garbage: it is not looked through each time that garbage is collected."""
    gc.collect()
    gc.freeze()


def sources(script):
    """The generator `script` and the modules in make/ that it imports, directly or not."""
    found, todo = set(), {MAKE / script}
    while todo:
        source = todo.pop()
        found.add(source)
        names = re.findall(r"^\s*(?:from|import)\s+(\w+)", source.read_text(), re.M)
        todo |= {MAKE / f"{n}.py" for n in names if (MAKE / f"{n}.py").exists()} - found
    return sorted(found)


@functools.cache
def cache_key(launch):
    script, world, cases = LAUNCHES[launch]
    digest = hashlib.sha256(repr((script, world, cases)).encode())
    for source in sources(script):
        digest.update(source.read_bytes())
    imported = "".join(source.read_text() for source in sources(script))
    packages = ["torch", "transformers", "accelerate", "safetensors", "lightning", "deepspeed"]
    packages += [p for p, m in ONLY_WHERE_IMPORTED.items() if re.search(rf"^ *import {m}\b(?! as)", imported, re.M)]
    for package in packages:
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()[:16]


def must_have_worked(done):
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, done.args))}\n{done.stdout[-3000:]}\n{done.stderr[-8000:]}")


# Memory that malloc gives back and takes again costs a tenth of a run's processor time.
NOTHING_GIVEN_BACK = {"MALLOC_TOP_PAD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


class Launcher:
    """launcher.py, which the process that forks the others starts for all of them; it imports the frameworks when it
    is first asked for something."""

    connection = None

    def start(self):
        address = f"{STATE}/launcher"
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", HERE / "launcher.py", address],
                                        stdin=subprocess.PIPE, env={**os.environ, **NOTHING_GIVEN_BACK})
        os.environ["UNSHARD_LAUNCHER"] = address
        atexit.register(self.end)

    def connect(self):
        connection = socket.socket(socket.AF_UNIX)
        eventually(lambda: connection.connect(os.environ["UNSHARD_LAUNCHER"]) is None)
        return connection.makefile("rw")

    def ask(self, script, arguments, world, environment):
        """-> "0" or how it failed, and what it printed"""
        self.connection = self.connection or self.connect()
        with tempfile.NamedTemporaryFile("r", prefix="unshard-ranks-", errors="replace") as output:
            request = {"script": str(script), "arguments": [str(a) for a in arguments], "world": world,
                       "environment": {**OWN, **environment}, "output": output.name}
            self.connection.write(json.dumps(request) + "\n")
            self.connection.flush()
            return self.connection.readline().strip(), output.read()

    def run(self, script, arguments, world, environment):
        failed, output = self.ask(script, arguments, world, environment)
        if failed != "0":
            pytest.fail(f"{script} {' '.join(map(str, arguments))}: {failed}\n{output[-11000:]}")

    def let_go(self):
        """In a process that did not start it: the launcher ends when the one that did has no more use for it."""
        self.process.stdin.close()

    def end(self):
        """By a signal: what a test has forked and left behind may hold the launcher's stdin open."""
        self.process.terminate()
        self.process.wait()


LAUNCHER = Launcher()


def launch(script, world, out, cases, **environment):
    """The script of make/ as `torchrun --standalone --nproc_per_node=WORLD` runs it; world 0: as python does."""
    LAUNCHER.run(MAKE / script, [out, *cases], world, environment)


def to_universal(*paths, options=()):
    """What DeepSpeed's own converter makes of tags: TAG, OUT, ..."""
    LAUNCHER.run(MAKE / "to_universal.py", [*options, *paths], 0, {})


def went_on_again(result):
    """Of resume_run.py: a run that resumed saved one step before its end, and what was resumed from that save
    ended in the same way. -> how the run went."""
    assert not isinstance(result, str), result
    went = {key: value for key, value in result.items() if key != "again"}
    for key, want in went.items():
        assert result["again"][key] == (want[-1:] if key in ("loss", "grad_norm", "learning_rate") else want), key
    return went


def went_on(result, once):
    """The same, but resumed once nothing was resumed from what it saves. -> how the run went."""
    assert not isinstance(result, str), result
    assert ("again" in result) != once
    return result if once else went_on_again(result)


def generated(script, world, out, cases):
    """Checkpoints into the new directory `out`."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    launch(script, world, out, cases)


def forget_older(complete):
    """Checkpoints that no test has asked for in a week: another version of their generator made them."""
    for marker in complete:
        if time.time() - marker.stat().st_mtime > KEPT_S:
            marker.unlink()
            shutil.rmtree(marker.with_suffix(""), ignore_errors=True)


@pytest.fixture(scope="session")
def made(request):
    """made("t2", "tied-f1-fp32") -> the directory of that case; see launches.py."""
    base = HERE / ".cache"

    def get(launch, case):
        launch = f"{launch}more" if case in MORE.get(launch, ()) else launch
        assert launch not in LONG_LAUNCHES or request.config.getoption("--long"), f"{launch} is made with --long alone"
        script, world, cases = LAUNCHES[launch]
        where = base / f"{launch}-{cache_key(launch)}"
        complete = where.with_suffix(".complete")
        base.mkdir(exist_ok=True)
        with open(base / f"{launch}.lock", "w") as lock:  # of another process, which may need the same
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                forget_older(base.glob(f"{launch}-*.complete"))
                generated(script, world, where, cases)
            complete.touch()
        return where / case

    return get


def serving(path):
    """The process that serves this mount, or one of this source; None. One that has ended has no arguments any more."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if b"mount" in argv and str(path).encode() in argv:
                return int(entry.name)
    return None


class Mount:
    """A live mount; str() and / give its path."""

    def __init__(self, path, source):
        self.path, self.source = Path(path), Path(source)

    def __truediv__(self, name):
        return self.path / name

    def __str__(self):
        return str(self.path)

    __fspath__ = __str__

    def pid(self):
        pid = serving(self.path)
        assert pid, f"no process serves {self.path}"
        return pid

    def cpu_seconds(self):
        user, system = Path(f"/proc/{self.pid()}/stat").read_text().rsplit(")")[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self):
        for line in Path(f"/proc/{self.pid()}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")


JUDGING = {"check", "export", "ls", "show"}


def unshard(*args, check=True, **kwargs):
    """What judges a checkpoint takes it for finished at once, as `mounted` does, however fast the tests get to it."""
    if args and args[0] in JUDGING and not any("settle=" in str(a) or a == "--help" for a in args):
        args = (*args, "-o", "settle=0")
    done = subprocess.run([str(UNSHARD), *map(str, args)], capture_output=True, text=True,
                          timeout=LONGEST_S, **kwargs)
    if check:
        assert done.returncode == 0, f"unshard {args}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture
def command():
    return unshard


def is_mounted(path):
    return f" {path} fuse" in Path("/proc/self/mounts").read_text()


def detach(path):
    if is_mounted(path):
        done = unshard("umount", path, check=False)
        if is_mounted(path):
            subprocess.run(["fusermount3", "-uz", str(path)], check=False)
        assert done.returncode == 0, done.stderr


def mounted(base, source, *options):
    """For fixtures of a module, which detach it: a mount in the directory `base`, with a store of its own."""
    mnt = base / "mnt"
    mnt.mkdir()
    unshard("mount", source, mnt, "-o", ",".join(["settle=0", f"store={base}/store.db", *options]))
    return mnt


@pytest.fixture
def mount(tmp_path):
    """mount(SOURCE, "settle=5", ...) -> Mount. Without a word about it nothing has to settle, and the
    source is compared with what it was when the mount ends: changing=True where the test changes it.
    faults: the daemon is one whose calls can be made to fail."""
    live = []

    def make(source, *options, at=None, changing=False, faults=None):
        path = Path(at) if at else tmp_path / f"mnt{len(live)}"
        path.mkdir(exist_ok=True)
        if not any(o.startswith("settle=") for o in options):
            options = ("settle=0", *options)
        before = None if changing else fingerprint(source)
        unshard("mount", source, path, "-o", ",".join(options), env=faults.env if faults else None)
        mounted = Mount(path, source)
        live.append((mounted, before))
        return mounted

    yield make
    for mounted, _ in reversed(live):
        detach(mounted.path)
    for mounted, before in live:
        if before is not None:
            assert fingerprint(mounted.source) == before, "the source was changed"


@pytest.fixture
def mnt(tmp_path):
    """An empty directory that a test mounts on by itself; nothing stays there."""
    path = tmp_path / "mnt"
    path.mkdir()
    yield path
    if is_mounted(path):
        subprocess.run(["fusermount3", "-uz", str(path)], check=False)


@pytest.fixture
def small(tmp_path):
    """A file system of half a megabyte."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(path):
    """No room is left on its file system, until path / "filler" is removed."""
    with contextlib.suppress(OSError), open(path / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


@pytest.fixture
def copied(tmp_path):
    """A private copy of a tree, times kept."""
    def copy(source, name="source"):
        shutil.copytree(source, tmp_path / name, symlinks=True)
        return tmp_path / name

    return copy


def eventually(check, within=DEADLINE_S, every=0.1):
    """Call check until it is true; an OSError (ESTALE of what is just changing) is a no. A mount notices
    things within seconds, where the machine has time for it: how long is waited for what does not come says
    nothing about that (see faults.pass_time). What does not come is reported with the check's last answer, and with
    what the programs wait in."""
    end = time.monotonic() + within
    while True:
        try:
            value = check()
        except OSError as e:
            value, failed = False, e
        else:
            failed = None
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {within} s: {value!r}\n{processes.report(UNSHARD.resolve().parent)}") from failed
        time.sleep(every)


@pytest.fixture(name="eventually")
def _eventually():
    return eventually


class Unprivileged:
    """An ordinary user, who runs commands (`run`) and `unshard` (by calling this), below a directory that
    they may enter: pytest's own is closed to others."""

    def __init__(self, place):
        self.place = place
        self.locked = []
        self.binary = shutil.copy(UNSHARD, place / "unshard")

    def run(self, *command):
        who = {}
        if os.getuid() == 0:
            user = pwd.getpwnam("nobody")
            who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [],
                   "env": {"PATH": os.environ["PATH"], "HOME": "/"}}
        return subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              timeout=LONGEST_S, **who)

    def __call__(self, *args, check=True):
        done = self.run(self.binary, *args)
        assert not check or done.returncode == 0, f"unshard {args}: {done.returncode}\n{done.stderr}"
        return done

    def lock(self, path):
        """They may not enter or read it."""
        self.locked.append(path)
        os.chmod(path, 0)

    @contextlib.contextmanager
    def mounted(self, source, *options):
        mnt = self.place / "mnt"
        made = self.run("mkdir", mnt)
        assert made.returncode == 0, made.stderr
        self("mount", source, mnt, "-o", ",".join(["settle=0", *options]))
        try:
            yield mnt
        finally:
            self("umount", mnt)


@pytest.fixture
def unprivileged():
    """Some containers keep /dev/fuse for root; everywhere else it is open to all."""
    mode = stat.S_IMODE(DEVICE_NODE.stat().st_mode)
    if mode & 0o006 != 0o006:
        DEVICE_NODE.chmod(0o666)
    place = Path(tempfile.mkdtemp(prefix="unshard-e2e-", dir="/var/tmp"))
    place.chmod(0o777)
    user = Unprivileged(place)
    yield user
    for path in user.locked:
        os.chmod(path, 0o700)
    shutil.rmtree(place)
    if mode & 0o006 != 0o006:
        DEVICE_NODE.chmod(mode)


@pytest.fixture
def faults(tmp_path):
    """Calls that fail: mount(..., faults=faults), command(..., env=faults.env)."""
    plan = Faults(tmp_path / "faults", UNSHARD)
    yield plan
    plan.close()


@pytest.fixture
def kill_daemon():
    def kill(mounted):
        pid = mounted.pid()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not alive(pid))

    return kill

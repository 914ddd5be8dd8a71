"""A program that loads each checkpoint of a training: `unshard wait` and unshard.checkpoints."""

import json
import shutil
import subprocess
import threading
import time

import pytest

from conftest import ROOT, UNSHARD
from test_python import unshard  # the package, with this build's library

RUN = ROOT / "tests/golden/run"
SETTLE = 3600  # what a checkpoint's own files do not end is being saved for the whole test


def save(run, step):
    """As a trainer does: trainer_state.json is the last file."""
    to = run / f"checkpoint-{step}"
    shutil.copytree(RUN / "checkpoint-2", to, ignore=shutil.ignore_patterns("trainer_state.json"),
                    copy_function=shutil.copyfile)
    state = json.loads((RUN / "checkpoint-2/trainer_state.json").read_text())
    (to / "trainer_state.json").write_text(json.dumps({**state, "global_step": step}))


@pytest.fixture
def run(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    return tmp_path / "run"


def waiting(run, *options):
    return subprocess.Popen([UNSHARD, "wait", run, *options, "-o", f"settle={SETTLE},store=none"], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_newest_is_printed_at_once(command, run):
    assert command("wait", run, "-o", "settle=0,store=none").stdout == f"{run}/checkpoint-2\n"
    assert command("wait", run, "--after", "1", "--view", "dcp", "-o", "settle=0,store=none").stdout == f"{run}/checkpoint-2\n"


def test_a_later_step_is_waited_for(run):
    waiter = waiting(run, "--after", "2")
    shutil.copytree(RUN / "checkpoint-2/pytorch_model_fsdp_0", run / "checkpoint-3/pytorch_model_fsdp_0",
                    ignore=shutil.ignore_patterns(".metadata"), copy_function=shutil.copyfile)  # a save begins
    time.sleep(2)
    assert waiter.poll() is None
    save(run, 4)
    out, err = waiter.communicate()
    assert (waiter.returncode, out, err) == (0, f"{run}/checkpoint-4\n", "")


def test_a_damaged_one_is_none(command, run):
    save(run, 4)
    (run / "checkpoint-4/pytorch_model_fsdp_0/__1_0.distcp").unlink()
    done = command("wait", run, "--after", "2", "--timeout", "2", "-o", "settle=0,store=none", check=False)
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize(("arguments", "said"), [
    ([RUN, "--view", "weight"], "weight is not a view"), ([RUN / "checkpoint-2"], "is a checkpoint: name the directory of the run"),
    ([RUN / "none"], "No such file or directory"), ([RUN, "--after", "x"], "--after x: expected a step"),
    ([RUN, "--timeout", "0"], "--timeout 0: expected a number of seconds")])
def test_what_cannot_come_is_not_waited_for(command, arguments, said):
    done = command("wait", *arguments, "-o", "store=none", check=False)
    assert done.returncode == 2 and said in done.stderr


def test_each_newer_one_in_python(run):
    found = unshard.checkpoints(run, settle_seconds=SETTLE, timeout=60)
    assert next(found) == f"{run}/checkpoint-2"
    later = threading.Timer(1, save, (run, 5))
    later.start()
    assert next(found) == f"{run}/checkpoint-5"
    later.join()
    assert list(unshard.checkpoints(run, after=5, timeout=0, settle_seconds=SETTLE)) == []
    with pytest.raises(unshard.NotFound):
        next(unshard.checkpoints(run, view="weight"))

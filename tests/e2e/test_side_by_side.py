"""pytest --processes N (side_by_side.py): what it makes of small tests, which need no frameworks."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import LONGEST_S

HERE = Path(__file__).parent


class Run:
    """A pytest of its own that has ended: `tests`, name -> what the junit report has of it, without times."""

    def __init__(self, where, processes, *options, **files):
        for name, text in files.items():
            (where / f"{name}.py").write_text(text)
        report = where / f"report-{processes}.xml"
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "side_by_side", "-p", "no:cacheprovider", "--processes",
                               str(processes), "--basetemp", where / f"temp-{processes}", "--junitxml", report, *options],
                              cwd=where, env={**os.environ, "PYTHONPATH": str(HERE)}, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST_S)
        self.status, self.output = done.returncode, done.stdout
        cases = re.findall(r'<testcase classname="([^"]*)" name="([^"]*)" time="[^"]*"(.*?)(?=<testcase|</testsuite>)',
                           report.read_text(), re.S)
        self.tests = {}
        for module, name, rest in cases:  # twice a test that failed and whose fixture failed, too
            self.tests[f"{module}::{name}"] = self.tests.get(f"{module}::{name}", "") + rest

    def failed(self):
        return {name for name, rest in self.tests.items() if re.search("<(failure|error)", rest)}


def lines(path):
    return path.read_text().splitlines()


# The first tests of two processes wait for each other, so that neither runs everything.
LOG = """
import os, time
import pytest

def log(*what):
    with open("log", "a") as file:
        print(os.getpid(), *what, file=file)

def processes():
    return len({line.split()[0] for line in open("log")})

def test_that_there_are_two():
    log("begins")
    end = time.monotonic() + 600
    while processes() < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert processes() == 2
"""

OUTCOMES = """
import sys
import pytest

@pytest.fixture
def no_setup():
    print("said by a fixture")
    raise ValueError("in a fixture")

@pytest.fixture
def no_teardown():
    yield
    raise ValueError("at a fixture's end")

def test_passes(): print("said in vain")
def test_fails(): print("said by a test"); print("complained", file=sys.stderr); assert 1 + 1 == 3
def test_without_setup(no_setup): pass
def test_without_teardown(no_teardown): pass
def test_fails_twice(no_teardown): assert not "even"
def test_is_skipped(): pytest.skip("not here")
@pytest.mark.xfail
def test_fails_as_expected(): raise KeyError
@pytest.mark.xfail(strict=True)
def test_passes_unexpectedly(): pass
@pytest.mark.parametrize("text", ["a", "ü", "<&"])
def test_of_a_value(text): assert text != "ü"
def test_has_a_property(record_property): record_property("text", "ü")
def test_of_descriptors(capfd): print("x"); assert capfd.readouterr().out == "x\\n"
"""


def test_outcomes_are_those_of_one_process(tmp_path):
    modules = {f"test_{name}": OUTCOMES for name in "abcd"}
    one = Run(tmp_path, 0, **modules)
    three = Run(tmp_path, 3, **modules)
    assert len(one.tests) == 4 * 13 and len(one.failed()) == 4 * 6
    assert three.tests == one.tests
    assert three.status == one.status == 1

    def said(run):
        """What is printed of failures, in any order."""
        return sorted(line for line in run.output.splitlines() if re.match("E |said|complained|FAILED|ERROR", line))

    assert said(three) == said(one)
    assert {"said by a fixture", "said by a test", "complained"} < set(said(one))


def test_fixtures_of_a_module_are_set_up_once_in_each_process(tmp_path):
    module = LOG + """
@pytest.fixture(scope="module", autouse=True)
def of_module():
    log("setup", __name__)
    yield
    log("teardown", __name__)

@pytest.mark.parametrize("i", range(5))
def test_a(i, tmp_path):
    log("test", __name__, i, tmp_path)
"""
    conftest = LOG + """
@pytest.fixture(scope="session", autouse=True)
def of_all():
    log("setup", "all")
    yield
    log("teardown", "all")
"""
    run = Run(tmp_path, 2, conftest=conftest, **{f"test_{i}": module for i in range(6)})
    assert run.status == 0, run.output
    assert len(run.tests) == 36
    logged = [line.split() for line in lines(tmp_path / "log")]
    assert len({words[0] for words in logged}) == 2
    assert len({words[4] for words in logged if words[1] == "test"}) == 30  # directories
    for process in {words[0] for words in logged}:
        alive, times = [], {}
        for what, *of in (words[1:] for words in logged if words[0] == process and words[1] != "begins"):
            if what == "setup":
                alive.append(of[0])
                times[of[0]] = times.get(of[0], 0) + 1
            elif what == "teardown":
                assert alive.pop() == of[0]
            else:
                assert alive == ["all", of[0]]
        assert not alive
        assert set(times.values()) == {1}


def test_a_process_that_dies_has_failed_its_test(tmp_path):
    module = """
import ctypes, faulthandler, os, signal
import pytest

@pytest.fixture
def dies():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.fixture
def dies_later():
    yield
    os._exit(7)

def test_before(): pass
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_between(): pass
def test_ends(): os._exit(3)
def test_ends_well(): os._exit(0)
def test_dies_in_setup(dies): pass
def test_dies_in_teardown(dies_later): pass
def test_crashes(): faulthandler._sigsegv()
def test_leaves(): pytest.exit("enough of this")
def test_behind(): pass
"""
    run = Run(tmp_path, 2, test_a=module, test_b=module)
    causes = {"killed": "by SIGKILL", "ends": "with 3", "ends_well": "with 0", "dies_in_setup": "by SIGKILL",
              "dies_in_teardown": "with 7", "crashes": "by SIGSEGV", "leaves": "with 1"}
    assert run.status == 1
    assert len(run.tests) == 20
    assert run.failed() == {f"test_{m}::test_{name}" for m in "ab" for name in causes}
    for name, how in causes.items():
        assert f"its process ended {how}" in run.tests[f"test_a::test_{name}"], name
    assert "in test_crashes" in run.tests["test_b::test_crashes"]  # where it was
    assert "enough of this" in run.tests["test_b::test_leaves"]


def test_nothing_waits_for_what_a_test_leaves_behind(tmp_path):
    """Nor is it waited for here, where all must let go of the output, nor by the launcher, which ends with its stdin."""
    module = """
import os, signal, threading

def test_of_a_thread(): threading.Thread(target=threading.Event().wait).start()

def test_of_a_child(capfd):
    child = os.fork()
    while not child:
        signal.pause()
    with open("children", "a") as file:
        print(child, file=file)

def test_of_a_child_that_printed():
    test_of_a_child(None)

def test_behind(): pass
"""
    try:
        run = Run(tmp_path, 2, "-p", "conftest", test_a=module, test_b=module)
    finally:
        for child in lines(tmp_path / "children"):
            os.kill(int(child), signal.SIGKILL)
    assert run.status == 0, run.output
    assert len(run.tests) == 8


def test_a_test_that_hangs_has_failed(tmp_path):
    run = Run(tmp_path, 2, conftest="import side_by_side; side_by_side.LONGEST_S = 1",
              test_a="import signal\ndef test_a(): signal.pause()")
    assert run.status == 1
    assert "the test did not end in 1 s" in run.tests["test_a::test_a"]


def test_enough_failures_end_the_run(tmp_path):
    """Each process may have begun one test more, and have been told of another."""
    run = Run(tmp_path, 2, "--maxfail=1", test_a="import pytest\n@pytest.mark.parametrize('i', range(50))\n"
                                                 "def test_a(i): assert i == 50")
    assert run.status == 1
    assert re.search("stopping after [1-4] failures", run.output)
    assert 1 <= len(run.tests) <= 4


def test_an_interrupt_ends_fixtures_first(tmp_path):
    run = Run(tmp_path, 2, test_a="""
import os, signal, time
import pytest

@pytest.fixture(scope="module")
def of_module():
    yield
    open("ended", "a").write("once")

def test_a(of_module):
    os.kill(os.getppid(), signal.SIGINT)
    signal.pause()

def test_b(): pass
""")
    assert run.status == 2, run.output
    assert "KeyboardInterrupt" in run.output
    assert (tmp_path / "ended").read_text() == "once"


def test_a_process_that_is_interrupted_at_once_ends_alone(tmp_path):
    """Not as a copy of its parent, which would end the whole run once more."""
    run = Run(tmp_path, 2, test_a="def test_a(): pass", conftest="""
import os, signal, time
fork = os.fork

def interrupted_fork():
    interrupted_fork.times += 1
    pid = fork()
    if not pid:
        time.sleep(1)
    elif interrupted_fork.times == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return pid

interrupted_fork.times = 0
os.fork = interrupted_fork
""")
    assert run.status == 2, run.output
    assert "INTERNALERROR" not in run.output
    assert run.output.count("no tests ran") == 1


@pytest.mark.parametrize("processes", [0, 2])
def test_a_lost_test_is_a_failure(tmp_path, processes):
    run = Run(tmp_path, processes, test_a="def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass", conftest="""
def pytest_runtest_protocol(item):
    return True if item.name == "test_b" else None
""")
    assert run.status != 0
    if not processes:
        assert "1 tests were lost, test_a.py::test_b is one" in run.output


def test_no_process_is_forked_beside_a_thread(tmp_path):
    run = Run(tmp_path, 2, test_a="""
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()

def test_a(): pass
""")
    assert run.status == 3
    assert "a thread would not be forked" in run.output

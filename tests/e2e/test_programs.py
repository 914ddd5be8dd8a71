"""Programs that nobody here wrote read the mount, each in an environment of its own (programs/): what they make of a
view is compared with what they make of the directory that the framework itself saved. programs/results.json has what
was found, and docs/compatibility.md is made of it (tests/docs/generate.py)."""

import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import conftest
from environments import HERE, constants, environment

RESULTS = HERE / "results.json"
READERS = sorted(p.stem for p in HERE.glob("*.py") if p.name != "read.py")


def run(python, *arguments):
    done = subprocess.run([python, *map(str, arguments)], capture_output=True, text=True, timeout=conftest.LONGEST_S,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def run_ranks(python, program, out):
    """The program's rank(n, out, port) in two processes."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    code = "import runpy, sys; runpy.run_path(sys.argv[1])['rank'](int(sys.argv[2]), *sys.argv[3:])"
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda n: run(python, "-c", code, program, n, out, port), range(2)))


def sources(name, python, made, tmp_path):
    """The run with the sharded checkpoint-1, and the directory that the framework saved."""
    program, top = HERE / f"{name}.py", tmp_path / "made"
    text = program.read_text()
    if "def rank(" in text:
        run_ranks(python, program, top)
    elif "def source(" in text:
        run(python, "-c", "import runpy, sys; runpy.run_path(sys.argv[1])['source'](sys.argv[2])", program, top)
    else:
        top = made("programs", "llama")
    return top / "run", top / "native"


def recorded(name, result):
    """Into programs/results.json where UNSHARD_RECORD is set; otherwise it must be what is there."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if os.environ.get("UNSHARD_RECORD"):
        results[name] = result
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    assert results[name] == result


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_reads_what_the_framework_saved(name, made, mount, tmp_path):
    about, python = constants(name), environment(name)
    source, native = sources(name, python, made, tmp_path)
    found = {}
    for what, directory in (("native", native), ("mount", mount(source) / "weights/checkpoint-1")):
        (tmp_path / what).mkdir()
        run(python, HERE / "read.py", HERE / f"{name}.py", directory, tmp_path / what, tmp_path / f"{what}.json")
        found[what] = json.loads((tmp_path / f"{what}.json").read_text())
    assert found["native"]["values"] and found["mount"] == found["native"]
    recorded(name, {"package": about["PACKAGE"], "version": found["mount"]["version"], "does": about["DOES"],
                    "equal": about["EQUAL"]})

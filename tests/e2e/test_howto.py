"""The pages of docs/howto: every command runs, in the order in which it stands there, and prints what is shown.

What a page starts by python, torchrun, accelerate or deepspeed is run by launcher.py, whose process has imported the
frameworks: make/page_program.py."""

import json
import os
import re
import shutil
import socketserver
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import LAUNCHER, LONGEST_S, MAKE, ROOT, UNSHARD, detach
from documents import PAGES, files, must_print_what_is_shown, run_blocks, script

HOWTO = {name.removeprefix("docs/howto/").removesuffix(".md"): text
         for name, text in PAGES.items() if name.startswith("docs/howto/")}
LONG = {"lightning", "deepspeed"}  # each takes ten processor seconds
PARTS = ["## You have", "## Do this", "## What can go wrong"]

ASK = """#!/usr/bin/python3 -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.connect({door!r})
    with door.makefile("rw") as line:
        request = dict(argv=[os.path.basename(sys.argv[0]), *sys.argv[1:]], directory=os.getcwd(), environment=dict(os.environ))
        line.write(json.dumps(request) + "\\n")
        line.flush()
        answer = json.loads(line.readline())
sys.stdout.write(answer["output"])
sys.exit(answer["status"])
"""


def started(argv, directory):
    """What a page's command starts -> (how, ranks, script, arguments)"""
    program, *rest = argv
    how, ranks = program, 0
    if program == "accelerate":
        assert rest[:2] == ["launch", "--config_file"], argv
        config = os.path.join(directory, rest[2])
        with open(config, encoding="utf-8") as text:
            ranks = int(re.search(r"^num_processes: (\d+)", text.read(), re.M)[1])
        how, rest = f"accelerate:{config}", rest[3:]
    elif program in ("torchrun", "deepspeed"):
        assert rest[0] == {"torchrun": "--nproc-per-node", "deepspeed": "--num_gpus"}[program], argv
        ranks, rest = int(rest[1]), rest[2:]
    elif rest[0] == "-c":
        with tempfile.NamedTemporaryFile("w", suffix=".py", dir=directory, delete=False) as text:
            text.write(rest[1])
        rest = [text.name, *rest[2:]]
    return how, ranks, os.path.join(directory, rest[0]), rest[1:]


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        request = json.loads(self.rfile.readline())
        how, ranks, program, arguments = started(request["argv"], request["directory"])
        failed, output = LAUNCHER.ask(MAKE / "page_program.py", [how, request["directory"], program, *arguments], ranks,
                                      request["environment"])
        answer = {"status": int(failed != "0"), "output": output}
        self.wfile.write((json.dumps(answer) + "\n").encode())


@pytest.fixture
def programs(tmp_path):
    """A directory for PATH with python, torchrun, accelerate and deepspeed."""
    where = tmp_path / "programs"
    where.mkdir()
    door = str(tmp_path / "door")
    with socketserver.UnixStreamServer(door, Answer) as server:
        for name in ("python", "torchrun", "accelerate", "deepspeed"):
            (where / name).write_text(ASK.format(door=door))
            (where / name).chmod(0o755)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield where
        server.shutdown()
        thread.join()


@pytest.fixture
def place(tmp_path):
    """Where a page begins: a model's config and tokenizer in base/, an empty mnt/ and the page's own files."""
    where = tmp_path / "work"
    (where / "mnt").mkdir(parents=True)
    shutil.copytree(ROOT / "tests/golden/run", where / "base", ignore=shutil.ignore_patterns("checkpoint-*"))
    yield where
    detach(where / "mnt")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in HOWTO])
def test_the_commands(name, place, programs, made):
    page = HOWTO[name]
    for file, text in files(page).items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text(text)
    for source, where in re.findall(r"^<!-- given: (\S+) as (\S+) -->$", page, re.M):
        shutil.copytree(ROOT / source, place / where)
        for path in (place / where).rglob("*"):  # in whatever order they were checked out, the save is over
            os.utime(path, (time.time() - 3600,) * 2)
    for launch, case, where, beside in re.findall(r"^<!-- made: (\S+) (\S+) as (\S+)(?: with (\S+))? -->$", page, re.M):
        shutil.copytree(made(launch, case) / "run", place / where)
        if beside:
            shutil.copy(made(launch, case) / beside, place / where)
    steps = run_blocks(page)
    assert steps
    environment = {**os.environ, "HOME": str(place.parent), "PATH": f"{programs}:{UNSHARD.parent}:{os.environ['PATH']}",
                   "XDG_STATE_HOME": str(place.parent / "state"), "PYTHONPATH": str(ROOT / "python"), "UNSHARD_PAGE": name,
                   "RCLONE_CONFIG": os.devnull, "TMPDIR": str(place.parent),
                   "UNSHARD_LIBRARY": str(UNSHARD.parents[1] / "lib/libunshard.so.0")}
    done = subprocess.run(["bash", "-c", script(steps)], cwd=place, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=LONGEST_S)
    must_print_what_is_shown(f"docs/howto/{name}.md", steps, done.stdout)
    assert not os.path.ismount(place / "mnt")


@pytest.mark.parametrize("name", HOWTO)
def test_a_page_is_one_task(name):
    """What the reader has, what to do, what can go wrong, on two screens."""
    assert re.findall(r"^## .*$", HOWTO[name], re.M) == PARTS
    assert 60 <= HOWTO[name].count("\n") <= 120

"""tools/completion in the shells themselves: a key is pressed in a terminal, and the line is what it should be."""

import json
import os
import pty
import re
import select
import subprocess
import time

import pytest

from conftest import DEADLINE_S, ROOT, UNSHARD

COMPLETION = ROOT / "tools/completion"
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], f"source {COMPLETION}/unshard; bind 'set bell-style none'"),
    "zsh": (["zsh", "-f", "-i"], f"fpath=({COMPLETION} $fpath); autoload -Uz compinit; compinit -u -d $PWD/.dump; "
                                 "unsetopt beep zle_bracketed_paste"),
}


@pytest.fixture
def tree(made, tmp_path):
    """Two runs of two checkpoints, and files that are none."""
    run = made("t2", "tied-f1-fp32") / "run"
    (tmp_path / "runs/with space").mkdir(parents=True)
    (tmp_path / "runs/tiny").symlink_to(run)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a-file").write_text("")
    return tmp_path


class Terminal:
    """A shell in a terminal of its own, and what it printed."""

    def __init__(self, shell, directory):
        arguments, begin = START[shell]
        self.printed = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            path = f"{UNSHARD.parent}:{os.environ['PATH']}"
            os.execvpe(arguments[0], arguments, {**os.environ, "PATH": path, "TERM": "dumb", "PS1": "$ ", "LC_ALL": "C.UTF-8"})
        self.type(f"{begin}; echo rea''dy\n")
        self.wait_for("ready\r\n")

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, text):
        end = time.monotonic() + DEADLINE_S
        while text not in self.printed:
            assert time.monotonic() < end, f"{text!r} does not come: {self.printed!r}"
            if select.select([self.fd], [], [], 1)[0]:
                self.printed += os.read(self.fd, 65536).decode(errors="replace")

    def line(self, text):
        """The command line that a tab makes of `text`, as the shell understands it: words of a command that is in
        the place of unshard only when it is run."""
        self.printed = ""
        self.type(text + "\t")
        self.type("\x01" + "printf '<%s>' " + "\x05" + "; echo en''d\n")  # Ctrl-A, Ctrl-E
        self.wait_for("end\r\n")
        return self.printed[self.printed.rindex("<unshard>"):].split("end\r\n")[0].strip()

    def close(self):
        os.write(self.fd, b"\x03exit\n")
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=START)
def terminal(request, tree):
    opened = Terminal(request.param, tree)
    yield opened
    opened.close()


CASES = {  # what is typed before the key: what the line is then
    "unshard expo": "<unshard><export>",
    "unshard help ch": "<unshard><help><check>",
    "unshard check --dee": "<unshard><check><--deep>",
    "unshard check --for ful": "<unshard><check><--for><full>",
    "unshard check --for=unive": "<unshard><check><--for=universal>",
    "unshard meta cle": "<unshard><meta><clear-cache>",
    "unshard explain shard_miss": "<unshard><explain><shard_missing>",
    "unshard ls else": "<unshard><ls><elsewhere/>",
    "unshard ls a-fi": "<unshard><ls><a-fi>",
    "unshard show runs/tiny/checkpoint-2": "<unshard><show><runs/tiny/checkpoint-2>",
    "unshard ls runs/wi": "<unshard><ls><runs/with space/>",
    "unshard show runs/tiny/checkpoint-2 --tensors=model.nor": "<unshard><show><runs/tiny/checkpoint-2><--tensors=model.norm.weight>",
    "unshard mount -o max_sh": "<unshard><mount><-o><max_shard_size=>",
    "unshard mount -o mem=1G,names=pub": "<unshard><mount><-o><mem=1G,names=published>",
    "unshard mount -o assume": "<unshard><mount><-o><assume=>",
    "unshard mount runs else": "<unshard><mount><runs><elsewhere/>",
}


def test_the_shells_complete(terminal):
    wrong = {}
    for typed, want in CASES.items():
        got = terminal.line(typed)
        if got not in (want, want + "<>"):
            wrong[typed] = got
    assert not wrong


@pytest.mark.parametrize("typed", CASES)
def test_fish_completes(tree, typed):
    done = subprocess.run(["fish", "--no-config", "-c", f"source {COMPLETION}/unshard.fish; complete -C '{typed}'"],
                          cwd=tree, env={**os.environ, "PATH": f"{UNSHARD.parent}:{os.environ['PATH']}"},
                          capture_output=True, text=True, timeout=600, check=True)
    offered = [line.split("\t")[0] for line in done.stdout.splitlines()]
    last = CASES[typed].rsplit("<", 1)[1].rstrip(">")
    assert (last in offered) or last == typed.rsplit(" ", 1)[1], (offered, done.stderr)


def test_mount_points_and_models(run_words, made, mount, tmp_path, monkeypatch):
    m = mount(made("t2", "tied-f1-fp32") / "run")
    assert str(m.path) in run_words("umount", str(m.path)[:-1])
    cache = tmp_path / "hf/hub/models--meta-llama--Llama-3.1-8B/snapshots/0123"
    cache.mkdir(parents=True)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    assert run_words("mount", "-o", "model=meta") == ["model=meta-llama/Llama-3.1-8B"]


@pytest.fixture
def run_words():
    def run(*words):
        done = subprocess.run([UNSHARD, "__complete", *words], capture_output=True, text=True, timeout=600, check=True)
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    return run


def test_everything_that_help_lists_is_offered(command, run_words):
    """One table: a flag or an option that is in no help is not offered, and the other way round."""
    verbs = [v for v in run_words("") if not v.startswith("-") and v != "help"]
    assert len(verbs) > 10 and "__complete" not in verbs
    for verb in verbs:
        text = command(verb, "--help").stdout
        assert all(len(line) <= 80 for line in text.splitlines())
        assert "Example: unshard " in text
        offered = {word.rstrip("=") for word in run_words(verb, "-")}
        assert {w for w in offered if w.startswith("--")} == \
            {w.split("[")[0].rstrip(",") for line in text.splitlines() if line.startswith("  -")
             for w in line.split("   ")[0].replace(",", " ").split() if w.startswith("--")}
        own, _, after_o = text.partition("Options after -o")
        names = {line.split("=")[0].split()[0] for line in after_o.splitlines() if line.startswith("  ") and line[2] != " "}
        assert not after_o or {w.rstrip("=") for w in run_words(verb, "-o", "")} == names
        assert "delay_read_us" not in text


def test_every_view_is_offered(run_words, command):
    """Those of the table in docs/views.md, and all that show knows of."""
    offered = set(run_words("export", "--view", ""))
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", (ROOT / "docs/views.md").read_text(), re.M)
    table = {name for row in rows for cell in row for name in re.findall(r"`([^`]+)`", cell)}
    shown = set(json.loads(command("show", ROOT / "tests/golden/run/checkpoint-2", "--json").stdout)["info"]["views"])
    assert len(shown) > 8 and {"mean-K", "world-N"} <= table
    assert {re.sub(r"-[NK]$", "-", name) for name in table | shown} <= offered

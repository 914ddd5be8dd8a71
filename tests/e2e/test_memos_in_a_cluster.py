"""docs/shared-metadata.md, "In a cluster": what Slurm and Kubernetes would start is started here, with the paths of a test
and a store for each node. No cluster: srun is a script that starts its command, and volumes are bind mounts."""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from conftest import LONGEST_S, ROOT, UNSHARD, detach
from documents import FENCE, PAGES, commands
from test_shared_metadata import settle

PAGE = PAGES["docs/shared-metadata.md"].partition("\n## In a cluster\n")[2]
KUBERNETES = PAGES["docs/howto/kubernetes.md"]
FILE = "weights/llama/checkpoint-2/model.safetensors"
FROM_MEMOS = {"catalogs_opened": 0, "catalogs_from_memos": 1}
SRUN = """#!/bin/sh
# One node.
[ "$1" = --ntasks-per-node=1 ] || exit 64
shift
XDG_STATE_HOME=$NODE_STATE exec "$@"
"""


def blocks(page, kind):
    return [block for _, of_kind, block in FENCE.findall(page) if of_kind == kind]


def environment(tmp_path, node):
    return {**os.environ, "PATH": f"{tmp_path}:{UNSHARD.parent}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(tmp_path / node), "NODE_STATE": str(tmp_path / "node-b")}


def bash(tmp_path, line, node="node-a"):
    done = subprocess.run(["bash", "-ec", line], env=environment(tmp_path, node), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=LONGEST_S)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def moved(text, places):
    """The text with this test's paths; each of the page's is in it."""
    for of_page, here in places.items():
        assert re.search(rf"{of_page}\b", text), of_page
        text = re.sub(rf"(?<![\w/]){of_page}\b", str(here), text)
    return text


def opened(stats):
    return {key: json.loads(stats)[key] for key in FROM_MEMOS}


@pytest.fixture
def runs(tmp_path):
    shutil.copytree(ROOT / "tests/golden/run", tmp_path / "scratch/runs/llama")
    settle(tmp_path / "scratch/runs")
    return tmp_path / "scratch/runs"


@pytest.fixture
def want(tmp_path, runs, command):
    command("export", runs / "llama/checkpoint-2", tmp_path / "want", "--store", "none")
    return (tmp_path / "want/model.safetensors").read_bytes()


def test_slurm(tmp_path, runs, want):
    """What the job writes that trains is used where another node mounts, which has a store of its own."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    mnt = tmp_path / "mnt"
    mnt.mkdir()
    (block,) = blocks(PAGE, "console")
    train, load = [line for line, _ in commands(moved(block, {"/scratch": tmp_path / "scratch", "/tmp/runs": mnt}))]
    bash(tmp_path, train)
    try:
        bash(tmp_path, load)
        assert (mnt / FILE).read_bytes() == want
        assert opened((mnt / ".unshard/stats.json").read_text()) == FROM_MEMOS
    finally:
        detach(mnt)


@pytest.fixture
def container():
    """That of howto/kubernetes.md's DaemonSet, and what shared-metadata.md puts in its place and beside it."""
    (theirs,) = [yaml.safe_load(block) for block in blocks(KUBERNETES, "yaml") if "of the DaemonSet" in block]
    (ours,) = map(yaml.safe_load, blocks(PAGE, "yaml"))
    return theirs["containers"][0], ours


def test_kubernetes_adds_memos_alone(container):
    theirs, ours = container
    assert set(ours) == {"command", "volumeMounts"}
    assert ours["command"] == [*theirs["command"][:2], theirs["command"][2] + ",memos=/memos"]
    assert ours["volumeMounts"] == [{"name": "memos", "mountPath": "/memos", "readOnly": True}]
    assert "/memos" not in [volume["mountPath"] for volume in theirs["volumeMounts"]]


# In mounts of its own: a volume that the manifest has readOnly is. ($@: those.)
POD = """
trap 'kill $! 2>/dev/null || true' EXIT
for volume in "$@"; do mount --bind "$volume" "$volume"; mount -o remount,bind,ro "$volume"; done
{command} 2>&1 &
until mountpoint -q {mnt}; do kill -0 $!; sleep 0.05; done
cp {mnt}/{file} {mnt}/.unshard/stats.json {out}
{stop}
wait $!
"""


def test_kubernetes(tmp_path, runs, want, container):
    theirs, ours = container
    memos, mnt, out = tmp_path / "memos", tmp_path / "host/unshard", tmp_path / "out"
    bash(tmp_path, shlex.join(["unshard", "warm", str(runs), "--write", str(memos), "-o", "settle=0"]))
    out.mkdir()
    where = {"/runs": runs, "/memos": memos, "/mnt/unshard": mnt}
    volumes = theirs["volumeMounts"] + ours["volumeMounts"]
    read_only = [str(where[volume["mountPath"]]) for volume in volumes if volume.get("readOnly")]
    assert len(read_only) == 2
    line = moved(ours["command"][2], where)
    stop = moved(shlex.join(theirs["lifecycle"]["preStop"]["exec"]["command"]), {"/mnt/unshard": mnt})
    pod = POD.format(command=shlex.join([*ours["command"][:2], line]), mnt=mnt, file=FILE, out=out, stop=stop)
    done = subprocess.run(["unshare", "--mount", "bash", "-ec", pod, "pod", *read_only], capture_output=True, text=True,
                          env=environment(tmp_path, "node-b"), stdin=subprocess.DEVNULL, timeout=LONGEST_S)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert (out / "model.safetensors").read_bytes() == want
    assert opened((out / "stats.json").read_text()) == FROM_MEMOS

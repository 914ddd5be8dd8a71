"""unshard explain: every kind of finding that the table has is explained, by the id that check, show and a mount print."""

import json
import re
import shutil
from pathlib import Path

import pytest

import conftest

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "lib/model/finding_kinds.h").read_text()
KINDS = re.findall(r"^KIND\(\w+, (\w+),", TABLE, re.M)
RULES = re.findall(r"\{ \.name = \"(\w+)\"", (ROOT / "lib/check/setting_rules.c").read_text())


@pytest.fixture(scope="module")
def kinds():
    return {kind["id"]: kind for kind in json.loads(conftest.unshard("explain", "--json").stdout)}


def test_every_kind_is_explained(kinds, command):
    assert len(KINDS) > 200 and list(kinds) == KINDS + RULES and len(set(KINDS + RULES)) == len(kinds)
    for name, kind in kinds.items():
        assert kind["message"] and (name in RULES or (kind["cause"] and not re.search(r"[{}]", kind["message"]))), kind
        assert kind["advice"] or name in RULES, f"{name}: nothing tells what to do"
        assert json.loads(command("explain", name, "--json").stdout) == [kind]
    shown = command("explain", "shard_missing").stdout
    for key in ("id", "group", "check", "severity", "message", "cause", "advice"):
        assert kinds["shard_missing"][key] in shown


def test_all_ids_are_listed_by_group(kinds, command):
    listed, group = {}, None
    for line in command("explain").stdout.splitlines():
        if line.startswith("  "):
            listed[line.strip()] = group
        elif line:
            group = line
    assert listed == {name: kind["group"] for name, kind in kinds.items()}
    tracker = [line.strip() for line in command("explain", "tracker").stdout.splitlines() if line.startswith("  ")]
    assert tracker == [name for name, kind in kinds.items() if kind["check"] == "tracker"]


@pytest.mark.parametrize("wanted, near", [("shard_mising", "shard_missing"), ("zero_steps", "zero_steps_differ"),
                                          ("Tracker_stale", "tracker_stale")])
def test_an_unknown_id_names_the_nearest(command, wanted, near):
    done = command("explain", wanted, check=False)
    assert done.returncode == 2 and not done.stdout and f"unknown id '{wanted}'" in done.stderr
    assert f"the nearest: {near}" in done.stderr


@pytest.mark.parametrize("wanted", ["", "qqqqqqqq", "x" * 300, "a\nb\x1b[1m"])
def test_an_id_that_is_like_none(command, wanted):
    done = command("explain", wanted, check=False)
    assert done.returncode == 2 and done.stderr.startswith("unshard: unknown id '") and done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr
    assert command("explain", "a", "b", check=False).returncode == 2


def test_what_is_printed_can_be_explained(kinds, command, mount, tmp_path):
    run = shutil.copytree(ROOT / "tests/golden/run", tmp_path / "run")
    (run / "checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp").unlink()
    (run / "checkpoint-2/scheduler.pt").unlink()
    found = json.loads(command("check", run, "--json", "-o", "settle=0", check=False).stdout)["findings"]
    printed = command("check", run, "-o", "settle=0", check=False).stdout
    assert re.findall(r" \[(\w+)\]$", printed, re.M) == [finding["id"] for finding in found]
    shown = command("show", run / "checkpoint-2", "-o", "settle=0", check=False).stdout
    problems = (mount(run) / "weights/checkpoint-2/.unshard/problems.txt").read_text()
    listed = command("ls", run, "-o", "settle=0", check=False).stdout
    assert [c["problem_id"] for c in json.loads(command("ls", run, "--json", "-o", "settle=0", check=False).stdout)] == [
        "shard_missing"]
    for text in (shown, problems, listed):
        ids = re.findall(r" \[(\w+)\]$", text, re.M)
        assert "shard_missing" in ids and not set(ids) - set(kinds), text

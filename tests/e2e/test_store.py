"""The metadata store: facts that show, checkpoints that are not read twice, and a store that is locked, full,
read-only, damaged or too new. One that is killed: test_killed.py."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from conftest import UNSHARD, fill

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "run"


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def run(tmp_path):
    """A run of one checkpoint, changed long enough ago."""
    shutil.copytree(GOLDEN, tmp_path / "runs" / "llama")
    time.sleep(0.2)
    return tmp_path / "runs" / "llama"


@pytest.fixture
def meta(command, store):
    def call(*args, at=None, **kwargs):
        return command("meta", *args, "--store", at or store, **kwargs)

    return call


def facts(text):
    return {f["key"]: f["value"] for f in json.loads(text)}


def stats(mounted):
    return json.loads((mounted / ".unshard/stats.json").read_text())


def load(mounted):
    return (mounted / "weights/llama/checkpoint-2/model.safetensors").read_bytes()


def serves(mounted):
    assert load(mounted) == (GOLDEN.parent / "run.model.safetensors").read_bytes()
    assert (mounted / "weights/llama/checkpoint-2/config.json").exists()


# -- memos --


def opened_metadata(trace):
    """How often a checkpoint's metadata was opened to be read (a stat opens with O_PATH)."""
    return sum(".metadata" in line and "O_PATH" not in line for line in trace.splitlines())


def test_an_unchanged_tree_is_not_read_again(run, mount, store, tmp_path, command):
    mounted = mount(run.parent, f"store={store}", changing=True)
    serves(mounted)
    assert stats(mounted)["catalogs_opened"] == 1
    command("umount", mounted)
    mounted = mount(run.parent, f"store={store}", changing=True)
    serves(mounted)
    assert stats(mounted)["catalogs_opened"] == 0
    assert stats(mounted)["catalogs_remembered"] >= 1
    command("umount", mounted)
    (run / "checkpoint-2" / "scheduler.pt").touch()
    mounted = mount(run.parent, f"store={store}")
    serves(mounted)
    assert stats(mounted)["catalogs_opened"] == 1


def test_no_metadata_file_is_opened(run, store, tmp_path):
    counts = []
    for i in range(2):
        trace = tmp_path / f"trace{i}"
        subprocess.run(["strace", "-f", "-e", "trace=openat,openat2", "-o", trace, UNSHARD, "show",
                        run / "checkpoint-2", "--store", store], check=True, capture_output=True)
        counts.append(opened_metadata(trace.read_text()))
    assert counts[0] >= 2 and counts[1] == 0, counts


def test_crcs_are_kept(run, mount, store, command):
    mounted = mount(run.parent, f"store={store},crc=exact")
    first = (mounted / "full/llama/checkpoint-2/optimizer.pt").read_bytes()
    subprocess.run(["python3", "-m", "zipfile", "-t",
                    mounted / "full/llama/checkpoint-2/optimizer.pt"], check=True)
    command("umount", mounted)
    mounted = mount(run.parent, f"store={store},crc=exact")
    (mounted / "full/llama/checkpoint-2/optimizer.pt").open("rb").close()
    opened = stats(mounted)["source_read_bytes"]
    assert (mounted / "full/llama/checkpoint-2/optimizer.pt").read_bytes() == first
    assert opened < 50_000, "the data was read again to find the CRCs out"


def test_memos_can_be_forgotten(run, mount, store, command, meta):
    serves(mount(run.parent, f"store={store}"))
    meta("set", run, "seed=1")
    meta("clear-cache")
    assert facts(meta("list", run, "--json").stdout) == {"seed": 1}
    mounted = mount(run.parent, f"store={store}")
    serves(mounted)
    assert stats(mounted)["catalogs_opened"] == 1


def test_no_store_writes_nothing(run, mount, command, tmp_path):
    home = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": "", "PATH": "/usr/bin:/bin"}
    done = command("show", run / "checkpoint-2", "--store", "none", env=home)
    assert "hf_fsdp" in done.stdout and not (tmp_path / "home").exists()
    command("show", run / "checkpoint-2", env=home)
    made = tmp_path / "home/.local/state/unshard/store.db"
    assert made.stat().st_mode & 0o777 == 0o600
    assert made.parent.stat().st_mode & 0o777 == 0o700


# -- facts --


def test_a_fact_set_while_mounted_shows_at_the_next_open(run, mount, store, meta, eventually, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    shutil.move(run / "config.json", base / "config.json")
    checkpoint = run / "checkpoint-2"
    mounted = mount(run.parent, f"store={store}")
    config = mounted / "weights/llama/checkpoint-2/config.json"
    assert not config.exists()
    meta("set", run, f"model={base}")
    eventually(config.exists)
    assert json.loads(config.read_text()) == json.loads((base / "config.json").read_text())
    assert str(base) in (config.parent / ".unshard/problems.txt").read_text()
    meta("unset", run, "model")
    eventually(lambda: not config.exists())
    assert meta("get", checkpoint, "model", check=False).returncode == 1


def test_a_directory_of_a_fact_exists_and_may_be_relative(run, store, meta, tmp_path):
    (tmp_path / "base").mkdir()
    relative = os.path.relpath(tmp_path / "base")
    refused = meta("set", run, f"model={relative}x", check=False)
    assert refused.returncode == 2 and f"model={relative}x: No such file or directory" in refused.stderr
    meta("set", run, f"model={relative}")
    assert json.loads(meta("get", run, "model").stdout) == str(tmp_path / "base")


@pytest.mark.parametrize("key,near", [("gradient_acumulation_steps", "gradient_accumulation_steps"), ("lora_alhpa", "lora_alpha"),
                                      ("train_batch_sise", "train_batch_size"), ("our_own_note", None), ("seed", "")])
def test_a_key_that_is_not_used_is_kept_and_said(run, store, meta, key, near):
    done = meta("set", run, f"{key}=7")
    assert facts(meta("list", run, "--json").stdout) == {key: 7}
    assert done.stdout == f"{key}=7\n"
    said = "" if near == "" else f"warning: {key} is kept, but unshard does not use this key{f'; did you mean {near}?' if near else ''}\n"
    assert done.stderr.endswith(said) and bool(done.stderr) == bool(said)


def test_facts_reach_trainer_state(run, mount, store, meta, eventually):
    (run / "checkpoint-2" / "trainer_state.json").unlink(missing_ok=True)
    mounted = mount(run.parent, f"store={store}")
    state = mounted / "full/llama/checkpoint-2/trainer_state.json"
    assert json.loads(state.read_text())["train_batch_size"] != 77
    meta("set", run, "train_batch_size=77", "save_steps=13")
    eventually(lambda: json.loads(state.read_text())["train_batch_size"] == 77)
    assert json.loads(state.read_text())["save_steps"] == 13


def by_name(member, protocol):
    """As enum.py of Python 3.11.2 has it; later versions call the class with the value."""
    return getattr, (type(member), member.name)


@pytest.mark.parametrize("members", ["by_value", "by_name"])
def test_imports_from_what_trainers_write(run, meta, made, tmp_path, monkeypatch, members):
    import torch
    from transformers import TrainingArguments
    from transformers.trainer_utils import IntervalStrategy, SaveStrategy
    from transformers.utils import ExplicitEnum
    if members == "by_name":
        monkeypatch.setattr(ExplicitEnum, "__reduce_ex__", by_name, raising=False)

    args = TrainingArguments(output_dir=str(tmp_path / "out"), per_device_train_batch_size=3,
                             logging_steps=5, save_steps=50, eval_steps=25, max_steps=200,
                             eval_strategy="steps", use_cpu=True)
    torch.save(args, tmp_path / "training_args.bin")
    (tmp_path / "training_args.json").write_text(args.to_json_string())
    wanted = {"per_device_train_batch_size": 3, "logging_steps": 5, "save_steps": 50,
              "eval_steps": 25, "max_steps": 200, "eval_strategy": "steps"}
    assert all(member.value == member.name.lower() for enum in (IntervalStrategy, SaveStrategy) for member in enum)
    for name in ("training_args.bin", "training_args.json"):
        checkpoint = tmp_path / name.replace(".", "-")
        checkpoint.mkdir()
        meta("import", checkpoint, tmp_path / name)
        got = facts(meta("list", checkpoint, "--json").stdout)
        assert wanted.items() <= got.items(), name

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    for _ in range(7):
        optimizer.step()
        scheduler.step()
    torch.save(scheduler.state_dict(), tmp_path / "scheduler.pt")
    before = int(time.time())
    meta("import", run, tmp_path / "scheduler.pt")
    assert facts(meta("list", run, "--json").stdout) == {"global_step": 7}
    listed = json.loads(meta("list", run, "--json").stdout)[0]
    assert listed["origin"] == f"imported from {tmp_path / 'scheduler.pt'}"
    assert before <= listed["time"] <= time.time()


def test_the_whole_store_as_json(run, meta, tmp_path):
    meta("set", run, "seed=1", "trial_name=a b")
    meta("set", run / "checkpoint-2", "global_step=2")
    meta("export", tmp_path / "all.json")
    other = tmp_path / "other.db"
    meta("import", tmp_path / "all.json", at=other)
    assert meta("export", at=other).stdout == (tmp_path / "all.json").read_text()


REFUSED = [
    (["set", "{run}", "global_step=abc"], "global_step takes an integer"),
    (["set", "{run}", "Nonsense=1"], "'Nonsense' is not a key"),
    (["set", "{run}", "global_step"], "KEY=VALUE is expected"),
    (["set", "{run}/gone", "seed=1"], "No such file or directory"),
    (["set", "{run}/config.json", "seed=1"], "is not a directory"),
    (["unset", "{run}", "seed"], "seed is not set for"),
    (["import", "{run}", "{run}/config.json"], "holds no facts about a training"),
    (["import", "{run}/config.json"], "not a file that `unshard meta export` wrote"),
    (["import", "{run}", "{run}/gone.json"], "No such file or directory"),
    (["rename", "{run}"], "usage: unshard meta"),
]


@pytest.mark.parametrize("args,sentence", REFUSED, ids=[s for _, s in REFUSED])
def test_what_cannot_be_done_is_said(run, meta, args, sentence):
    done = meta(*(a.format(run=run) for a in args), check=False)
    assert done.returncode == 2 and sentence in done.stderr


def test_a_path_of_the_mount_is_not_a_checkpoint(run, mount, store, meta):
    mounted = mount(run.parent, f"store={store}")
    done = meta("set", mounted / "weights/llama/checkpoint-2", "seed=1", check=False)
    assert done.returncode == 2 and "is in a mount" in done.stderr


# -- what can be wrong with the file --


def test_facts_of_many_programs_at_once_are_all_kept(run, store, meta):
    """In a store that is not there yet."""
    programs = [subprocess.Popen([UNSHARD, "meta", "set", run, f"k{i}={i}", "--store", store], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for i in range(24)]
    answers = [(p.communicate(), p.returncode) for p in programs]
    assert [answer for answer, code in answers if code] == []
    assert facts(meta("list", run, "--json").stdout) == {f"k{i}": i for i in range(24)}


def problems(mounted):
    return (mounted / ".unshard/problems.txt").read_text()


def test_locked(run, mount, store, meta):
    meta("set", run, "seed=1")
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        mounted = mount(run.parent, f"store={store}")
        serves(mounted)
        assert "another program keeps it locked" in problems(mounted)
        done = meta("set", run, "seed=2", check=False)
        assert done.returncode == 2 and "another program keeps it locked" in done.stderr
    assert facts(meta("list", run, "--json").stdout) == {"seed": 1}
    meta("set", run, "seed=2")


def test_read_only(run, mount, small, meta):
    store = small / "store.db"
    meta("set", run, "seed=1", at=store)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    mounted = mount(run.parent, f"store={store}")
    serves(mounted)
    assert facts(meta("list", run, "--json", at=store).stdout) == {"seed": 1}
    done = meta("set", run, "seed=2", at=store, check=False)
    assert done.returncode == 2 and "cannot be written: it is read-only" in done.stderr


def test_no_place_for_a_store(run, mount, small):
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    mounted = mount(run.parent, f"store={small / 'store.db'}")
    serves(mounted)
    assert "cannot be made: Read-only file system" in problems(mounted)


@pytest.mark.parametrize("home", ["absent", "read-only", "full"])
def test_a_home_where_nothing_can_be_written(home, run, small, command, tmp_path):
    """One sentence, once, with the path and what to do; everything else goes on."""
    place = Path("/proc/1/home") if home == "absent" else small
    if home == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    if home == "full":
        fill(small)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place)}
    mnt = tmp_path / "mnt"
    mnt.mkdir()

    def one_sentence(done):
        said = [line for line in done.stderr.splitlines() if "metadata store" in line]
        assert len(said) == 1, done.stderr
        assert f"{place}/.local/state/unshard/store.db" in said[0] and "--store FILE" in said[0]
        assert "XDG_STATE_HOME" in said[0]
        assert ("its disk is full" in said[0]) == (home == "full")

    env["XDG_RUNTIME_DIR"] = str(tmp_path)  # where what was said once is remembered
    one_sentence(command("ls", run, env=env))
    for args in (["ls", run], ["show", run / "checkpoint-2"], ["check", run], ["mount", run.parent, mnt]):
        assert "metadata store" not in command(*args, env=env).stderr
    try:
        serves(mnt)
    finally:
        command("umount", mnt)
    for args in (["meta", "set", run, "seed=1"], ["meta", "list", run], ["warm", run / "checkpoint-2"]):
        done = command(*args, env=env, check=False)
        one_sentence(done)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    there = {**env, "XDG_STATE_HOME": str(tmp_path / "state")}
    assert "metadata store" not in command("meta", "set", run, "seed=1", env=there).stderr


def test_full(run, mount, small, meta):
    store = small / "store.db"
    meta("set", run, "seed=1", at=store)
    fill(small)
    mounted = mount(run.parent, f"store={store}")
    serves(mounted)
    done = meta("set", run, "seed=2", at=store, check=False)
    assert done.returncode == 2 and "its disk is full" in done.stderr
    assert facts(meta("list", run, "--json", at=store).stdout) == {"seed": 1}
    (small / "filler").unlink()
    meta("set", run, "seed=2", at=store)
    assert facts(meta("list", run, "--json", at=store).stdout) == {"seed": 2}


@pytest.mark.sanitized
def test_damaged(run, mount, store, meta):
    meta("set", run, "seed=1")
    with open(store, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)
    damaged = store.read_bytes()
    mounted = mount(run.parent, f"store={store}")
    serves(mounted)
    aside = [p for p in store.parent.glob("store.db.corrupt-*") if p.name[-4:] not in ("-wal", "-shm")]
    assert len(aside) == 1 and aside[0].read_bytes() == damaged
    assert f"moved it to {aside[0]}" in problems(mounted)
    meta("set", run, "seed=3")
    assert facts(meta("list", run, "--json").stdout) == {"seed": 3}


def test_newer(run, mount, store, meta):
    meta("set", run, "seed=1")
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("PRAGMA user_version=99")
    before = store.read_bytes()
    mounted = mount(run.parent, f"store={store}")
    serves(mounted)
    assert "was written by a newer unshard (schema 99" in problems(mounted)
    done = meta("set", run, "seed=2", check=False)
    assert done.returncode == 2 and "newer unshard" in done.stderr
    assert store.read_bytes() == before

"""unshard mounts, stats, why, doctor, umount --all, ls --sort and --watch, and what monitoring reads."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import DEADLINE_S, LONGEST_S, ROOT, UNSHARD

GOLDEN = ROOT / "tests/golden"


@pytest.fixture
def run(tmp_path):
    return shutil.copytree(GOLDEN / "run", tmp_path / "runs/llama")


def read_all(folder):
    return sum(len(p.read_bytes()) for p in folder.rglob("*") if p.is_file())


# -- mounts, umount --all --

def test_mounts(command, run, mount):
    m = mount(run.parent)
    n = read_all(m / "weights/llama/checkpoint-2")
    one = next(x for x in json.loads(command("mounts", "--json", check=False).stdout) if x["mountpoint"] == str(m.path))
    assert (one["source"], one["state"], one["read_bytes"], one["errors"]) == (str(run.parent), "ok", n, 0)
    assert one["reads"] > 0 and one["started"] > 1.6e9
    row = next(x for x in command("mounts", check=False).stdout.splitlines() if x.startswith(f"{m.path} "))
    assert str(run.parent) in row and row.endswith("  ok")


def test_umount_all(run, tmp_path):
    """In a mount table of its own: other tests have mounts too."""
    script = f"""
        mkdir {tmp_path}/a {tmp_path}/b
        mount -t tmpfs none {tmp_path}/a && mkdir {tmp_path}/a/x
        {UNSHARD} mount {run} {tmp_path}/a/x -o settle=0 && {UNSHARD} mount {run} {tmp_path}/b -o settle=0 || exit 9
        {UNSHARD} umount --all; echo "status $?"
        {UNSHARD} mounts; {UNSHARD} umount --all; echo "status $?"
        {UNSHARD} umount --all {tmp_path}/b; echo "status $?"
    """
    done = subprocess.run(["unshare", "-m", "sh", "-c", "umount -a -l -t fuse.unshard; " + script], capture_output=True, text=True,
                          timeout=LONGEST_S)
    assert done.stdout.splitlines() == ["status 0", "nothing is mounted", "status 0", "status 2"], done.stderr


def test_a_mount_that_does_not_answer(command, run, mount, kill_daemon):
    m = mount(run)
    mnt = m.path
    kill_daemon(m)
    done = command("mounts", check=False)
    assert done.returncode == 1
    assert re.search(rf"^{mnt} .* no answer$", done.stdout, re.M)
    assert command("stats", mnt, "--once", check=False).returncode == 2


# -- stats, metrics --

def test_stats(command, run, mount):
    m = mount(run.parent)
    n = {view: read_all(m / view / "llama/checkpoint-2") for view in ("weights", "full")}
    stats = json.loads(command("stats", m.path, "--json").stdout)
    usage = {(u["view"], u["checkpoint"]): u for u in stats["usage"]}
    assert {view: usage[view, "llama/checkpoint-2"]["read_bytes"] for view in n} == n
    assert stats["read_bytes"] == sum(n.values()) and stats["read_p50_us"] <= stats["read_p99_us"] > 0
    assert all(u["slowest_us"] * u["reads"] >= u["read_us"] - u["reads"] for u in usage.values())
    text = command("stats", m / "weights/llama").stdout  # any path in it; no terminal: once
    assert re.search(r"^  full +llama/checkpoint-2 ", text, re.M) and "time of a read" in text and "\x1b" not in text
    assert command("stats", "/", check=False).returncode == 2


def test_usage_is_for_the_mounts_user_alone(run, mount):
    m = mount(run.parent)
    assert (m / ".unshard/usage.json").stat().st_mode & 0o777 == 0o400
    assert (m / ".unshard/metrics.prom").stat().st_mode & 0o777 == 0o444
    read_all(m / "weights")
    assert "llama" not in (m / ".unshard/metrics.prom").read_text()


def metrics(text):
    """-> {name: {labels: value}}, as Prometheus' text format is defined: each name has HELP and TYPE before."""
    kinds, values = {}, {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            assert what in ("HELP", "TYPE")
            if what == "TYPE":
                assert name not in kinds and rest in ("counter", "gauge", "histogram")
                kinds[name] = rest
            continue
        name, labels, value = re.fullmatch(r"([a-z_]+)(\{[^}]*\})? ([0-9.]+)", line).groups()
        family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in kinds else name
        assert kinds[family] != "counter" or name.endswith("_total"), name
        values.setdefault(name, {})[labels or ""] = float(value)
    return values


def test_metrics_follow_the_conventions(run, mount):
    m = mount(run.parent)
    n = read_all(m / "weights/llama/checkpoint-2")
    values = metrics((m / ".unshard/metrics.prom").read_text())
    assert values["unshard_view_read_bytes_total"] == {'{view="weights"}': n}
    assert values["unshard_read_bytes_total"][""] == n
    buckets = values["unshard_read_seconds_bucket"]
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets['{le="+Inf"}'] == values["unshard_read_seconds_count"][""] == values["unshard_reads_total"][""]
    bounds = [float(label[5:-2]) for label in buckets if "Inf" not in label]
    assert bounds == sorted(bounds) and bounds[0] == 8e-6
    assert values["unshard_read_seconds_sum"][""] < DEADLINE_S and list(values["unshard_build_info"].values()) == [1]


def test_the_dashboard_asks_for_metrics_that_exist(run, mount):
    m = mount(run.parent)
    read_all(m / "weights/llama")
    known = metrics((m / ".unshard/metrics.prom").read_text())
    board = json.loads((ROOT / "tools/monitoring/grafana.json").read_text())
    asked = {name for panel in board["panels"] for target in panel["targets"]
             for name in re.findall(r"unshard_\w+", target["expr"])}
    assert len(asked) > 8 and asked <= set(known)
    assert {i["name"] for i in board["__inputs"]} == {"DS_PROMETHEUS"}
    assert all(p["datasource"]["uid"] == "${DS_PROMETHEUS}" for p in board["panels"])
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])


# -- why --

def test_why_a_file_exists(command, run, mount):
    m = mount(run.parent)
    text = command("why", m / "weights/llama/checkpoint-2/model.safetensors").stdout
    for said in (r"view +weights\n", r"checkpoint +llama/checkpoint-2\n", r"format +hf_fsdp\n", r"note +config.json borrowed",
                 rf"bytes +5.1 kB of {run}/checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp\n", r"generation +[0-9a-f]{16}\n"):
        assert re.search(said, text), said
    text = command("why", m / "full/llama/checkpoint-2/scheduler.pt").stdout
    assert "passed through unchanged" in text and f"of {run}/checkpoint-2/scheduler.pt" in text
    command("meta", "set", run, "train_batch_size=4")
    try:
        said = command("why", m / "full/llama/checkpoint-2").stdout
        assert f"train_batch_size=4 (set by the user, for {run})" in said
    finally:
        command("meta", "unset", run, "train_batch_size")


@pytest.mark.parametrize("path, missing, because", [
    ("weights/llama/checkpoint-2/optimizer.pt", "weights/llama/checkpoint-2/optimizer.pt", "the view weights makes no optimizer.pt"),
    ("weights/llama/checkpoint-9/x/y", "weights/llama/checkpoint-9", "No such file or directory"),
    ("weightz/llama", "weightz", "view weightz: no such view"),
    ("adapter/llama/checkpoint-2/x", "adapter/llama/checkpoint-2", "checkpoint-2 holds no PEFT adapter"),
    ("world-4/llama/checkpoint-2", "world-4/llama/checkpoint-2", "is not a DeepSpeed ZeRO checkpoint"),
])
def test_why_a_path_does_not_exist(command, run, mount, path, missing, because):
    m = mount(run.parent)
    done = command("why", m / path, "-o", "settle=0", check=False)
    assert done.returncode == 1
    assert re.search(rf"missing +{missing}\n", done.stdout), done.stdout
    assert because in done.stdout and "there is" in done.stdout


def test_why_a_checkpoint_that_is_saved_is_hidden(command, run, mount):
    (run / "checkpoint-2/trainer_state.json").unlink()
    (run / "checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp").unlink()
    m = mount(run.parent, "settle=3600", changing=True)
    done = command("why", m / "weights/llama/checkpoint-2", "-o", "settle=3600", check=False)
    assert done.returncode == 1 and "still being saved" in done.stdout


def test_why_outside_a_mount(command, run):
    done = command("why", run, check=False)
    assert done.returncode == 2 and "is not in a mount of unshard" in done.stderr


# -- doctor --

def test_doctor(command):
    found = {x["check"]: x for x in json.loads(command("doctor", "--json").stdout)}
    assert {"/dev/fuse", "fusermount3", "allow_other", "open files", "read-ahead", "kernel", "Landlock", "container", "GPU",
            "store", "cache_dir", "log", "versions"} == set(found)
    assert found["/dev/fuse"]["state"] == "ok"
    assert all(x["mend"] for x in found.values() if x["state"] in ("worse", "problem") and x["check"] != "log")
    assert "mounts work" in command("doctor").stdout


def test_doctor_without_fuse(unprivileged, tmp_path):
    """An ordinary user for whom the device is closed, with few open files and no place to write."""
    os.chmod("/dev/fuse", 0o600)
    try:
        done = unprivileged("doctor", check=False)
    finally:
        os.chmod("/dev/fuse", 0o666)
    assert done.returncode == 1
    assert re.search(r"^problem +/dev/fuse +.*Permission denied", done.stdout, re.M)
    assert "chmod 666 /dev/fuse" in done.stdout or "--device /dev/fuse" in done.stdout
    assert "no mount is possible here yet" in done.stdout


# -- ls --

def test_ls_sorts(command, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(GOLDEN / "run", runs / "a")
    shutil.copytree(GOLDEN / "run/checkpoint-2", runs / "a/checkpoint-10")
    shutil.copytree(GOLDEN / "ranks/orig", runs / "b")
    (runs / "a/checkpoint-10/pytorch_model_fsdp_0/__0_0.distcp").unlink()

    def listed(*options):
        done = command("ls", runs, "--json", "-o", "settle=0,store=none", *options, check=False)
        return [Path(x["path"]).name for x in json.loads(done.stdout)]

    assert listed() == listed("--sort=path") == ["checkpoint-2", "checkpoint-10", "b"]
    assert listed("--sort=state")[0] == "checkpoint-10"
    sizes = [x["size_bytes"] for x in json.loads(command("ls", runs, "--json", "--sort", "size", "-o", "settle=0,store=none",
                                                         check=False).stdout)]
    assert sizes == sorted(sizes, reverse=True)
    assert command("ls", runs, "--sort=colour", check=False).returncode == 2


def test_ls_watch(run, tmp_path):
    """A checkpoint that comes later is listed without another command."""
    watch = subprocess.Popen([UNSHARD, "ls", run, "--watch=1", "-o", "settle=0,store=none"], stdout=subprocess.PIPE, text=True)
    try:
        while "checkpoint-2" not in watch.stdout.readline():
            pass
        shutil.copytree(run / "checkpoint-2", run / "checkpoint-4")
        while "checkpoint-4" not in watch.stdout.readline():
            pass
    finally:
        watch.kill()
        watch.wait()


# -- store --

def test_store(command, run, tmp_path):
    store, copy, moved = (tmp_path / name for name in ("store.db", "copy.db", "moved.db"))

    def told(*args, at=store, status=0):
        done = command("store", *args, "--store", at, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    command("meta", "set", run, "train_batch_size=4", "--store", store)
    command("ls", run, "--store", store, "-o", "settle=0")
    counts = json.loads(told("show", "--json"))
    assert (counts["path"], counts["facts"], counts["seals"]) == (str(store), 1, 0) and "cached_bytes" in counts
    assert "is whole" in told("verify")
    assert "0 pieces of cached metadata" in told("gc") and json.loads(told("show", "--json"))["cached"] == counts["cached"]
    told("export", copy)
    assert copy.stat().st_mode & 0o777 == 0o600 and json.loads(told("show", "--json", at=copy))["facts"] == 1
    assert "exists" in told("export", copy, status=2)
    assert "would be lost" in told("import", copy, status=2)
    command("meta", "unset", run, "train_batch_size", "--store", store)
    told("import", copy)
    assert command("meta", "get", run, "train_batch_size", "--store", store).stdout == "4\n"
    told("move", moved)
    assert not store.exists() and command("meta", "get", run, "train_batch_size", "--store", moved).stdout == "4\n"
    told("usage", status=2)


def test_a_damaged_store_is_found(command, run, tmp_path):
    store = tmp_path / "store.db"
    command("meta", "set", run, *(f"fact.{i}=\"{'x' * 400}\"" for i in range(300)), "--store", store)
    data = bytearray(store.read_bytes())
    for at in range(8 * 4096, len(data) - 4096, 8192):  # pages of facts
        data[at:at + 64] = bytes(64)
    store.write_bytes(data)
    done = command("store", "verify", "--store", store, check=False)
    assert done.returncode == 1 and "is whole" not in done.stdout
    assert "is damaged" in done.stderr or "began a new store" in done.stderr

"""`unshard export`: what a mount shows, as an ordinary directory, without /dev/fuse."""

import contextlib
import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from transformers import AutoModelForCausalLM

import trees
from conftest import LONGEST_S, ROOT, UNSHARD

sys.path[:0] = [str(Path(__file__).parent / "make"), str(ROOT / "tests/docs")]
import generate  # noqa: E402
import sparse_dcp  # noqa: E402

GOLDEN = ROOT / "tests/golden"
LISTED = ("weights", "weights-bf16", "weights-fp16", "weights-fp32", "full", "full-fsdp", "dcp", "universal")
PROBLEM = "UNSHARD_PROBLEM.txt"


def in_namespace(prepare, *command, **kwargs):
    """The command where `prepare`, a line of shell, has changed what is mounted; nothing of it is seen outside."""
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    return subprocess.run([*unshare, "sh", "-c", f'{prepare} && exec "$@"', "sh", *map(str, command)],
                          capture_output=True, text=True, timeout=LONGEST_S, **kwargs)


def export(source, out, *args, check=True):
    """Without /dev/fuse."""
    done = in_namespace("mount --bind /dev/null /dev/fuse", UNSHARD, "export", source, out, *args,
                        "-o", "settle=0,store=none")
    if check:
        assert done.returncode == 0, done.stderr
    return done


def content(top):
    """path -> kind, and bytes and time of a file."""
    top = Path(top)
    assert top.is_dir()
    out = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            out[name] = os.readlink(path)
        else:
            out[name] = (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else "directory"
    return out


def shown_as(folder, name):
    """What a view's directory has of the checkpoint `name`, which may be a file there; None = nothing to load."""
    at = folder / name
    if f"{name}.ckpt" in os.listdir(folder) and name not in os.listdir(folder):
        at = folder / f"{name}.ckpt"
        return {at.name: (at.read_bytes(), at.stat().st_mtime_ns)}
    if at.is_file():
        return {name: (at.read_bytes(), at.stat().st_mtime_ns)}
    if not at.is_dir() or (at / PROBLEM).exists():
        return None
    return content(at)


@pytest.mark.parametrize("sample", generate.SAMPLES, ids=lambda s: s.replace("/", "-"))
def test_every_view_of_every_format_is_the_mounts(mount, tmp_path, sample):
    source = GOLDEN / sample
    m = mount(source.parent, "store=none")
    exported = 0
    for view in (*LISTED, "world-1", "world-2", "world-3"):
        want = shown_as(m / view, source.name)
        done = export(source, tmp_path / view, "--view", view, check=False)
        if want is None:
            assert done.returncode == 1 and done.stderr.startswith("unshard: "), view
            assert not [p for p in tmp_path.iterdir() if p.name.startswith(f"{view}.") or p.name == view]
            continue
        assert done.returncode == 0, done.stderr
        assert content(tmp_path / view) == want, view
        exported += 1
    assert exported


@pytest.mark.parametrize("launch,case", [("t2", "untied-f1-bf16"), ("l2", "fsdp"), ("h2", "z3-bf16"),
                                         ("v2", "verl-f2"), ("d3", "hf"), ("a2", "f2")])
@pytest.mark.parametrize("view", ["weights", "full", "dcp", "universal", "world-3"])
def test_a_whole_run_is_the_mounts(made, mount, tmp_path, launch, case, view):
    source = made(launch, case) / "run"
    m = mount(source.parent, "store=none")
    shown = content(m / view / "run")
    hidden = [n.removesuffix(PROBLEM) for n in shown if n.endswith(PROBLEM)]
    want = {n: c for n, c in shown.items() if not any((n + "/").startswith(h) for h in hidden)}
    done = export(source, tmp_path / "out", "--view", view, "--json", check=False)
    told = json.loads(done.stdout)
    if told["exported"] is None:
        assert done.returncode == 1 and told["why"]
        return
    got = content(tmp_path / "out")
    assert {n: c for n, c in got.items() if c != "directory"} == {n: c for n, c in want.items() if c != "directory"}
    assert told["size_bytes"] == sum(len(c[0]) for c in got.values() if isinstance(c, tuple))
    assert told["files"] == sum(isinstance(c, tuple) for c in got.values())
    assert done.returncode == (1 if told["changes"] else 0)


def test_a_run_of_one_file_checkpoints_is_the_mounts(mount, tmp_path):
    run = tmp_path / "source/run"
    run.mkdir(parents=True)
    for name in "one.pt", "two.pth":
        torch.save({"model": {"w": torch.arange(6.0)}}, run / name)
    shown = content(mount(run.parent, "store=none") / "weights/run")
    assert {"one.pt/model.safetensors", "two.pth/model.safetensors"} <= set(shown)
    export(run, tmp_path / "out", "--view", "weights")
    got = content(tmp_path / "out")
    assert {n: c for n, c in got.items() if c != "directory"} == {n: c for n, c in shown.items() if c != "directory"}
    done = export(run, tmp_path / "full", "--view", "full", check=False)
    assert done.returncode == 1 and "the view full can show no checkpoint in it" in done.stderr


# -- the frameworks load it --

@pytest.mark.parametrize("launch,case", [("t2", "untied-f1-bf16"), ("t3", "tied-f2-fp32")])
def test_from_pretrained(made, tmp_path, launch, case):
    folder = made(launch, case)
    export(folder / "run/checkpoint-2", tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    live = trees.tensors(folder / "live-2.safetensors")
    trees.assert_same(model.state_dict(), {n: t for n, t in live.items() if ".extra_" not in n})


@pytest.mark.parametrize("launch,case", [("v2", "verl-f2"), ("v3", "verl-f1orig")])
def test_weights_of_rank_files(made, tmp_path, launch, case):
    folder = made(launch, case)
    export(folder / "run/global_step_2/actor", tmp_path / "out")
    trees.assert_same(trees.weights(tmp_path / "out"), trees.tensors(folder / "live/model.safetensors"))


@pytest.mark.parametrize("launch,case", [("d2", "fsdp2"), ("d4", "mesh2d")])
def test_torch_loads_what_was_saved(made, tmp_path, launch, case):
    folder = made(launch, case)
    checkpoint = next(p.parent for p in folder.rglob(".metadata"))
    export(checkpoint, tmp_path / "out", "--view", "dcp")
    for name in ("out", "source"):
        dcp_to_torch_save(tmp_path / "out" if name == "out" else checkpoint, tmp_path / f"{name}.pt")
    got, want = (torch.load(tmp_path / f"{name}.pt", weights_only=False) for name in ("out", "source"))
    assert str(got) == str(want)
    export(checkpoint, tmp_path / "weights")
    assert trees.weights(tmp_path / "weights")


def test_a_model_trained_with_deepspeed(made, tmp_path):
    folder = made("h2", "z3-bf16")
    checkpoint = sorted(p for p in folder.rglob("checkpoint-*") if p.is_dir())[-1]
    export(checkpoint, tmp_path / "out")
    export(checkpoint, tmp_path / "fp32", "--view", "weights-fp32")
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "fp32").state_dict()
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    want = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint))
    assert set(whole) == {n for n in want if ".extra_" not in n}
    for name, tensor in ((n, want[n]) for n in whole):
        assert torch.equal(whole[name], tensor), name
        assert torch.equal(half[name], tensor.to(half[name].dtype)), name


def test_a_lightning_checkpoint(made, tmp_path):
    """Its weights are a directory; all of it is one file, as Lightning saves it."""
    folder = made("l2", "fsdp")
    export(folder / "run/step=2.ckpt", tmp_path / "out")
    assert (tmp_path / "out/model.safetensors").exists() and trees.weights(tmp_path / "out")
    export(folder / "run/step=2.ckpt", tmp_path / "full", "--view", "full")
    assert os.listdir(tmp_path / "full") == ["step=2.ckpt"]
    assert torch.load(tmp_path / "full/step=2.ckpt", weights_only=False)["global_step"] == 2


@pytest.mark.parametrize("name", ["step=2", "step=2.x", "last"])
def test_a_lightning_directory_of_any_name(made, tmp_path, name):
    """The view's name of the one file is not SOURCE's: NAME.ckpt."""
    shutil.copytree(made("l2", "fsdp") / "run/step=2.ckpt", tmp_path / "run" / name)
    done = export(tmp_path / "run" / name, tmp_path / "full", "--view", "full", "--verify")
    assert os.listdir(tmp_path / "full") == [f"{name}.ckpt"]
    assert torch.load(tmp_path / f"full/{name}.ckpt", weights_only=False)["global_step"] == 2
    assert "1 checkpoint, 1 file" in done.stdout
    export(tmp_path / "run", tmp_path / "all", "--view", "full")
    assert [str(p.relative_to(tmp_path / "all")) for p in (tmp_path / "all").rglob("*") if p.is_file()] == [f"{name}.ckpt"]


# -- what is ended, and resumed --

@pytest.fixture
def model(tmp_path):
    """40 MB that 4 ranks saved, and what its export is."""
    torch.manual_seed(0)
    tensors = {f"layer.{i}.weight": torch.randn(1250, 1000).bfloat16() for i in range(16)}
    sys.path.insert(0, str(ROOT / "tests/bench"))
    import checkpoints
    checkpoints.write(tmp_path / "src/ckpt", tensors, 4)
    export(tmp_path / "src/ckpt", tmp_path / "want")
    trees.assert_same(trees.weights(tmp_path / "want"), tensors)
    return tmp_path / "src/ckpt"


def killed(faults, command, source, out, nth):
    """Just before the nth write."""
    with faults.armed("write", nth=nth, action="kill", path=f"{out}.partial"):
        done = command("export", source, out, "-o", "settle=0", check=False, env=faults.env)
    assert done.returncode == -9
    assert not out.exists()
    return Path(f"{out}.partial")


def test_a_killed_export_is_resumed(model, command, faults, tmp_path):
    out = tmp_path / "out"
    killed(faults, command, model, out, 12)
    done = export(model, out, check=False)
    assert done.returncode == 2 and "--resume" in done.stderr and not out.exists()
    told = json.loads(export(model, out, "--resume", "--json").stdout)
    assert 2 << 20 <= told["kept_bytes"] < told["size_bytes"]
    assert content(out) == content(tmp_path / "want")
    assert not Path(f"{out}.partial").exists()


def test_what_is_there_is_not_trusted(model, command, faults, tmp_path):
    out = tmp_path / "out"
    partial = killed(faults, command, model, out, 12) / "model.safetensors"
    size = partial.stat().st_size
    with open(partial, "r+b") as f:
        f.seek(100)
        f.write(b"\xff" * 1000)
        f.truncate(size + 4096)
    export(model, out, "--resume")
    assert content(out) == content(tmp_path / "want")


def test_what_is_of_another_export_is_not_touched(model, command, faults, tmp_path):
    out = tmp_path / "out"
    partial = killed(faults, command, model, out, 5)
    (partial / "mine.txt").write_text("mine")
    done = export(model, out, "--resume", check=False)
    assert done.returncode == 2 and f"{partial}/mine.txt" in done.stderr
    assert (partial / "mine.txt").read_text() == "mine" and not out.exists()


def test_resume_without_anything_to_resume_begins(model, tmp_path):
    told = json.loads(export(model, tmp_path / "out", "--resume", "--json").stdout)
    assert told["kept_bytes"] == 0
    assert content(tmp_path / "out") == content(tmp_path / "want")


def test_two_at_once(model, command, faults, tmp_path):
    """The second says so; what the first writes is not disturbed."""
    out = tmp_path / "out"
    with faults.armed("write", nth=3, action="hold", path=f"{out}.partial"):
        first = subprocess.Popen([UNSHARD, "export", model, out, "-o", "settle=0"], env=faults.env)
        while not faults.struck:
            assert first.poll() is None
        second = export(model, out, "--resume", check=False)
    assert first.wait(LONGEST_S) == 0
    assert second.returncode == 2 and "another export" in second.stderr
    assert content(out) == content(tmp_path / "want")


def test_it_can_write_nowhere_else(model, command, faults, tmp_path):
    """Landlock, which a process may only ask for once it cannot gain privileges (no_new_privs)."""
    out = tmp_path / "out"
    with faults.armed("write", nth=3, action="hold", path=f"{out}.partial"):
        writes = subprocess.Popen([UNSHARD, "export", model, out, "-o", "settle=0"], env=faults.env)
        while not faults.struck:
            assert writes.poll() is None
        assert "NoNewPrivs:\t1" in Path(f"/proc/{writes.pid}/status").read_text()
    assert writes.wait(LONGEST_S) == 0
    assert content(out) == content(tmp_path / "want")


def test_a_file_with_another_name_is_left_alone(model, command, faults, tmp_path):
    """`cp -al`: the other name may be SOURCE's."""
    out = tmp_path / "out"
    subprocess.run(["cp", "-al", tmp_path / "want", f"{out}.partial"], check=True)
    before = trees.fingerprint(tmp_path / "want")
    done = export(model, out, "--resume", "--view", "weights-fp32", check=False)
    assert done.returncode == 2 and "does not belong to this export" in done.stderr
    assert trees.fingerprint(tmp_path / "want") == before


def test_what_is_mounted_there_is_left_alone(model, tmp_path):
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    partial.mkdir()
    shutil.copytree(tmp_path / "want", tmp_path / "other")
    before = trees.fingerprint(tmp_path / "other")
    done = in_namespace(f"mount --bind {tmp_path / 'other'} {partial}", UNSHARD, "export", model, out, "--resume",
                        "--view", "weights-fp32", "-o", "settle=0,store=none")
    assert done.returncode == 2 and "does not belong to this export" in done.stderr
    assert trees.fingerprint(tmp_path / "other") == before


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_call_that_fails(model, command, faults, tmp_path, call):
    out = tmp_path / "out"
    with faults.armed(call, nth=1, error=errno.EIO, path=f"{out}.partial"):
        done = command("export", model, out, "-o", "settle=0", check=False, env=faults.env)
    assert done.returncode == 2 and os.strerror(errno.EIO) in done.stderr and str(out) in done.stderr
    assert not out.exists()
    export(model, out, "--resume", "--verify")
    assert content(out) == content(tmp_path / "want")


def test_a_full_disk_is_said_before_the_first_byte(model, tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    done = in_namespace(f"mount -t tmpfs -o size=8m none {room}", "sh", "-c",
                        f"{UNSHARD} export {model} {room}/out -o settle=0; echo $?; ls -A {room}")
    assert done.stdout == "2\n"
    assert "4000" in done.stderr and "bytes are to be written" in done.stderr


def test_a_terminal_shows_how_much_how_fast_and_for_how_long(model, faults, tmp_path):
    """From the first second on, which passes while a write is held."""
    out, (terminal, ours) = tmp_path / "out", os.openpty()
    with faults.armed("write", nth=3, action="hold", path=f"{out}.partial"):
        child = subprocess.Popen([UNSHARD, "export", model, out, "-o", "settle=0,store=none"], env=faults.env,
                                 stdout=subprocess.DEVNULL, stderr=ours)
        os.close(ours)
        while not faults.struck:
            assert child.poll() is None
        faults.pass_time(2)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while data := os.read(terminal, 4096):
            shown += data
    os.close(terminal)
    assert child.wait(LONGEST_S) == 0
    assert re.search(rb"\r\033\[Kwriting: [\d.]+ MB of 40.0 MB, [\d.]+ .?B/s, \d+:\d\d left", shown), shown
    assert shown.endswith(b"\r\033[K")
    assert content(out) == content(tmp_path / "want")


def test_sums_are_what_sha256sum_checks(model, tmp_path):
    export(model, tmp_path / "out", "--checksums", "--verify")
    listed = (tmp_path / "out/SHA256SUMS").read_text().splitlines()
    assert len(listed) == len(content(tmp_path / "want"))
    done = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=tmp_path / "out", capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# -- what is not exported --

def test_what_the_view_cannot_show_is_left_out_and_said(tmp_path):
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-4")
    os.truncate(run / "checkpoint-4/pytorch_model_fsdp_0/__1_0.distcp", 1000)
    done = export(run, tmp_path / "out", "--json", check=False)
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["checkpoints"] == 1
    assert [(c["path"], c["kind"]) for c in told["changes"]] == [("run/checkpoint-4", "left_out")]
    assert "__1_0.distcp" in told["changes"][0]["text"]
    assert (tmp_path / "out/checkpoint-2/model.safetensors").exists()
    assert not (tmp_path / "out/checkpoint-4").exists()
    done = export(run / "checkpoint-4", tmp_path / "one", check=False)
    assert done.returncode == 1 and "__1_0.distcp" in done.stderr
    assert not list(tmp_path.glob("one*"))


def test_links(tmp_path):
    run = shutil.copytree(GOLDEN / "run", tmp_path / "src/run")
    (tmp_path / "src/vocab.txt").write_text("outside of the run")
    (run / "latest").symlink_to("checkpoint-2")
    (run / "vocab.txt").symlink_to("../vocab.txt")
    export(run, tmp_path / "out")
    assert (tmp_path / "out/latest/model.safetensors").exists()
    assert os.readlink(tmp_path / "out/latest") == "checkpoint-2"
    shutil.rmtree(tmp_path / "src")
    assert (tmp_path / "out/vocab.txt").read_text() == "outside of the run"


@pytest.mark.parametrize("out,words", [("src/run/out", "never written to"), ("there", "not an empty directory"),
                                       ("no/such/out", "No such file")])
def test_no_place_for_it(tmp_path, out, words):
    shutil.copytree(GOLDEN / "run", tmp_path / "src/run")
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    before = trees.fingerprint(tmp_path)
    done = export(tmp_path / "src/run", tmp_path / out, check=False)
    assert done.returncode == 2 and words in done.stderr
    assert trees.fingerprint(tmp_path) == before


# -- memory --

def test_memory_is_that_of_the_metadata(tmp_path):
    """As many items as a 70B on 32 ranks has, in 550 MB: of what is written nothing stays in memory."""
    shapes = {name: (shape[0], *(max(1, n // 256) for n in shape[1:])) for name, shape in
              sparse_dcp.llama_70b().items()}
    assert sparse_dcp.write(tmp_path / "src/ckpt", shapes, 32) == 723 * 32
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run(["/usr/bin/env", "python3", "-c", """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)""", UNSHARD, "export", tmp_path / "src/ckpt", tmp_path / "out", "-o", "store=none,settle=0"],
                          capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    peak_kib = int(done.stdout.splitlines()[-1])
    assert peak_kib * 1024 < 100e6, f"{peak_kib * 1024 / 1e6:.0f} MB ({before})"


def test_a_link_as_new_directory_is_refused_at_once(command, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "out").symlink_to("empty")
    done = command("export", ROOT / "tests/golden/run/checkpoint-2", tmp_path / "out", check=False)
    assert done.returncode != 0
    assert "is a link" in done.stderr and not (tmp_path / "out.partial").exists()

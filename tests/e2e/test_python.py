"""The Python package: as it is installed, and against the frameworks' own loading."""

import collections
import copy
import ctypes
import dataclasses
import doctest
import errno
import gc
import importlib.util
import json
import os
import pickle
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import conftest
import trees
from conftest import LONGEST_S, ROOT, must_have_worked

sys.path.insert(0, str(ROOT / "tests/docs"))
import generate  # noqa: E402

GOLDEN = ROOT / "tests/golden"
LIBRARY = ROOT / "build/dev/lib/libunshard.so.0"  # this Python is not instrumented by sanitizers
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("UNSHARD_LIBRARY", str(LIBRARY))
import unshard  # noqa: E402
from unshard import _library as native  # noqa: E402

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}


@pytest.fixture
def run():
    with unshard.open(GOLDEN / "run", settle_seconds=0) as session:
        yield session


# -- the library's interface --

STRUCTS = {"error": native.ErrorStruct, "options": native.Options, "progress": native.Progress,
           "checkpoint": native.Checkpoint, "finding": native.Finding, "change": native.Change, "fact": native.Fact,
           "calls": native.Calls, "stat": native.Stat, "dirent": native.Dirent, "tensor": native.Tensor,
           "check_counts": native.CheckCounts, "exported": native.Exported, "device_options": native.DeviceOptions,
           "device_box": native.DeviceBox, "figures": native.Figures, "tensor_diff": native.TensorDiff,
           "group_diff": native.GroupDiff, "value_diff": native.ValueDiff, "diff_options": native.DiffOptions,
           "diff_counts": native.DiffCounts, "measure": native.Measure, "memo": native.Memo}


def test_structs_are_those_of_the_header(tmp_path):
    lines = [f'printf("{name}.{field} %zu %zu\\n", offsetof(struct unshard_{name}, {field}), '
             f"sizeof(((struct unshard_{name} *)0)->{field}));" for name, struct in STRUCTS.items()
             for field, _ in struct._fields_]
    lines += [f'printf("{name} %zu\\n", sizeof(struct unshard_{name}));' for name in STRUCTS]
    source = tmp_path / "structs.c"
    source.write_text('#include <stdio.h>\n#include "unshard.h"\nint main(void) {' + "\n".join(lines) + "return 0; }\n")
    subprocess.run(["cc", "-I", ROOT / "lib", source, "-o", tmp_path / "structs"], check=True)
    told = subprocess.run([tmp_path / "structs"], capture_output=True, text=True, check=True).stdout
    ours = [f"{name}.{f} {getattr(s, f).offset} {getattr(s, f).size}" for name, s in STRUCTS.items()
            for f, _ in s._fields_] + [f"{name} {ctypes.sizeof(s)}" for name, s in STRUCTS.items()]
    assert told.split("\n")[:-1] == ours


@pytest.mark.parametrize("name", ["", ".session", ".errors", ".differences", ".measures", ".loading", ".filesystem"])
def test_what_the_documentation_shows(monkeypatch, name):
    import fsspec
    module = importlib.import_module(f"unshard{name}")
    fsspec.register_implementation("unshard", "unshard.filesystem.UnshardFileSystem", clobber=True)
    monkeypatch.chdir(ROOT)
    done = doctest.testmod(module)
    assert done.attempted and not done.failed


def test_the_magnitudes_are_those_of_the_header():
    text = (ROOT / "lib/unshard.h").read_text()
    assert f"UNSHARD_MAGNITUDES = {native.MAGNITUDES}," in text and f"UNSHARD_LEAST_EXPONENT = {native.LEAST_EXPONENT}," in text


# -- a session --

def test_the_tree_is_the_mounts(run, mount):
    m = mount(GOLDEN / "run", "store=none")
    for view in ("weights", "full", "dcp"):
        top = m / view
        for folder, dirs, files in os.walk(top):
            path = os.path.relpath(folder, m.path)
            assert sorted(e.name for e in run.list(path)) == sorted(dirs + files)
            for name in files:
                want = Path(folder, name)
                st = run.stat(f"{path}/{name}")
                assert (st.size, st.mtime_ns, st.ino) == (want.stat().st_size, want.stat().st_mtime_ns,
                                                          want.stat().st_ino)
                assert run.read(f"{path}/{name}") == want.read_bytes()
                assert run.read(f"{path}/{name}", 3, 10) == want.read_bytes()[3:13]


def test_a_file_is_a_file(run, mount):
    with run.file("weights/checkpoint-2/model.safetensors") as f:
        data = f.read()
        f.seek(-5, os.SEEK_END)
        assert f.read() == data[-5:] and f.tell() == len(data)
        f.seek(8)
        buffer = bytearray(100)
        assert f.readinto(buffer) == 100 and bytes(buffer) == data[8:108]
        assert f.pread(10, len(data) - 3) == data[-3:] and f.pread(10, len(data)) == b""
        with pytest.raises(TypeError):
            f.preadinto(b"123", 0)
    with pytest.raises(ValueError):
        f.read()


def test_checkpoints_problems_facts_and_info(run, tmp_path):
    found, = run.checkpoints()
    assert (found.path, found.format, found.step, found.world_size, found.state) == ("checkpoint-2", "hf_fsdp", 2, 2,
                                                                                    "ok")
    assert run.info("checkpoint-2")["step"] == 2
    assert {t["role"] for t in run.info("checkpoint-2", "tensors")} >= {"weight", "exp_avg"}
    assert run.problems("checkpoint-2") == [] and run.check() == []
    with unshard.open(GOLDEN / "run", store=tmp_path / "store.db", settle_seconds=0) as session:
        session.set_fact("", "train_batch_size", 4)
        fact, = session.facts("checkpoint-2")
        assert (fact.key, fact.value, fact.subject) == ("train_batch_size", 4, str(GOLDEN / "run"))
        session.unset_fact("", "train_batch_size")
        assert session.facts("checkpoint-2") == []


def test_damage_is_named(copied):
    source = copied(GOLDEN / "run")
    shard = source / "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp"
    os.truncate(shard, 1000)
    with unshard.open(source, settle_seconds=0) as session:
        problem = next(p for p in session.problems("checkpoint-2") if p.file and p.file.endswith("__1_0.distcp"))
        assert (problem.severity, problem.scope, problem.code) == ("problem", "weights", -errno.EBADMSG)
        assert problem.text in [f.text for f in session.check()]
        with pytest.raises(unshard.Damaged, match="__1_0.distcp") as failed:
            session.tensors("checkpoint-2", "weights")
        assert failed.value.errno == errno.EBADMSG


@pytest.mark.parametrize("call,raised,words", [
    (lambda s: s.stat("weights/nothing"), unshard.NotFound, "nothing"),
    (lambda s: s.list("weigths"), unshard.NotFound, "view weigths: no such view"),
    (lambda s: s.read("weights/checkpoint-2"), unshard.Error, "is a directory"),
    (lambda s: s.tensors("checkpoint-2", "world-3"), unshard.NotSupported, "checkpoint-2"),
    (lambda s: s.tensors("checkpoint-2")["model.norm.weight"].read([0], [21]), unshard.Error, "the box"),
    (lambda s: s.facts("checkpoint-2"), FileNotFoundError, "store"),
    (lambda s: unshard.open("/no/such/source"), unshard.NotFound, "/no/such/source"),
    (lambda s: unshard.open("/", colour=1), TypeError, "colour"),
])
def test_errors_carry_the_sentence(run, call, raised, words):
    with pytest.raises(raised, match=words):
        call(run)


def test_a_callback_that_raises_ends_the_call(run):
    class Enough(Exception):
        pass

    def progress(_):
        raise Enough

    with pytest.raises(Enough):
        run.check(deep=True, progress=progress)
    assert run.check(deep=True) == []


def test_what_is_open_is_closed_with_the_session():
    session = unshard.open(GOLDEN / "run", settle_seconds=0)
    tensors, file = session.tensors("checkpoint-2"), session.file("weights/checkpoint-2/config.json")
    session.close()
    session.close()
    for use in (tensors["model.norm.weight"].read, file.readall, session.list):
        with pytest.raises(ValueError):
            use()
    del tensors, file, session
    gc.collect()


def test_the_gil_is_released():
    """Another thread runs while one waits in the library: no thread is made to let others run here, so that who kept
    the GIL would see nothing change meanwhile."""
    turns, changed, ended = [0], [], threading.Event()

    def read_until_it_changed():
        with unshard.open(GOLDEN / "run", settle_seconds=0, delay_read_us=50_000) as session:
            tensor = session.tensors("checkpoint-2", "weights")["model.norm.weight"]
            for _ in range(100):
                before = turns[0]
                tensor.read()
                if turns[0] != before:
                    changed.append(turns[0])
                    break
        ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        reader = threading.Thread(target=read_until_it_changed)
        reader.start()
        while not ended.is_set():
            turns[0] += 1
            time.sleep(0)
        reader.join(LONGEST_S)
    finally:
        sys.setswitchinterval(interval)
    assert changed


def test_export(run, tmp_path):
    seen = []
    made = run.export("checkpoint-2", tmp_path / "out", verify=True, checksums=True, progress=seen.append)
    assert made.files == 5 and made.left_out == [] and {p.phase for p in seen} >= {"writing", "reading"}
    assert (tmp_path / "out/model.safetensors").read_bytes() == (GOLDEN / "run.model.safetensors").read_bytes()
    with pytest.raises(unshard.Error, match="exists") as failed:
        run.export("checkpoint-2", tmp_path / "out")
    assert failed.value.errno == errno.EEXIST


def test_the_garbage_collector_may_end_things_in_any_order():
    """A session and what it opened in one circle of garbage: the library wants the session closed last."""
    for _ in range(50):
        session = unshard.open(GOLDEN / "run", settle_seconds=0)
        tensors, file = session.tensors("checkpoint-2"), session.file("weights/checkpoint-2/config.json")
        session.itself = [session, tensors, file]
        del session, tensors, file
        gc.collect()


def test_a_tensor_keeps_what_it_is_read_from():
    tensor = unshard.open(GOLDEN / "run", settle_seconds=0).tensors("checkpoint-2")["model.norm.weight"]
    gc.collect()
    assert len(tensor.read()) == tensor.size_bytes


# -- after a fork --

def in_a_child(work):
    """What `work()` does in a forked process, its garbage collected too, must raise nothing and end the process well."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_fork_does_not_touch_what_its_parent_opened():
    """A child has none of the library's threads: DataLoader's workers, subprocess with preexec_fn, multiprocessing."""
    session = unshard.open(GOLDEN / "run", settle_seconds=0)
    assert session.check(deep=True) == []  # threads were started
    tensors, file = session.tensors("checkpoint-2"), session.file("weights/checkpoint-2/config.json")
    tensor = tensors["model.norm.weight"]
    want = tensor.read()

    def refused():
        for use in (session.checkpoints, session.list, tensor.read, lambda: file.pread(1, 0)):
            with pytest.raises(ValueError, match=f"belongs to process {os.getppid()}"):
                use()

    def ended():
        nonlocal session, tensors, file, tensor
        del session, tensors, file, tensor

    def closed():
        file.close()
        tensors.close()
        session.close()

    def opened_anew():
        with unshard.open(GOLDEN / "run", settle_seconds=0) as own:
            assert own.check(deep=True) == [] and own.tensors("checkpoint-2")["model.norm.weight"].read() == want

    for work in (refused, ended, closed, opened_anew):
        in_a_child(work)
    assert tensor.read() == want and session.check(deep=True) == []


def test_tensors_that_are_read_when_asked_for_belong_to_the_process():
    """The parent has read one: its pool has threads, which the child lacks; the child must not wait for them."""
    lazy = unshard.load_file(GOLDEN / "run/checkpoint-2", lazy=True)
    kept = lazy["model.norm.weight"]
    with unshard.safe_open(GOLDEN / "run/checkpoint-2") as f:
        row = f.get_slice("model.embed_tokens.weight")
        f.get_tensor("model.norm.weight")

        def refused():
            signal.alarm(20)  # instead of for ever
            assert torch.equal(lazy["model.norm.weight"], kept)
            for use in (lambda: lazy["model.embed_tokens.weight"], lambda: f.get_tensor("model.embed_tokens.weight"), lambda: row[0]):
                with pytest.raises(ValueError, match=f"belongs to process {os.getppid()}"):
                    use()

        in_a_child(refused)


# -- tensors that are read when they are asked for --

COPIES = {"dict": dict, "unpacked": lambda lazy: {**lazy}, "arguments": lambda lazy: (lambda **names: names)(**lazy),
          "copy": copy.copy, "its copy": lambda lazy: lazy.copy(), "deepcopy": copy.deepcopy,
          "pickle": lambda lazy: pickle.loads(pickle.dumps(lazy)), "merged": lambda lazy: lazy | {},
          "merged into": lambda lazy: {} | lazy, "items": lambda lazy: dict(lazy.items()),
          "values": lambda lazy: dict(zip(lazy.keys(), lazy.values())), "update": lambda lazy: updated({}, lazy),
          "get": lambda lazy: {name: lazy.get(name) for name in lazy},
          "pop": lambda lazy: {name: lazy.pop(name) for name in list(lazy)},
          "popitem": lambda lazy: dict(lazy.popitem() for _ in range(len(lazy))),
          "setdefault": lambda lazy: {name: lazy.setdefault(name) for name in lazy},
          "ordered": collections.OrderedDict, "comprehension": lambda lazy: {**{k: v for k, v in lazy.items()}}}


def updated(target, source):
    target.update(source)
    return target


def saved(lazy, tmp_path):
    torch.save(lazy, tmp_path / "saved.pt")
    return torch.load(tmp_path / "saved.pt", weights_only=True)


@pytest.mark.parametrize("way", [*COPIES, "torch.save", "safetensors"])
def test_every_way_out_of_a_lazy_mapping_gives_tensors(tmp_path, way):
    checkpoint = GOLDEN / "run/checkpoint-2"
    want = unshard.load_file(checkpoint)
    lazy = unshard.load_file(checkpoint, lazy=True)
    assert isinstance(lazy, dict) and len(lazy) == len(want) and "model.norm.weight" in lazy and "x" not in lazy
    if way == "torch.save":
        got = saved(lazy, tmp_path)
    elif way == "safetensors":
        save_file(lazy, tmp_path / "saved.safetensors")
        got = load_file(tmp_path / "saved.safetensors")
    else:
        got = COPIES[way](lazy)
    assert type(got) in (dict, collections.OrderedDict)
    trees.assert_same(dict(got), want)


def test_a_lazy_mapping_says_what_it_is():
    lazy = unshard.load_file(GOLDEN / "run/checkpoint-2", lazy=True)
    n = len(lazy)
    assert repr(lazy) == str(lazy) == f"<{n} tensors by name, {n} of them not read yet: dict(...) of this reads all>"
    assert lazy["model.norm.weight"] is lazy["model.norm.weight"]
    assert f"{n - 1} of them" in repr(lazy) and lazy == lazy and lazy != dict(lazy)
    with pytest.raises(KeyError):
        lazy["x"]  # pylint: disable=pointless-statement
    lazy |= {"x": lazy["model.norm.weight"]}
    assert list(lazy)[-1] == "x" and lazy["x"] is lazy["model.norm.weight"]


# -- what is loaded, and what ends it --

def test_a_run_is_no_checkpoint_and_its_newest_is(tmp_path):
    run = shutil.copytree(GOLDEN / "run", tmp_path / "runs/run")
    with pytest.raises(unshard.NotFound, match=r"runs is not a checkpoint: load one of those below it "
                                               r"\(run/checkpoint-2\)"):
        unshard.load_file(tmp_path / "runs")
    for step in range(4, 18, 2):
        shutil.copytree(run / "checkpoint-2", run / f"checkpoint-{step}")
    with pytest.raises(unshard.NotFound, match=r"\(checkpoint-2, checkpoint-4, .*, checkpoint-10, and 3 more\)"):
        unshard.load_file(run)
    weight = "model.norm.weight"
    os.truncate(run / "checkpoint-16/pytorch_model_fsdp_0/__1_0.distcp", 10)
    want = unshard.load_file(run / "checkpoint-14")
    trees.assert_same(unshard.load_file(run / "latest"), want)
    with unshard.safe_open(run / "latest") as f:
        assert torch.equal(f.get_tensor(weight), want[weight])
    assert dict(unshard.iterate(run / "latest")).keys() == want.keys()
    with pytest.raises(FileNotFoundError):
        unshard.load_file(tmp_path / "runs/latest")
    (run / "latest").symlink_to("checkpoint-16")
    with pytest.raises(unshard.Damaged):
        unshard.load_file(run / "latest")


@pytest.mark.parametrize("raised", [OSError, KeyboardInterrupt])
def test_a_read_that_fails_is_the_last_that_begins(monkeypatch, raised):
    """Reads that were queued are not waited for: of a large model they take seconds."""
    from unshard import loading
    begun, go = [], threading.Event()

    def read(out, at, part):
        begun.append(part)
        if len(begun) == 1:
            raise raised("the storage failed")
        go.wait()

    monkeypatch.setattr(loading, "read_into", read)
    monkeypatch.setattr(loading, "PART_BYTES", 64)
    with pytest.raises(raised, match="the storage failed"):
        unshard.load_file(GOLDEN / "run/checkpoint-2", threads=4)
    go.set()
    assert len(begun) < 20  # of 2,000


def test_ctrl_c_ends_a_load(tmp_path):
    """While threads wait for storage. Ends by the signal, not by what was queued: 1,000 reads of a second each."""
    program = (f"import threading, time, unshard, unshard.loading as l\n"
               f"l.PART_BYTES = 64\n"
               f"def reads():\n"
               f"    while threading.active_count() < 6: time.sleep(0.01)\n"  # the main one, this one and the four
               f"    print('reads', flush=True)\n"
               f"threading.Thread(target=reads, daemon=True).start()\n"
               f"try: unshard.load_file({str(GOLDEN / 'run/checkpoint-2')!r}, threads=4, delay_read_us=1000000)\n"
               f"except KeyboardInterrupt: print('ended', flush=True)")
    with subprocess.Popen([sys.executable, "-c", program], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "reads\n"
        time.sleep(1)  # all of it takes minutes
        p.send_signal(signal.SIGINT)
        assert p.communicate(timeout=LONGEST_S)[0] == "ended\n"


def test_check_of_the_package(tmp_path):
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    assert unshard.check(run) == []
    (run / "checkpoint-2/scheduler.pt").unlink()
    [finding] = unshard.check(run, settle_seconds=0)
    assert (finding.path, finding.id, finding.severity) == ("checkpoint-2", "scheduler_missing", "problem")
    (run / "checkpoint-2/trainer_state.json").unlink()
    for wait in (0, 0.1):
        [finding] = unshard.check(run, settle_seconds=3600, wait=wait)
        assert (finding.id, finding.severity) == ("still_saving", "not judged")
    assert "trainer_state_missing" in [f.id for f in unshard.check(run, settle_seconds=1, wait=None)]


def test_measure_has_what_the_command_prints(command, tmp_path):
    """Of all kinds of tensors: sharded, experts of one tensor, moments with and without a rule, one that cannot be read."""
    fused = tmp_path / "fused"
    fused.mkdir()
    save_file({"m.0.mlp.experts.up": torch.tensor([[[1.0, -2.0], [0.0, 0.0]], [[torch.nan, torch.inf], [2.0**-90, 2.0**20]]])},
              fused / "model.safetensors")
    damaged = shutil.copytree(GOLDEN / "run/checkpoint-2", tmp_path / "run/checkpoint-2")
    (damaged / "optimizer_0/__1_0.distcp").unlink()
    for path in (GOLDEN / "zero/z2_w3/global_step2", fused, damaged):
        shown = json.loads(command("show", path, "--values", "--json", "-o", "settle=0,store=none", check=False).stdout)["values"]
        found = unshard.measure(path)
        assert len(found) == len(shown) > 0
        for m, want in zip(found, shown):
            got = dataclasses.asdict(m) | (dataclasses.asdict(m.values) if m.values else {})
            if m.values:
                first, *counts = want.pop("magnitudes") or [0]
                assert got.pop("magnitudes") == {first + i: n for i, n in enumerate(counts) if n}
            del got["values"]
            got.pop("magnitudes", None)
            assert got == {**want, "shape": tuple(want["shape"])}
    assert any(m.why for m in found) and not all(m.why for m in found)


def test_measure_of_a_runs_newest_and_what_ends_it():
    assert unshard.measure(GOLDEN / "run/latest") == unshard.measure(GOLDEN / "run/checkpoint-2")
    seen = []
    unshard.measure(GOLDEN / "run/checkpoint-2", progress=seen.append)
    # One thread reports at a time, and what another one has done meanwhile is in the next report, if there is one.
    assert seen and {p.phase for p in seen} == {"reading"} and all(0 < p.done_bytes <= p.total_bytes for p in seen)
    with pytest.raises(unshard.NotFound, match="is not a checkpoint"):
        unshard.measure(GOLDEN)

    def stop(_):
        raise KeyError("stop")
    with pytest.raises(KeyError, match="stop"):
        unshard.measure(GOLDEN / "run/checkpoint-2", progress=stop)


def test_numbers_and_names_that_c_would_cut(run, tmp_path):
    tensor = run.tensors("checkpoint-2")["model.embed_tokens.weight"]
    for bad in ([1 << 64, 0], [-1, 0], [(1 << 64) + 1, 0]):
        with pytest.raises(ValueError, match="is not a number from 0 to"):
            tensor.read(bad, [1, 1])
    with pytest.raises(ValueError, match="1 numbers for 2 dimensions"):
        tensor.read([0], [1])
    with run.file("weights/checkpoint-2/model.safetensors") as f:
        for bad in (1 << 64, -1):
            with pytest.raises(ValueError, match="is not a number from 0 to"):
                f.preadinto(bytearray(4), bad)
    for use in (run.stat, run.list, run.file, run.info, run.problems, run.check, run.tensors):
        with pytest.raises(ValueError, match="embedded null byte"):
            use("weights\0/checkpoint-2")
    with pytest.raises(ValueError, match="embedded null byte"):
        run.export("checkpoint-2", tmp_path / "out\0side")
    with pytest.raises(ValueError, match="embedded null byte"):
        unshard.open(f"{GOLDEN}/run\0/nowhere")
    for name, value in (("mem_bytes", -1), ("settle_seconds", 1 << 32), ("mem_bytes", 1 << 64)):
        with pytest.raises(ValueError, match=f"{name}={value} is out of range"):
            unshard.open(GOLDEN / "run", **{name: value})


def test_a_bool_is_no_row():
    with unshard.safe_open(GOLDEN / "run/checkpoint-2") as f:
        whole, part = f.get_tensor("model.embed_tokens.weight"), f.get_slice("model.embed_tokens.weight")
        for index in (True, False, (True, 0), (slice(0, 2), True)):
            assert torch.equal(part[index], whole[index]), index


class Wrapped(torch.Tensor):
    """Keeps its elements elsewhere: its own address is 0."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(args[0].inner.detach()) if "detach" in str(func) else NotImplemented


@pytest.mark.parametrize("what", ["tied", "transposed", "int view", "shifted", "wrapped", "meta"])
def test_a_missing_name_is_filled_from_the_same_memory_alone(tmp_path, what):
    from safetensors.torch import save_file
    here = tmp_path / "model"
    here.mkdir()
    weight = torch.arange(9.0).reshape(3, 3)
    save_file({"a": weight}, here / "model.safetensors")
    (here / "config.json").write_text("{}")
    both = torch.zeros(12)
    own = {"tied": (both[:9].view(3, 3),) * 2, "transposed": (both[:9].view(3, 3), both[:9].view(3, 3).t()),
           "int view": (both[:9].view(3, 3), both[:9].view(3, 3).view(torch.int32)),
           "shifted": (both[:9].view(3, 3), both[3:].view(3, 3)),
           "wrapped": (Wrapped(torch.zeros(3, 3)), Wrapped(torch.zeros(3, 3))),
           "meta": (torch.zeros(3, 3, device="meta"), torch.zeros(3, 3, device="meta"))}[what]

    class Model(torch.nn.Module):
        def state_dict(self, *_, **__):
            return dict(zip("ab", own))

        def load_state_dict(self, found, strict=True, assign=False):
            self.found = found

    model = Model()
    unshard.load_state_dict(model, here)
    assert set(model.found) == ({"a", "b"} if what == "tied" else {"a"})


def test_fsspec_goes_on_in_a_fork():
    from unshard.filesystem import UnshardFileSystem
    fs = UnshardFileSystem(GOLDEN)
    path = "weights/run/checkpoint-2/model.safetensors"
    want = fs.cat_file(path)

    def read():
        assert fs.cat_file(path) == want

    in_a_child(read)
    in_a_child(UnshardFileSystem.clear_instance_cache)
    assert fs.cat_file(path) == want


# -- tensors --

SOURCES = [("t2", "untied-f1-bf16", "run/checkpoint-2"), ("t3", "tied-f2-fp32", "run/checkpoint-2"),
           ("v3", "verl-f2", "run/global_step_2/actor"), ("d2", "zstd-bf16", "run"), ("h2", "z3-bf16", "run"),
           ("l2", "fsdp", "run")]


def newest_of(top):
    with unshard.open(top, settle_seconds=0) as session:
        return top / session.checkpoints()[-1].path


def checkpoint_of(made, launch, case, path):
    return newest_of(made(launch, case) / path)


@pytest.mark.parametrize("sample", generate.SAMPLES, ids=lambda s: s.replace("/", "-"))
@pytest.mark.parametrize("view", ["weights", "weights-bf16"])
def test_load_file_of_every_format(tmp_path, sample, view):
    checkpoint = GOLDEN / sample
    with unshard.open(checkpoint.parent, settle_seconds=0) as session:
        session.export(checkpoint.name, tmp_path / "out", view)
    want = {}
    for file in (tmp_path / "out").glob("*.safetensors"):
        want |= load_file(file)
    assert want
    trees.assert_same(unshard.load_file(checkpoint, view), want)
    trees.assert_same(dict(unshard.load_file(checkpoint, view, lazy=True).items()), want)


@pytest.mark.parametrize("launch,case,path", SOURCES)
@pytest.mark.parametrize("view", ["weights", "weights-fp16"])
def test_load_file_is_what_safetensors_loads(made, mount, launch, case, path, view):
    checkpoint = checkpoint_of(made, launch, case, path)
    m = mount(checkpoint.parent, "store=none")
    want = trees.weights(m / view / checkpoint.name.removesuffix(".ckpt"))
    trees.assert_same(unshard.load_file(checkpoint, view), want)
    lazy = unshard.load_file(checkpoint, view, lazy=True)
    trees.assert_same({name: lazy[name] for name in lazy}, want)
    assert sorted(dict(lazy.items())) == sorted(want)


def test_safe_open_is_safetensors(made):
    folder = made("t2", "untied-f1-bf16")
    with unshard.safe_open(folder / "run/checkpoint-2") as got, \
            safe_open(folder / "pretrained-2/model.safetensors", framework="pt") as want:
        assert sorted(got.keys()) == sorted(want.keys()) and got.metadata() == want.metadata()
        for name in want.keys():
            a, b = got.get_slice(name), want.get_slice(name)
            assert a.get_shape() == b.get_shape() and a.get_dtype() == b.get_dtype()
            assert torch.equal(got.get_tensor(name), want.get_tensor(name))
            whole = want.get_tensor(name)
            for index in [] if not whole.dim() else [slice(1, 3), slice(None), slice(-4, -1), 0, -1, slice(5, 2), slice(None, None, 2)]:
                assert torch.equal(a[index], whole[index]), (name, index)
            if whole.dim() == 2:
                for index in [(slice(1, 3), slice(2, 9)), (slice(None), 3), (-1, slice(4)), (2, 2)]:
                    assert torch.equal(a[index], whole[index]), (name, index)
            with pytest.raises(IndexError):
                a[whole.shape[0] if whole.dim() else 0]


def test_load_state_dict(made):
    for launch, case in (("t3", "tied-f2-fp32"), ("h2", "z3-bf16")):
        checkpoint = checkpoint_of(made, launch, case, "run")
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint.parent if not (
            checkpoint / "config.json").exists() else checkpoint))
        found = unshard.load_file(checkpoint)
        told = unshard.load_state_dict(model, checkpoint, strict=False)
        assert not told.missing_keys
        for name, tensor in model.state_dict().items():
            if name in found:
                assert torch.equal(tensor, found[name].to(tensor.dtype)), name


@pytest.mark.parametrize("world,prefix", [(2, ""), (3, "model.")])
def test_dcp_loads_on_any_number_of_ranks(made, world, prefix):
    files = [(made(launch, case) / path, made(launch, case) / live) for launch, case, path, live in (
        ("e2", "z3-bf16", "run", "live.safetensors"), ("v2", "verl-f2", "run/global_step_2/actor", "live/model.safetensors"),
        ("t2", "untied-f1-bf16", "run", "live-2.safetensors"), ("l2", "fsdp", "run", "live.safetensors"))]
    files.append((GOLDEN / "dcp/megatron", GOLDEN / "dcp/megatron/live.safetensors"))
    conftest.launch("load_by_reader.py", world, prefix, [p for top, live in files for p in (newest_of(top), live)],
                    UNSHARD_LIBRARY=os.environ["UNSHARD_LIBRARY"])


def test_fsspec_reads_a_view(made):
    from unshard.filesystem import UnshardFileSystem
    folder = made("t2", "untied-f1-bf16")
    fs = UnshardFileSystem()
    top = f"unshard://weights{folder}/run/checkpoint-2"
    assert sorted(os.path.basename(p) for p in fs.ls(top, detail=False)) == ["config.json", "model.safetensors"]
    want = (folder / "pretrained-2/model.safetensors").read_bytes()
    assert fs.cat_file(f"{top}/model.safetensors") == want and fs.size(f"{top}/model.safetensors") == len(want)
    assert fs.cat_file(f"{top}/model.safetensors", 10, 20) == want[10:20]
    with fs.open(f"{top}/model.safetensors", block_size=1000) as f:
        f.seek(500)
        assert f.read(5000) == want[500:5500]
    assert fs.isdir(top) and not fs.exists(f"{top}/nothing")
    with pytest.raises(OSError):
        fs.open(f"{top}/new", "wb")


def test_programs_that_take_any_fsspec_url(made, tmp_path):
    """torch's own reader of distributed checkpoints; a copy to another file system."""
    import fsspec
    import fsspec.generic
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

    from unshard.filesystem import UnshardFileSystem
    fsspec.register_implementation("unshard", UnshardFileSystem, clobber=True)
    folder = made("t2", "untied-f1-bf16")
    want = load_file(folder / "pretrained-2/model.safetensors")
    state = {"model": {name: torch.zeros_like(t) for name, t in want.items()}}
    dcp.load(state, no_dist=True, storage_reader=FsspecReader(
        f"unshard://dcp{folder}/run/checkpoint-2/pytorch_model_fsdp_0"))
    trees.assert_same(state["model"], want)
    source, path = fsspec.core.url_to_fs(f"unshard://weights{folder}/run/checkpoint-2")
    source.get(path, str(tmp_path / "copy"), recursive=True)
    trees.assert_same(trees.weights(tmp_path / "copy"), want)
    fsspec.generic.rsync(f"unshard://weights{folder}/run/checkpoint-2", "memory://bucket/model")
    memory = fsspec.filesystem("memory")
    assert memory.cat_file("/bucket/model/model.safetensors") == (folder / "pretrained-2/model.safetensors").read_bytes()


# -- as it is installed --

CLEAN = """
import sys, unshard
with unshard.open(sys.argv[1], settle_seconds=0) as session:
    assert [c.path for c in session.checkpoints()] == ["checkpoint-2"]
    data = session.read("weights/checkpoint-2/model.safetensors")
assert data == open(sys.argv[2], "rb").read()
assert not {"torch", "numpy", "fsspec"} & set(sys.modules)
print(unshard.__file__)
"""

BY_URL = """
import sys
sys.path.append(sys.argv[1])
import fsspec
with fsspec.open(f"unshard://weights{sys.argv[2]}/checkpoint-2/model.safetensors") as f:
    assert f.read() == open(sys.argv[3], "rb").read()
"""


def archive_of(folder):
    """The clone as `python -m build` packs it, before it builds the wheel from that."""
    import build_backend
    return folder / build_backend.build_sdist(folder)


@pytest.mark.parametrize("cmake, needs, passes", [
    ("echo cmake version 3.20.0", [], False),
    ('[ -z "$PYTHONPATH" ] && echo cmake version 4.4.4', [], False),  # pip's, outside the build's environment
    ('[ -n "$PYTHONPATH" ] && echo cmake version 4.4.4', [], True),  # pip's, inside it
    ("echo cmake version 3.18.4", ["cmake>=3.20", "ninja"], None),  # Debian 11's
    ("exit 1", ["cmake>=3.20", "ninja"], None),
    (None, ["cmake>=3.20", "ninja"], None),
])
def test_the_cmake_that_runs_is_called_and_else_asked_for(tmp_path, monkeypatch, cmake, needs, passes):
    monkeypatch.syspath_prepend(ROOT / "python")
    import build_backend
    if cmake:
        (tmp_path / "cmake").write_text(f"#!/bin/sh\n{cmake}\n")
        (tmp_path / "cmake").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/of/the/build")
    assert build_backend.get_requires_for_build_wheel() == needs
    assert passes is None or ("PYTHONPATH" in build_backend.environment()) == passes


@pytest.mark.long
@pytest.mark.parametrize("source", [pytest.param(lambda _: ROOT, id="clone"), pytest.param(archive_of, id="archive")])
def test_the_wheel_in_a_clean_environment(tmp_path, source):
    """Built by pip; installed and used without a compiler, a package index or the library's packages."""
    must_have_worked(subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "-w", tmp_path,
                                     source(tmp_path)], capture_output=True, text=True, timeout=LONGEST_S))
    wheel, = tmp_path.glob("*.whl")
    oldest_glibc, = re.fullmatch(r"unshard-[\d.]+-py3-none-manylinux_2_(\d+)_\w+\.whl", wheel.name).groups()
    with zipfile.ZipFile(wheel) as packed:  # the same sources are the same bytes at any time
        assert {entry.date_time for entry in packed.infolist()} == {(2020, 1, 1, 0, 0, 0)}
    if platform.libc_ver()[1] == "2.36":  # Debian 12
        assert oldest_glibc == "34"  # docs/python.md, tools/packages.sh
    must_have_worked(subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], capture_output=True, text=True,
                                    timeout=LONGEST_S))
    clean = {"PATH": str(tmp_path / "venv/bin"), "HOME": str(tmp_path)}

    def run(*command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=LONGEST_S, env=clean)
        must_have_worked(done)
        return done.stdout

    run("pip", "install", "--no-index", wheel)
    told = run("python", "-c", CLEAN, GOLDEN / "run", GOLDEN / "run.model.safetensors")
    assert told.startswith(str(tmp_path / "venv")) and Path(told.strip()).with_name("py.typed").exists()
    run("python", "-c", BY_URL, Path(importlib.util.find_spec("fsspec").origin).parents[1], GOLDEN / "run",
        GOLDEN / "run.model.safetensors")
    version = run("unshard", "--version")
    assert version == run("python", "-m", "unshard", "--version") and version.startswith("unshard ")
    run("unshard", "export", GOLDEN / "run/checkpoint-2", tmp_path / "out", "-o", "settle=0,store=none")
    assert (tmp_path / "out/model.safetensors").read_bytes() == (GOLDEN / "run.model.safetensors").read_bytes()
    inside = next((tmp_path / "venv").rglob("libunshard.so.0")).parent
    needed = subprocess.run(["ldd", inside / "libunshard.so.0", inside / "unshard"], capture_output=True, text=True).stdout
    assert "libfuse3.so" in needed  # the command mounts without the system's
    for name, path in re.findall(r"(\S+) => (\S+)", needed):
        assert str(tmp_path) in path or re.match(r"lib(c|m|pthread|dl)\.so", name), needed


def test_the_types_that_are_declared_hold(tmp_path):
    """py.typed promises them to whoever checks a program of theirs."""
    must_have_worked(subprocess.run(
        [sys.executable, "-m", "mypy", "--no-site-packages", "--ignore-missing-imports", "--cache-dir", tmp_path,
         ROOT / "python/unshard"], capture_output=True, text=True, timeout=LONGEST_S))


def test_the_source_archive_holds_what_a_build_needs(tmp_path):
    import tarfile
    with tarfile.open(archive_of(tmp_path)) as archive:
        inside = {n.split("/", 1)[1] for n in archive.getnames()}
    assert {"pyproject.toml", "CMakeLists.txt", "lib/unshard.h", "python/build_backend.py", "PKG-INFO"} <= inside



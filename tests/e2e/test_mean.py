"""The view mean-K: checkpoints of a run averaged, against torch: added in fp64, divided, rounded once, to the bit."""

import errno
import json
import math
import os
import shutil
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import AutoModelForCausalLM

import conftest
import trees

sys.path[:0] = [str(conftest.MAKE), str(conftest.ROOT / "python")]
os.environ.setdefault("UNSHARD_LIBRARY", str(conftest.ROOT / "build/dev/lib/libunshard.so.0"))
import peft_models  # noqa: E402
import unshard  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def model_at(step, dtype=torch.float32):
    model = peft_models.base().to(dtype)
    torch.manual_seed(step)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * 10.0 ** (step % 5 - 2))
    return model


def save_dcp(where, model, extra=None):
    dcp.save({"model": {**model.state_dict(), **(extra or {})}}, checkpoint_id=where / "pytorch_model_fsdp_0", no_dist=True)
    model.config.save_pretrained(where)


def mean(models):
    """Oldest first."""
    out = {}
    for name, last in models[-1].items():
        if not last.is_floating_point():
            out[name] = last
            continue
        total = torch.zeros(last.shape, dtype=torch.float64)
        for m in models:
            total += m[name].double()
        out[name] = trees.rounded(total / len(models), last.dtype)
    return out


@pytest.fixture
def run(tmp_path):
    """Four checkpoints; names whose order is not that of text."""
    for step in (8, 9, 10, 11):
        save_dcp(tmp_path / f"runs/run/checkpoint-{step}", model_at(step))
    return tmp_path / "runs/run"


def of_steps(*steps, dtype=torch.float32):
    return mean([model_at(s, dtype).state_dict() for s in steps])


def test_distributed_checkpoints_in_transformers(mount, run):
    m = mount(run.parent)
    assert not [name for name in os.listdir(m) if name.startswith("mean")]
    want = of_steps(8, 9, 10)
    trees.assert_same(trees.weights(m / "mean-3/run/checkpoint-10"), want)
    model, said = AutoModelForCausalLM.from_pretrained(m / "mean-3/run/checkpoint-10", output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    trees.assert_same(model.state_dict(), want)
    assert os.readlink(m / "mean-2/run/latest") == "checkpoint-11"
    trees.assert_same(trees.weights(m / "mean-2/run/latest"), of_steps(10, 11))
    trees.assert_same(trees.weights(m / "weights/run/checkpoint-10"), model_at(10).state_dict())


def test_a_slice_is_computed_alone(mount, run):
    with safe_open(mount(run.parent) / "mean-4/run/checkpoint-11/model.safetensors", framework="pt") as f:
        name = "model.layers.1.mlp.down_proj.weight"
        assert torch.equal(f.get_slice(name)[5:9, 7:20], of_steps(8, 9, 10, 11)[name][5:9, 7:20])


def cause(command, checkpoint, k=3, state="none"):
    """Why `show` says that there is no such view."""
    said = json.loads(command("show", checkpoint, "--json", "-o", f"view=mean-{k}", "-o", "settle=0", check=False).stdout)
    view = said["info"]["views"][f"mean-{k}"]
    assert view["state"] == state and view["why_id"] == "not_averaged", view
    return view["why"]


def test_what_cannot_be_averaged_is_refused_by_name(command, mount, run):
    last = run / "checkpoint-11"
    view = json.loads(command("show", last, "--json", "-o", "view=mean-3").stdout)["info"]["views"]["mean-3"]
    assert view["state"] == "ok" and "from_pretrained" in view["usage"]
    assert "21 tensors are computed when they are read: in all, 3.00 bytes are read for each byte shown" in view["notes"]
    assert "the run has 4 up to this one" in cause(command, last, 5)
    assert "the run has 2 up to this one" in cause(command, run / "checkpoint-9")
    for change, words in [
            ({"extra": torch.zeros(3)}, "it has 22 tensors, and the last checkpoint 21"),
            ({"model.norm.weight": torch.zeros(25)}, "model.norm.weight has shape [24] in the last checkpoint, and [25] here"),
            ({"model.norm.weight": torch.zeros(24).bfloat16()}, "model.norm.weight has dtype float32 in the last checkpoint, and "
                                                                "bfloat16 here")]:
        save_dcp(run / "checkpoint-10", model_at(10), change)
        assert f"checkpoint-10: {words}" in cause(command, last)
    save_dcp(run / "checkpoint-10", model_at(10))
    os.rename(run / "checkpoint-10/pytorch_model_fsdp_0", run / "checkpoint-10/away")
    assert "checkpoint-10: it is no checkpoint of the format" in cause(command, last)
    m = mount(run.parent)
    assert not (m / "mean-3/run/checkpoint-11").exists() and not os.path.lexists(m / "mean-3/run/latest")
    assert not (m / "mean-1").exists() and not (m / "mean-65").exists() and not (m / "mean").exists()


def test_a_damaged_input_is_named(command, mount, run):
    shard = run / "checkpoint-10/pytorch_model_fsdp_0/__0_0.distcp"
    os.truncate(shard, shard.stat().st_size - 100)
    assert "checkpoint-10: pytorch_model_fsdp_0/__0_0.distcp is truncated" in cause(command, run / "checkpoint-11", state="damaged")
    shown = mount(run.parent) / "mean-3/run"
    assert "__0_0.distcp" in (shown / "checkpoint-11/UNSHARD_PROBLEM.txt").read_text()
    assert not os.path.lexists(shown / "latest")


def test_an_input_that_changes(mount, run, eventually):
    """What is open fails; what is opened later is of the new one."""
    shown = mount(run.parent, changing=True) / "mean-3/run/checkpoint-11/model.safetensors"
    with open(shown, "rb", buffering=0) as f:
        f.read(10)
        save_dcp(run / "checkpoint-10", model_at(12))
        with pytest.raises(OSError) as failed:
            while f.read(1 << 20):
                pass
        assert failed.value.errno == errno.ESTALE

    def is_new():
        try:
            trees.assert_same(trees.tensors(shown), of_steps(9, 12, 11))
        except (AssertionError, OSError, SafetensorError):
            return False
        return True
    eventually(is_new)


def test_it_says_what_it_is_made_of_and_is_exported(command, mount, run, tmp_path):
    m = mount(run.parent)
    said = (m / "mean-2/run/checkpoint-9/.unshard/provenance.json").read_text()
    assert "the mean of run/checkpoint-8, run/checkpoint-9, added in fp64" in said
    command("export", run / "checkpoint-9", tmp_path / "out", "--view", "mean-2")
    trees.assert_same(trees.weights(tmp_path / "out"), of_steps(8, 9))


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_files_and_buffers_of_integers(mount, tmp_path, dtype):
    """What save_pretrained wrote, with values from the dtype's least to its largest."""
    states = []
    for step in (1, 2, 3):
        where = tmp_path / f"runs/run/checkpoint-{step}"
        model = model_at(step, DTYPES[dtype])
        model.save_pretrained(where)
        generator = torch.Generator().manual_seed(step)
        bits = torch.randint(-2**31, 2**31, (999,), generator=generator).to(torch.int32).view(DTYPES[dtype])
        states.append({**model.state_dict(), "count": torch.tensor([step, 2**62 + step]), "empty": torch.zeros(0, 3),
                       "odd": torch.where(bits.isfinite() & (bits.abs() < torch.finfo(bits.dtype).max / 4), bits, 1.5)})
        save_file({n: t.contiguous() for n, t in states[-1].items()}, where / "model.safetensors", metadata={"format": "pt"})
    trees.assert_same(trees.weights(mount(tmp_path / "runs") / "mean-3/run/checkpoint-3"), mean(states))


@pytest.mark.parametrize("launch, case, steps", [("t2", "untied-f2-fp32", (1, 2)), ("t3", "tied-f1-bf16", (1, 2)),
                                                 ("h2", "z2-bf16", (2, 4)), ("h2", "z3-fp32", (2, 4))])
def test_sharded_runs(made, mount, launch, case, steps):
    """A Trainer's with FSDP and with DeepSpeed, against the live models."""
    folder = made(launch, case)
    want = mean([trees.tensors(folder / f"live-{step}.safetensors") for step in steps])
    shown = trees.weights(mount(folder) / f"mean-2/run/checkpoint-{steps[-1]}")
    trees.assert_same(shown, {n: t for n, t in want.items() if n in shown})
    assert set(want) - set(shown) <= {"lm_head.weight"}


def test_a_moving_mean(command, mount, run):
    """As torch's moving mean, in fp64: to the bit by the formula's sum, and to fp64's last digits step by step."""
    decay, states = 0.75, [model_at(step).state_dict() for step in (9, 10, 11)]
    m = mount(run.parent, f"mean=ema:{decay}")
    shown = trees.weights(m / "mean-3/run/checkpoint-11")
    shares = (decay * decay, (1 - decay) * decay, 1 - decay)
    trees.assert_same(shown, {n: sum(share * s[n].double() for share, s in zip(shares, states)).float() for n in states[0]})
    step_by_step = {n: [t.double()] for n, t in states[0].items()}
    for state in states[1:]:
        get_ema_multi_avg_fn(decay)([t[0] for t in step_by_step.values()], [state[n].double() for n in step_by_step], 1)
    for name, (want,) in step_by_step.items():
        torch.testing.assert_close(shown[name].double(), want, rtol=2**-24, atol=1e-14)
    said = (m / "mean-3/run/checkpoint-11/.unshard/provenance.json").read_text()
    assert "the moving mean, of decay 0.75, of run/checkpoint-9, run/checkpoint-10, run/checkpoint-11, added" in said
    for wrong in ("ema", "ema:", "ema:1", "ema:0", "ema:-1", "ema:0.9x", "median"):
        done = command("show", run / "checkpoint-11", "-o", f"mean={wrong}", check=False)
        assert done.returncode == 2 and f"mean={wrong}: expected uniform, wsm, or ema:D" in done.stderr


@pytest.mark.parametrize("k", [2, 3, 4])
def test_weighted_as_a_falling_learning_rate(command, mount, run, k):
    """WSM: the shares are what 1 - sqrt loses from one checkpoint to the next, as Megatron-LM's weighted_merge.py has them."""
    states = [model_at(step).state_dict() for step in range(12 - k, 12)]
    shares = [math.sqrt((i + 1) / k) - math.sqrt(i / k) for i in range(k)]
    falls = [1 - math.sqrt(i / k) for i in range(k)]
    megatron = [0, *(falls[i] - falls[i + 1] for i in range(1, k - 1)), falls[-1]]
    megatron[0] = 1 - sum(megatron)
    assert shares == pytest.approx(megatron, abs=1e-15)
    m = mount(run.parent, "mean=wsm")
    want = {n: sum(share * s[n].double() for share, s in zip(shares, states)).float() for n in states[0]}
    trees.assert_same(trees.weights(m / f"mean-{k}/run/checkpoint-11"), want)
    assert "weighted as WSM does by 1 - sqrt, of run/" in (m / f"mean-{k}/run/checkpoint-11/.unshard/provenance.json").read_text()


def by_python(session, view):
    return {name: torch.frombuffer(t.read(), dtype=torch.float32).reshape(tuple(t.shape)) for name, t in session.tensors("checkpoint-10", view).items()}


def test_by_python(run):
    with unshard.open(run, settle_seconds=0) as session:
        trees.assert_same(by_python(session, "mean-2"), of_steps(9, 10))
        trees.assert_same(by_python(session, "weights"), model_at(10).state_dict())
    with unshard.open(run, settle_seconds=0, mean="ema:0.75") as session:
        want = {n: (0.75 * a.double() + 0.25 * model_at(10).state_dict()[n].double()).float()
                for n, a in model_at(9).state_dict().items()}
        trees.assert_same(by_python(session, "mean-2"), want)


def test_a_checkpoint_below_the_directory_with_the_number(mount, tmp_path):
    for step in (8, 9, 10):
        save_dcp(tmp_path / f"run/global_step_{step}/actor", model_at(step))
    trees.assert_same(trees.weights(mount(tmp_path) / "mean-2/run/global_step_10/actor"), of_steps(9, 10))


def test_a_weight_that_only_the_optimizer_holds_is_rounded_before_it_is_added(made, mount):
    folder = made("h2", "z3-bf16")
    m = mount(folder)
    want = mean([trees.weights(m / f"weights/run/checkpoint-{step}") for step in (2, 4)])
    trees.assert_same(trees.weights(m / "mean-2/run/checkpoint-4"), want)


@pytest.mark.parametrize("key, name", [("model", "step-{}.pt"), ("state_dict", "epoch={0}-step={0}.ckpt"), (None, "model_{}.bin")])
def test_checkpoints_that_are_one_file(command, mount, tmp_path, eventually, key, name):
    def save(step, seed):
        state = model_at(seed).state_dict()
        torch.save({key: state} if key else state, tmp_path / "runs/run" / name.format(step))
    (tmp_path / "runs/run").mkdir(parents=True)
    for step in (9, 10, 11):
        save(step, step)
    last = name.format(11)
    assert "the run has 3 up to this one" in cause(command, tmp_path / "runs/run" / last, 4)
    shown = mount(tmp_path / "runs", changing=True) / "mean-2/run"
    assert os.readlink(shown / "latest") == last
    with open(shown / last / "model.safetensors", "rb", buffering=0) as f:
        f.read(10)
        save(10, 8)
        with pytest.raises(OSError) as failed:
            while f.read(1 << 20):
                pass
    assert failed.value.errno == errno.ESTALE

    def is_new():
        try:
            trees.assert_same(trees.tensors(shown / last / "model.safetensors"), of_steps(8, 11))
        except (AssertionError, OSError, SafetensorError):
            return False
        return True
    eventually(is_new)
    trees.assert_same(trees.tensors(shown / name.format(10) / "model.safetensors"), of_steps(9, 8))


def test_the_newest_mean_beside_training(mount, run, eventually):
    """As an evaluation follows a run: `latest` is the mean up to the newest whole checkpoint."""
    shown = mount(run.parent, changing=True) / "mean-2/run"
    assert os.readlink(shown / "latest") == "checkpoint-11"
    trees.assert_same(trees.weights(shown / "latest"), of_steps(10, 11))
    old = open(shown / "checkpoint-11/model.safetensors", "rb")
    save_dcp(run / "checkpoint-12", model_at(12))
    eventually(lambda: os.readlink(shown / "latest") == "checkpoint-12")
    trees.assert_same(trees.weights(shown / "latest"), of_steps(11, 12))
    assert old.read() == (shown / "checkpoint-11/model.safetensors").read_bytes()  # what was open stays its mean
    old.close()


def test_several_models_of_one_state(made, mount, copied):
    folder = made("a2", "f2-two")
    for k in (1, 2):
        states = copied(folder / "run/state", f"states/state-{k}").parent
    m = mount(states)
    for k, part in enumerate(("", "model_1")):
        trees.assert_same(trees.weights(m / "mean-2/state-2" / part), trees.tensors(folder / f"live-{k}.safetensors"))


def test_adapters_are_refused(made, command):
    assert "its weights are an adapter's" in cause(command, made("pf2", "lora-f2") / "run/checkpoint-2", 2)


def test_numbers_of_8_bits_are_refused(command, tmp_path):
    for step in (1, 2):
        (tmp_path / f"run/checkpoint-{step}").mkdir(parents=True)
        save_file({"w": torch.ones(4).to(torch.float8_e4m3fn)}, tmp_path / f"run/checkpoint-{step}/model.safetensors")
    assert "w has dtype float8_e4m3fn, with which unshard does not compute" in cause(command, tmp_path / "run/checkpoint-2", 2)


def test_memory_does_not_depend_on_the_model(mount, tmp_path):
    """Sparse files of 64 and of 512 MB."""
    peaks = []
    for size in (64 << 20, 512 << 20):
        for step in (1, 2, 3):
            trees.sparse(tmp_path / f"{size}/run/checkpoint-{step}", "w", [1024, size // 4096])
        m = mount(tmp_path / str(size), "store=none")
        with open(m / "mean-3/run/checkpoint-3/model.safetensors", "rb", buffering=0) as f:
            while part := f.read(1 << 20):
                last = part
        assert last[-100:] == bytes(100)
        peaks.append(m.rss_bytes())
    assert peaks[1] < peaks[0] + 16e6, peaks  # which threads read, and so their buffers, differs

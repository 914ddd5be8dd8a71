"""The view mean-K: checkpoints of a run averaged, against torch: added in fp64, divided, rounded once, to the bit."""

import errno
import json
import os
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import conftest
import trees

sys.path.insert(0, str(conftest.MAKE))
import peft_models  # noqa: E402

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
    assert "the mean of 2 checkpoints" in said and "run/checkpoint-8, run/checkpoint-9" in said
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

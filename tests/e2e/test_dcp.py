"""The dcp view: what DCP's own loaders make of it."""

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import trees
from conftest import launch
from launches import DCP, PLAIN_FAMILIES

OLMO = "step1/model_and_optim"
FILE_SYSTEM = [c for c in DCP if not c[1].startswith("hf")]


def by_dcp(folder, tmp_path):
    """flat name -> tensor, by torch's own converter."""
    out = tmp_path / "converted.pt"
    dcp_to_torch_save(folder, out)
    return flat(torch.load(out, weights_only=False))


def flat(state, prefix=""):
    out = {}
    for key, value in (state.items() if isinstance(state, dict) else enumerate(state)):
        if torch.is_tensor(value):
            out[f"{prefix}{key}"] = value
        elif isinstance(value, (dict, list)):
            out.update(flat(value, f"{prefix}{key}."))
    return out


@pytest.mark.parametrize("launch,case", [c for c in FILE_SYSTEM if c[1] != "nocollect"],
                         ids=lambda v: v)
def test_dcp_loads_what_was_saved(made, mount, tmp_path, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    got = by_dcp(m / "dcp/ckpt", tmp_path)
    live = trees.tensors(folder / "live-0.safetensors")
    trees.assert_same({n: got[n] for n in live}, live)


@pytest.mark.parametrize("launch,case", [c for c in PLAIN_FAMILIES if c[0] != "t4"], ids=lambda v: v)
def test_dcp_of_a_trainers_checkpoint(made, mount, tmp_path, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    got = by_dcp(m / "dcp/checkpoint-2/pytorch_model_fsdp_0", tmp_path)
    live = trees.tensors(folder / "live-2.safetensors")
    trees.assert_same(got, {f"model.{n}": t for n, t in live.items()})
    state = {"model": {n: torch.zeros_like(t) for n, t in live.items()}}
    dist_cp.load(state, checkpoint_id=m / "dcp/checkpoint-2/pytorch_model_fsdp_0", no_dist=True)
    trees.assert_same(state["model"], live)


@pytest.mark.parametrize("launch,case", [("t2", "tied-f1-fp32"), ("d2", "zstd"), ("a3", "f2")])
def test_dcp_is_the_source_byte_for_byte(made, mount, launch, case):
    folder = made(launch, case)
    m = mount(folder / "run")
    assert trees.listing(m / "dcp") == trees.listing(folder / "run")
    for name in trees.listing(m / "dcp"):
        assert (m / f"dcp/{name}").read_bytes() == (folder / "run" / name).read_bytes(), name


def test_torch_files_beside_the_shards_load(made, mount):
    m = mount(made("t2", "tied-f1-fp32") / "run")
    for mmap in (False, True):
        state = torch.load(m / "dcp/checkpoint-2/scheduler.pt", mmap=mmap, weights_only=True)
        assert state["last_epoch"] == 2


@pytest.mark.parametrize("case", ["fsdp2", "zstd-bf16"])
def test_universal_of_a_plain_dcp(made, mount, case):
    """What DeepSpeed's load_universal reads of each trained parameter. The step is the optimizer's: no
    name or file of such a directory tells another."""
    folder = made("d2", case)
    m = mount(folder / "run")
    live = trees.tensors(folder / "live-0.safetensors")
    names = {n.split(".", 2)[2].rsplit(".", 1)[0] for n in live if n.startswith("optim.state.")}
    shown = m / "universal/ckpt"
    assert (shown / "latest_universal").read_text() == "global_step2"
    assert {p.name for p in (shown / "global_step2/zero").iterdir() if p.is_dir()} == names
    for name in names:
        held = {p.stem: torch.load(p, weights_only=True)
                for p in (shown / "global_step2/zero" / name).iterdir()}
        trees.assert_same({s: held[s]["param"] for s in ("fp32", "exp_avg", "exp_avg_sq")},
                          {"fp32": live[f"model.{name}"].float(),
                           **{s: live[f"optim.state.{name}.{s}"].float()
                              for s in ("exp_avg", "exp_avg_sq")}})
        assert float(held["step"]) == 2.0


def test_universal_without_a_step_says_how_to_set_it(made, mount, command, tmp_path):
    """Weights and moments, and no step: neither in the optimizer nor by `unshard meta`."""
    state = {"model": {"w": torch.ones(3, 2)},
             "optim": {"state": {"w": {"exp_avg": torch.ones(3, 2), "exp_avg_sq": torch.ones(3, 2)}},
                       "param_groups": [{"lr": 0.1, "params": ["w"]}]}}
    dist_cp.save(state, checkpoint_id=tmp_path / "runs/ckpt", no_dist=True)
    problem = mount(tmp_path / "runs") / "universal/ckpt/UNSHARD_PROBLEM.txt"
    assert "the training step is not known" in problem.read_text()
    m = mount(tmp_path / "runs", "fact=global_step=12")
    assert (m / "universal/ckpt/latest_universal").read_text() == "global_step12"


@pytest.mark.long
@pytest.mark.parametrize("world", [0, 2])
def test_what_olmo_core_saves(mount, command, tmp_path, world):
    launch("olmo.py", world, tmp_path, [])
    live = trees.tensors(tmp_path / "live.safetensors")
    m = mount(tmp_path / "run")
    trees.assert_same(trees.weights(m / "weights" / OLMO), {n: t for n, t in live.items() if "|" not in n})
    trees.assert_same(torch.load(m / "full-fsdp" / OLMO / "pytorch_model_fsdp.bin"), trees.weights(m / "weights" / OLMO))
    states = torch.load(m / "full-fsdp" / OLMO / "optimizer.bin")["state"]
    trees.assert_same({f"{name}|{key}": t for name, state in states.items() for key, t in state.items()},
                      {n: t for n, t in live.items() if "|" in n})
    assert "0 problems" in command("check", tmp_path / "run", "--deep", "-o", "settle=0,store=none").stdout

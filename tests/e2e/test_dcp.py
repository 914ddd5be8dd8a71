"""The dcp view: what DCP's own loaders make of it."""

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import trees
from launches import DCP, TRAINER

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


@pytest.mark.parametrize("launch,case", TRAINER[:4] + TRAINER[6:10], ids=lambda v: v)
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

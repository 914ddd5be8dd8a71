"""View torch_dist: megatron-core itself loads a Megatron checkpoint at another parallelism than it was saved at, with its
distributed optimizer. make/torch_dist_load.py loads; what the ranks had in memory when they saved is what
make/torch_dist_optimizer.py, torch_dist_model_space.py and megatron_fsdp.py recorded."""

import json

import pytest
import torch
from safetensors.torch import load_file

import conftest
import trees

STEP = "iter_0000002"
STATES = ("param", "exp_avg", "exp_avg_sq")
GRADIENT = 0.25  # of make/torch_dist_load.py

# name -> the launch that made it, the case, the view, the sizes of parallelism on two ranks
LOADED = {"tied-buckets-tp2": ("mo2", "llama-dp2-buckets-bf16", "torch_dist", "tp2"),
          "moe-ep-buckets-dp2": ("mo2", "qwen3_moe-ep2-buckets", "torch_dist", "")}
MORE_LOADED = {"pp-buckets-tp2": ("mo2", "qwen2-pp2-buckets-bf16", "torch_dist", "tp2"),
               "pp-buckets-dp2": ("mo2", "qwen2-pp2-buckets-bf16", "torch_dist", ""),
               "moe-ep-buckets-pp2": ("mo2", "qwen3_moe-ep2-buckets", "torch_dist", "pp2"),
               "moe-ep-buckets-ep2": ("mo2", "qwen3_moe-ep2-buckets", "torch_dist-ep", "ep2"),
               "gpt_oss-ep-buckets-pp2": ("mo2", "gpt_oss-ep2-buckets-bf16", "torch_dist", "pp2"),
               "reshardable-pp2": ("mo2", "llama-tp2", "torch_dist", "pp2"),
               "reshardable-moe-dp2": ("mo2", "qwen3_moe-ep2-bf16", "torch_dist", ""),
               "one-by-one-pp2": ("mo2", "qwen3_moe-one-by-one-bf16", "torch_dist", "pp2"),
               "not-distributed-pp2": ("mo2", "qwen2-tp2-bf16", "torch_dist", "pp2"),
               "tp-buckets-pp2": ("mo2more", "llama-tp2-buckets", "torch_dist", "pp2"),
               "moe-dp-buckets-ep2": ("mo2more", "qwen3_moe-dp2-buckets-bf16", "torch_dist-ep", "ep2"),
               "one-by-one-buckets-dp2": ("mo2more", "qwen3_moe-one-by-one-buckets-bf16", "torch_dist", ""),
               "space-dp2": ("ms4", "llama-tp2-space", "torch_dist", ""),
               "space-tp2": ("ms4", "llama-tp2-space", "torch_dist", "tp2"),
               "space-moe-ep2": ("ms4", "qwen3_moe-ep2-space-bf16", "torch_dist-ep", "ep2"),
               "space-moe-tp2": ("ms4", "qwen3_moe-ep2-space-bf16", "torch_dist", "tp2"),
               "space-pp-tp2": ("ms4", "qwen2-pp2-space-bf16", "torch_dist", "tp2"),
               "fsdp-dp2": ("mf2", "llama-dp2-fsdp", "torch_dist", ""),
               "fsdp-tp2": ("mf2", "llama-dp2-fsdp", "torch_dist", "tp2"),
               "fsdp-tp-pp2": ("mf2", "llama-tp2-fsdp", "torch_dist", "pp2"),
               "fsdp-moe-ep2": ("mf2", "qwen3_moe-ep2-fsdp", "torch_dist-ep", "ep2"),
               "fsdp-moe-tp2": ("mf2", "qwen3_moe-grouped-fsdp", "torch_dist", "tp2")}
ALL = list(LOADED) + [pytest.param(name, marks=pytest.mark.long) for name in MORE_LOADED]


@pytest.fixture(scope="module")
def loaded(made, request, tmp_path_factory):
    """NAME/: what make/torch_dist_load.py writes of each that megatron-core loaded."""
    base, mounts, loads = tmp_path_factory.mktemp("loaded"), {}, []
    chosen = LOADED | (MORE_LOADED if request.config.getoption("--long") else {})
    for name, (launch, case, view, sizes) in chosen.items():
        folder = made(launch, case)
        if folder not in mounts:
            mounts[folder] = conftest.mounted(tmp_path_factory.mktemp(name), folder / "run")
        loads.append(f"{name}:{case}:{folder}:{mounts[folder]}/{view}/{STEP}:{sizes}")
    conftest.launch("torch_dist_load.py", 2, base, loads)
    yield base
    for mnt in mounts.values():
        conftest.detach(mnt)


def states(folder, name):
    return load_file(folder / name / "model.safetensors")


def stepped(folder):
    """torch's AdamW goes on in one process from what the run had in memory."""
    groups, live = json.loads((folder / "live/groups.json").read_text()), {s: states(folder / "live", s) for s in STATES}
    params = {n: torch.nn.Parameter(t.clone()) for n, t in live["param"].items()}
    optimizer = torch.optim.AdamW([{"params": [p], **groups[n]} for n, p in params.items()])
    for name, p in params.items():
        p.grad = torch.full_like(p, GRADIENT)
        optimizer.state[p] = {"step": torch.tensor(2.0)} | {s: live[s][name].clone() for s in STATES[1:]}
    optimizer.step()
    return {"param": {n: p.detach() for n, p in params.items()}} | {
        s: {n: optimizer.state[p][s] for n, p in params.items()} for s in STATES[1:]}


@pytest.mark.parametrize("name", ALL)
def test_megatron_goes_on_from_what_the_run_had_in_memory(made, loaded, name):
    folder, got = made(*(LOADED | MORE_LOADED)[name][:2]), loaded / name
    for state in STATES:
        trees.assert_same(states(got / "live", state), states(folder / "live", state))
    dtype = next(iter(load_file(folder / "hf/model.safetensors").values())).dtype
    weights = {n: t.to(dtype).float() for n, t in states(folder / "live", "param").items()}
    trees.assert_same(states(got / "weights", "param"), weights)
    groups = json.loads((folder / "live/groups.json").read_text())
    assert groups and json.loads((got / "live/groups.json").read_text()) == groups
    want = stepped(folder)
    for state in STATES:
        trees.assert_same(states(got / "stepped", state), want[state])

    said = json.loads((got / "said.json").read_text())
    assert said["iteration"] == 2 and said["args"]["iteration"] == 2
    left_out = [k for k in said["unexpected"] if not ("fsdp" in name and "_extra_state" in k)]  # fsdp_dtensor has none
    assert not left_out and not [k for k in said["missing"] if "optimizer" in k]

"""View torch_dist: megatron-core itself loads a Megatron checkpoint at another parallelism than it was saved at, with its
distributed optimizer. make/torch_dist_load.py loads; what the ranks had in memory when they saved is what
make/torch_dist_optimizer.py, _parallel.py, _model_space.py and megatron_fsdp.py recorded."""

import dataclasses
import io
import json
import pickle
import shutil
import zipfile

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

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
               "cp-buckets-tp2": ("mp2", "llama-cp2-buckets-bf16", "torch_dist", "tp2"),
               "cp-pp2": ("mp2", "llama-cp2-bf16", "torch_dist", "pp2"),
               "cp-moe-buckets-cp2": ("mp2", "qwen3_moe-cp2-ep2-buckets", "torch_dist", "cp2"),
               "vpp-buckets-tp2": ("mp2", "llama-pp2-vpp2-buckets-bf16", "torch_dist", "tp2"),
               "vpp-pp2": ("mp2", "llama-pp2-vpp2", "torch_dist", "pp2"),
               "vpp-moe-buckets-ep2": ("mp2", "qwen3_moe-pp2-vpp2-buckets", "torch_dist-ep", "ep2"),
               "fp16-buckets-tp2": ("mp2", "llama-dp2-buckets-fp16", "torch_dist", "tp2"),
               "fp16-pp2": ("mp2", "llama-tp2-fp16", "torch_dist", "pp2"),
               "mtp-dp-ep2": ("mm2", "glm4_moe-mtp-dp2-bf16", "torch_dist-ep", "ep2"),
               "mtp-tp-pp2": ("mm2", "glm4_moe-mtp-tp2", "torch_dist", "pp2"),
               "mtp-pp-tp2": ("mm2", "glm4_moe-mtp-pp2", "torch_dist", "tp2"),
               "mtp-ep-pp2": ("mm2", "glm4_moe-mtp-ep2-bf16", "torch_dist", "pp2"),
               "vision-tp-pp2": ("mm2", "qwen2_5_vl-tp2", "torch_dist", "pp2"),
               "vision-moe-ep2": ("mm2", "qwen3_vl_moe-dp2-bf16", "torch_dist-ep", "ep2"),
               "vision-moe-pp2": ("mm2", "qwen3_vl_moe-dp2-bf16", "torch_dist", "pp2"),
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


def shown(made, mount, tmp_path, launch, case, change=None, entries=None):
    """Its run, in which `change` changed the dict of common.pt and `entries` the metadata."""
    run = shutil.copytree(made(launch, case) / "run", tmp_path / "run")
    if change:
        common = torch.load(run / STEP / "common.pt", weights_only=False)
        change(common)
        torch.save(common, run / STEP / "common.pt")
    if entries:
        (run / STEP / ".metadata").write_bytes(pickle.dumps(entries(pickle.loads((run / STEP / ".metadata").read_bytes()))))
    return mount(run)


def renamed(metadata, old, new):
    return dataclasses.replace(
        metadata, state_dict_metadata={k.replace(old, new): v for k, v in metadata.state_dict_metadata.items()},
        storage_data={dataclasses.replace(k, fqn=k.fqn.replace(old, new)): v for k, v in metadata.storage_data.items()})


def without(metadata, *parts):
    return dataclasses.replace(
        metadata, state_dict_metadata={k: v for k, v in metadata.state_dict_metadata.items() if not any(p in k for p in parts)},
        storage_data={k: v for k, v in metadata.storage_data.items() if not any(p in k.fqn for p in parts)})


def test_check_reports_what_megatron_would_miss(made, command, tmp_path):
    run = shutil.copytree(made("mo2", "llama-tp2") / "run", tmp_path / "run")
    metadata = pickle.loads((run / STEP / ".metadata").read_bytes())

    def missed():
        done = command("check", run / STEP, "--for", "torch_dist", "-o", "settle=0,store=none", "--json", check=False)
        found = [f["found"] for f in json.loads(done.stdout)["findings"] if f["id"] == "resume_misses"]
        assert done.returncode == bool(found)
        return found

    assert missed() == ["opt_param_scheduler in common.pt", "rng_state"]
    common = torch.load(run / STEP / "common.pt", weights_only=False) | {"opt_param_scheduler": {"num_steps": 20}}
    torch.save(common, run / STEP / "common.pt")
    metadata = renamed(metadata, "decoder.layers.mlp.linear_fc1._extra_state/shard_0_2", "rng_state/shard_0_1")
    (run / STEP / ".metadata").write_bytes(pickle.dumps(metadata))
    assert not missed()
    del common["iteration"]
    torch.save(common, run / STEP / "common.pt")
    (run / STEP / ".metadata").write_bytes(pickle.dumps(without(metadata, "optimizer.state")))
    assert missed() == ["optimizer.state", "iteration in common.pt"]


def refusal(command, mounted, view="torch_dist"):
    """Why the view has not the checkpoint."""
    assert not (mounted / view / STEP).exists()
    done = command("export", mounted.source / STEP, mounted.source / "out", "--view", view, check=False)
    assert done.returncode == 1
    return " ".join(done.stderr.split())


def lr_of_experts(common):
    common["optimizer"][1]["optimizer"]["param_groups"][0]["lr"] = 0.5


REFUSED = {
    "groups": (lr_of_experts, None, "two of its param groups differ in lr"),
    "state": (None, lambda m: renamed(m, "state.exp_avg.decoder", "state.momentum.decoder"), "it has optimizer.state.momentum.decoder."),
    "half": (None, lambda m: without(m, "state.exp_avg_sq.output_layer"), "of output_layer.weight the optimizer has no exp_avg_sq"),
    "copy": (None, lambda m: without(m, "state.param.output_layer"), "of output_layer.weight the optimizer has no fp32 copy"),
    "large": (lambda c: setattr(c["args"], "text", "x" * (16 << 20)), None, "larger than 16 MiB"),
    "tensors": (lambda c: c.update(more=torch.zeros(1 << 18)), None, "its tensors have more than 1 MiB"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_named_is_refused(made, mount, command, tmp_path, name):
    change, entries, said = REFUSED[name]
    mounted = shown(made, mount, tmp_path, "mo2", "qwen3_moe-ep2-bf16", change, entries)
    assert said in refusal(command, mounted) and (mounted / "weights" / STEP / "model.safetensors").exists()


@pytest.mark.long
@pytest.mark.parametrize("case,first", [("glm4_moe-mtp-buckets-bf16", "mtp.layers.0.enorm.weight"),
                                        ("qwen2_5_vl-buckets-bf16", "visual.patch_embed.proj.weight")])
def test_buckets_of_what_the_gpt_model_has_not_are_refused(made, mount, command, tmp_path, case, first):
    said = refusal(command, shown(made, mount, tmp_path, "mm2", case))
    assert f"unshard does not know where {first} is among the model's parameters" in said


@pytest.mark.long
def test_made_checkpoints_have_the_bytes_that_megatron_s_processes_write(made, tmp_path):
    """make/torch_dist.py starts none."""
    conftest.launch("torch_dist_processes.py", 2, tmp_path, ["llama-tp2"])
    here, theirs = (folder / "run" / STEP for folder in (made("mc2", "llama-tp2"), tmp_path / "llama-tp2"))
    shards = sorted(f.name for f in theirs.glob("*.distcp"))
    assert len(shards) == 4 and shards == sorted(f.name for f in here.glob("*.distcp"))
    for name in shards:
        assert (here / name).read_bytes() == (theirs / name).read_bytes(), name
    written, wanted = (pickle.loads((folder / ".metadata").read_bytes()) for folder in (here, theirs))
    assert (written.state_dict_metadata, written.storage_data) == (wanted.state_dict_metadata, wanted.storage_data)


@pytest.mark.long
def test_check_reports_an_embedding_whose_states_megatron_moved(made, command):
    """megatron-core 0.16.1 pads the bucket in front of it, and then saves all of its states from too late on."""
    folder, name = made("mm2", "glm4_moe-mtp-pp2-moved"), "embedding.word_embeddings.weight"
    for state in STATES:
        key = f"optimizer.state.{state}.{name}"
        saved, live = {key: torch.empty(40, 16)}, states(folder / "live", state)["model.embed_tokens.weight"].flatten()
        dcp.load(saved, checkpoint_id=folder / "run" / STEP, no_dist=True)
        assert torch.equal(saved[key].flatten(), torch.cat((live[64:], torch.zeros(64))))
    done = command("check", "--deep", folder / "run" / STEP, "-o", "settle=0,store=none", "--json", check=False)
    assert [(f["id"], f["tensor"]) for f in json.loads(done.stdout)["findings"]] == [("fp32_copy_differs", name)]


def test_experts_may_have_values_of_their_own_under_expert_parallelism(made, mount, tmp_path):
    mounted = shown(made, mount, tmp_path, "mo2", "qwen3_moe-ep2-bf16", lr_of_experts)
    optimizer = common_of(mounted / "torch_dist-ep")["optimizer"]
    assert [g["lr"] for g in optimizer[1]["optimizer"]["param_groups"]][0] == 0.5
    assert all(g["lr"] != 0.5 for g in optimizer[0]["optimizer"]["param_groups"])


def test_a_model_without_experts_has_no_view_for_expert_parallelism(made, mount, command, tmp_path):
    mounted = shown(made, mount, tmp_path, "mo2", "llama-tp2")
    assert "has no experts" in refusal(command, mounted, "torch_dist-ep") and (mounted / "torch_dist" / STEP).exists()


def test_a_checkpoint_of_another_framework_has_no_such_view(made, command):
    run = made("d2", "fsdp2")
    assert "is no checkpoint of Megatron-Core" in command("show", "--all", next(run.rglob(".metadata")).parent).stdout


def test_a_bucket_that_is_not_proven_is_refused(made, mount, tmp_path):
    run = shutil.copytree(made("mo2", "llama-dp2-buckets-bf16") / "run", tmp_path / "run")
    where = dcp.FileSystemReader(run / STEP).read_metadata().storage_data
    place = next(v for k, v in where.items() if k.fqn.endswith("bucket_idx_0.param"))
    path = run / STEP / place.relative_path
    data = bytearray(path.read_bytes())
    item = zipfile.ZipFile(io.BytesIO(data[place.offset:place.offset + place.length]))
    stored = item.read("archive/data/0")
    at = data.index(stored, place.offset)
    data[at + 3] ^= 0x40  # the exponent of the first element
    path.write_bytes(data)
    shown = mount(run) / "torch_dist" / STEP
    assert trees.listing(shown) == ["UNSHARD_PROBLEM.txt"]
    assert "the fp32 copy" in (shown / "UNSHARD_PROBLEM.txt").read_text()


def common_of(view):
    return torch.load(view / STEP / "common.pt", weights_only=False)


def pickle_of(path):
    archive = zipfile.ZipFile(path)
    return archive.read(next(n for n in archive.namelist() if n.endswith("/data.pkl")))


def test_the_saved_common_state_is_continued(made, mount, tmp_path):
    def change(common):
        common.update(opt_param_scheduler={"num_steps": 20}, small=torch.arange(5), big=torch.arange(3).double())
        common["optimizer"]["grad_scaler"] = {"scale": torch.tensor([8.0])}

    mounted = shown(made, mount, tmp_path, "mo2", "llama-tp2", change)
    saved = tmp_path / "run" / STEP / "common.pt"
    assert pickle_of(mounted / "torch_dist" / STEP / "common.pt").startswith(pickle_of(saved)[:-1])
    got, want = common_of(mounted / "torch_dist"), torch.load(saved, weights_only=False)
    for key in ("args", "iteration", "checkpoint_version", "opt_param_scheduler"):
        assert got[key] == want[key]
    assert torch.equal(got["small"], want["small"]) and torch.equal(got["big"], want["big"])
    assert "the loss scale of a training in fp16" in (mounted / "torch_dist" / STEP / ".unshard/problems.txt").read_text()


def test_objects_are_copied(made, mount):
    """_extra_state, as random states, is an object of its own in the shards."""
    folder = made("mo2", "llama-dp2-buckets-bf16")
    got, want = (objects(path / STEP) for path in (mount(folder / "run") / "torch_dist", folder / "run"))
    want = {k: v for k, v in want.items() if "optimizer.distributed" not in k}
    assert any("_extra_state" in k for k in want) and got == want


def objects(directory):
    metadata = dcp.FileSystemReader(directory).read_metadata()
    out = {}
    for index, place in metadata.storage_data.items():
        if index.offset is None:
            with open(directory / place.relative_path, "rb") as f:
                f.seek(place.offset)
                out[index.fqn] = f.read(place.length)
    return out


def test_megatron_fsdps_schedule_is_in_common_pt(made, mount, tmp_path):
    """It saves each value as an object of its own."""
    schedule = {"max_lr": 0.25, "num_steps": 20, "lr_decay_style": "cosine"}
    folder = made("mf2", "llama-tp2-fsdp")
    dcp_to_torch_save(folder / "run" / STEP, tmp_path / "all.pt")
    state = torch.load(tmp_path / "all.pt", weights_only=False) | {"opt_param_scheduler": schedule, "flops": 5.0}
    state["rng_state"] = {"(0, 0)": [{"random_rng_state": (3, (1, 2), None)}]}
    torch.save(state, tmp_path / "all.pt")
    (tmp_path / "run").mkdir()
    torch_save_to_dcp(tmp_path / "all.pt", tmp_path / "run" / STEP)
    mounted = mount(tmp_path / "run")
    got = common_of(mounted / "torch_dist")
    assert got["opt_param_scheduler"] == schedule and got["flops"] == 5.0 and got["args"] == state["args"]
    assert got["iteration"] == 2 and got["checkpoint_version"] == 3.0 and "rng_state" not in got
    assert "--dist-ckpt-strictness log_unexpected" in (mounted / "torch_dist" / STEP / ".unshard/problems.txt").read_text()


def test_show_begins_with_the_view_that_megatron_resumes_from(made, command):
    said = command("show", made("mo2", "qwen3_moe-ep2-buckets") / "run" / STEP).stdout
    first = said[said.index("to resume the training"):].splitlines()[1]
    assert "dist_checkpointing.load" in first and "/torch_dist/" in first and "load the view torch_dist-ep" in " ".join(said.split())

"""DeepSpeed checkpoints with experts that AutoEP shared out, through the mount: compared with the live tensors gathered from all
ranks, bit for bit, with what save_pretrained writes of the model without AutoEP, and resumed with DeepSpeed, with the
losses that the run itself went on with."""

import json
import os
import shutil

import pytest
import torch

import conftest
import trees
from launches import MORE

os.environ["DS_ACCELERATOR"] = "cpu"
TAG = "global_step3"
STATES = ("fp32", "exp_avg", "exp_avg_sq")
TRAINED = [("ae2", "mixtral-z1-bf16-ep2"), ("ae2", "qwen3_moe-z3-bf16-ep2"), ("ae2", "qwen2_moe-z2-fp32-ep1"),
           ("ae4", "mixtral-z2-fp32-ep2"), ("ae4", "mixtral-z3-bf16-ep2")]
CASES = [*TRAINED, ("ae2", "deepseek_v3-z1-bf16-ep2"), ("ae2", "mixtral-z0-bf16-ep2")]
W1 = "model.layers.0.mlp.experts.w1"
# NAME: what loads it on two ranks, the view, the launch and the case that was saved.
LOADS = {
    "universal": ("mixtral-z1-bf16-ep2", "universal", "ae2", "mixtral-z1-bf16-ep2"),
    "universal-alone": ("mixtral-z1-bf16-ep1", "universal", "ae2", "mixtral-z1-bf16-ep2"),
    "universal-four-to-two": ("mixtral-z2-fp32-ep2", "universal", "ae4", "mixtral-z2-fp32-ep2"),
    "universal-stage-3": ("qwen3_moe-z3-bf16-ep2", "universal", "ae2", "qwen3_moe-z3-bf16-ep2"),
    "universal-3-to-2": ("qwen3_moe-z2-bf16-ep2", "universal", "ae2", "qwen3_moe-z3-bf16-ep2"),
    "same": ("mixtral-z1-bf16-ep2", "world-2", "ae2", "mixtral-z1-bf16-ep2"),
    "same-stage-3": ("qwen3_moe-z3-bf16-ep2", "world-2", "ae2", "qwen3_moe-z3-bf16-ep2"),
    "same-stage-0": ("mixtral-z0-bf16-ep2", "world-2", "ae2", "mixtral-z0-bf16-ep2"),
    "same-alone": ("qwen2_moe-z2-fp32-ep1", "world-2", "ae2", "qwen2_moe-z2-fp32-ep1"),
    "four-to-two": ("mixtral-z2-fp32-ep2", "world-2", "ae4", "mixtral-z2-fp32-ep2"),
    "four-to-two-stage-3": ("mixtral-z3-bf16-ep2", "world-2", "ae4", "mixtral-z3-bf16-ep2"),
    "universal-shared": ("qwen2_moe-z2-fp32-ep2", "universal", "ae2", "qwen2_moe-z2-fp32-ep1"),
}
# What is loaded in every round: each view and stage, of as many ranks, of more, and of experts shared out otherwise.
OFTEN = ("universal", "universal-alone", "universal-3-to-2", "same-stage-0", "four-to-two", "universal-shared")


@pytest.fixture(scope="module")
def place(made, chosen, tmp_path_factory):
    """The runs of a launch, and the directory below the mount of one's view."""
    base = tmp_path_factory.mktemp("autoep")
    (base / "mnt").mkdir()
    (base / "runs").mkdir()
    for launch, case in (("ae2", "mixtral-z1-bf16-ep2"), ("ae4", "mixtral-z2-fp32-ep2")):
        shutil.copytree(made(launch, case).parent, base / "runs" / launch)
        for more in chosen(MORE.get(launch, ()), ()):
            shutil.copytree(made(launch, more), base / "runs" / launch / more)
    conftest.unshard("mount", base / "runs", base / "mnt", "-o", f"settle=0,store={base}/store.db")
    yield base
    conftest.detach(base / "mnt")


def view(place, name, launch, case):
    return place / "mnt" / name / launch / case / "run" / TAG


def saved(place, launch, case, what):
    return trees.tensors(place / "runs" / launch / case / f"{what}.safetensors")


def in_memory(live, family):
    """The tensors as transformers has them, in a model without AutoEP."""
    out = {}
    for name, t in live.items():
        module = name.partition(".experts.")[0]
        if ".experts.w1" in name:
            out[f"{module}.experts.gate_up_proj"] = torch.cat([t, live[f"{module}.experts.w3"]], 1)
        elif ".experts.w2" in name:
            out[f"{module}.experts.down_proj"] = t
        elif ".experts." not in name and ".mlp.gate." not in name:  # the router's second name
            name = name.replace(".router.gate.", ".gate.").replace(".router.", ".gate.")
            out[name.replace(".shared_experts", ".shared_expert") if family == "qwen2_moe" else name] = t
    return out


@pytest.mark.parametrize("launch, case", CASES)
def test_saved_names_are_the_engines(place, launch, case, tmp_path, command):
    source = place / "runs" / launch / case / "run" / TAG
    command("export", source, tmp_path / "out", "--view", "weights", "-o", "settle=0,names=memory")
    trees.assert_same(trees.tensors(tmp_path / "out/model.safetensors"), saved(place, launch, case, "live"))


@pytest.mark.parametrize("launch, case", CASES)
def test_weights_are_the_model_without_autoep(place, launch, case, tmp_path):
    """Nothing is missing, nothing is too much, and the file is what save_pretrained makes of it, byte for byte."""
    from transformers import AutoModelForCausalLM

    folder = view(place, "weights", launch, case)
    model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    trees.assert_same(model.state_dict(), in_memory(saved(place, launch, case, "live"), case.partition("-")[0]))
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("launch, case", TRAINED)
def test_the_optimizer_is_all_ranks(place, launch, case):
    folder = view(place, "universal", launch, case)
    zero = folder / folder.name / "zero"
    states = saved(place, launch, case, "states")
    trees.assert_same({f"{name}|{s}": torch.load(zero / name / f"{s}.pt")["param"]
                       for name in {key.partition("|")[0] for key in states} for s in STATES}, states)


def test_a_universal_directory_of_deepspeeds_own_is_read(place, tmp_path, mount):
    """Its model file lists one rank's shapes, and there are no experts' files beside it."""
    case = "mixtral-z1-bf16-ep2"
    made = tmp_path / "source" / "universal"
    conftest.to_universal(place / "runs/ae2" / case / "run" / TAG, made)
    ours = view(place, "universal", "ae2", case) / TAG / "zero"
    for name in [p.name for p in (made / "zero").iterdir() if ".experts." in p.name]:
        for state in STATES:
            want, got = (torch.load(zero / name / f"{state}.pt") for zero in (made / "zero", ours))
            trees.assert_same({"param": got.pop("param")}, {"param": want.pop("param")})
            assert got == want, (name, state)
    trees.assert_same(trees.weights(mount(made.parent, "names=memory") / "weights/universal"), saved(place, "ae2", case, "live"))


@pytest.fixture(scope="module")
def resumed(place, chosen):
    base = place / "resumed"
    conftest.launch("autoep.py", 2, base, [
        f"load:{by}:{view(place, name, launch, case)}:{what}:universal" if name == "universal" else
        f"load:{by}:{view(place, name, launch, case).parent}:{what}"
        for what in chosen(LOADS, OFTEN) for by, name, launch, case in [LOADS[what]]])
    return base


@pytest.mark.parametrize("name", conftest.or_long(LOADS, OFTEN))
def test_it_is_resumed(place, resumed, name):
    by, _, launch, case = LOADS[name]
    trees.assert_same(trees.tensors(resumed / name / "live.safetensors"), saved(place, launch, case, "live"))
    trees.assert_same(trees.tensors(resumed / name / "states.safetensors"), saved(place, launch, case, "states"))
    was, now = (json.loads((d / "info.json").read_text()) for d in (place / "runs" / launch / case, resumed / name))
    assert now["global_steps"] == was["global_steps"] and now["lr"] == was["lr"]
    if by == case and launch == "ae2":
        assert now["losses"] == was["losses"]
    elif launch == "ae2":  # shared out otherwise, sums are the same but for their last bits
        assert now["losses"] == pytest.approx(was["losses"], rel=1e-4)
    else:  # a step of another number of ranks has other batches
        assert now["losses"][0] == pytest.approx(was["losses"][0], rel=1e-4)


def flat(value, at=""):
    """path -> leaf of a value tree."""
    if isinstance(value, dict):
        return {k: v for key, one in value.items() for k, v in flat(one, f"{at}/{key}").items()}
    if isinstance(value, (list, tuple)):
        return {k: v for i, one in enumerate(value) for k, v in flat(one, f"{at}/{i}").items()}
    return {at: value}


@pytest.mark.parametrize("launch, case", [x for x in CASES if x[0] == "ae4"])
def test_of_as_many_ranks_the_files_are_those_that_were_saved(place, launch, case):
    """Each rank's place among those that share the experts, and its parts, as DeepSpeed wrote them."""
    import deepspeed  # noqa: F401: the files name its classes

    source = place / "runs" / launch / case / "run" / TAG
    made = view(place, "world-4", launch, case)
    assert sorted(p.name for p in made.glob("*_states.pt")) == sorted(p.name for p in source.glob("*_states.pt"))
    for path in sorted(source.glob("*_states.pt")):
        was, now = (flat(torch.load(p, weights_only=False)) for p in (path, made / path.name))
        for at, value in was.items():
            if "param_slice_mappings" in at or "ds_config" in at or not isinstance(value, (torch.Tensor, int, float, str)):
                continue
            assert torch.equal(now[at], value) if isinstance(value, torch.Tensor) else now[at] == value, (path.name, at)


ALONE = "DeepSpeed's AutoEP gave the experts names and shapes that no other trainer's model has"


@pytest.mark.parametrize("case, name, text", [
    *[(case, name, ALONE) for case in ("mixtral-z1-bf16-ep2", "qwen3_moe-z3-bf16-ep2") for name in ("full", "full-fsdp", "dcp")],
    ("mixtral-z0-bf16-ep2", "universal", "ZeRO stage 0 numbers parameters"),
    *[(case, "world-3", "was saved with expert parallelism of 2 ranks, which stays in world-N: N must be a multiple of it, not 3")
      for case in ("mixtral-z1-bf16-ep2", "qwen3_moe-z3-bf16-ep2")]])
def test_what_a_view_cannot_hold_is_said(place, command, tmp_path, case, name, text):
    assert not view(place, name, "ae2", case).exists()
    done = command("export", place / "runs/ae2" / case / "run" / TAG, tmp_path / "out", "--view", name, check=False)
    assert done.returncode == 1 and text in done.stderr


def test_a_family_whose_names_are_not_known_keeps_the_saved_ones(place, tmp_path, mount):
    source = tmp_path / "source"
    shutil.copytree(place / "runs/ae2/mixtral-z1-bf16-ep2/run", source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"model_type": "olmoe"}))
    folder = mount(source) / "weights" / TAG
    trees.assert_same(trees.weights(folder), saved(place, "ae2", "mixtral-z1-bf16-ep2", "live"))
    assert "which from_pretrained does not know: others are not known for its model type" in (
        folder / ".unshard/problems.txt").read_text()


# -- damage --

MODEL = "mp_rank_00_model_states.pt"


def file_of(number):
    return f"layer_0_expert_{number}_mp_rank_00_model_states.pt"


def rewritten(name, change):
    def rewrite(tag):
        held = torch.load(tag / name, weights_only=False)
        change(held)
        torch.save(held, tag / name)
    return rewrite


def mapped(change):
    """A change to the map of W1's second slice."""
    def rewrite(held):
        held["ds_autoep_layers"][0]["affine_maps"]["params"][W1]["ranks"] = {
            rank: change(rank, one) for rank, one in
            held["ds_autoep_layers"][0]["affine_maps"]["params"][W1]["ranks"].items()}
    return rewritten(MODEL, rewrite)


def twice(rank, one):
    return one if rank == 0 else one | {"pieces": [one["pieces"][0] | {"source": [0, one["pieces"][0]["source"][1]]}]}


def too_little(rank, one):
    return one if rank == 0 else one | {"pieces": [one["pieces"][0] | {"shape": [1, 12, 16]}]}


def renamed(held):
    for key in list(held):
        held[key.removesuffix("2") + "1"] = held.pop(key)


def smaller(held):
    held[f"{W1}.2"] = held[f"{W1}.2"][:-1].clone()


def older(held):
    held[f"{W1}.2"] *= 1.5


MAP = f"the map that says how AutoEP cut {W1}"
DAMAGE = {
    "map-little": (mapped(too_little), f"{MODEL}: {MAP} does not cover rank 1's slice: expected 384 elements, found 192"),
    "map-twice": (mapped(twice), f"{MODEL}: {MAP} gives an element of rank 1 to rank 0 too"),
    "no-file": (lambda tag: (tag / file_of(2)).unlink(), f"{file_of(2)} is missing: it holds expert 2 of 4 of layer 0 of experts"),
    "moved": (lambda tag: shutil.copyfile(tag / file_of(1), tag / file_of(2)), f"{file_of(2)}: the file was saved as {file_of(1)}"),
    "another": (rewritten(file_of(2), renamed), f"{file_of(2)} should hold expert 2 of layer 0 of experts, but holds {W1}.1"),
    "size": (rewritten(file_of(2), smaller), f"{file_of(2)} (expert 2 of layer 0 of experts): {W1} has shape [11, 16], but"),
    "step": (rewritten(file_of(2), older), f"{file_of(2)} (expert 2 of layer 0 of experts): {W1} is not the fp32 copy in "),
    "no-shard": (lambda tag: (tag / "zero_pp_rank_3_mp_rank_00_optim_states.pt").unlink(),
                 "zero_pp_rank_3_mp_rank_00_optim_states.pt (data-parallel rank 3) is missing"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(place, tmp_path, mount, command, name):
    damage, text = DAMAGE[name]
    source = tmp_path / "source"
    shutil.copytree(place / "runs/ae4/mixtral-z2-fp32-ep2/run", source)
    damage(source / TAG)
    done = command("check", source, "-o", "settle=0", check=False)
    assert text in done.stdout and done.returncode == 1 and "1 problem," in done.stdout, done.stdout
    m = mount(source, "names=memory")
    if name == "no-shard":
        trees.assert_same(trees.weights(m / "weights" / TAG), saved(place, "ae4", "mixtral-z2-fp32-ep2", "live"))
    else:
        assert text in (m / "weights" / TAG / "UNSHARD_PROBLEM.txt").read_text()


def no_maps(held):
    for layer in held["ds_autoep_layers"]:
        del layer["affine_maps"]


def version_2(held):
    held["ds_autoep_layers"][0]["affine_maps"]["version"] = 2


def frozen(held):
    held["frozen_param_shapes"] = {W1: torch.Size([2, 12, 16])}


REFUSED = {
    "no-maps": (no_maps, "(ds_autoep_layers), and it records no maps of how: this is not supported"),
    "version": (version_2, f"{MODEL}: AutoEP stored its maps in version 2, and unshard reads version 1"),
    "frozen": (frozen, "(ds_autoep_layers), and some of them are frozen: this is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_not_called_damaged(place, tmp_path, mount, command, name):
    change, text = REFUSED[name]
    source = tmp_path / "source"
    shutil.copytree(place / "runs/ae2/mixtral-z1-bf16-ep2/run", source)
    rewritten(MODEL, change)(source / TAG)
    done = command("check", source, "-o", "settle=0", check=False)
    assert text in done.stdout and done.returncode == 0 and "0 problems, 1 note" in done.stdout, done.stdout
    m = mount(source)
    for what in ("weights", "universal", "world-2"):
        folder = m / what / TAG
        assert not folder.exists() or text in (folder / "UNSHARD_PROBLEM.txt").read_text(), what

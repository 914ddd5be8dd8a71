"""DeepSpeed checkpoints with deepspeed.moe's experts in files of their own, and of pipelines, through the mount: compared with the
live tensors of all ranks, bit for bit, and resumed with DeepSpeed, with the losses that the run itself went on with."""

import json
import os
import shutil

import pytest
import torch

import conftest
import trees

os.environ["DS_ACCELERATOR"] = "cpu"
TAG, PIPE_TAG = "global_step3", "global_step2"
STATES = ("fp32", "exp_avg", "exp_avg_sq")
CASES = [("x4", "z1-bf16-pp2"), ("x2", "z1-bf16-ep2"), ("x2", "z2-fp32-ep1"), ("x2", "z2-bf16-ep2-mixed"), ("x4", "z2-fp32-ep2")]
EXPERT = "first.deepspeed_moe.experts.deepspeed_experts."
# NAME: what loads it, the view, the launch and the case that was saved.
LOADS = {
    "same": ("z1-bf16-ep2", "world-2", "x2", "z1-bf16-ep2"),
    "four-to-two": ("z2-fp32-ep2", "world-2", "x4", "z2-fp32-ep2"),
    "stage-0": ("z0-bf16-ep2", "world-2", "x2", "z0-bf16-ep2"),
    "unshared": ("z1-bf16-ep1", "universal", "x2", "z1-bf16-ep2"),
    "unshared-four": ("z2-fp32-ep1", "universal", "x4", "z2-fp32-ep2"),
    "stages": ("z1-bf16-pp2", "world-2", "x4", "z1-bf16-pp2"),
    "stages-stage-0": ("z0-fp32-pp2", "world-2", "x4", "z0-fp32-pp2"),
    "stages-universal": ("z1-bf16-pp2", "universal", "x4", "z1-bf16-pp2"),
    "stages-joined": ("z1-bf16-pp1", "universal", "x4", "z1-bf16-pp2"),
}
# What is loaded in every round: experts shared as before, by fewer ranks, by none, and a pipeline. The rest, --long.
OFTEN = ("four-to-two", "stage-0", "unshared", "stages", "stages-joined")
PIPELINE = "z1-bf16-pp2"


@pytest.fixture(scope="module")
def place(made, tmp_path_factory):
    """The runs of a launch, and the directory below the mount of one's view."""
    base = tmp_path_factory.mktemp("experts")
    (base / "mnt").mkdir()
    (base / "runs").mkdir()
    for launch in ("x2", "x4"):
        shutil.copytree(made(launch, "z2-fp32-ep2" if launch == "x4" else "z1-bf16-ep2").parent, base / "runs" / launch)
    conftest.unshard("mount", base / "runs", base / "mnt", "-o", f"settle=0,store={base}/store.db")
    yield base
    conftest.detach(base / "mnt")


def view(place, name, launch, case):
    return place / "mnt" / name / launch / case / "run" / (PIPE_TAG if "pp" in case else TAG)


def saved(place, launch, case, what):
    return trees.tensors(place / "runs" / launch / case / f"{what}.safetensors")


@pytest.mark.parametrize("launch, case", [*CASES, ("x2", "z0-bf16-ep2")])
def test_weights_are_the_models(place, launch, case):
    trees.assert_same(trees.weights(view(place, "weights", launch, case)), saved(place, launch, case, "live"))


@pytest.mark.parametrize("launch, case", CASES)
def test_the_optimizer_is_all_ranks(place, launch, case):
    states = saved(place, launch, case, "states")
    exact = trees.weights(view(place, "weights-fp32", launch, case))
    whole = torch.load(view(place, "full-fsdp", launch, case) / "optimizer.bin", weights_only=True)["state"]
    trees.assert_same({f"{n}|{s}": exact[n] if s == "fp32" else whole[n][s] for n in whole for s in STATES}, states)
    if "mixed" in case:
        return
    folder = view(place, "universal", launch, case)
    zero = folder / folder.name / "zero"
    trees.assert_same({f"{p.name}|{s}": torch.load(p / f"{s}.pt")["param"]
                       for p in zero.iterdir() if p.is_dir() for s in STATES}, states)


def test_one_process_numbers_parameters_as_its_model_does(place):
    """The groups are those that deepspeed.moe makes: experts' parameters behind all others, in the model's order."""
    states = saved(place, "x4", "z2-fp32-ep2", "states")
    folder = view(place, "full", "x4", "z2-fp32-ep2")
    optimizer = torch.load(folder / "optimizer.bin", weights_only=True)
    model = torch.load(folder / "pytorch_model.bin", weights_only=True)
    order = ["emb", "first", "ln", "second", "head"]

    def place_of(name):
        number = name.partition("deepspeed_experts.")[2].partition(".")[0]
        return ("deepspeed_experts" in name, states[f"{name}|fp32"].dim() < 2)[::1] + (
            order.index(name.split(".")[0]), int(number or 0))

    numbers = [n for g in optimizer["param_groups"] for n in g["params"]]
    assert numbers == list(range(len(optimizer["state"])))
    held = [optimizer["state"][n]["exp_avg"] for n in numbers]
    names = [next(n for n in model if f"{n}|exp_avg" in states and torch.equal(states[f"{n}|exp_avg"], t)) for t in held]
    assert len(set(names)) == len(names) == len(states) // 3
    assert [place_of(n) for n in names] == sorted(place_of(n) for n in names)


@pytest.fixture(scope="module")
def resumed(place, chosen):
    base = place / "resumed"
    conftest.launch("experts.py", 2, base, [
        f"load:{by}:{view(place, name, launch, case).parent if name != 'universal' else view(place, name, launch, case)}"
        f":{what}{':universal' * (name == 'universal')}"
        for what in chosen(LOADS, OFTEN) for by, name, launch, case in [LOADS[what]]]
        + [f"refused:z1-bf16-ep2:{view(place, 'universal', 'x2', 'z1-bf16-ep2')}:still-shared"])
    return base


@pytest.mark.parametrize("name", conftest.or_long(LOADS, OFTEN))
def test_it_is_resumed(place, resumed, name):
    by, _, launch, case = LOADS[name]
    live = saved(place, launch, case, "live")
    got = trees.tensors(resumed / name / "live.safetensors")
    if name.startswith("unshared"):
        live.pop("calls"), got.pop("calls")  # load_universal leaves buffers as they are
    trees.assert_same(got, live)
    trees.assert_same(trees.tensors(resumed / name / "states.safetensors"), saved(place, launch, case, "states"))
    was, now = (json.loads((d / "info.json").read_text()) for d in (place / "runs" / launch / case, resumed / name))
    assert now["global_steps"] == was["global_steps"] and now["lr"] == was["lr"]
    if "pp2" in by or by == case and launch == "x2":
        assert now["losses"] == was["losses"]
    elif "pp" in by:  # of another cut, sums are the same but for their last bits
        assert now["losses"] == pytest.approx(was["losses"], rel=1e-5)
    else:  # a step of another number of ranks has other batches
        assert now["losses"][0] == pytest.approx(was["losses"][0], rel=1e-4)


def test_ranks_that_share_experts_do_not_load_each_others(resumed):
    """They would call different experts by one name: the files make DeepSpeed refuse that."""
    assert all((resumed / f"still-shared/refused-{rank}.txt").exists() for rank in range(2))


@pytest.mark.parametrize("launch, case, name, text", [
    ("x2", "z2-bf16-ep2-mixed", "universal", "different numbers of ranks share the experts of its layers"),
    ("x2", "z2-bf16-ep2-mixed", "full", "different numbers of ranks share the experts of its layers"),
    ("x2", "z0-bf16-ep2", "universal", "ZeRO stage 0 numbers parameters"),
    ("x4", PIPELINE, "world-3", "was saved with pipeline parallelism of 2 ranks, which stays in world-N"),
    ("x4", PIPELINE, "full", "was saved by a pipeline: each stage's optimizer numbers its own parameters"),
    ("x4", "z0-fp32-pp2", "universal", "ZeRO stage 0 numbers parameters, and a pipeline's model files hold none"),
    ("x4", "z2-fp32-ep2", "world-3", "was saved with expert parallelism of 2 ranks, which stays in world-N: N must be a "
                                     "multiple of it, not 3")])
def test_what_a_view_cannot_hold_is_said(place, command, tmp_path, launch, case, name, text):
    assert not view(place, name, launch, case).exists()
    done = command("export", place / "runs" / launch / case / "run" / view(place, name, launch, case).name, tmp_path / "out", "--view", name, check=False)
    assert done.returncode == 1 and text in done.stderr


# -- damage --

def file_of(number):
    return f"layer_0_expert_{number}_mp_rank_00_model_states.pt"


def lost(name):
    return lambda tag: (tag / name).unlink()


def moved(tag):
    shutil.copyfile(tag / file_of(1), tag / file_of(2))


def rewritten(change):
    def rewrite(tag):
        held = torch.load(tag / file_of(2))
        torch.save({change(n, t)[0]: change(n, t)[1] for n, t in held.items()}, tag / file_of(2))
    return rewrite


DAMAGE = {
    "no-file": (lost(file_of(2)), f"{file_of(2)} is missing: it holds expert 2 of 4 of layer 0 of experts"),
    "moved": (moved, f"{file_of(2)}: the file was saved as {file_of(1)}"),
    "another": (rewritten(lambda n, t: (n.replace("experts.2.", "experts.1."), t)),
                f"{file_of(2)} should hold expert 2 of layer 0 of experts, but holds {EXPERT}1.seen"),
    "size": (rewritten(lambda n, t: (n, t[:-1].clone())), f"{file_of(2)} (expert 2 of layer 0 of experts): {EXPERT}2.up.weight "
             "has shape [16, 12], but the optimizer's shards hold one of [17, 12]"),
    "step": (rewritten(lambda n, t: (n, t * 1.5)), f"{file_of(2)} (expert 2 of layer 0 of experts): {EXPERT}2.up.weight is not "
             "the fp32 copy in "),
    "no-shard": (lost("zero_pp_rank_1_mp_rank_00_optim_states.pt"), "zero_pp_rank_1_mp_rank_00_optim_states.pt (data-parallel "
                 "rank 1) is missing"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(place, tmp_path, mount, command, name):
    damage, text = DAMAGE[name]
    source = tmp_path / "source"
    shutil.copytree(place / "runs/x4/z2-fp32-ep2/run", source)
    damage(source / TAG)
    done = command("check", source, "-o", "settle=0", check=False)
    assert text in done.stdout and done.returncode == 1 and "1 problem," in done.stdout, done.stdout
    m = mount(source)
    if name == "no-shard":
        trees.assert_same(trees.weights(m / "weights" / TAG), saved(place, "x4", "z2-fp32-ep2", "live"))
    else:
        told = (m / "weights" / TAG / "UNSHARD_PROBLEM.txt").read_text()
        assert text in told


def test_buffers_of_experts_are_buffers(place, command):
    """Every expert's, though the model file lists those of rank 0's alone."""
    told = json.loads(command("show", place / "runs/x2/z1-bf16-ep2/run" / TAG, "--json", "-o", "settle=0").stdout)
    roles = {t["name"]: t["role"] for t in told["tensors"] if t["name"].endswith(".seen")}
    assert len([n for n in roles if "deepspeed_experts" in n]) == 4 + 2
    assert set(roles.values()) == {"buffer"}


def test_without_rank_0_the_order_of_its_groups_is_not_guessed(place, tmp_path, mount, command):
    """Rank 1 has the groups of layers that are shared out differently in another order."""
    source = tmp_path / "source"
    shutil.copytree(place / "runs/x2/z2-bf16-ep2-mixed/run", source)
    lost("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")(source / TAG)
    done = command("check", source, "-o", "settle=0", check=False)
    assert "(data-parallel rank 0) is missing" in done.stdout and "1 problem," in done.stdout, done.stdout
    trees.assert_same(trees.weights(mount(source) / "weights" / TAG), saved(place, "x2", "z2-bf16-ep2-mixed", "live"))


def test_a_pipelines_lost_shard_is_named(place, tmp_path, mount, command):
    name = "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt"
    source = tmp_path / "source"
    shutil.copytree(place / "runs/x4" / PIPELINE / "run", source)
    lost(name)(source / PIPE_TAG)
    done = command("check", source, "-o", "settle=0", check=False)
    assert f"{name} (data-parallel rank 1) is missing" in done.stdout and done.returncode == 1, done.stdout
    m = mount(source)
    trees.assert_same(trees.weights(m / "weights" / PIPE_TAG), saved(place, "x4", PIPELINE, "live"))
    for what in ("universal", "world-2"):
        folder = m / what / PIPE_TAG
        assert not folder.exists() or name in (folder / "UNSHARD_PROBLEM.txt").read_text(), what


def test_layers_that_tensor_parallelism_cut_are_refused(place, tmp_path, mount):
    """Of several slices of a layer the first would pass for the whole."""
    source = tmp_path / "source"
    shutil.copytree(place / "runs/x4" / PIPELINE / "run", source)
    shutil.copyfile(source / PIPE_TAG / "layer_01-model_states.pt", source / PIPE_TAG / "layer_01-model_01-model_states.pt")
    m = mount(source)
    for what in ("weights", "universal"):
        folder = m / what / PIPE_TAG
        assert not folder.exists() or "tensor-parallel slices" in (folder / "UNSHARD_PROBLEM.txt").read_text(), what


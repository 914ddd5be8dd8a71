"""Lightning and DeepSpeed through the mount: Lightning's sharded directories go on with DeepSpeedStrategy
(universal), and DeepSpeedStrategy's own checkpoints with other numbers of ranks and other stages.

What the optimizer holds when training goes on is compared with what was saved, bit for bit."""

import json

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import conftest
import trees

STEP = "run/step=2.ckpt"
# What three ranks resume in every round: both stages, from each strategy and view. The rest, --long.
OFTEN = ("world-z3", "universal-z2", "fsdp-z3", "mp-z2")
AGAIN = ("universal-z2", "fsdp-z3")  # of these, what saves and is resumed again


@pytest.fixture(scope="module")
def sources(made, tmp_path_factory):
    """ds/ holds DeepSpeedStrategy's runs (z2, z3), sharded/ those of the sharded strategies."""
    top = tmp_path_factory.mktemp("sources")
    (top / "ds").symlink_to(made("ld2", "z2").parent)
    (top / "sharded").symlink_to(made("l2", "fsdp").parent)
    return top


def on_two(mnt, sources):
    stripped = f"{mnt}-stripped"
    return [*(f"resume:{s}:native-{s}:{sources}/ds/{s}/{STEP}" for s in ("z2", "z3")),
            f"engine:z2u:engine-z2:{stripped}/universal/fsdp/{STEP}",
            f"engine:z3u:engine-z3:{stripped}/universal/fsdp/{STEP}"]


def on_three(mnt, sources):
    return [*(f"resume:{s}:world-{s}:{mnt}-ds/world-3/{s}/{STEP}" for s in ("z2", "z3")),
            f"resume:z2u:universal-z2:{mnt}-ds/universal/z3/{STEP}",
            f"resume:z3u:universal-z3:{mnt}-ds/universal/z2/{STEP}",
            *(f"resume:{s}u:{c}-{s}:{mnt}/universal/{c}/{STEP}"
              for c in ("fsdp", "mp") for s in ("z2", "z3"))]


def refused_on_three(sources):
    return [*(f"fail:{s}:{s}:{sources}/ds/{s}/{STEP}" for s in ("z2", "z3")),
            f"fail:z2:fsdp:{sources}/sharded/fsdp/{STEP}"]


@pytest.fixture(scope="module")
def resumed(sources, request, chosen, tmp_path_factory):
    every = request.config.getoption("--long")
    base = tmp_path_factory.mktemp("resumed")
    mounts = [(base / "mnt", "sharded", ""), (base / "mnt-stripped", "sharded", ",strip=net."),
              (base / "mnt-ds", "ds", "")]
    for path, source, option in mounts:
        path.mkdir()
        conftest.unshard("mount", (sources / source).resolve(), path, "-o",
                         f"settle=0,store={base}/store.db{option}")
    try:
        conftest.generated("lightning_deepspeed.py", 2, base / "2", on_two(base / "mnt", sources))
        jobs = {job.split(":")[2]: job for job in on_three(base / "mnt", sources)}
        jobs = [jobs[n] if every or n in AGAIN else jobs[n].replace("resume:", "once:", 1) for n in chosen(jobs, OFTEN)]
        conftest.generated("lightning_deepspeed.py", 3, base / "3", [*jobs, *refused_on_three(sources)])
        yield base
    finally:
        for path, _, _ in mounts:
            conftest.detach(path)


def states(resumed, world, name):
    return trees.tensors(resumed / str(world) / f"{name}.safetensors")


def restored(resumed, world, name):
    return json.loads((resumed / str(world) / f"{name}.json").read_text())


def error(resumed, world, name):
    return (resumed / str(world) / f"{name}.txt").read_text()


def saved_states(directory, root, scratch):
    """"NAME|STATE" of what a sharded directory holds, by torch's own converter."""
    dcp_to_torch_save(directory, scratch / "whole")
    held = torch.load(scratch / "whole", weights_only=False)
    out = {}
    for name, state in held["optimizer_0"]["state"].items():
        out[f"{name}|fp32"] = held[root][name]
        out |= {f"{name}|{key}": state[key] for key in ("exp_avg", "exp_avg_sq")}
    return out


# -- from Lightning's sharded strategies --

def test_natively_a_sharded_directory_is_refused(resumed):
    assert "not a valid DeepSpeed checkpoint" in error(resumed, 3, "fsdp")


@pytest.mark.parametrize("name", conftest.or_long(["fsdp-z2", "fsdp-z3", "mp-z2", "mp-z3"], OFTEN))
def test_a_sharded_directory_goes_on_with_deepspeed(sources, resumed, tmp_path, name):
    case, _, stage = name.partition("-")
    root = {"fsdp": "model", "mp": "state_dict"}[case]
    directory = sources / "sharded" / case / STEP
    trees.assert_same(states(resumed, 3, f"{case}-{stage}"), saved_states(directory, root, tmp_path))
    seen, meta = restored(resumed, 3, f"{case}-{stage}"), torch.load(directory / "meta.pt")
    assert seen["step"] == meta["global_step"] == 2
    assert seen["loops"] == meta["loops"]["fit_loop"]
    assert seen["schedules"] == meta["lr_schedulers"]
    assert "'batches': 2" in seen["callbacks"] and "step=2.ckpt" in seen["callbacks"]


@pytest.mark.parametrize("stage", ["z2", "z3"])
def test_a_plain_engine_takes_the_networks_own_names(sources, resumed, tmp_path, stage):
    want = saved_states(sources / "sharded/fsdp" / STEP, "model", tmp_path)
    trees.assert_same(states(resumed, 2, f"engine-{stage}"),
                      {name.removeprefix("net."): t for name, t in want.items()})


def test_what_is_shown_of_a_sharded_directory(sources, mount, command):
    source = sources / "sharded" / "fsdp"
    shown = mount(source.resolve()) / "universal" / STEP
    assert sorted(p.name for p in shown.iterdir()) == ["checkpoint", "latest_universal"]
    assert (shown / "latest_universal").read_text() == "checkpoint"
    told = (shown / ".unshard/problems.txt").read_text()
    assert "trained parameters only: 3 tensors" in told and "scheduler" not in told
    line = [x for x in command("show", source / STEP).stdout.splitlines() if "universal" in x]
    assert "trainer.fit(" in line[0] and "DeepSpeedStrategy" in line[0]
    weights = command("show", sources / "sharded/fsdp-weights" / STEP).stdout
    assert "holds no optimizer state with parameter names" in weights
    two = command("show", sources / "sharded/fsdp-rich/run/step=4.ckpt").stdout
    assert "has several optimizers (optimizer_0, optimizer_1): DeepSpeed's engine has one" in two


# -- DeepSpeedStrategy's own --

def test_natively_another_number_of_ranks_is_refused(resumed):
    assert "used a DP world size of 2 but the current world size is 3" in error(resumed, 3, "z2")
    assert "must match the size of tensor" in error(resumed, 3, "z3")


@pytest.mark.parametrize("name", conftest.or_long(["world-z2", "world-z3", "universal-z2", "universal-z3"], OFTEN))
def test_another_number_of_ranks_goes_on(resumed, name):
    """Universal: saved with the other stage."""
    how, _, stage = name.partition("-")
    native = "z3" if (stage == "z2") == (how == "universal") else "z2"
    trees.assert_same(states(resumed, 3, f"{how}-{stage}"), states(resumed, 2, f"native-{native}"))
    assert restored(resumed, 3, f"{how}-{stage}") == restored(resumed, 2, f"native-{native}")
    assert "'batches': 2" in restored(resumed, 3, f"{how}-{stage}")["callbacks"]


@pytest.mark.parametrize("stage", ["z2", "z3"])
def test_weights_are_the_live_ones(sources, mount, stage):
    top = sources / "ds" / stage
    mounted = mount(top.resolve())
    trees.assert_same(trees.weights(mounted / "weights/run/step=3.ckpt"),
                      trees.tensors(top / "live.safetensors"))


def test_whatever_the_directory_is_called(sources, copied, mount):
    """trainer.save_checkpoint("last"): no .ckpt behind it."""
    top = copied(sources / "ds/z2/run")
    (top / "step=2.ckpt").rename(top / "last")
    mounted = mount(top)
    assert trees.weights(mounted / "weights/last")
    assert (mounted / "world-3/last/latest").read_text() == "checkpoint"
    assert (mounted / "universal/last/latest_universal").read_text() == "checkpoint"

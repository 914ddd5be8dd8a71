"""DeepSpeed checkpoints through the mount, loaded by DeepSpeed itself: cut for other numbers of ranks
(world-N), and as universal checkpoints for other stages.

What the optimizer and the model held when a checkpoint was saved is compared with what they hold when it
has been loaded, bit for bit. All loading is done first, in few launches; each test looks at one."""

import json
import os
import shutil

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import conftest
import trees
from launches import ENGINES

os.environ["DS_ACCELERATOR"] = "cpu"
STATES = ("fp32", "exp_avg", "exp_avg_sq")
# What elastic_checkpoint saves lacks the learning rate, which only universal can do without.
CASES = [case for _, case in ENGINES if "elastic" not in case]
TAG = "global_step3"
MEND = 'for v in engine.optimizer.optimizer.state.values(): v["step"] = v["step"].clone()'
UNMENDED = "2-z3-bf16-unmended"
# Saved as, loaded as. Aligned parameters and BF16_Optimizer's (fp32grads) by stages 1 and 2 as well.
CROSSED = [("z1-bf16", "z3-bf16"), ("z2-bf16", "z3-bf16"), ("z3-bf16", "z2-bf16"), ("z3-bf16", "z1-bf16"),
           ("z3-bf16-subgroups", "z1-bf16"), ("z2-bf16", "z3-bf16-subgroups"),
           ("z2-bf16-elastic", "z2-bf16"), ("z2-bf16-elastic", "z3-bf16"),
           ("z2-bf16-roundrobin", "z2-bf16"), ("z1-bf16-fp32grads", "z1-bf16-fp32grads"),
           ("z2-bf16-aligned", "z2-bf16"), ("z2-fp32", "z2-fp32")]
# What every round loads: each kind once. The rest, the same at other stages and dtypes, --long.
LOADED_OFTEN = {"world-z2-fp32", "world-z3-bf16-subgroups", "world-z2-bf16-roundrobin", "world-z1-bf16-fp32grads",
                "z1-bf16-as-z3-bf16", "z2-bf16-as-z3-bf16-subgroups", "z3-bf16-as-z2-bf16", "z2-bf16-elastic-as-z3-bf16",
                "z2-bf16-roundrobin-as-z2-bf16", "z1-bf16-fp32grads-as-z1-bf16-fp32grads"}
# Of these, what saves and is loaded again in every round.
LOADED_AGAIN = {"world-z2-fp32", "world-z3-bf16-subgroups", "z1-bf16-as-z3-bf16", "z2-bf16-elastic-as-z3-bf16",
                "z1-bf16-fp32grads-as-z1-bf16-fp32grads"}


def load_json(path):
    return json.loads(path.read_text())


def read_dcp(folder, tmp_path):
    """By torch's own reader."""
    dcp_to_torch_save(folder, tmp_path / "out.pt")
    return torch.load(tmp_path / "out.pt", weights_only=False)


@pytest.fixture(scope="module")
def engines(made):
    """The directory of the engines' runs: CASE/{run,states.safetensors,live.safetensors}."""
    return made("e2", CASES[0]).parent


@pytest.fixture(scope="module")
def views(engines, tmp_path_factory):
    """A mount of them."""
    mnt = conftest.mounted(tmp_path_factory.mktemp("engines"), engines)
    yield mnt
    conftest.detach(mnt)


@pytest.fixture(scope="module")
def loaded(views, tmp_path_factory, request):
    """NAME/{states.safetensors,live.safetensors,info.json,run} of each loading at 3 ranks: NAME is
    world-CASE or SAVED-as-LOADED. Without --long, what is LOADED_OFTEN."""
    base = tmp_path_factory.mktemp("loaded")
    jobs = {f"world-{c}": f"load:{c}:{views}/world-3/{c}/run:world-{c}" for c in CASES}
    jobs |= {f"{a}-as-{b}": f"load:{b}:{views}/universal/{a}/{where(i)}:{a}-as-{b}:universal"
             for i, (a, b) in enumerate(CROSSED)}
    every = request.config.getoption("--long")
    conftest.launch("deepspeed_engine.py", 3, base, [job + ":once" * (not every and name not in LOADED_AGAIN)
                                                     for name, job in jobs.items() if every or name in LOADED_OFTEN])
    return base


def loaded_or_long(name, *values, often=LOADED_OFTEN):
    return pytest.param(*values, marks=[] if name in often else pytest.mark.long, id="-".join(values))


def where(i):
    """Of a run as natively, by the tag that latest_universal names; or a tag alone."""
    return f"run/{TAG}" if i % 3 == 0 else "run"


@pytest.fixture(scope="module")
def trainers(made):
    return made("h2", "z2-bf16").parent


@pytest.fixture(scope="module")
def fsdp(made):
    return made("t2", "tied-f1-fp32").parent


@pytest.fixture(scope="module")
def accelerate(made):
    """Of FSDP2, with an object registered for checkpointing."""
    return made("r2", "acc")


ACCELERATE = ["acc-z2-bf16", "acc-z3-fp32"]
FSDP = ["tied-f1-fp32", "untied-f2-fp32", "untied-f1-bf16"]
OF_FSDP = [(stage, case) for stage in ("z2", "z3") for case in FSDP]
# What every round resumes; the rest, which shows the same at other stages, of other models and on 1 and 4 ranks, --long.
OFTEN = {"2-z2-bf16-world", "2-z3-bf16-native", "2-z3-bf16-universal", "2-z3-bf16-hidden", "2-z3-bf16-unmended",
         "3-z3-bf16", "3-z3-bf16-world", "3-z3-bf16-universal", "3-z3-bf16-crossed", "z3-untied-f2-fp32",
         "acc-z3-fp32-universal", "acc-fsdp-z3-fp32"}
# Of these, what saves and is resumed again in every round.
AGAIN = {"2-z2-bf16-world", "2-z3-bf16-universal", "acc-z3-fp32-universal"}


def or_long(name, *values):
    return pytest.param(*values, marks=[] if name in OFTEN else pytest.mark.long, id="-".join(map(str, values)))


def by_hand(checkpoint, out):
    """A Trainer's checkpoint, converted by DeepSpeed's tool and completed until a Trainer takes it."""
    out.mkdir()
    conftest.to_universal(checkpoint / "global_step2", out / "global_step2", options=["--inject_missing_state"])
    (out / "latest_universal").write_text("global_step2")
    for name in ("trainer_state.json", "scheduler.pt"):
        shutil.copy(checkpoint / name, out)
    return out


@pytest.fixture(scope="module")
def resumed(trainers, fsdp, accelerate, tmp_path_factory, request):
    """NAME/losses.json, NAME/states.safetensors, of AGAIN NAME/again.json of each resume: N-STAGE-{native,world,universal,hidden,
    crossed,tool}, acc-.., and FROM-STAGE/run/checkpoint-2 as well, saved when it had been loaded from an FSDP run.
    load_universal at stage 3 is mended as problems.txt says, but in one. Without --long, what is OFTEN, each once."""
    base = tmp_path_factory.mktemp("resumed")
    tool = by_hand(trainers / "z3-bf16/run/checkpoint-2", base / "tool")
    plain = conftest.mounted(tmp_path_factory.mktemp("plain"), trainers)
    keep = conftest.mounted(tmp_path_factory.mktemp("keep"), trainers, "rng=keep")
    of_fsdp = conftest.mounted(tmp_path_factory.mktemp("fsdp"), fsdp)
    of_accelerate = conftest.mounted(tmp_path_factory.mktemp("accelerate"), accelerate)
    every = request.config.getoption("--long")
    jobs = {world: [] for world in (1, 2, 3, 4)}

    def add(world, stage, how, root, *options):
        if not (every or f"{world}-{stage}-{how}" in OFTEN):
            return
        if options and stage.startswith("z3") and f"{world}-{stage}-{how}" != UNMENDED:
            options = (*options, "mend")
        jobs[world].append(":".join([f"resume:{stage}:tied", str(root), f"{world}-{stage}-{how}", *options]))

    for stage, other in (("z2-bf16", "z3-bf16"), ("z3-bf16", "z2-bf16")):
        for world in jobs:
            mnt = keep if world == 2 else plain  # the only one whose random states there are
            add(world, stage, "world", f"{mnt}/world-{world}/{stage}/run/checkpoint-2")
            add(world, stage, "universal", f"{mnt}/universal/{stage}/run/checkpoint-2", "universal")
        add(2, stage, "native", f"{trainers}/{stage}/run/checkpoint-2")
        add(2, stage, "hidden", f"{plain}/universal/{stage}/run/checkpoint-2", "universal")
        add(3, stage, "crossed", f"{plain}/universal/{other}/run/checkpoint-2", "universal")
    add(3, "z3-bf16", "tool", tool, "universal")
    add(2, "z3-bf16", "unmended", f"{plain}/universal/z3-bf16/run/checkpoint-2", "universal")
    jobs[3] += [f"resume:{stage}-fp32:{c.split('-')[0]}:{of_fsdp}/universal/{c}/run/checkpoint-2:"
                f"{c}-{stage}:universal:save{':mend' * (stage == 'z3')}"
                for stage, c in OF_FSDP if every or f"{stage}-{c}" in OFTEN]
    jobs[3] += [f"acc-resume:{saved[4:]}:{plain}/world-3/{saved}/run/state:{saved}-world"
                for saved in ACCELERATE if every or f"{saved}-world" in OFTEN]
    jobs[3] += [f"acc-resume:{stage}:{plain}/universal/{saved}/run/state:{saved}-universal:universal"
                for saved, stage in zip(ACCELERATE, ("z3-bf16", "z2-fp32")) if every or f"{saved}-universal" in OFTEN]
    jobs[3] += [f"acc-resume:{stage}:{of_accelerate}/universal/run/state:acc-fsdp-{stage}:universal"
                for stage in ("z2-fp32", "z3-fp32") if every or f"acc-fsdp-{stage}" in OFTEN]
    for world, specs in jobs.items():
        if specs:
            conftest.launch("deepspeed_trainer.py", world, base,
                            [spec if every or AGAIN & set(spec.split(":")) else f"{spec}:once" for spec in specs])
    yield base
    for mnt in (plain, keep, of_fsdp, of_accelerate):
        conftest.detach(mnt)


# -- what was loaded trains on, saves, and is loaded again --

@pytest.mark.parametrize("name", [loaded_or_long(name, name, often=LOADED_AGAIN) for name in (
    *(f"world-{c}" for c in CASES), *(f"{a}-as-{b}" for a, b in CROSSED))])
def test_what_was_loaded_goes_on(loaded, name):
    """At stage 3 from universal with the lines of problems.txt: without them each sub-group's bias
    correction runs ahead of what is saved."""
    again = load_json(loaded / name / "again.json")
    first, second = again["steps"]
    assert first == second and again["same"]


def test_what_was_resumed_goes_on(resumed, request):
    """A Trainer, Accelerate."""
    runs = sorted(p.parent.name for p in resumed.glob("*/again.json"))
    made = sorted(p.parent.name for p in resumed.glob("*/states.safetensors"))
    if request.config.getoption("--long"):
        assert runs == made and len(runs) > 30
    else:
        assert set(runs) == AGAIN and len(made) > 10
    for run in runs:
        first, second = load_json(resumed / run / "again.json")
        assert first is not None and (first == second or run == UNMENDED), run


# -- world-N --

@pytest.mark.parametrize("case", [loaded_or_long(f"world-{case}", case) for case in CASES])
def test_another_number_of_ranks_holds_the_same(engines, loaded, case):
    got = loaded / f"world-{case}"
    trees.assert_same(trees.tensors(got / "live.safetensors"),
                      trees.tensors(engines / case / "live.safetensors"))
    if "roundrobin" not in case:  # DeepSpeed's own way of looking states up is wrong there
        trees.assert_same(trees.tensors(got / "states.safetensors"),
                          trees.tensors(engines / case / "states.safetensors"))
    info = load_json(got / "info.json")
    assert info["lr"] == [1e-2 / 4, 2.5e-3 / 4] and info["weight_decay"] == [0.1, 0.0]
    assert info["global_steps"] == info["scheduler"] == 3 and set(info["steps"]) == {3.0}
    assert (info["epoch"], info["seen"], info["order"]) == (7, [1, 2.5, "three"], [0, 1, 2, 3])


def flatten(value, name=""):
    """Everything in a torch.save file by its path."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from flatten(v, f"{name}.{k}")
        yield f"{name}{{}}", sorted(map(str, value))
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for i, v in enumerate(value):
            yield from flatten(v, f"{name}[{i}]")
        yield f"{name}[]", (type(value).__name__, len(value))
    elif type(value).__name__.endswith("LossScaler"):
        yield name, (type(value).__name__, vars(value))
    else:
        yield name, value


def without_mappings(path):
    """param_slice_mappings is not written by the mount: no loader reads it, and it can be wrong."""
    held = torch.load(path, weights_only=False)
    held.get("optimizer_state_dict", {}).pop("param_slice_mappings", None)
    return dict(flatten(held))


@pytest.mark.parametrize("case", [loaded_or_long(f"world-{case}", case) for case in CASES])
def test_files_are_what_that_many_ranks_save(views, loaded, case):
    import deepspeed  # noqa: F401: the files name its classes

    saved, shown = loaded / f"world-{case}/run" / TAG, views / "world-3" / case / "run" / TAG
    assert sorted(os.listdir(shown)) == sorted(os.listdir(saved))
    for file in sorted(os.listdir(saved)):
        want, got = without_mappings(saved / file), without_mappings(shown / file)
        assert sorted(got) == sorted(want), file
        for key, value in want.items():
            if torch.is_tensor(value):
                trees.assert_same({key: got[key]}, {key: value.detach()})
            else:
                assert type(got[key]) is type(value) and got[key] == value, (file, key)


def test_one_rank_and_more_ranks_than_elements(views):
    for world in (1, 700):
        folder = views / f"world-{world}/z2-fp32/run" / TAG
        assert len(os.listdir(folder)) == world + 1
        parts = [torch.load(folder / f"zero_pp_rank_{r}_mp_rank_00_optim_states.pt", weights_only=False)
                 ["optimizer_state_dict"]["single_partition_of_fp32_groups"] for r in range(world)]
        whole = [torch.cat([p[g] for p in parts]) for g in range(2)]
        assert [len(w) for w in whole] == [37 * 12 + 4 * 17 * 12, 1 + 2 * (12 + 12 + 17 + 3)]


@pytest.mark.parametrize("name", ["world-0", "world-03", "world-", "world-65537", "world--1", "world"])
def test_no_such_world(views, name):
    assert not (views / name).exists()
    assert name not in os.listdir(views)


# -- universal --

@pytest.mark.parametrize("saved,loaded_as", [loaded_or_long(f"{a}-as-{b}", a, b) for a, b in CROSSED])
def test_another_stage_holds_the_same(engines, loaded, saved, loaded_as):
    got = trees.tensors(loaded / f"{saved}-as-{loaded_as}" / "states.safetensors")
    live = trees.tensors(engines / saved / "live.safetensors")
    if "roundrobin" not in saved:
        trees.assert_same(got, trees.tensors(engines / saved / "states.safetensors"))
    for name in {key.split("|")[0] for key in got}:
        trees.assert_same({name: got[f"{name}|fp32"].to(live[name].dtype)}, {name: live[name]})
    info = load_json(loaded / f"{saved}-as-{loaded_as}" / "info.json")
    assert info["global_steps"] == 3 and set(info["steps"]) == {3.0}
    assert (info["epoch"], info["seen"], info["order"]) == (7, [1, 2.5, "three"], [0, 1, 2, 3])
    if "elastic" in saved:
        assert info["lr"] == [1e-2, 2.5e-3] and info["scheduler"] == 3
    else:
        assert info["lr"] == [1e-2 / 4, 2.5e-3 / 4] and info["weight_decay"] == [0.1, 0.0]
        at3 = loaded_as.startswith("z3")  # one learning rate for all, until the line for it has run
        assert info["loaded"] == {"lr": [1e-2 / 4, 1e-2 / 4 if at3 else 2.5e-3 / 4],
                                  "weight_decay": [0.1, 0.0]}


@pytest.mark.parametrize("case", ["z2-bf16", "z3-bf16"])
def test_universal_is_what_ds_to_universal_makes(engines, views, tmp_path, case):
    out = tmp_path / "out"
    conftest.to_universal(engines / case / "run" / TAG, out, options=["--inject_missing_state"])
    zero = views / "universal" / case / "run" / TAG / TAG / "zero"
    shown = sorted(p.name for p in zero.iterdir() if p.is_dir())
    assert shown == sorted({k.split("|")[0] for k in
                            trees.tensors(engines / case / "states.safetensors")} | {"head.weight"})
    # The other name of a tied parameter. (The tool has it at stage 2, with the 16-bit weight alone.)
    assert (out / "zero/head.weight").is_dir() == (case == "z2-bf16")
    for state in ("exp_avg", "exp_avg_sq", "fp32", "step"):
        held = [(zero / name / f"{state}.pt").read_bytes() for name in ("head.weight", "emb.weight")]
        assert held[0] == held[1]
    for name in set(shown) - {"head.weight"}:
        assert sorted(os.listdir(zero / name)) == ["exp_avg.pt", "exp_avg_sq.pt", "fp32.pt", "step.pt"]
        for state in STATES:
            want = torch.load(out / "zero" / name / f"{state}.pt", weights_only=True)
            want = want["param"] if isinstance(want, dict) else want
            got = torch.load(zero / name / f"{state}.pt", weights_only=True)
            assert got["cat_dim"] == 0
            trees.assert_same({name: got["param"].flatten()}, {name: want.detach().flatten()})
        assert float(torch.load(zero / name / "step.pt", weights_only=True)) == 3.0
    assert (zero / "optimizer_state.pt").stat().st_size < 8192


@pytest.mark.parametrize("case", ["z2-bf16", "z2-fp32", "z3-bf16", "z3-bf16-subgroups"])
def test_weights_are_what_zero_to_fp32_makes(engines, views, case):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    want = get_fp32_state_dict_from_zero_checkpoint(str(engines / case / "run"))
    got = trees.weights(views / "weights-fp32" / case / "run" / TAG)
    trees.assert_same(got, {n: want[n].float() if want[n].is_floating_point() else want[n] for n in got})
    assert set(want) - set(got) <= {"head.weight"}


@pytest.mark.parametrize("view", ["full", "full-fsdp", "dcp", "world-3"])
def test_no_optimizer_without_its_learning_rate(command, views, engines, view):
    run = engines / "z2-bf16-elastic/run"
    assert not (views / view / "z2-bf16-elastic/run" / TAG).exists()
    shown = command("show", run / TAG).stdout
    assert "were not saved, as with elastic_checkpoint" in shown
    served = trees.weights(views / "weights/z2-bf16-elastic/run" / TAG)
    live = trees.tensors(engines / "z2-bf16-elastic/live.safetensors")
    trees.assert_same(served, {n: live[n] for n in served})


def test_problems_say_what_load_universal_does_not_restore(views):
    text = (views / f"universal/z2-bf16-roundrobin/run/{TAG}/.unshard/problems.txt").read_text()
    for part in ("trained parameters only: 4 tensors", "first one's hyper-parameters", "world-N",
                 "round_robin_gradients", "one `step`", f"`{MEND}`",
                 "the groups differ in lr, weight_decay, initial_lr",
                 'zip(engine.optimizer.param_groups, [0.0025, 0.000625]): g["lr"] = lr`'):
        assert part in text


def test_the_documents_and_show_say_it_too(engines, command):
    assert f"`{MEND}`" in (conftest.ROOT / "docs/views.md").read_text()
    shown = command("show", engines / "z3-bf16/run" / TAG, "-o", "store=none").stdout
    after = shown.split("\nviews\n")[1]
    assert after.count(f"`{MEND}`") == 1 and "If you stay at stage 3, load world-N" in after


def test_a_run_is_loaded_as_natively(engines, views):
    """By its own directory: latest_universal lies beside the tags, as `latest` does."""
    run = views / "universal/z2-bf16/run"
    assert sorted(os.listdir(run)) == [TAG, "latest", "latest_universal", "zero_to_fp32.py",
                                       "zero_to_torch.py"]
    assert (run / "latest_universal").read_text() == f"{TAG}/{TAG}"
    assert (run / TAG / TAG / "mp_rank_00_model_states.pt").is_file()
    assert "latest_universal" not in os.listdir(views / "world-3/z2-bf16/run")


# -- the Trainer --

def losses(folder, *steps):
    """Of steps 3 and 4."""
    steps = steps or ("3", "4")
    return {k: v for k, v in load_json(folder / "losses.json").items() if k in steps}


def test_without_the_line_another_run_goes_on(resumed):
    """load_universal at stage 3 gives all sub-groups one step tensor, which AdamW then advances once for each
    (deepspeed 0.19.8): from the second loss on, such a run goes another way."""
    got, want = losses(resumed / UNMENDED), losses(resumed / "2-z3-bf16-hidden")
    assert got["3"] == want["3"] and got["4"] != want["4"]


@pytest.mark.parametrize("how,stage", [or_long(f"2-{stage}-{how}", how, stage) for stage in ("z2-bf16", "z3-bf16")
                                       for how in ("native", "world", "universal")])
def test_trainer_goes_on_as_if_it_had_not_stopped(trainers, resumed, stage, how):
    got = losses(resumed / f"2-{stage}-{how}")
    assert len(got) == 2 and got == losses(trainers / stage)


@pytest.mark.parametrize("stage", [or_long(f"2-{stage}-hidden", stage) for stage in ("z2-bf16", "z3-bf16")])
def test_random_states_matter_here(trainers, resumed, stage):
    assert losses(resumed / f"2-{stage}-hidden", "3") != losses(trainers / stage, "3")


@pytest.mark.parametrize("world,stage", [or_long(f"{world}-{stage}", world, stage) for world in (1, 3, 4)
                                         for stage in ("z2-bf16", "z3-bf16")])
def test_trainer_goes_on_with_other_ranks(resumed, stage, world):
    runs = [f"{world}-{stage}-world", f"{world}-{stage}-universal"]
    runs += [f"{world}-{stage}-crossed"] * (world == 3)
    assert len(losses(resumed / runs[0])) == 2
    for run in runs[1:]:
        assert losses(resumed / run) == losses(resumed / runs[0]), run
    held = trees.tensors(resumed / f"2-{stage}-native" / "states.safetensors")
    for run in runs[:2]:
        trees.assert_same(trees.tensors(resumed / run / "states.safetensors"), held)


@pytest.mark.long
def test_universal_at_stage_3_goes_on_as_what_the_tool_makes(resumed):
    runs = [losses(resumed / f"3-z3-bf16-{how}", "3", "4") for how in ("universal", "tool")]
    assert runs[0] == runs[1] and len(runs[0]) == 2
    held = [trees.tensors(resumed / f"3-z3-bf16-{how}/states.safetensors") for how in ("universal", "tool")]
    trees.assert_same(*held)


def test_what_a_trainer_finds(trainers, mount):
    m = mount(trainers)
    for view in ("universal", "world-3"):
        names = set(os.listdir(m / view / "z2-bf16/run/checkpoint-2"))
        assert {"global_step2", "trainer_state.json", "scheduler.pt"} <= names
        assert not {n for n in names if n.startswith("rng_state") or n.endswith(".safetensors")}
    assert (m / "universal/z2-bf16/run/checkpoint-2/latest_universal").read_text() == "global_step2"
    assert "rng_state_1.pth" in os.listdir(m / "world-2/z2-bf16/run/checkpoint-2")
    kept = mount(trainers, "rng=keep")
    assert "rng_state_1.pth" in os.listdir(kept / "world-3/z2-bf16/run/checkpoint-2")


# -- Accelerate --

@pytest.mark.parametrize("case,how", [or_long(f"{case}-{how}", case, how) for case in ACCELERATE
                                      for how in ("world", "universal")])
def test_accelerate_loads_other_ranks_and_stages(trainers, resumed, case, how):
    got = resumed / f"{case}-{how}"
    trees.assert_same(trees.tensors(got / "states.safetensors"),
                      trees.tensors(trainers / case / "states-2.safetensors"))
    assert load_json(got / "schedule.json") == 2


@pytest.mark.parametrize("stage", [or_long(f"acc-fsdp-{stage}", stage) for stage in ("z2-fp32", "z3-fp32")])
def test_accelerate_goes_on_with_deepspeed(accelerate, resumed, tmp_path, stage):
    got = trees.tensors(resumed / f"acc-fsdp-{stage}" / "states.safetensors")
    folder = accelerate / "run/state"
    weights = read_dcp(folder / "pytorch_model_fsdp_0", tmp_path)["model"]
    want = {}
    for name, held in read_dcp(folder / "optimizer_0", tmp_path)["optimizer"]["state"].items():
        want |= {f"{name}|fp32": weights[name], **{f"{name}|{s}": held[s] for s in STATES[1:]}}
    trees.assert_same(got, want)


# -- from FSDP --

@pytest.mark.parametrize("stage,case", [or_long(f"{stage}-{case}", stage, case) for stage, case in OF_FSDP])
def test_fsdp_goes_on_with_deepspeed(fsdp, resumed, tmp_path, case, stage):
    got = trees.tensors(resumed / f"{case}-{stage}" / "states.safetensors")
    live = trees.tensors(fsdp / case / "live-2.safetensors")
    states = read_dcp(fsdp / case / "run/checkpoint-2/optimizer_0", tmp_path)["optimizer"]["state"]
    want = {}
    for name, held in states.items():
        want[f"{name}|fp32"] = live[name].float()
        for state in STATES[1:]:
            want[f"{name}|{state}"] = held[state].float()
    trees.assert_same(got, want)
    assert len(losses(resumed / f"{case}-{stage}", "3", "4")) == 2


# -- to FSDP --

@pytest.mark.parametrize("case", [c for c in CASES if "roundrobin" not in c])
def test_dcp_holds_the_same(engines, views, tmp_path, case):
    got = read_dcp(views / "dcp" / case / "run" / TAG, tmp_path)
    held = trees.tensors(engines / case / "states.safetensors")
    live = trees.tensors(engines / case / "live.safetensors")
    names = sorted({key.split("|")[0] for key in held})
    optimizer = got["optimizer"]
    assert sorted(optimizer["state"]) == names
    for name in names:
        trees.assert_same({s: optimizer["state"][name][s] for s in STATES[1:]},
                          {s: held[f"{name}|{s}"] for s in STATES[1:]})
        assert float(optimizer["state"][name]["step"]) == 3.0
    assert [g["lr"] for g in optimizer["param_groups"]] == [1e-2 / 4, 2.5e-3 / 4]
    assert sorted(n for g in optimizer["param_groups"] for n in g["params"]) == names
    owner = {n: "emb.weight" if n == "head.weight" else n for n in live}
    trees.assert_same(got["model"], {n: held.get(f"{owner[n]}|fp32", t) for n, t in live.items()})


def test_trainer_goes_on_with_fsdp(trainers, mount, tmp_path, request):
    """From dcp (sharded) as from full-fsdp (whole files), at other numbers of ranks. With --long stage 2, and from what such a
    run saves again."""
    once = not request.config.getoption("--long")
    stages = ("z3-fp32",) if once else ("z3-fp32", "z2-bf16")
    trainer, accelerate = ("trainer once", "accelerate once") if once else ("trainer", "accelerate")
    m = mount(trainers)
    spec, out = tmp_path / "spec.json", tmp_path / "out.json"
    spec.write_text(json.dumps([
        [f"{view}-{stage}", trainer, str(m / view / stage / "run/checkpoint-2"), 2, kind]
        for stage in stages
        for view, kind in (("dcp", "SHARDED_STATE_DICT"), ("full-fsdp", "FULL_STATE_DICT"))]
        + [[f"{view}-accelerate", accelerate, str(m / view / "acc-z3-fp32/run/state"), 2, kind]
           for view, kind in (("dcp", "SHARDED_STATE_DICT"), ("full-fsdp", "FULL_STATE_DICT"))]))
    conftest.launch("resume_run.py", 3, out, [str(spec)])
    runs = {name: conftest.went_on(run, once) for name, run in load_json(out).items()}
    assert runs["dcp-z3-fp32"] == runs["full-fsdp-z3-fp32"]
    assert runs["dcp-accelerate"] == runs["full-fsdp-accelerate"]
    assert runs["dcp-accelerate"]["optimizer"] == [4.0] and len(runs["dcp-accelerate"]["loss"]) == 2
    for stage in stages:
        assert runs[f"dcp-{stage}"]["step"] == 4 and runs[f"dcp-{stage}"]["optimizer"] == [4.0]
        assert runs[f"dcp-{stage}"]["history"] == [1, 2, 3, 4]


@pytest.fixture(scope="module")
def returned(resumed, tmp_path_factory):
    """A mount of what DeepSpeed saved again of FSDP's runs."""
    mnt = conftest.mounted(tmp_path_factory.mktemp("returned"), resumed)
    yield mnt
    conftest.detach(mnt)


@pytest.mark.parametrize("stage,case", [or_long(f"{stage}-{case}", stage, case) for stage, case in OF_FSDP])
def test_to_deepspeed_and_back_keeps_every_byte(fsdp, returned, tmp_path, case, stage):
    there = fsdp / case / "run/checkpoint-2"
    back = returned / "dcp" / f"{case}-{stage}" / "run/checkpoint-2"
    want = read_dcp(there / "optimizer_0", tmp_path)["optimizer"]
    got = read_dcp(back / "optimizer_0", tmp_path)["optimizer"]
    assert sorted(got["state"]) == sorted(want["state"])
    for name, held in want["state"].items():
        trees.assert_same({s: got["state"][name][s] for s in STATES[1:]},
                          {s: held[s].float() for s in STATES[1:]})
        assert float(got["state"][name]["step"]) == float(held["step"])
    assert [sorted(g["params"]) for g in got["param_groups"]] == \
        [sorted(g["params"]) for g in want["param_groups"]]
    weights = read_dcp(there / "pytorch_model_fsdp_0", tmp_path)["model"]
    shown = read_dcp(back / "pytorch_model_fsdp_0", tmp_path)["model"]
    trained = set(want["state"])
    trees.assert_same({n: shown[n] for n in trained}, {n: weights[n].float() for n in trained})


# -- damage --

def test_a_missing_shard(engines, copied, mount):
    source = copied(engines / "z2-bf16")
    gone = source / "run" / TAG / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    gone.unlink()
    m = mount(source)
    for view in ("universal", "dcp", "world-3", "world-2"):
        folder = m / view / "run" / TAG
        assert os.listdir(folder) == ["UNSHARD_PROBLEM.txt"]
        assert gone.name in (folder / "UNSHARD_PROBLEM.txt").read_text()
    trees.assert_same(trees.weights(m / "weights/run" / TAG),
                      {n: t for n, t in trees.tensors(source / "live.safetensors").items()
                       if n in trees.weights(m / "weights/run" / TAG)})


def test_a_missing_model_file(engines, copied, mount):
    source = copied(engines / "z3-bf16")
    gone = source / "run" / TAG / "zero_pp_rank_1_mp_rank_00_model_states.pt"
    gone.unlink()
    m = mount(source)
    folder = m / "world-3/run" / TAG
    assert os.listdir(folder) == ["UNSHARD_PROBLEM.txt"]
    assert gone.name in (folder / "UNSHARD_PROBLEM.txt").read_text()
    # Frozen parameters are all that is in it, and load_universal restores none of them.
    assert (m / "universal/run" / TAG / TAG / "zero/emb.weight/fp32.pt").stat().st_size > 37 * 12 * 4


def test_a_shard_cut_short(engines, copied, mount):
    source = copied(engines / "z3-bf16")
    cut = source / "run" / TAG / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    os.truncate(cut, cut.stat().st_size - 100)
    m = mount(source)
    for view in ("universal", "world-3", "weights"):
        folder = m / view / "run" / TAG
        assert os.listdir(folder) == ["UNSHARD_PROBLEM.txt"], view
        assert cut.name in (folder / "UNSHARD_PROBLEM.txt").read_text()


def test_a_model_file_cut_short(engines, copied, mount):
    source = copied(engines / "z2-bf16")
    cut = source / "run" / TAG / "mp_rank_00_model_states.pt"
    os.truncate(cut, cut.stat().st_size - 100)
    m = mount(source)
    for view in ("dcp", "world-3"):
        folder = m / view / "run" / TAG
        assert os.listdir(folder) == ["UNSHARD_PROBLEM.txt"], view
        assert cut.name in (folder / "UNSHARD_PROBLEM.txt").read_text()

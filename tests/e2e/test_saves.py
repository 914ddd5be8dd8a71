"""Files of two saves in one checkpoint: what records the training's step is compared, whatever trainer wrote it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from launches import LAUNCHES

GOLDEN = Path(__file__).parents[1] / "golden"
STEPS = ("steps_differ", "step_unlike_name", "optimizer_behind", "optimizer_files_differ", "optimizer_files_may_differ",
         "universal_steps_differ", "zero_steps_differ", "zero_counters_differ", "rank_steps_differ")
PROBLEM = "UNSHARD_PROBLEM.txt"


def step_findings(command, source, *options):
    done = command("check", source, "--json", "-o", "settle=0", *options, check=False)
    return [(f["id"], f["severity"], f["text"]) for f in json.loads(done.stdout)["findings"] if f["id"] in STEPS]


def edit(path, change):
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, path)


def in_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# -- no false alarm: optimizers of all kinds, frozen parameters, fp16, accumulated gradients, adapters --

@pytest.mark.parametrize("launch", LAUNCHES)
def test_what_trainers_write_is_of_one_save(made, command, launch):
    folder = made(launch, LAUNCHES[launch][2][0]).parent
    assert step_findings(command, folder, "--store", "none") == []


@pytest.mark.parametrize("name", ["run", "dcp", "zero", "ranks", "rank_files", "older"])
def test_golden_checkpoints_are_of_one_save(command, name):
    assert step_findings(command, GOLDEN / name, "--store", "none") == []


# -- the mixes --

def lost_views(mount, source, checkpoint, views):
    mnt = mount(source, "store=none")
    return [v for v in views if (mnt / v / checkpoint / PROBLEM).exists()]


@pytest.fixture
def run(copied):
    return copied(GOLDEN / "run", "run")


def test_a_trainer_state_of_another_save(run, command, mount):
    in_json(run / "checkpoint-2" / "trainer_state.json", global_step=7)
    [(kind, severity, text)] = step_findings(command, run, "--store", "none")
    assert (kind, severity) == ("steps_differ", "problem")
    assert text.startswith("trainer_state.json has step 7, and the directory's name has 2: the optimizer")
    views = ("full", "full-fsdp", "dcp", "universal")
    assert lost_views(mount, run, "checkpoint-2", (*views, "weights")) == list(views)


def test_an_older_trainer_state(run, command):
    in_json(run / "checkpoint-2" / "trainer_state.json", global_step=1)
    [(kind, _, text)] = [f for f in step_findings(command, run, "--store", "none") if "optimizer has" in f[2]]
    assert kind == "steps_differ" and text.startswith("the optimizer has step 2, and trainer_state.json has 1")


def test_a_renamed_directory_is_no_damage(run, command, mount):
    (run / "checkpoint-2").rename(run / "checkpoint-9")
    [(kind, severity, text)] = step_findings(command, run, "--store", "none")
    assert (kind, severity) == ("step_unlike_name", "note")
    assert "trainer_state.json has step 2, and the directory's name has 9" in text
    assert lost_views(mount, run, "checkpoint-9", ("full", "dcp", "universal")) == []


def test_a_scheduler_of_another_save(run, command, mount):
    edit(run / "checkpoint-2" / "scheduler.pt", lambda state: state.update(last_epoch=900))
    [(kind, severity, text)] = step_findings(command, run, "--store", "none")
    assert (kind, severity) == ("steps_differ", "problem")
    assert text.startswith("scheduler.pt (last_epoch) has step 900, and trainer_state.json has 2")
    assert lost_views(mount, run, "checkpoint-2", ("full", "weights")) == ["full"]


@pytest.mark.parametrize("by", [5, -1])
def test_lightning_s_state_of_another_save(made, copied, command, by):
    source = copied(made("l2", "fsdp"), "run")
    metas = sorted(source.rglob("meta.pt"))
    assert metas
    edit(metas[0], lambda state: state.update(global_step=state["global_step"] + by))
    assert [f[:2] for f in step_findings(command, source, "--store", "none")] == [("steps_differ", "problem")]


def test_deepspeed_s_model_file_of_another_save(copied, command):
    source = copied(GOLDEN / "zero" / "z2_w3", "run")
    shutil.rmtree(source / "global_step2_universal")
    edit(source / "global_step2" / "mp_rank_00_model_states.pt", lambda state: state.update(global_steps=7))
    [(kind, severity, text)] = step_findings(command, source, "--store", "none")
    assert (kind, severity) == ("steps_differ", "problem")
    assert "(global_steps) has step 7, and the directory's name has 2" in text


@pytest.mark.parametrize("step", [9, 1])
@pytest.mark.parametrize("form", [int, float, torch.tensor])
def test_a_universal_parameter_of_another_save(copied, command, step, form):
    source = copied(GOLDEN / "zero" / "z2_w3", "run")
    torch.save(form(step), source / "global_step2_universal/zero/up.weight/step.pt")
    found = step_findings(command, source, "--store", "none")
    assert [f[:2] for f in found][:1] == [("universal_steps_differ", "problem")]
    assert "up.weight/step.pt" in found[0][2]


# -- shards of two saves in a distributed checkpoint --

def test_a_shard_of_the_save_before(made, copied, command, mount):
    source = copied(made("t2", "untied-f2-fp32") / "run", "run")
    shard = "optimizer_0/__1_0.distcp"
    shutil.copy2(source / "checkpoint-1" / shard, source / "checkpoint-2" / shard)
    [(kind, severity, text)] = step_findings(command, source, "--store", "none")
    assert (kind, severity) == ("optimizer_files_differ", "problem")
    assert f"checkpoint-1/{shard} holds the same bytes" in text
    assert lost_views(mount, source, "checkpoint-2", ("full", "dcp", "weights")) == ["full", "dcp"]


def test_the_checkpoint_alone_is_not_compared_with_the_run(made, copied, command):
    """As many parameters as this model has prove nothing by their number."""
    source = copied(made("r2", "f1") / "run", "run")
    shard = "optimizer_0/__1_0.distcp"
    shutil.copy2(source / "checkpoint-2" / shard, source / "checkpoint-4" / shard)
    [(kind, severity, text)] = step_findings(command, source, "--store", "none")
    assert (kind, severity) == ("optimizer_files_differ", "problem") and "holds the same bytes" in text
    [(kind, severity, _)] = step_findings(command, source / "checkpoint-4", "--store", "none")
    assert (kind, severity) == ("optimizer_files_may_differ", "note")


def test_a_shard_of_a_save_that_is_gone(made, copied, command, mount):
    """Nothing proves it then, unless the numbers do."""
    source = copied(made("t2", "untied-f2-fp32") / "run", "run")
    shard = "optimizer_0/__1_0.distcp"
    shutil.move(source / "checkpoint-1" / shard, source / "checkpoint-2" / shard)
    shutil.rmtree(source / "checkpoint-1")
    [(kind, severity, _)] = step_findings(command, source, "--store", "none")
    assert kind.startswith("optimizer_files") and (severity == "problem") == (kind == "optimizer_files_differ")


# -- the whole optimizer of an earlier save: fewer steps than the training, which alone is no damage --

def of_trainer(run):
    later = run / "checkpoint-4"
    shutil.copytree(run / "checkpoint-2", later)
    in_json(later / "trainer_state.json", global_step=4)
    edit(later / "scheduler.pt", lambda state: state.update(last_epoch=4, _step_count=5))
    return later


def of_lightning(run):
    later = run / "epoch=0-step=9.ckpt"
    shutil.copytree(run / "epoch=0-step=2.ckpt", later)
    edit(later / "meta.pt", lambda state: state.update(global_step=9))
    return later


def of_deepspeed(run):
    later = run / "global_step9"
    shutil.copytree(run / "global_step2", later)
    for path in later.glob("*model_states.pt"):
        edit(path, lambda state: state.update(global_steps=9))
    return later


def of_universal(run):
    later = run / "global_step9_universal"
    shutil.copytree(run / "global_step2_universal", later)
    for path in later.glob("*model_states.pt"):
        edit(path, lambda state: state.update(global_steps=9))
    return later


def of_ranks(run):
    later = run / "global_step_9"
    shutil.copytree(run / "global_step_1", later)
    for rank in range(2):
        torch.save({"lr_scheduler": {"last_epoch": 9, "_step_count": 10}, "rng": {}},
                   later / f"actor/extra_state_world_size_2_rank_{rank}.pt")
    return later


EARLIER = {
    of_trainer: {"checkpoint-2": "run/checkpoint-2"},
    of_lightning: {"epoch=0-step=2.ckpt": "dcp/torch2.2.2_lightning/ckpt"},
    of_deepspeed: {"global_step2": "zero/z3_w2/global_step2"},
    of_universal: {"global_step2_universal": "zero/z2_w3/global_step2_universal"},
    of_ranks: {"global_step_1/actor": "ranks/fsdp2"},
}


def make_earlier(tmp_path, make):
    run = tmp_path / "run"
    for name, golden in EARLIER[make].items():
        shutil.copytree(GOLDEN / golden, run / name)
    return run, make(run)


@pytest.mark.parametrize("make", EARLIER)
def test_all_of_an_earlier_optimizer(tmp_path, command, mount, make):
    run, later = make_earlier(tmp_path, make)
    [(kind, severity, text)] = step_findings(command, run, "--store", "none")
    assert (kind, severity) == ("steps_differ", "problem")
    assert "holds the same bytes as the file of that name here" in text
    checkpoint = next(p for p in (later, later / "actor") if any(q.is_file() for q in p.iterdir())).relative_to(run)
    mnt = mount(run, "store=none")
    hidden = {of_lightning: ["dcp"], of_deepspeed: ["dcp", "full", "universal", "world-2"],
              of_ranks: ["full", "full-fsdp", "world-2"]}.get(make, ["dcp", "full", "universal"])
    assert [v for v in (*hidden, "weights") if (mnt / v / checkpoint / PROBLEM).exists()] == hidden


@pytest.mark.parametrize("make", EARLIER)
def test_an_optimizer_begun_later_is_no_damage(tmp_path, command, make):
    """A note at most, and none where nothing says whether its steps were skipped."""
    run, later = make_earlier(tmp_path, make)
    for path in run.iterdir():
        if path != later:
            shutil.rmtree(path)
    assert [f[:2] for f in step_findings(command, run, "--store", "none")] == \
        ([] if make is of_lightning else [("optimizer_behind", "note")])


def test_steps_that_fp16_skipped_are_no_difference(tmp_path, command):
    run, later = make_earlier(tmp_path, of_deepspeed)
    shutil.rmtree(run / "global_step2")
    for path in later.glob("*model_states.pt"):
        edit(path, lambda state: state.update(skipped_steps=7))
    assert step_findings(command, run, "--store", "none") == []


def test_a_scheduler_stands_still_where_its_optimizer_does(tmp_path, command):
    """All steps between two saves overflowed: the optimizer's file is the same in both."""
    run, later = make_earlier(tmp_path, of_trainer)
    edit(later / "scheduler.pt", lambda state: state.update(last_epoch=2))
    assert step_findings(command, run, "--store", "none") == []


# -- what each rank records --

@pytest.mark.parametrize("name", ["z2_w3", "z3_w2"])
def test_a_rank_s_optimizer_of_another_save(copied, command, mount, name):
    """One finding, although every param group has another step."""
    source = copied(GOLDEN / "zero" / name, "run")
    shutil.rmtree(source / "global_step2_universal")

    def later(value):
        if isinstance(value, dict):
            for key in value:
                value[key] = value[key] + 5 if key == "step" else later(value[key])
        elif isinstance(value, list):
            return [later(v) for v in value]
        return value
    edit(source / "global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", later)
    [(kind, severity, text)] = step_findings(command, source, "--store", "none")
    assert (kind, severity) == ("zero_steps_differ", "problem") and "is 7 here, but 2 in" in text
    views = ["dcp", "full", "universal", "world-2"]
    assert lost_views(mount, source, "global_step2", views) == views


@pytest.mark.parametrize("tag", ["global_step2", "global_step2_universal"])
def test_a_rank_s_model_file_of_another_save(copied, command, mount, tag):
    """Each rank of stage 3 resumes from its own."""
    source = copied(GOLDEN / "zero" / "z3_w2", "run")
    for other in {"global_step2", "global_step2_universal"} - {tag}:
        shutil.rmtree(source / other)
    edit(source / tag / "zero_pp_rank_1_mp_rank_00_model_states.pt", lambda state: state.update(global_steps=7))
    [(kind, severity, text)] = step_findings(command, source, "--store", "none")
    assert (kind, severity) == ("zero_counters_differ", "problem")
    assert "zero_pp_rank_1_mp_rank_00_model_states.pt: global_steps is 7 here, but 2 in zero_pp_rank_0" in text


def test_ranks_with_a_scheduler_ahead_of_the_directory_s_name(tmp_path, command):
    run, later = make_earlier(tmp_path, of_ranks)
    shutil.rmtree(run / "global_step_1")
    later.rename(run / "global_step_2")
    [(kind, severity, text)] = step_findings(command, run, "--store", "none")
    assert (kind, severity) == ("step_unlike_name", "note")
    assert "(last_epoch) has step 9, and the directory's name has 2" in text

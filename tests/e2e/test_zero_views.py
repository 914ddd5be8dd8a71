"""weights/, weights-fp32/ and full/ of DeepSpeed checkpoints: what from_pretrained, a Trainer, Accelerate
and a loop of one's own get from them, against what the engine held, bit for bit.

Everything that goes on from full/ does so in one process without DeepSpeed, once for all tests
(`resumed`). Universal directories are those that ds_to_universal makes."""

import json
import os
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

import conftest
import trees

TAG = "global_step3"
TRAINERS = ["z0-bf16", "z1-bf16-untied", "z2-bf16", "z2-fp32", "z3-bf16", "z3-fp32", "z3-bf16-gathered"]
ACCELERATE = ["acc-z2-bf16", "acc-z3-fp32"]
# Of the engine: settings that test_deepspeed.py's cases do not have, and those.
ENGINES = [("g2", c) for c in ("z1-fp32-tags", "z2-fp16", "z3-fp16", "z2-bf16-nofrozen",
                               "z3-bf16-nofrozen", "z2-bf16-numberedsteps", "z3-bf16-numberedsteps")]
ENGINES += [("e2", c) for c in ("z1-bf16", "z2-bf16", "z3-bf16", "z3-bf16-subgroups",
                                "z1-bf16-fp32grads", "z2-bf16-aligned")]
WITHOUT_NAMES = [("g2", "z0-bf16"), ("g2", "z0-fp32"), ("e2", "z2-bf16-elastic")]
TIED = {"head.weight": "emb.weight", "lm_head.weight": "model.embed_tokens.weight"}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Place:
    """What was saved, a mount of it, and what came of going on from there."""

    def __init__(self, made, base):
        self.base, self.mnt = base, base / "mnt"
        self.sources = {launch: made(launch, "z2-bf16").parent for launch in ("e2", "g2", "h2")}

    def saved(self, launch, case, what, step=None):
        folder = self.sources[launch] / case
        return trees.tensors(folder / (f"{what}-{step}.safetensors" if step else f"{what}.safetensors"))

    def view(self, view, launch, case, tag=TAG):
        tag = {"h2": "state" if case.startswith("acc") else "checkpoint-2"}.get(launch, tag)
        return self.mnt / launch / view / case / "run" / tag

    def resumed(self, name):
        result = json.loads((self.base / f"resumed/{name}.json").read_text())
        assert not isinstance(result, str), result
        before, after = result.pop("again")  # it saved, and was resumed from that
        assert before == after
        return result, trees.tensors(self.base / f"resumed/{name}.safetensors")


@pytest.fixture(scope="module")
def place(made, tmp_path_factory):
    p = Place(made, tmp_path_factory.mktemp("zero"))
    convert(p)
    sources = {**p.sources, "universal": p.base / "universal"}
    try:
        for name, source in sources.items():
            (p.mnt / name).mkdir(parents=True)
            conftest.unshard("mount", source, p.mnt / name, "-o", "settle=0,store=none")
        resume(p)
        yield p
    finally:
        for name in sources:
            conftest.detach(p.mnt / name)


def convert(p):
    """universal/CASE/run/{latest_universal,TAG_universal} of one case of each stage family, and of one
    that ds_to_universal gets wrong."""
    arguments = []
    for case in ("z2-bf16", "z3-bf16", "z2-bf16-roundrobin"):
        run = p.base / "universal" / case / "run"
        run.mkdir(parents=True)
        arguments += [p.sources["e2"] / case / "run" / TAG, run / f"{TAG}_universal"]
    conftest.to_universal(*arguments, options=["--inject_missing_state"])


def resume(p):
    spec = [[c, "trainer", "untied" if "untied" in c else "tied", p.view("full", "h2", c)]
            for c in TRAINERS]
    spec += [[c, "accelerate", "tied", p.view("full", "h2", c)] for c in ACCELERATE]
    spec += [[f"oracle-{c}", "oracle", "tied", p.sources["h2"] / c] for c in ("z2-bf16", "z3-fp32")]
    spec += [[f"{launch}-{c}", "engine", "numbered" if "numbered" in c else "adamw",
              p.view("full", launch, c)] for launch, c in [*ENGINES, ("g2", "z2-bf16-roundrobin")]]
    spec += [[f"universal-{c}", "engine", "adamw", p.view("full", "universal", c, f"{TAG}_universal")]
             for c in ("z2-bf16", "z3-bf16")]
    (p.base / "resumed").mkdir()
    (p.base / "spec.json").write_text(json.dumps([[*map(str, one)] for one in spec]))
    conftest.launch("plain_resume.py", 0, p.base / "resumed", [p.base / "spec.json"])


def exact(live, states):
    """The most exact that there is of each tensor: the optimizer's copy, a tied name's owner's."""
    out = {}
    for name, t in live.items():
        owner = name if f"{name}|fp32" in states else TIED.get(name, name)
        out[name] = states.get(f"{owner}|fp32", t)
    return out


def floats(tensors):
    return {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}


def provenance(folder):
    return json.loads((folder / ".unshard/provenance.json").read_text())["files"]


def problems(folder):
    return (folder / ".unshard/problems.txt").read_text()


# -- weights --

def untied(tensors, case):
    """As save_pretrained leaves tied names out."""
    return {n: t for n, t in tensors.items() if n != "lm_head.weight" or "untied" in case}


@pytest.mark.parametrize("case", TRAINERS)
def test_from_pretrained_gets_the_live_model(place, case):
    live = untied(place.saved("h2", case, "live", 2), case)
    folder = place.view("weights", "h2", case)
    trees.assert_same(trees.weights(folder), live)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[case.split("-")[1]])
    got = {n: t for n, t in model.state_dict().items() if n in live}
    trees.assert_same(got, {n: live[n] for n in got})
    assert set(live) - set(got) == {"model.extra_buf", "model.extra_count"}


@pytest.mark.parametrize("case", TRAINERS)
def test_fp32_is_the_master_and_says_where_not(place, case):
    live = untied(place.saved("h2", case, "live", 2), case)
    want = floats(exact(live, place.saved("h2", case, "states", 2)))
    folder = place.view("weights-fp32", "h2", case)
    trees.assert_same(trees.weights(folder), want)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    trees.assert_same({n: t for n, t in model.state_dict().items() if n in want},
                      {n: want[n] for n in model.state_dict() if n in want})
    origin = provenance(folder)["model.safetensors"]["origin"]
    if "bf16" in case:
        masters = [n for n in live if f"{n}|fp32" in place.saved("h2", case, "states", 2)]
        assert (f"; {len(masters)} of them are made from the optimizer's fp32 copies; widened, because the "
                "optimizer has no fp32 copy: ") in origin
        widened = set(origin.split("no fp32 copy: ")[1].split(", "))
        assert widened == {n for n, t in live.items() if n not in masters and t.dtype == torch.bfloat16}
    else:
        assert origin.endswith("floating dtypes converted to float32")


@pytest.mark.parametrize("case", ["z0-bf16", "z1-bf16-untied", "z2-bf16", "z2-fp32",
                                  "z3-bf16-gathered"])
def test_weights_are_those_that_the_trainer_saved_beside(place, case):
    beside = place.sources["h2"] / case / "run/checkpoint-2/model.safetensors"
    trees.assert_same(trees.weights(place.view("weights", "h2", case)),
                      untied(trees.tensors(beside), case))


@pytest.mark.parametrize("launch,case", [*ENGINES, *WITHOUT_NAMES, ("g2", "z2-bf16-roundrobin"),
                                         ("e2", "z2-bf16-roundrobin")])
def test_an_engines_weights(place, launch, case):
    live = place.saved(launch, case, "live")
    if "nofrozen" in case:  # they are nowhere in the checkpoint
        live = {n: t for n, t in live.items() if not n.startswith("frozen")}
    trees.assert_same(trees.weights(place.view("weights", launch, case)), live)
    got = trees.weights(place.view("weights-fp32", launch, case))
    if "elastic" not in case and "roundrobin" not in case and "z0" not in case:
        trees.assert_same(got, floats(exact(live, place.saved(launch, case, "states"))))
    rounded = {n: t.to(live[n].dtype) for n, t in got.items()}
    trees.assert_same(rounded, live)


@pytest.mark.parametrize("case", ["z2-bf16", "z3-bf16"])
def test_weights_of_a_universal_directory(place, case):
    live, states = (place.saved("e2", case, what) for what in ("live", "states"))
    tag = f"{TAG}_universal"
    trees.assert_same(trees.weights(place.view("weights", "universal", case, tag)), live)
    trees.assert_same(trees.weights(place.view("weights-fp32", "universal", case, tag)),
                      floats(exact(live, states)))


def test_a_pipelines_stages_are_joined(place):
    live, states = (place.saved("g2", "z1-bf16-pipe", what) for what in ("live", "states"))
    trees.assert_same(trees.weights(place.view("weights", "g2", "z1-bf16-pipe", "global_step2")), live)
    trees.assert_same(trees.weights(place.view("weights-fp32", "g2", "z1-bf16-pipe", "global_step2")),
                      floats(exact(live, states)))


# -- full: a Trainer, Accelerate --

@pytest.mark.parametrize("case", [*TRAINERS, *ACCELERATE])
def test_one_process_gets_model_and_optimizer(place, case):
    result, got = place.resumed(case)
    live, states = (place.saved("h2", case, what, 2) for what in ("live", "states"))
    want = floats(exact(live, states))
    trees.assert_same({n: got[n] for n in want}, want)
    moments = {n: t for n, t in states.items() if not n.endswith("|fp32")}
    trees.assert_same({n: got[n] for n in moments}, moments)
    assert {n for n in got if "|" in n} - set(moments) == {f"{n.split('|')[0]}|step" for n in moments}
    steps = {float(t) for n, t in got.items() if n.endswith("|step")}
    # Stage 0 in bf16 makes a step with empty gradients before the first (deepspeed 0.19.8).
    assert steps == ({3.0} if case == "z0-bf16" else {2.0})
    if case in ACCELERATE:
        assert result == {"learning_rate": [1e-2 * (1 / 3)], "epoch": 2}
    else:
        assert result["step"] == [1, 2, 3, 4]
        assert result["learning_rate"] == pytest.approx([0.01, 0.0075, 0.005, 0.0025], abs=1e-12)


@pytest.mark.parametrize("case", ["z2-bf16", "z3-fp32"])
def test_a_trainer_goes_on_as_from_its_own_checkpoint(place, case):
    assert place.resumed(case)[0] == place.resumed(f"oracle-{case}")[0]


def test_what_full_lists(place):
    def names(case):
        return sorted(os.listdir(place.view("full", "h2", case)))

    for case in TRAINERS:
        assert names(case) == ["config.json", "generation_config.json", "model.safetensors",
                               "optimizer.pt", "rng_state.pth", "scheduler.pt", "trainer_state.json",
                               "training_args.bin"]
    for case in ACCELERATE:
        assert names(case) == ["optimizer.bin", "pytorch_model.bin", "random_states_0.pkl",
                               "scheduler.bin"]
    origin = provenance(place.view("full", "h2", "z3-bf16-gathered"))["model.safetensors"]["origin"]
    assert "made from the optimizer's fp32 copies" in origin


# -- full: an engine of its own --

@pytest.mark.parametrize("launch,case", [*ENGINES, ("universal", "z2-bf16"), ("universal", "z3-bf16")])
def test_a_loop_gets_an_engines_model_and_optimizer(place, launch, case):
    result, got = place.resumed(f"{launch}-{case}")
    live, states = (place.saved("e2" if launch == "universal" else launch, case, what)
                    for what in ("live", "states"))
    frozen = ["frozen.weight", "frozen.bias"] if "nofrozen" in case else []
    want = {n: t for n, t in floats(exact(live, states)).items() if n not in frozen}
    trees.assert_same({n: got[n] for n in want}, want)
    moments = {n: t for n, t in states.items() if not n.endswith("|fp32")}
    trees.assert_same({n: got[n] for n in moments}, moments)
    assert {float(t) for n, t in got.items() if n.endswith("|step")} == {3.0}
    assert result["missing"] == frozen and result["unexpected"] == []
    assert result["lr"] == result["last_lr"] == [1e-2 / 4, 2.5e-3 / 4]
    assert result["weight_decay"] == [0.1, 0.0]
    client = result["client"]
    assert (client["epoch"], client["seen"], client["order"]) == (7, [1, 2.5, "three"], [0, 1, 2, 3])
    assert (client["global_steps"], client["skipped_steps"]) == (3, 0)


def merged_by_deepspeed(run, state, copy):
    """A state by the parameters' names: zero_to_fp32 merges it, given it in the fp32 copies' place."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    shutil.copytree(run, copy)
    for file in (copy / TAG).glob("*optim_states.pt"):
        saved = torch.load(file, weights_only=False)
        held = saved["optimizer_state_dict"]
        for g, flat in enumerate(held["single_partition_of_fp32_groups"]):
            flat.data.copy_(held["base_optimizer_state"]["state"][g][state][:flat.numel()])
        torch.save(saved, file)
    return get_fp32_state_dict_from_zero_checkpoint(str(copy))


@pytest.mark.parametrize("state", ["exp_avg", "exp_avg_sq"])
def test_parameters_that_were_dealt_out_are_numbered_as_before(place, tmp_path, state):
    """round_robin_gradients. (DeepSpeed's own way of looking live states up is wrong with it.)"""
    _, got = place.resumed("g2-z2-bf16-roundrobin")
    live = place.saved("g2", "z2-bf16-roundrobin", "live")
    trees.assert_same({n: got[n].to(t.dtype) for n, t in live.items()}, live)
    want = merged_by_deepspeed(place.sources["g2"] / "z2-bf16-roundrobin/run", state, tmp_path / "run")
    got = {n.split("|")[0]: t for n, t in got.items() if n.endswith(f"|{state}")}
    assert len(got) == 14
    trees.assert_same(got, {n: want[n] for n in got})


def test_a_universal_directory_that_mixes_parameters_up_is_refused(place, command):
    tag = f"{TAG}_universal"
    source = place.base / "universal/z2-bf16-roundrobin/run" / tag
    text = ("mp_rank_00_model_states.pt: ds_to_universal mixes parameters up if the training had "
            "round_robin_gradients on")
    for view in ("full", "universal", "dcp", "weights-fp32"):
        folder = place.view(view, "universal", "z2-bf16-roundrobin", tag)
        assert os.listdir(folder) == ["UNSHARD_PROBLEM.txt"]
        assert text in (folder / "UNSHARD_PROBLEM.txt").read_text()
    done = command("check", source, check=False)
    assert done.returncode == 1 and text in done.stdout
    live = place.saved("e2", "z2-bf16-roundrobin", "live")
    trees.assert_same(trees.weights(place.view("weights", "universal", "z2-bf16-roundrobin", tag)), live)


@pytest.mark.parametrize("case", ["z2-fp16", "z3-fp16"])
def test_the_loss_scale_is_a_grad_scalers(place, case):
    scaler = place.resumed(f"g2-{case}")[0]["scaler"]
    assert scaler == {"scale": 16.0, "growth_factor": 2.0, "backoff_factor": 0.5,
                      "growth_interval": 1000, "_growth_tracker": 3}
    assert "the loss scale of fp16" in problems(place.view("full", "g2", case))


def test_what_an_engines_full_lists(place):
    folder = place.view("full", "g2", "z2-bf16-numberedsteps")
    assert sorted(os.listdir(folder)) == ["client_state.pt", "optimizer.bin", "pytorch_model.bin",
                                          "scheduler.bin"]
    origins = {n: f["origin"] for n, f in provenance(folder).items()}
    assert "taken from the param group" in origins["optimizer.bin"]
    assert "made from the optimizer's fp32 copies" in origins["pytorch_model.bin"]


# -- several tags, and what cannot be had --

def test_every_tag_is_a_checkpoint(place, mount):
    for tag, where in (("global_step2", "z1-fp32-tags/2"), (TAG, "z1-fp32-tags")):
        got = trees.weights(place.view("weights", "g2", "z1-fp32-tags", tag))
        trees.assert_same(got, place.saved("g2", where, "live"))
    m = mount(place.sources["g2"] / "z1-fp32-tags/run")
    assert sorted(os.listdir(m / "weights")) == ["global_step2", TAG, "latest", "zero_to_fp32.py",
                                                 "zero_to_torch.py"]


@pytest.mark.parametrize("case,view,words", [
    ("z0-fp32", "full", "ZeRO stage 0 does not save parameter names"),
    ("z2-bf16-elastic", "full", "the param groups (learning rate, weight decay) were not saved"),
    ("z1-bf16-pipe", "full", "was saved by a pipeline: each stage's optimizer numbers its own"),
    ("z1-bf16-pipe", "dcp", "was saved by a pipeline")])
def test_what_cannot_be_had_is_said(place, command, case, view, words):
    launch = "e2" if "elastic" in case else "g2"
    tag = "global_step2" if "pipe" in case else TAG
    shown = json.loads(command("show", "--json", place.sources[launch] / case / "run" / tag).stdout)
    assert shown["info"]["views"][view]["usage"] is None
    assert words in shown["info"]["views"][view]["why"]
    assert not place.view(view, launch, case, tag).exists()


@pytest.mark.parametrize("launch,case,view,line", [
    ("h2", "z2-bf16", "weights", "AutoModelForCausalLM.from_pretrained("),
    ("g2", "z2-fp16", "weights", "safetensors.torch.load_file("),
    ("h2", "z2-bf16", "full", "trainer.train(resume_from_checkpoint="),
    ("h2", "acc-z2-bf16", "full", "accelerator.load_state("),
    ("g2", "z2-fp16", "full", "model.load_state_dict(torch.load(")])
def test_the_line_to_write(place, command, launch, case, view, line):
    folder = place.view(view, launch, case)
    source = place.sources[launch] / folder.relative_to(place.mnt / launch / view)
    shown = json.loads(command("show", "--json", source).stdout)
    assert shown["info"]["views"][view]["usage"].startswith(line)

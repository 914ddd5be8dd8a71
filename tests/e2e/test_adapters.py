"""PEFT's adapters: what was trained is found in every form that trainers save, under PEFT's names, and goes on from
every view."""

import json
import sys
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import conftest
import trees
from launches import ADAPTERS, LAUNCHES, cases

sys.path.insert(0, str(conftest.MAKE))
import peft_models  # noqa: E402

WITH_BASE = [(n, c) for n, c in ADAPTERS if "-acc-" in c]
ALONE = [x for x in ADAPTERS if x not in WITH_BASE]


def ids(cases):
    return ["-".join(c) for c in cases]


def method(case):
    return case.split("-")[0]


def checkpoint(case):
    return "run/state" if "-acc-" in case else "run/checkpoint-2"


def without_base_layers(tensors):
    """PEFT writes a targeted embedding's own weight into the adapter's file as well."""
    return {n: t for n, t in tensors.items() if ".base_layer." not in n}


def base_of(live, case):
    """The live tensors of the model without adapters, by that model's own names."""
    wrapper = "base_model." if method(case) == "prompt" else "base_model.model."
    plain = {n.removeprefix(wrapper).replace(".base_layer.", ".").replace(".original_module.", "."): t
             for n, t in live.items()}
    return {n: plain[n] for n in peft_models.base().state_dict()}


@pytest.mark.parametrize("launch,case", ADAPTERS, ids=ids(ADAPTERS))
def test_a_sound_checkpoint_is_sound(made, command, launch, case):
    told = command("check", made(launch, case) / "run", "--json")
    assert json.loads(told.stdout)["problems"] == 0
    shown = command("show", made(launch, case) / checkpoint(case), "-o", "settle=0").stdout
    assert "damaged" not in shown


@pytest.mark.parametrize("launch,case", ADAPTERS, ids=ids(ADAPTERS))
def test_the_view_is_what_peft_saves(made, mount, launch, case):
    folder = made(launch, case)
    shown = mount(folder) / "adapter" / checkpoint(case)
    want = trees.tensors(folder / "adapter-2/adapter_model.safetensors" if method(case) != "two" else
                         folder / "adapter-2/second/adapter_model.safetensors")
    if (launch, case) in WITH_BASE:
        want = without_base_layers(want)
    trees.assert_same(trees.tensors(shown / "adapter_model.safetensors"), want)
    own = folder / checkpoint(case) / "adapter_config.json"
    config = own if own.exists() else folder / "run/adapter_config.json"
    assert (shown / "adapter_config.json").read_bytes() == config.read_bytes()


@pytest.mark.parametrize("launch,case", ADAPTERS, ids=ids(ADAPTERS))
def test_peft_loads_it(made, mount, launch, case):
    """Into the base model: every tensor is then as it was live."""
    folder = made(launch, case)
    shown = mount(folder) / "adapter" / checkpoint(case)
    name = "second" if method(case) == "two" else "default"
    model = peft.PeftModel.from_pretrained(peft_models.base(), shown, adapter_name=name)
    live = trees.tensors(folder / "live-2.safetensors")
    got = model.state_dict()
    assert set(got) <= set(live) and (method(case) == "two" or set(got) == set(live))
    for key, tensor in got.items():
        assert torch.equal(tensor, live[key]), key


@pytest.mark.parametrize("launch,case", ALONE, ids=ids(ALONE))
def test_weights_of_an_adapter_alone_are_the_adapter(made, mount, launch, case):
    m = mount(made(launch, case))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (m / "weights" / checkpoint(case) / name).read_bytes() == \
            (m / "adapter" / checkpoint(case) / name).read_bytes()


@pytest.mark.parametrize("launch,case", WITH_BASE, ids=ids(WITH_BASE))
def test_weights_are_the_base_that_was_saved_too(made, mount, tmp_path, launch, case):
    """By its own names: from_pretrained misses nothing and finds nothing that it does not know."""
    folder = made(launch, case)
    peft_models.base().config.save_pretrained(tmp_path / "base")
    shown = mount(folder, f"model={tmp_path}/base") / "weights" / checkpoint(case)
    want = base_of(trees.tensors(folder / "live-2.safetensors"), case)
    trees.assert_same(load_file(shown / "model.safetensors"), want)
    assert sorted(p.name for p in shown.iterdir()) == ["config.json", "generation_config.json", "model.safetensors"] or \
        sorted(p.name for p in shown.iterdir()) == ["config.json", "model.safetensors"]
    model, told = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
    assert not any(told[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, want[name]), name


# -- of veRL, EasyR1 and Lightning, which save the base model too --

ELSEWHERE = cases("pe2")


def saved_elsewhere(made, launch, case):
    """(run, the checkpoint in it, the live tensors, what a LightningModule put before their names)"""
    folder = made(launch, case)
    if case.startswith("lightning"):
        return folder / "run", "step=2", trees.tensors(folder / "live.safetensors"), "model."
    return folder / "run", "global_step_2/actor", trees.tensors(folder / "live/model.safetensors"), ""


@pytest.mark.parametrize("launch,case", ELSEWHERE, ids=ids(ELSEWHERE))
def test_an_adapter_is_found_whoever_saved_it(made, mount, command, tmp_path, launch, case):
    """What PEFT itself saves of the live tensors; from PEFT's own loading come the live tensors again."""
    run, checkpoint, live, prefix = saved_elsewhere(made, launch, case)
    model = peft_models.adapted("lora")
    model.load_state_dict({n.removeprefix(prefix): t for n, t in live.items()})
    model.save_pretrained(tmp_path / "want")
    assert json.loads(command("check", run, "--json").stdout)["problems"] == 0
    given = () if (run / checkpoint / "lora_adapter").exists() else (f"model={tmp_path}/want",)
    shown = mount(run, *given) / "adapter" / (checkpoint + (".ckpt" if prefix else ""))
    trees.assert_same(trees.tensors(shown / "adapter_model.safetensors"),
                      trees.tensors(tmp_path / "want/adapter_model.safetensors"))
    loaded = peft.PeftModel.from_pretrained(peft_models.base(), shown).state_dict()
    trees.assert_same(loaded, {n.removeprefix(prefix): t for n, t in live.items()})


@pytest.mark.parametrize("launch,case", ELSEWHERE, ids=ids(ELSEWHERE))
def test_the_base_is_found_whoever_saved_it(made, mount, tmp_path, launch, case):
    run, checkpoint, live, prefix = saved_elsewhere(made, launch, case)
    peft_models.base().config.save_pretrained(tmp_path / "base")
    shown = mount(run, f"model={tmp_path}/base", *([f"strip={prefix}"] if prefix else [])) / "weights" / checkpoint
    model, told = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
    assert not any(told[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    trees.assert_same(model.state_dict(), base_of({n.removeprefix(prefix): t for n, t in live.items()}, "lora"))


def test_an_adapter_that_was_not_trained_is_beside_the_other(made, mount):
    folder = made("pf2", "two-acc-f2")
    shown = mount(folder) / "adapter/run/state"
    live = trees.tensors(folder / "live-2.safetensors")
    trees.assert_same(trees.tensors(shown / "first/adapter_model.safetensors"),
                      {n.replace(".first.", "."): t for n, t in live.items() if ".first." in n})


@pytest.mark.parametrize("case", ["lora-f2", "dora-f2", "saved-f2", "ia3-f2", "embedding-f2", "two-f2"])
def test_universal_has_the_live_states_under_the_names_in_memory(made, mount, case):
    """Weight and optimizer had different names: here they are one."""
    folder = made("pf2", case)
    shown = mount(folder) / "universal/run/checkpoint-2/global_step2/zero"
    live = trees.tensors(folder / "live-2.safetensors")
    states = trees.tensors(folder / "states-2.safetensors")
    names = {n.split("|")[0] for n in states}
    assert {p.name for p in shown.iterdir() if p.is_dir()} == names
    for name in names:
        for file, want in (("fp32", live[name]), ("exp_avg", states[f"{name}|exp_avg"]),
                           ("exp_avg_sq", states[f"{name}|exp_avg_sq"])):
            assert torch.equal(torch.load(shown / name / f"{file}.pt")["param"], want), (name, file)


@pytest.mark.parametrize("case", conftest.or_long(["lora-z2", "lora-z3", "ia3-z2", "saved-z3"], LAUNCHES["pz2"][2]))
def test_dcp_made_of_deepspeed_has_peft_s_names(made, mount, case):
    """As a Trainer with FSDP2 loads it; the optimizer by the names in memory."""
    from torch.distributed.checkpoint import FileSystemReader

    folder = made("pz2", case)
    shown = mount(folder) / "dcp/run/checkpoint-2"
    file_names = set(trees.tensors(folder / "adapter-2/adapter_model.safetensors"))
    model = FileSystemReader(shown / "pytorch_model_fsdp_0").read_metadata().state_dict_metadata
    assert {k.removeprefix("model.") for k in model} >= file_names
    states = {n.split("|")[0] for n in trees.tensors(folder / "states-2.safetensors")}
    optimizer = FileSystemReader(shown / "optimizer_0").read_metadata().state_dict_metadata
    assert {k.removeprefix("optimizer.state.").removesuffix(".exp_avg") for k in optimizer
            if k.endswith(".exp_avg")} == states


def test_a_save_that_left_the_adapter_out_is_told(made, command, mount):
    """peft 0.21.2 under FSDP1: the optimizer is there, the model's part is empty."""
    run = made("pf2", "lora-f1") / "run"
    told = command("check", run, check=False)
    assert told.returncode == 1
    assert "pytorch_model_fsdp_0 holds no tensor at all" in told.stdout
    text = (mount(run) / "weights/checkpoint-2/UNSHARD_PROBLEM.txt").read_text()
    assert "the model was not saved" in text


def test_a_save_that_kept_one_rank_s_rows_is_told(command, mount):
    """accelerate 1.14.0, FSDP2, FULL_STATE_DICT, two ranks: what its Trainer wrote of lora-f2, but the optimizer and the
    random states. The adapter beside it was gathered."""
    run = Path(__file__).parents[1] / "golden/check/sliced"
    told = command("check", run, check=False)
    assert told.returncode == 1
    assert "pytorch_model_fsdp.bin has only a part of tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A" \
        in told.stdout
    assert "accelerate before 1.15.0" in told.stdout and "adapter_model.safetensors" in told.stdout
    assert (mount(run) / "weights/checkpoint-2/UNSHARD_PROBLEM.txt").exists()


# -- going on --

def resume(base, world, steps):
    """[(name, case, directory, "universal"?)] -> {name: losses or the error's text}."""
    args = [f"resume:{case}:{path}:{name}" + (":universal" if universal else "")
            for name, case, path, universal in steps]
    base.mkdir(exist_ok=True)
    conftest.launch("peft_run.py", world, base, args, **({} if world else {"WORLD_SIZE": "1"}))
    return {name: json.loads((base / f"{name}.json").read_text()) for name, *_ in steps}


@pytest.fixture(scope="module")
def went_on(made, tmp_path_factory):
    """All resumes at world size 1 of the runs lora-f2, saved-f2, ia3-f2, lora-z2 and lora-z3, and of Accelerate's states
    (acclora) of lora-acc-f2 and lora-acc-f1."""
    base = tmp_path_factory.mktemp("adapters")
    fsdp, zero = made("pf2", "lora-f2").parent, made("pz2", "lora-z2").parent
    f, z = base / "f", base / "z"
    for source, mnt in ((fsdp, f), (zero, z)):
        mnt.mkdir()
        conftest.unshard("mount", source, mnt, "-o", "settle=0,store=none")
    ckpt, state = "run/checkpoint-2", "run/state"
    try:
        yield {
            **resume(base / "fsdp", 1, [
                *[(f"native {m}", f"{m}-f2", fsdp / f"{m}-f2" / ckpt, False) for m in ("lora", "saved", "ia3")],
                ("dcp of lora-f2", "lora-f2", f / "dcp/lora-f2" / ckpt, False),
                *[(f"full-fsdp of {m}-f2", f"{m}-f2full", f / f"full-fsdp/{m}-f2" / ckpt, False)
                  for m in ("lora", "saved", "ia3")],
                *[(f"dcp of lora-{s}", "lora-f2", z / f"dcp/lora-{s}" / ckpt, False) for s in ("z2", "z3")],
                ("full-fsdp of lora-z2", "lora-f2full", z / "full-fsdp/lora-z2" / ckpt, False),
                ("native acclora", "lora-acc-f2", fsdp / "lora-acc-f2" / state, False),
                ("dcp of acclora-f2", "lora-acc-f2", f / "dcp/lora-acc-f2" / state, False),
                *[(f"full-fsdp of acclora-{v}", f"lora-acc-{v}full", f / f"full-fsdp/lora-acc-{v}" / state, False)
                  for v in ("f1", "f2")]]),
            **resume(base / "plain", 0, [
                *[(f"full of {m}-f2", f"{m}-plain", f / f"full/{m}-f2" / ckpt, False)
                  for m in ("lora", "saved", "ia3")],
                *[(f"full of lora-{s}", "lora-plain", z / f"full/lora-{s}" / ckpt, False) for s in ("z2", "z3")],
                *[(f"full of acclora-{v}", "lora-acc-plain", f / f"full/lora-acc-{v}" / state, False)
                  for v in ("f1", "f2")]]),
            **resume(base / "zero", 1, [
                ("universal of lora-f2", "lora-z2", f / "universal/lora-f2" / ckpt, True),
                ("universal of lora-z3", "lora-z2", z / "universal/lora-z3" / ckpt, True),
                ("universal of lora-f2 at 3", "lora-z3", f / "universal/lora-f2" / ckpt, True),
                ("world-1 of lora-z2", "lora-z2", z / "world-1/lora-z2" / ckpt, False)]),
        }
    finally:
        conftest.detach(f)
        conftest.detach(z)


@pytest.mark.parametrize("name", [
    "dcp of lora-f2", "dcp of lora-z2", "dcp of lora-z3", "full-fsdp of lora-f2", "full-fsdp of saved-f2",
    "full-fsdp of ia3-f2", "full-fsdp of lora-z2", "full of lora-f2", "full of saved-f2", "full of ia3-f2",
    "full of lora-z2", "full of lora-z3", "universal of lora-f2", "universal of lora-z3", "universal of lora-f2 at 3",
    "world-1 of lora-z2", "dcp of acclora-f2", "full-fsdp of acclora-f2", "full of acclora-f2", "full-fsdp of acclora-f1",
    "full of acclora-f1"])
def test_training_goes_on(went_on, name):
    """As FSDP2's own resume does: the same losses, which need the adapter, the optimizer and the schedule."""
    native = went_on["native " + name.split(" of ")[1].split("-")[0]]
    assert isinstance(native, list) and len(native) == 2
    assert went_on[name] == native


def test_an_adapter_that_add_adapter_put_into_a_model(mount, tmp_path):
    """The names have no base_model.; without adapter_config.json beside, those of the wrapped layers show it."""
    torch.manual_seed(2)
    model = peft_models.base()
    base = {n: t.clone() for n, t in model.state_dict().items()}
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model.add_adapter(config)
    torch.distributed.checkpoint.save({"model": model.state_dict()}, no_dist=True,
                                      checkpoint_id=tmp_path / "run/checkpoint-2/pytorch_model_fsdp_0")
    model.config.save_pretrained(tmp_path / "run")
    model.save_pretrained(tmp_path / "native")
    m = mount(tmp_path / "run", changing=True)
    trees.assert_same(trees.weights(m / "weights/checkpoint-2"), base)
    shown = m / "adapter/checkpoint-2"
    assert (shown / "adapter_model.safetensors").read_bytes() == (tmp_path / "native/adapter_model.safetensors").read_bytes()
    assert not (shown / "adapter_config.json").exists()  # no file records lora_alpha
    config.save_pretrained(tmp_path / "run")
    ids = torch.arange(8)[None]
    with torch.no_grad():
        want = model(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(mount(tmp_path / "run") / "merged/checkpoint-2")
        torch.testing.assert_close(merged(ids).logits, want, rtol=1e-4, atol=1e-5)


OTHERS = {"torchtune": ("layers.0.attn.q_proj", ("lora_a", "lora_b")),
          "Megatron-Bridge": ("decoder.layers.0.self_attention.linear_qkv", ("adapter.linear_in", "adapter.linear_out"))}


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with_the_model"])
@pytest.mark.parametrize("program", OTHERS)
def test_a_lora_under_the_names_of_another_program_is_refused_by_name(command, mount, tmp_path, program, alone):
    """Their order of rows is not PEFT's: it is shown under its own names, and in no view of PEFT's."""
    module, parts = OTHERS[program]
    state = {f"{module}.{part}.weight": torch.rand(shape) for part, shape in zip(parts, ((3, 8), (8, 3)))}
    if not alone:
        state |= {f"{module}.weight": torch.rand(8, 8)}
    torch.distributed.checkpoint.save(state, checkpoint_id=tmp_path / "runs/step-1", no_dist=True)
    views = json.loads(command("show", tmp_path / "runs/step-1", "--json").stdout)["info"]["views"]
    for view in ("adapter", "merged"):
        assert views[view]["state"] == "none" and views[view]["why_id"] == "other_lora", views[view]
        assert f"{module}.{parts[0]}.weight" in views[view]["why"] and f"names of {program}," in views[view]["why"]
    shown = mount(tmp_path / "runs") / "weights/step-1"
    trees.assert_same(trees.weights(shown), state)
    assert not (shown / "adapter_model.safetensors").exists()

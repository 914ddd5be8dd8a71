"""What torchtune, torchtitan and Composer save by their own code, against the live model and optimizer."""

import json
import re

import peft
import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from transformers import AutoModelForCausalLM

import trees


def states(file, sep="|"):
    """{name: {state: tensor}}"""
    out = {}
    for key, tensor in trees.tensors(file).items():
        name, state = key.rsplit(sep, 1)
        out.setdefault(name, {})[state] = tensor
    return out


def assert_sound(command, source):
    assert json.loads(command("check", source, "--deep", "--json").stdout)["problems"] == 0


def lines(command, checkpoint):
    """{view: the line that show prints}"""
    views = json.loads(command("show", checkpoint, "--json").stdout)["info"]["views"]
    return {name: view["usage"] for name, view in views.items() if view["state"] == "ok"}


# -- torchtune --

def test_torchtune_s_full_finetuning(made, mount, command):
    folder = made("tune", "full")
    m = mount(folder)
    trees.assert_same(trees.weights(m / "weights/run/epoch_0"), trees.tensors(folder / "live-hf.safetensors"))
    model = AutoModelForCausalLM.from_pretrained(m / "weights/run/epoch_0")
    trees.assert_same(dict(model.state_dict()), trees.tensors(folder / "live-hf.safetensors"))
    trees.assert_same(trees.weights(m / "weights/run/dist_epoch_0"), trees.tensors(folder / "live-tune.safetensors"))
    assert (m / "full/run/recipe_state/recipe_state.pt").read_bytes() == \
        (folder / "run/recipe_state/recipe_state.pt").read_bytes()
    assert_sound(command, folder)


def test_torchtune_s_distributed_checkpoint(made, mount, tmp_path):
    """It saves optimizer.state_dict(), which has numbers in place of names."""
    folder = made("tune", "full")
    m = mount(folder)
    dcp_to_torch_save(m / "dcp/run/dist_epoch_0", tmp_path / "one.pt")
    saved = torch.load(tmp_path / "one.pt")
    trees.assert_same(saved["model"], trees.tensors(folder / "live-tune.safetensors"))
    want = states(folder / "states.safetensors", ".")
    assert saved["optimizer"]["state"].keys() == want.keys()
    for number, state in want.items():
        trees.assert_same(saved["optimizer"]["state"][number], state)


@pytest.mark.parametrize("name", ["run", "bin"])
def test_torchtune_s_lora_is_a_merged_model_and_an_adapter(made, mount, command, name):
    folder = made("tune", "lora")
    m = mount(folder)
    want = trees.tensors(folder / "live-hf.safetensors")
    for view, dtype in (("weights", torch.float32), ("weights-bf16", torch.bfloat16)):
        shown = m / view / name / "epoch_0"
        assert not (shown / "adapter_config.json").exists()  # from_pretrained would look for another model
        model, told = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
        assert not any(told[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        trees.assert_same(dict(model.state_dict()), {n: t.to(dtype) for n, t in want.items()})
    adapter = m / "adapter" / name / "epoch_0"
    trees.assert_same(trees.tensors(adapter / "adapter_model.safetensors"), trees.tensors(folder / "adapter-hf.safetensors"))
    base = AutoModelForCausalLM.from_pretrained(folder / "base")
    loaded = peft.PeftModel.from_pretrained(base, adapter).state_dict()
    for key, tensor in trees.tensors(folder / "adapter-hf.safetensors").items():
        assert torch.equal(loaded[re.sub(r"(lora_[AB])", r"\1.default", key)], tensor), key
    assert_sound(command, folder)
    said = lines(command, folder / name / "epoch_0")
    assert "PeftModel" in said["adapter"] and "AutoModelForCausalLM" in said["weights"]


def test_torchtune_s_adapter_alone(made, mount):
    folder = made("tune", "lora")
    m = mount(folder)
    for view in ("weights", "adapter"):
        trees.assert_same(trees.tensors(m / view / "only/epoch_0/adapter_model.safetensors"),
                          trees.tensors(folder / "adapter-hf.safetensors"))


@pytest.mark.parametrize("name", ["native", "meta"])
def test_torchtune_s_own_names(made, mount, name):
    folder = made("tune", "lora")
    shown = mount(folder) / "weights" / name / "epoch_0"
    for file, want in (("model-00001-of-00001.bin", f"live-{name}"), ("adapter_model.pt", "adapter-native")):
        trees.assert_same(trees.tensors(shown / file / "model.safetensors"), trees.tensors(folder / f"{want}.safetensors"))


def test_a_damaged_adapter_beside_a_model(made, mount, copied, command):
    run = copied(made("tune", "lora") / "run")
    file = run / "epoch_0/adapter_model.safetensors"
    with open(file, "r+b") as f:
        f.truncate(file.stat().st_size - 100)
    told = command("check", run, "-o", "settle=0", check=False)
    assert told.returncode == 1 and "adapter_model.safetensors" in told.stdout
    m = mount(run, "settle=0")
    assert "adapter_model.safetensors" in (m / "adapter/epoch_0/UNSHARD_PROBLEM.txt").read_text()


# -- torchtitan --

def test_torchtitan_s_step(made, mount, command):
    """The model's names are keys of the whole, beside `optimizer`, `lr_scheduler`, `dataloader` and `train_state`."""
    folder = made("titan", "fsdp2")
    live, held = trees.tensors(folder / "live.safetensors"), states(folder / "states.safetensors")
    m = mount(folder)
    step = "checkpoint/step-2"
    trees.assert_same(trees.weights(m / "weights" / step), live)
    named = torch.load(m / "full-fsdp" / step / "optimizer.bin")
    assert named["state"].keys() == held.keys()
    for name, state in held.items():
        trees.assert_same(named["state"][name], state)
    numbered = torch.load(m / "full" / step / "optimizer.pt")
    names = [n for g in named["param_groups"] for n in g["params"]]
    for number, state in numbered["state"].items():
        trees.assert_same(state, held[names[number]])
    assert [g["lr"] for g in numbered["param_groups"]] == [1e-2 * (1 / 3)]
    assert (m / "dcp" / step / ".metadata").read_bytes() == (folder / step / ".metadata").read_bytes()
    assert_sound(command, folder)
    said = command("show", folder / step).stdout
    assert "trainer.train" not in said and "no learning-rate scheduler was saved" not in said
    assert "does not load the learning-rate scheduler that was saved (lr_scheduler)" in said


def test_torchtitan_s_last_step_is_a_model(made, mount, command):
    """The lines name no optimizer, which is not there."""
    folder = made("titan", "fsdp2")
    live = trees.tensors(folder / "live.safetensors")
    m = mount(folder)
    trees.assert_same(trees.weights(m / "weights/checkpoint/step-3"), live)
    trees.assert_same(torch.load(m / "full-fsdp/checkpoint/step-3/pytorch_model_fsdp.bin"), live)
    assert not any("optimizer" in line for line in lines(command, folder / "checkpoint/step-3").values())


# -- Composer --

def test_composer_s_sharded_checkpoint(made, mount, command):
    folder = made("composer", "fsdp")
    live, held = trees.tensors(folder / "live.safetensors"), states(folder / "states.safetensors")
    m = mount(folder)
    trees.assert_same(trees.weights(m / "weights/run/ep0-ba2"), live)
    named = torch.load(m / "full-fsdp/run/ep0-ba2/optimizer.bin")["state"]
    assert named.keys() == held.keys()
    for name, state in held.items():
        trees.assert_same(named[name], state)
    assert_sound(command, folder)
    assert "learning-rate scheduler that was saved (schedulers" in command("show", folder / "run/ep0-ba2").stdout


def test_composer_s_file(made, mount, command):
    folder = made("composer", "plain")
    m = mount(folder)
    trees.assert_same(trees.tensors(m / "weights/run/ep0-ba2-rank0.pt/model.safetensors"),
                      trees.tensors(folder / "live.safetensors"))
    assert (m / "full/run/ep0-ba2-rank0.pt").read_bytes() == (folder / "run/ep0-ba2-rank0.pt").read_bytes()
    assert_sound(command, folder)
    assert "Composer" in command("show", folder / "run/ep0-ba2-rank0.pt").stdout

"""veRL's and EasyR1's checkpoints of real model families: a frozen vision tower, tied weights, a critic, LoRA
adapters alone; and weights-bf16 against what their model mergers make."""

import json
import subprocess
import sys

import pytest
import torch
import transformers

import trees
from conftest import MAKE
from launches import RANK_MODELS, RANKS
from test_rank_damage import ACTOR, moments

LORA = [x for x in RANK_MODELS if x[1].endswith("lora")]
WHOLE = [x for x in RANK_MODELS if x not in LORA]


def live(top, which="model"):
    return trees.tensors(top / f"live/{which}.safetensors")


@pytest.mark.parametrize("launch, case", WHOLE)
def test_from_pretrained_gets_the_live_model(made, mount, launch, case):
    top = made(launch, case)
    shown = mount(top) / "weights" / ACTOR
    config = json.loads((shown / "config.json").read_text())
    model = getattr(transformers, config["architectures"][0]).from_pretrained(shown, dtype="auto")
    trees.assert_same(model.state_dict(), live(top))
    want = live(top)
    if "tied" in case:
        want.pop("lm_head.weight")
    in_memory = mount(top, "names=memory") / "weights" / ACTOR
    trees.assert_same(trees.weights(in_memory), want)


@pytest.mark.parametrize("launch, case", WHOLE)
def test_the_optimizer_is_the_live_one(made, mount, launch, case):
    """Numbers of veRL count frozen parameters too, and tied ones once."""
    top = made(launch, case)
    path = mount(top) / "full-fsdp" / ACTOR / "optimizer.bin"
    trees.assert_same(moments(path), live(top, "optim"))
    frozen = [n for n in live(top) if "vision_tower" in n and n.endswith(("weight", "bias"))]
    names = torch.load(path, weights_only=True)["param_groups"][0]["params"]
    assert bool(frozen) == case.endswith("llava")
    assert set(frozen) <= set(names) if case.startswith("verl") else not set(frozen) & set(names)


@pytest.mark.parametrize("launch, case", LORA)
def test_adapters_alone_are_an_adapter(made, mount, copied, command, launch, case):
    top = copied(made(launch, case))
    want = {n.replace(".default", ""): t for n, t in live(top).items() if "lora_" in n}
    shown = mount(top) / "weights" / ACTOR
    trees.assert_same(trees.tensors(shown / "adapter_model.safetensors"), want)
    assert not (shown / "adapter_config.json").exists()
    done = command("check", top / "run", "--json", "-o", "settle=0")
    assert [f["text"] for f in json.loads(done.stdout)["findings"]] == [
        f"the optimizer numbers 15 parameters, the model has 4: no file records which parameters are numbered"]


@pytest.mark.parametrize("launch, case", LORA)
def test_the_adapter_config_that_easyr1_writes_is_found(made, mount, copied, launch, case):
    top = copied(made(launch, case))
    beside = top / ACTOR / "lora_adapter"
    beside.mkdir()
    (beside / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 3}')
    shown = mount(top) / "weights" / ACTOR
    assert sorted(p.name for p in shown.iterdir()) == ["adapter_config.json",
                                                       "adapter_model.safetensors"]


# Both mergers put the parts of every tensor one behind the other and cast each to bfloat16; counters too,
# which are left as they are here.
@pytest.mark.parametrize("launch, case", RANKS + WHOLE)
def test_weights_bf16_are_the_mergers(made, mount, launch, case):
    top = made(launch, case)
    got = trees.weights(mount(top, "names=memory") / "weights-bf16" / ACTOR)
    want = {n: t.bfloat16() if t.is_floating_point() else t for n, t in live(top).items()}
    if "tied" in case:
        want.pop("lm_head.weight")
    trees.assert_same(got, want)


@pytest.mark.long
@pytest.mark.parametrize("launch, case", [x for x in RANKS + WHOLE if x[1].startswith("verl")
                                          and not x[1].endswith("st")])
def test_the_merger_of_verl_itself_agrees(made, mount, tmp_path, launch, case):
    """But for integers, which it casts too, and the second name of tied weights, which it drops later."""
    top, out = made(launch, case), tmp_path / "merged.safetensors"
    subprocess.run([sys.executable, MAKE / "verl_merge.py", top / ACTOR, out], check=True)
    merged = trees.tensors(out)
    got = trees.weights(mount(top, "names=memory") / "weights-bf16" / ACTOR)
    if "tied" in case:
        merged.pop("lm_head.weight")
    trees.assert_same({n: t.bfloat16() for n, t in got.items()}, merged)

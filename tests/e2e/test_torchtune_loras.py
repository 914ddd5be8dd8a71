"""LoRAs under torchtune's own names (make/torchtune_loras.py) as the views merged and adapter, against torchtune's own merge in
fp64 and its own conversion of the merged model to transformers' names."""

import json

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

import trees

# The others are of another family of the same rule, or have what another test merges (DoRA).
OFTEN = ["llama", "qwen2"]
CASES = [pytest.param(n, marks=[] if n in OFTEN else pytest.mark.long)
         for n in ("llama", "llama-dora", "mistral", "gemma", "qwen2")]


def rounded(path, base):
    """The exact merge, each tensor rounded once to the base model's dtype. torchtune has the tied head twice."""
    exact = trees.tensors(path)
    return {n: trees.rounded(exact[n], t.dtype) for n, t in base.items()}


@pytest.mark.parametrize("case", CASES)
def test_it_is_torchtune_s_merge_rounded_once(made, mount, case):
    folder = made("loras", case)
    base = trees.weights(folder / "base")
    shown = mount(folder, f"model={folder}/base") / "merged/run/epoch_0/adapter_model.pt"
    want = rounded(folder / "merged.safetensors", base)
    assert sum(not torch.equal(want[n], t) for n, t in base.items()) >= 14
    trees.assert_same(trees.weights(shown), want)
    model, told = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
    assert not any(told[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))


@pytest.mark.parametrize("case", CASES)
def test_peft_loads_and_merges_it(made, mount, case):
    """The same sums as torchtune's in fp64, so that rows and magnitudes are where transformers has them."""
    folder = made("loras", case)
    shown = mount(folder, f"model={folder}/base") / "adapter/run/epoch_0/adapter_model.pt"
    assert json.loads((shown / "adapter_config.json").read_text())["lora_alpha"] == 6
    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float64)
    merged = peft.PeftModel.from_pretrained(base, shown, autocast_adapter_dtype=False).merge_and_unload()
    want = trees.tensors(folder / "merged.safetensors")
    for name, tensor in merged.state_dict().items():
        torch.testing.assert_close(tensor, want[name if name in want else "model.embed_tokens.weight"], rtol=1e-5, atol=1e-6)


def test_a_distributed_checkpoint_with_model_and_lora(made, mount):
    folder = made("loras", "llama")
    m = mount(folder, f"model={folder}/base")
    trees.assert_same(trees.weights(m / "merged/later/dist_epoch_0"),
                      rounded(folder / "merged-later.safetensors", trees.weights(folder / "base")))


REFUSED = {
    "another family": (dict(model_type="phi3"), "the model_types llama, mistral, gemma and qwen2 alone"),
    "no heads": (dict(num_attention_heads=None), "no num_attention_heads"),
    "heads of another size": (dict(head_dim=6), "not those of config.json's heads"),
    "an odd head": (dict(head_dim=7), "does not have the size of a head"),
}


@pytest.mark.parametrize("changed, words", REFUSED.values(), ids=REFUSED)
def test_what_is_not_certain_is_refused(made, tmp_path, command, changed, words):
    run = tmp_path / "run/epoch_0"
    run.mkdir(parents=True)
    (run / "adapter_model.pt").write_bytes((made("loras", "llama") / "run/epoch_0/adapter_model.pt").read_bytes())
    config = json.loads((made("loras", "llama") / "base/config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | changed))
    views = json.loads(command("show", run / "adapter_model.pt", "--json").stdout)["info"]["views"]
    for view in ("adapter", "merged"):
        assert views[view]["state"] == "none" and views[view]["why_id"] == "other_lora"
        assert words in views[view]["why"] and ".lora_" in views[view]["why"]


@pytest.mark.parametrize("name", ["layers.0.mlp.experts.lora_a.weight", "encoder.layers.0.attn.q_proj.lora_b.weight"])
def test_a_module_that_is_no_llama_s_is_named(made, tmp_path, command, name):
    run = tmp_path / "run/epoch_0"
    run.mkdir(parents=True)
    saved = torch.load(made("loras", "llama") / "run/epoch_0/adapter_model.pt")
    torch.save(saved | {name: torch.ones(32, 4)}, run / "adapter_model.pt")
    (run / "config.json").write_bytes((made("loras", "llama") / "base/config.json").read_bytes())
    view = json.loads(command("show", run / "adapter_model.pt", "--json").stdout)["info"]["views"]["adapter"]
    assert view["why_id"] == "other_lora" and name in view["why"] and "no module of a Llama model" in view["why"]

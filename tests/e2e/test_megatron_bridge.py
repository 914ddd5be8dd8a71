"""`weights` of Megatron-Core's checkpoints against a second converter. Megatron-Bridge's own code exports what
megatron-core loaded (make/megatron_bridge.py); the mount must show the same bytes.

mbridge, the first converter, has no rules for gemma2, gemma3_text, glm4, gpt_oss and qwen3_vl; their tensors are named as
Megatron-Bridge, mbridge's gemma3 and miles name them. Where megatron-core has no module for a norm of such a family, or
for vision, the makers add one. mbridge on PyPI has only qwen2_5_vl's vision model: that of qwen3_vl is made with the
modules and names of its repository. Bridge has no bridge for glm4, mixtral and qwen2_moe, and does not map the biases of
llama, the dense layers of qwen3_moe, a head of gemma2 that is not tied, and mbridge's names of gemma's norms. It exports the
rows that pad the vocabulary too, which transformers refuses to load."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

import trees
from conftest import launch
from launches import LAUNCHES, LONG_LAUNCHES, MEGATRON, MEGATRON_OF_8

STEP = "iter_0000002"

# Families that Bridge 0.3.1 has no bridge for.
NO_BRIDGE = {"glm4", "mixtral", "qwen2_moe"}

LAYER, TO = "decoder.layers.*.", "model.layers.*."
NORMS_OF_LAYERS = {LAYER + n + ".weight": [TO + n + ".weight"]
                   for n in ("post_attention_layernorm", "post_feedforward_layernorm")}
# Of families that have one: parameters that its registry has no mapping for -> the tensors that are published of them.
NOT_MAPPED = {
    "llama": {  # attention_bias and mlp_bias
        LAYER + "self_attention.linear_qkv.bias": [TO + f"self_attn.{p}_proj.bias" for p in "qkv"],
        LAYER + "self_attention.linear_proj.bias": [TO + "self_attn.o_proj.bias"],
        LAYER + "mlp.linear_fc1.bias": [TO + "mlp.gate_proj.bias", TO + "mlp.up_proj.bias"],
        LAYER + "mlp.linear_fc2.bias": [TO + "mlp.down_proj.bias"]},
    # mbridge's names of norms, and a head that is not tied
    "gemma2": NORMS_OF_LAYERS | {"output_layer.weight": ["lm_head.weight"]},
    "gemma3_text": NORMS_OF_LAYERS,
    "qwen3_moe": {  # layers without experts
        LAYER + "mlp.linear_fc1.weight": [TO + "mlp.gate_proj.weight", TO + "mlp.up_proj.weight"],
        LAYER + "mlp.linear_fc2.weight": [TO + "mlp.down_proj.weight"]},
}
# Families whose layers for multi-token prediction it has no mapping for.
NO_MTP = {"deepseek_v3"}
# It does not publish embedding and head in these layers again. DeepSeek-V3 and GLM-4.5 have them on the Hub.
AGAIN = {"model.mtp.*.embed_tokens.weight": "model.embed_tokens.weight",
         "model.mtp.*.shared_head.head.weight": "lm_head.weight"}
# Bridge exports them as they are on the Hub: transposed (test_transformers_reads_the_same_of_transposed_experts).
TRANSPOSED = {"qwen3_vl_moe": re.compile(r".*\.mlp\.experts\.(gate_up|down)_proj")}
# Bridge exports rows that pad the vocabulary (test_transformers_refuses_a_padded_vocabulary).
VOCABULARY = re.compile(r"(.*\.embed_tokens|lm_head)\.weight")


def pattern(name, n_layers=None):
    """Layers behind these n are those for multi-token prediction."""
    number = re.match(r"model\.layers\.(\d+)", name)
    if n_layers is not None and number and int(number[1]) >= n_layers:
        return "model.mtp.*" + name[number.end():]
    return re.sub(r"(?<=layers\.)\d+", "*", name)


def config_of(folder):
    return json.loads((folder / "hf/config.json").read_text())


@pytest.fixture(scope="module")
def exported(made, tmp_path_factory):
    """exported("mc2", CASE) -> what Bridge makes of it, and whether each parameter is mapped; None without a bridge."""
    done = {}

    def get(name, case):
        if name not in done:
            cases = LAUNCHES[name][2]
            folder = made(name, cases[0]).parent
            done[name] = tmp_path_factory.mktemp(name)
            launch("megatron_bridge.py", 1, done[name], [folder, *cases])
        mapped = json.loads((done[name] / f"{case}.json").read_text())
        return mapped and (load_file(done[name] / f"{case}.safetensors"), mapped)

    return get


@pytest.mark.parametrize("launch_name,case", [
    *MEGATRON, *(pytest.param(*c, marks=pytest.mark.long) for c in MEGATRON_OF_8)],
    ids=["-".join(c) for c in MEGATRON + MEGATRON_OF_8])
def test_megatron_bridge_exports_the_same_bytes(made, mount, exported, launch_name, case):
    folder, bridge = made(launch_name, case), exported(launch_name, case)
    config = config_of(folder)
    family = config["model_type"]
    assert (bridge is None) == (family in NO_BRIDGE)
    if bridge is None:
        return
    got, mapped = bridge
    want = trees.weights(mount(folder / "run", f"model={folder}/hf") / "weights" / STEP)
    text = config | config.get("text_config", {})
    again = {}
    if any(n.startswith("mtp.") for n in mapped):
        again = AGAIN
        for name, tensor in want.items():
            if pattern(name, text["num_hidden_layers"]) in again:
                assert torch.equal(tensor, want[again[pattern(name, text["num_hidden_layers"])]]), name
    if family in NO_MTP:
        assert not any(yes for n, yes in mapped.items() if n.startswith("mtp."))
        assert not [n for n in got if pattern(n, text["num_hidden_layers"]).startswith("model.mtp.")]
        mapped = {n: yes for n, yes in mapped.items() if not n.startswith("mtp.")}
        want = {n: t for n, t in want.items() if not pattern(n, text["num_hidden_layers"]).startswith("model.mtp.")}
        again = {}
    lacks = {pattern(n): NOT_MAPPED.get(family, {}).get(pattern(n)) for n, yes in mapped.items() if not yes}
    assert lacks == {n: p for n, p in NOT_MAPPED.get(family, {}).items() if n in map(pattern, mapped)}

    missing = {pattern(n, text["num_hidden_layers"]) for n in want.keys() - got.keys()}
    assert missing == {p for published in lacks.values() for p in published} | again.keys()
    for name, tensor in got.items():
        if VOCABULARY.fullmatch(name):
            got[name] = tensor[:text["vocab_size"]]
        elif family in TRANSPOSED and TRANSPOSED[family].fullmatch(name):
            got[name] = tensor.transpose(1, 2)
    trees.assert_same(got, {n: t for n, t in want.items() if pattern(n, text["num_hidden_layers"]) not in missing})


def test_nothing_is_listed_that_no_case_has(made, exported, request):
    listed = {(family, name) for family, lacks in NOT_MAPPED.items() for name in lacks}
    every = request.config.getoption("--long")
    for name, case in (c for c in MEGATRON if every or c[0] not in LONG_LAUNCHES):
        _, mapped = exported(name, case) or (None, {})
        listed -= {(config_of(made(name, case))["model_type"], pattern(n)) for n in mapped}
    assert not listed


def as_model(folder, tensors, where):
    """A directory for from_pretrained: Bridge's tensors, with the config that save_pretrained wrote."""
    shutil.copytree(folder / "hf", where)
    save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})
    return where


def test_transformers_refuses_a_padded_vocabulary(made, exported, tmp_path):
    folder = made("mc2", "qwen3-tp2-bf16")
    tensors, _ = exported("mc2", "qwen3-tp2-bf16")
    assert tensors["lm_head.weight"].shape[0] == 48 and config_of(folder)["vocab_size"] == 37
    with pytest.raises(RuntimeError, match="mismatch"):
        AutoModelForCausalLM.from_pretrained(as_model(folder, tensors, tmp_path / "hf"))


def test_transformers_reads_the_same_of_transposed_experts(made, exported, mount, tmp_path):
    folder = made("mc2", "qwen3_vl_moe-dp2")
    tensors, _ = exported("mc2", "qwen3_vl_moe-dp2")
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    ours = AutoModelForImageTextToText.from_pretrained(shown).state_dict()
    base = as_model(folder, tensors, tmp_path / "hf")
    bridges = AutoModelForImageTextToText.from_pretrained(base).state_dict()
    trees.assert_same(bridges, ours)
    experts = "model.language_model.layers.1.mlp.experts.down_proj"
    assert torch.equal(tensors[experts], ours[experts].transpose(1, 2))
    trees.assert_same(trees.weights(mount(folder / "run", f"model={base}") / "weights" / STEP), tensors)


@pytest.mark.long
@pytest.mark.parametrize("case", LAUNCHES["br2"][2])
def test_what_megatron_bridge_saves_is_loaded(made, mount, command, tmp_path, case):
    """AutoBridge.save_megatron_model: run_config.yaml names the model, tokenizer/ is in the checkpoint."""
    folder = made("br2", case)
    run = shutil.copytree(folder / "run", tmp_path / "run")
    named = run / "iter_0000000/run_config.yaml"
    text = re.sub(r"hf_model_id: .*", f"hf_model_id: {folder}/hf", named.read_text())
    named.write_text(text)
    shown = mount(run) / "weights/iter_0000000"
    exported = load_file(folder / "exported.safetensors")
    trees.assert_same(trees.weights(shown), exported)
    model, info = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(model).__name__ == config_of(folder)["architectures"][0]
    assert (shown / "config.json").read_bytes() == (folder / "hf/config.json").read_bytes()
    assert AutoTokenizer.from_pretrained(shown).convert_tokens_to_ids(["w7", "</s>"]) == [7, 39]
    assert "0 problems" in command("check", run, "-o", "settle=0,store=none").stdout
    other = shutil.copytree(run, tmp_path / "other")
    (other / "iter_0000000/run_config.yaml").write_text(text.replace(f"{folder}/hf", "some/model"))
    told = " ".join(command("check", other, "-o", "settle=0,store=none").stdout.split())
    assert "run_config.yaml names the model some/model, which was not found" in told
    assert "its class is megatron.bridge.models.gpt_provider.GPTModelProvider" in told

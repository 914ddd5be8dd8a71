"""The view merged: a base model with an adapter merged into it. Adapters are PEFT's, with random values, and so is what they
are compared with: the formula in fp64, rounded once, to the bit; and merge_and_unload, which rounds more often."""

import errno
import inspect
import json
import os
import re
import shutil
import sys
import warnings

import peft
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save, save_file
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GptOssConfig, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, PreTrainedConfig, PreTrainedModel, Qwen3MoeConfig, T5Config, T5ForConditionalGeneration)

import conftest
import trees
from launches import LAUNCHES

sys.path.insert(0, str(conftest.MAKE))
import peft_models  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
LLAMA = ["q_proj", "v_proj", "down_proj"]
LORAS = {
    "plain": dict(r=3, lora_alpha=7, target_modules=LLAMA),
    "rslora": dict(r=5, lora_alpha=8, use_rslora=True, target_modules=LLAMA),
    "patterns": dict(r=4, lora_alpha=8, target_modules=LLAMA, rank_pattern={"layers.1.self_attn.q_proj": 9, "v_proj": 2},
                     alpha_pattern={"^model.layers.0.mlp.down_proj": 3, "v_proj": 5}),
    "embedding": dict(r=3, lora_alpha=2, target_modules=["embed_tokens", "q_proj"]),
    "head": dict(r=3, lora_alpha=2, target_modules=["lm_head", "o_proj"]),
    "saved": dict(r=3, lora_alpha=2, target_modules=["q_proj"], modules_to_save=["lm_head", "norm"]),
    "wide": dict(r=300, lora_alpha=2, target_modules=["gate_proj"]),
}


def llama(dtype):
    return peft_models.base().to(dtype)


def gpt2(dtype):
    """Its linear layers hold [in, out], and have biases."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=101, n_positions=64, n_embd=24, n_layer=2, n_head=4,
                                      tie_word_embeddings=False)).to(dtype)


class Convolutions(PreTrainedModel):
    """One of each kind that PEFT puts a LoRA on."""
    config_class = PreTrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.one = torch.nn.Conv1d(5, 7, 3)
        self.pointwise = torch.nn.Conv2d(7, 4, 1, bias=False)
        self.two = torch.nn.Conv2d(4, 9, (3, 2))
        self.three = torch.nn.Conv3d(3, 6, (2, 3, 1))
        self.linear = torch.nn.Linear(6, 11)
        self.post_init()


class Wide(PreTrainedModel):
    config_class = PreTrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.linear = torch.nn.Linear(1024, 1024, bias=False)
        self.post_init()


class Grouped(PreTrainedModel):
    config_class = PreTrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.two = torch.nn.Conv2d(4, 8, 3, groups=2)
        self.post_init()


def filled(kind, dtype):
    torch.manual_seed(0)
    model = kind(PreTrainedConfig()).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape) * 0.2)
    return model


def randomise(model, dtype):
    """PEFT begins with B = 0. Values such that base and product are of one size."""
    torch.manual_seed(2)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name or "ia3_" in name or "modules_to_save" in name or p.requires_grad:
                p.data = (torch.randn(p.shape) * 0.2).to(dtype)


def saved(tmp_path, base, dtype, settings, task="CAUSAL_LM", kind=peft.LoraConfig):
    """(run, the base's tensors, the adapted model's, what merge_and_unload makes): checkpoint-1 of the run holds the
    adapter."""
    base.save_pretrained(tmp_path / "base")
    before = {n: t.clone() for n, t in base.state_dict().items()}
    model = peft.get_peft_model(base, kind(task_type=task, **settings), autocast_adapter_dtype=False)
    randomise(model, dtype)
    run = tmp_path / "runs/run"
    model.save_pretrained(run / "checkpoint-1", save_embedding_layers=False)
    loaded = peft.PeftModel.from_pretrained(type(base).from_pretrained(tmp_path / "base", dtype=next(iter(before.values())).dtype),
                                            run / "checkpoint-1", autocast_adapter_dtype=False)
    return run, before, dict(model.state_dict()), loaded.merge_and_unload()


def scale(settings, module, r):
    alpha = settings["lora_alpha"]
    for pattern, value in settings.get("alpha_pattern", {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            alpha = value
            break
    return alpha / (r ** 0.5 if settings.get("use_rslora") else r)


def product(left, right):
    """left @ right in fp64, in the order in which unshard adds: so that the last bit is no matter of torch's kernels."""
    total = torch.zeros(left.shape[0], right.shape[1], dtype=torch.float64)
    for k in range(left.shape[1]):
        total += left[:, k:k + 1].double() * right[k:k + 1, :].double()
    return total


def factors(before, live, settings):
    """DoRA: weight -> by what its rows are multiplied, in fp64."""
    out, sums = {}, formula(before, {n: t for n, t in live.items() if "magnitude" not in n}, settings)
    for name, magnitude in live.items():
        if m := re.fullmatch(r"base_model\.model\.(.*)\.lora_magnitude_vector\.default\.weight", name):
            rows = sums[m[1] + ".weight"]
            norm = (rows.flatten(1) ** 2).sum(1).sqrt()
            out[m[1] + ".weight"] = (magnitude.double().flatten() / norm).reshape(-1, *[1] * (rows.ndim - 1))
    return out


def formula(before, live, settings, times=None):
    """name -> exact fp64 tensor, or the adapter's own; rows multiplied by `times`, or else as their magnitudes want."""
    out = {n: t.double() for n, t in before.items()}
    prefix = "base_model.model."
    for name, a in live.items():
        module = name.removeprefix(prefix)
        if ".modules_to_save.default." in name:
            out[module.replace(".modules_to_save.default", "")] = a.double()
        if m := re.fullmatch(r"(.*)\.lora_(embedding_)?A\.default(\.weight)?", module):
            b = live[name.replace("lora_A", "lora_B").replace("embedding_A", "embedding_B")]
            weight = out[m[1] + ".weight"]
            delta = product(b.flatten(1), a.flatten(1))
            if m[2] or settings.get("fan_in_fan_out"):
                delta = delta.T
            out[m[1] + ".weight"] = weight + scale(settings, m[1], a.shape[0]) * delta.reshape(weight.shape)
        if m := re.fullmatch(r"(.*)\.lora_B\.default\.bias", module):
            r = live[name.replace("lora_B", "lora_A").replace("bias", "weight")].shape[0]
            out[m[1] + ".bias"] = out[m[1] + ".bias"] + scale(settings, m[1], r) * a.double()
        if settings.get("bias", "none") != "none" and name.endswith(".bias") and ".lora_B." not in name:
            out[module.replace(".base_layer", "")] = a.double()
    if times is None and any("magnitude" in n for n in live):
        times = factors(before, live, settings)
    for name, factor in (times or {}).items():
        out[name] = out[name] * factor
    return out


def sizes(before, live, settings):
    """name -> the sum of the magnitudes of all that is added: what an error of rounding is measured by."""
    times = {n: t.abs() for n, t in factors(before, live, settings).items()}
    return formula({n: t.abs() for n, t in before.items()}, {n: t.abs() for n, t in live.items()}, settings, times)


def same_as_formula(shown, before, live, settings, dtype):
    want = {n: trees.rounded(t, dtype) for n, t in formula(before, live, settings).items()}
    trees.assert_same(shown, {n: t for n, t in want.items() if n in shown})
    assert set(want) - set(shown) <= {"lm_head.weight"}
    return want


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lora", LORAS)
def test_it_is_the_formula_rounded_once(mount, tmp_path, dtype, lora):
    kind = DTYPES[dtype]
    run, before, live, merged = saved(tmp_path, llama(kind), kind, LORAS[lora])
    m = mount(run.parent, f"model={tmp_path}/base")
    shown = m / "merged/run/checkpoint-1"
    assert "adapter_config.json" not in os.listdir(shown)
    want = same_as_formula(trees.weights(shown), before, live, LORAS[lora], kind)
    size = sizes(before, live, LORAS[lora])
    # PEFT multiplies in fp32: each of the r products may add half a step.
    steps = 1 if kind != torch.float32 else (max(LORAS[lora]["r"], 9) + 3) / 2
    for name, tensor in merged.state_dict().items():
        far = (tensor.double() - want[name].double()).abs()
        assert (far <= steps * torch.finfo(kind).eps * size[name]).all(), name

    model, said = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")) and model.dtype == kind
    trees.assert_same(model.state_dict(), {n: t for n, t in want.items() if n in model.state_dict()})
    ids = torch.arange(20).reshape(2, 10)
    merged.load_state_dict(want)
    assert torch.equal(model(ids).logits, merged(ids).logits)


def near(merged, want, size, steps, dtype):
    """Each element of merge_and_unload's is at most so many steps of rounding off. Returns the share of equal ones."""
    equal = total = 0
    for name, tensor in merged.state_dict().items():
        far = (tensor.double() - want[name].double()).abs()
        assert (far <= steps * torch.finfo(dtype).eps * size[name]).all(), name
        equal, total = equal + (tensor == want[name]).sum().item(), total + tensor.numel()
    return equal / total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("settings", [dict(), dict(use_dora=True)], ids=["plain", "dora"])
def test_convolutions(mount, tmp_path, dtype, settings):
    kind = DTYPES[dtype]
    settings = dict(r=3, lora_alpha=7, target_modules=["one", "pointwise", "two", "three", "linear"], **settings)
    run, before, live, merged = saved(tmp_path, filled(Convolutions, kind), kind, settings, task=None)
    shown = mount(run.parent, f"model={tmp_path}/base") / "merged/run/checkpoint-1"
    want = same_as_formula(trees.weights(shown), before, live, settings, kind)
    assert sum(not torch.equal(want[n], t) for n, t in before.items()) == 5
    # PEFT rounds the product, the sum, the norm, the factor and the result: five halves.
    steps = (3 if settings.get("use_dora") else 1) if kind != torch.float32 else 6
    near(merged, want, sizes(before, live, settings), steps, kind)
    trees.assert_same(Convolutions.from_pretrained(shown).state_dict(), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dora(mount, tmp_path, dtype):
    kind = DTYPES[dtype]
    settings = dict(r=4, lora_alpha=7, use_rslora=True, target_modules=LLAMA, use_dora=True)
    run, before, live, merged = saved(tmp_path, llama(kind), kind, settings)
    m = mount(run.parent, f"model={tmp_path}/base", "max_shard_size=16KiB")
    shown = m / "merged/run/checkpoint-1"
    want = same_as_formula(trees.weights(shown), before, live, settings, kind)
    near(merged, want, sizes(before, live, settings), 3 if kind != torch.float32 else 7, kind)
    model = AutoModelForCausalLM.from_pretrained(shown)
    trees.assert_same(model.state_dict(), {n: t for n, t in want.items() if n in model.state_dict()})
    name = "model.layers.1.mlp.down_proj.weight"
    file = json.loads((shown / "model.safetensors.index.json").read_text())["weight_map"][name]
    with safe_open(shown / file, framework="pt") as f:
        assert torch.equal(f.get_slice(name)[5:9, 7:20], want[name][5:9, 7:20])
    assert "its magnitude / its norm" in (shown / ".unshard/provenance.json").read_text()


def ia3(before, live, dtype, turned):
    """name -> each product in fp64, rounded once. `turned`: matrices are [in, out]."""
    out = {n: t.double() for n, t in before.items()}
    for name, l in live.items():
        if not (m := re.fullmatch(r"base_model\.model\.(.*)\.ia3_l\.default", name)):
            continue
        weight, numbers = out[m[1] + ".weight"], l.double().flatten()
        outputs = l.shape[0] != 1 if weight.ndim == 2 else weight.shape[0] == len(numbers)
        dim = int(outputs == turned)
        out[m[1] + ".weight"] = weight * numbers.reshape([-1 if d == dim else 1 for d in range(weight.ndim)])
        if outputs and m[1] + ".bias" in out:
            out[m[1] + ".bias"] = out[m[1] + ".bias"] * numbers
    return {n: trees.rounded(t, dtype) for n, t in out.items()}


IA3 = {
    "llama": (llama, "CAUSAL_LM", dict(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])),
    "gpt2": (gpt2, "CAUSAL_LM", dict(target_modules=["c_attn", "attn.c_proj", "mlp.c_proj", "c_fc"], feedforward_modules=["mlp.c_proj", "c_fc"])),
    "convolutions": (lambda dtype: filled(Convolutions, dtype), None,
                     dict(target_modules=["pointwise", "two", "three", "linear"], feedforward_modules=["two", "linear"])),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of", IA3)
def test_ia3(mount, tmp_path, dtype, of):
    """One product for each element: PEFT rounds it once, too, and all elements are equal."""
    kind, (base, task, settings) = DTYPES[dtype], IA3[of]
    run, before, live, merged = saved(tmp_path, base(kind), kind, settings, task, peft.IA3Config)
    shown = mount(run.parent, f"model={tmp_path}/base") / "merged/run/checkpoint-1"
    got = trees.weights(shown)
    trees.assert_same(got, {n: t for n, t in merged.state_dict().items() if n in got})
    trees.assert_same(got, {n: t for n, t in ia3(before, live, kind, of == "gpt2").items() if n in got})
    assert sum(not torch.equal(before[n], t) for n, t in got.items()) >= 5
    trees.assert_same(type(merged).from_pretrained(shown).state_dict(), merged.state_dict())
    assert "W * l" in (shown / ".unshard/provenance.json").read_text()


EXPERTS = {  # in files: a matrix for each expert, under two conventions; all experts' in one tensor, of which one is square
    "qwen3_moe": (Qwen3MoeConfig, dict(moe_intermediate_size=20, num_experts=4, num_experts_per_tok=2)),
    "mixtral": (MixtralConfig, dict(intermediate_size=20, num_local_experts=4)),
    "gpt_oss": (GptOssConfig, dict(intermediate_size=24, num_local_experts=4, head_dim=8)),
}
PARAMETERS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def experts(family, dtype):
    config, more = EXPERTS[family]
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config(
        vocab_size=101, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, **more)).to(dtype)


def of_experts(before, live, settings, b_is_rows):
    """name in memory -> exact fp64 tensor: "o r e, e r i -> e o i" of peft 0.19.1 and later, or "e i o"."""
    out = formula(before, {n: t for n, t in live.items() if ".experts." not in n}, settings)
    for name, a in live.items():
        if not (m := re.fullmatch(r"base_model\.model\.(.*\.experts)(\.base_layer)?\.lora_A\.default\.weight", name)):
            continue
        b = live[name.replace("lora_A", "lora_B")]
        parameter = f"{m[1]}.{'gate_up_proj' if m[2] else 'down_proj'}"
        n = before[parameter].shape[0]
        a, b = a.reshape(n, -1, a.shape[-1]), b.reshape(b.shape[0], -1, n)
        for e in range(n):
            delta = product(b[:, :, e], a[e]) if b_is_rows else product(a[e].T, b[:, :, e].T)
            out[parameter][e] += scale(settings, parameter, a.shape[1]) * delta
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", EXPERTS)
def test_experts(mount, tmp_path, dtype, family):
    kind = DTYPES[dtype]
    settings = dict(r=3, lora_alpha=7, target_modules=["q_proj"], target_parameters=PARAMETERS,
                    rank_pattern={"layers.1.mlp.experts.down_proj": 5}, alpha_pattern={"gate_up_proj": 2})
    run, before, live, merged = saved(tmp_path, experts(family, kind), kind, settings)
    shown = mount(run.parent, f"model={tmp_path}/base") / "merged/run/checkpoint-1"
    exact = of_experts(before, live, settings, family != "gpt_oss")
    want = {n: trees.rounded(t, kind) for n, t in exact.items()}
    assert sum(not torch.equal(want[n], t) for n, t in before.items()) == 6
    loaded = type(merged).from_pretrained(shown).state_dict()
    trees.assert_same(loaded, {n: want[n].to(t.dtype) for n, t in loaded.items()})  # gpt_oss has norms in fp32
    assert set(trees.weights(shown)) == set(trees.weights(tmp_path / "base"))
    for name, tensor in merged.state_dict().items():
        far = (tensor.double() - want[name].double()).abs()
        assert (far <= (1 if kind != torch.float32 else 8) * torch.finfo(kind).eps * exact[name].abs().max() * 2).all(), name


def as_older_peft_saved(run, version, rewritten):
    """The adapter as peft before 0.19 packs experts: A is of the parameter's second dimension, B of its third."""
    file = run / "checkpoint-1/adapter_model.safetensors"
    save_file({n: rewritten(n, t) for n, t in trees.tensors(file).items()}, file)
    config = run / "checkpoint-1/adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"peft_version": version}))


def test_experts_as_peft_packed_them_before_0_19(command, mount, tmp_path):
    """By the shapes; of square matrices by the version that is recorded, or by the module's other parameter."""
    settings = dict(r=3, lora_alpha=7, target_modules=[], target_parameters=PARAMETERS)
    run, before, live, _ = saved(tmp_path, experts("qwen3_moe", torch.float32), torch.float32, settings)
    torch.manual_seed(3)
    old = {n: torch.randn(*reversed(live[n.replace("lora_A", "lora_B") if "lora_A" in n else n.replace("lora_B", "lora_A")].shape))
           for n in live if "lora_" in n}
    as_older_peft_saved(run, "0.18.1", lambda n, t: old[n.replace(".weight", ".default.weight")].contiguous())
    want = of_experts(before, live | old, settings, False)

    def same(options):
        shown = mount(run.parent, options, changing=True) / "merged/run/checkpoint-1"
        loaded = AutoModelForCausalLM.from_pretrained(shown).state_dict()
        trees.assert_same(loaded, {n: trees.rounded(t, torch.float32) for n, t in want.items() if n in loaded})
    same(f"model={tmp_path}/base")
    as_older_peft_saved(run, None, lambda n, t: t)
    same(f"model={tmp_path}/base")


def test_square_experts_are_merged_if_their_order_is_certain(command, mount, tmp_path):
    settings = dict(r=3, lora_alpha=7, target_modules=["q_proj"], target_parameters=PARAMETERS[1:])
    run, before, live, _ = saved(tmp_path, experts("gpt_oss", torch.float32), torch.float32, settings)
    base = f"model={tmp_path}/base"
    assert "square" in cause(command, run, "settle=0", base)
    as_older_peft_saved(run, None, lambda n, t: t)
    assert "square" in cause(command, run, "settle=0", base)
    as_older_peft_saved(run, "0.18.1", lambda n, t: t)
    shown = mount(run.parent, base) / "merged/run/checkpoint-1"
    want = of_experts(before, live, settings, False)
    trees.assert_same(trees.weights(shown), {n: trees.rounded(t, torch.float32) for n, t in want.items()})


def test_trained_norms_take_the_place_of_the_base_s(mount, tmp_path):
    settings = dict(target_modules=["input_layernorm", "norm"])
    run, before, _, merged = saved(tmp_path, llama(torch.bfloat16), torch.bfloat16, settings, kind=peft.LNTuningConfig)
    shown = mount(run.parent, f"model={tmp_path}/base") / "merged/run/checkpoint-1"
    got = trees.weights(shown)
    trees.assert_same(got, {n: t for n, t in merged.state_dict().items() if n in got})
    assert sum(not torch.equal(before[n], t) for n, t in got.items()) == 3


@pytest.mark.parametrize("dora, steps, share", [(False, 1, 0.73), (True, 3, 0.50)], ids=["plain", "dora"])
def test_how_many_elements_are_peft_s(tmp_path, dora, steps, share):
    """docs/merged.md: a bf16 weight of 1024 x 1024, and a product about as large."""
    settings = dict(r=16, lora_alpha=16, target_modules=["linear"], use_dora=dora)
    _, before, live, merged = saved(tmp_path, filled(Wide, torch.bfloat16), torch.bfloat16, settings, task=None)
    want = {n: trees.rounded(t, torch.bfloat16) for n, t in formula(before, live, settings).items()}
    equal = near(merged, want, sizes(before, live, settings), steps, torch.bfloat16)
    assert equal == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("settings, base", [(dict(target_modules=["embed_tokens"]), llama),
                                            (dict(target_modules=["c_attn"], fan_in_fan_out=True), gpt2)],
                         ids=["embedding", "turned"])
def test_magnitudes_of_columns_are_refused(command, tmp_path, settings, base):
    """Each column's norm would need the whole weight for any of its elements."""
    run, *_ = saved(tmp_path, base(torch.float32), torch.float32, dict(r=3, lora_alpha=7, use_dora=True, **settings))
    assert "DoRA" in cause(command, run, "settle=0", f"model={tmp_path}/base")


@pytest.mark.parametrize("settings", [dict(), dict(bias="all"), dict(lora_bias=True)], ids=["plain", "bias", "lora_bias"])
def test_weights_that_lie_the_other_way_round(mount, tmp_path, settings):
    settings = dict(r=3, lora_alpha=7, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, **settings)
    run, before, live, merged = saved(tmp_path, gpt2(torch.float32), torch.float32, settings)
    shown = mount(run.parent, f"model={tmp_path}/base") / "merged/run/checkpoint-1"
    want = same_as_formula(trees.weights(shown), before, live, settings, torch.float32)
    trees.assert_same(AutoModelForCausalLM.from_pretrained(shown).state_dict(), want)


@pytest.mark.parametrize("view", DTYPES)
def test_another_dtype_is_rounded_once_too(mount, tmp_path, view):
    """A base model in fp32 and an adapter in bf16: not to one of these dtypes first."""
    run, before, live, _ = saved(tmp_path, llama(torch.float32), torch.bfloat16, LORAS["plain"])
    shown = mount(run.parent, f"model={tmp_path}/base") / f"merged-{view}/run/checkpoint-1"
    same_as_formula(trees.weights(shown), before, live, LORAS["plain"], DTYPES[view])
    assert json.loads((shown / "config.json").read_text())["dtype"] == str(DTYPES[view]).removeprefix("torch.")


def test_files_split_as_others_and_a_slice_alone(mount, tmp_path):
    """A base model in several files; a few rows are read without the others."""
    run, before, live, _ = saved(tmp_path, llama(torch.bfloat16), torch.bfloat16, LORAS["plain"])
    llama(torch.bfloat16).save_pretrained(tmp_path / "split", max_shard_size="20KB")
    assert not (tmp_path / "split/model.safetensors").exists()
    shown = mount(run.parent, f"model={tmp_path}/split", "max_shard_size=16KiB") / "merged/run/checkpoint-1"
    want = same_as_formula(trees.weights(shown), before, live, LORAS["plain"], torch.bfloat16)
    name = "model.layers.1.mlp.down_proj.weight"
    file = json.loads((shown / "model.safetensors.index.json").read_text())["weight_map"][name]
    with safe_open(shown / file, framework="pt") as f:
        assert torch.equal(f.get_slice(name)[5:9, 7:20], want[name][5:9, 7:20])


def test_memory_does_not_grow_with_the_model(mount, tmp_path):
    """Of a model ten times as large the mount needs less than an eighth of the difference more, when all has been read."""
    memory, size = [], []
    for layers in (2, 20):
        place = tmp_path / str(layers)
        base = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=768, intermediate_size=1536, num_hidden_layers=layers,
                                            num_attention_heads=4)).to(torch.bfloat16)
        base.save_pretrained(place / "base")
        peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=LLAMA)).save_pretrained(place / "runs/run/checkpoint-1")
        m = mount(place / "runs", f"model={place}/base", "store=none")
        with open(m / "merged/run/checkpoint-1/model.safetensors", "rb") as f:
            size.append(sum(len(part) for part in iter(lambda: f.read(1 << 20), b"")))
        memory.append(m.rss_bytes())
    assert size[1] > 5 * size[0] > 10_000_000 and memory[1] - memory[0] < (size[1] - size[0]) / 8, (size, memory)


def cause(command, run, *options):
    """Why `show` says that there is no such view."""
    said = json.loads(command("show", run / "checkpoint-1", "--json", *[x for o in options for x in ("-o", o)]).stdout)
    view = said["info"]["views"]["merged"]
    assert view["state"] == "none" and view["why_id"] == "not_merged"
    return view["why"]


def test_what_cannot_be_merged_is_refused_by_name(command, mount, tmp_path):
    run, before, live, _ = saved(tmp_path, llama(torch.float32), torch.float32, LORAS["plain"])
    base, file = f"model={tmp_path}/base", run / "checkpoint-1/adapter_config.json"
    config = json.loads(file.read_text())
    assert "-o model=DIR" in cause(command, run, "settle=0")
    for change, word in [({"use_dora": True}, "no magnitudes"), ({"peft_type": "LOHA"}, "LOHA"),
                         ({"init_lora_weights": "pissa"}, "pissa"), ({"target_parameters": ["q_proj.other"]}, "target_parameters"),
                         ({"r": 4}, "rank 3"), ({"rank_pattern": {"(q|v)_proj": 3}}, "regular expression"),
                         ({"a_key_of_tomorrow": 1}, "a_key_of_tomorrow")]:
        file.write_text(json.dumps(config | change))
        assert word in cause(command, run, "settle=0", base), change
    file.write_text(json.dumps(config))

    for name, tensors in [("without", {n: t for n, t in before.items() if n != "model.layers.1.self_attn.v_proj.weight"}),
                          ("of_other_shape", before | {"model.layers.0.self_attn.q_proj.weight": torch.zeros(24, 25)}),
                          ("of_integers", before | {"model.layers.0.self_attn.q_proj.weight":
                                                    torch.zeros(24, 24, dtype=torch.uint8)})]:
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
        said = cause(command, run, "settle=0", f"model={tmp_path}/{name}")
        assert re.search(r"v_proj|q_proj", said), said
    (tmp_path / "of_integers/model.safetensors").write_bytes(b"x" * 100)
    assert "of_integers cannot be used" in cause(command, run, "settle=0", f"model={tmp_path}/of_integers")
    assert not (mount(run.parent) / "merged/run/checkpoint-1").exists()


@pytest.mark.parametrize("method", ["fp8", "gptq"])
def test_a_quantised_base_is_refused_by_name(command, tmp_path, method):
    run, before, *_ = saved(tmp_path, llama(torch.float32), torch.float32, dict(r=3, target_modules=["q_proj"]))
    name = "model.layers.0.self_attn.q_proj.weight"
    weight = before.pop(name)
    if method == "fp8":
        before |= {name: weight.to(torch.float8_e4m3fn), name + "_scale_inv": torch.ones(1, 1)}
    else:
        before[name.replace("weight", "qweight")] = torch.zeros(3, 24, dtype=torch.int32)
    save_file(before, tmp_path / "base/model.safetensors")
    file = tmp_path / "base/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": {"quant_method": method}}))
    said = cause(command, run, "settle=0", f"model={tmp_path}/base")
    assert name in said and f"the base model is quantised, {method}:" in said


MERGED = {"LORA", "IA3", "LN_TUNING"}
# What PEFT asks for before it makes an adapter of this type for a model as small as that of the tests.
ASKED = {
    "ADALORA": dict(total_step=10), "ADAPTION_PROMPT": dict(adapter_len=2, adapter_layers=1, target_modules="self_attn"),
    "C3A": dict(block_size=6), "FOURIERFT": dict(n_frequency=5), "IA3": dict(feedforward_modules=[]), "MISS": dict(r=2),
    "PSOFT": dict(r=2), "ROAD": dict(group_size=4), "SHIRA": dict(r=2), "VBLORA": dict(vector_length=4, num_vectors=8),
    "WAVEFT": dict(n_frequency=5),
}
# PEFT needs what is not installed, or another model beside the first.
NOT_MADE = {"ADAMSS", "XLORA"}


@pytest.fixture(scope="module")
def of_all_types(tmp_path_factory):
    """{peft_type: run}, and the base model: an adapter of each type that PEFT has."""
    folder, runs = tmp_path_factory.mktemp("types"), {}
    llama(torch.float32).save_pretrained(folder / "base")
    for kind, config in peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING.items():
        known = inspect.signature(config).parameters
        usual = {"target_modules": ["q_proj", "v_proj"], "num_virtual_tokens": 3}
        settings = {k: v for k, v in usual.items() if k in known} | ASKED.get(kind.value, {})
        runs[kind.value] = folder / "runs" / kind.value
        if kind.value in NOT_MADE:
            shutil.copytree(runs["LORA"], runs[kind.value])
            file = runs[kind.value] / "checkpoint-1/adapter_config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"peft_type": kind.value}))
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.get_peft_model(llama(torch.float32), config(task_type="CAUSAL_LM", **settings))
            model.save_pretrained(runs[kind.value] / "checkpoint-1")
    return folder / "base", runs


def test_each_type_of_peft_is_merged_or_refused_by_name(command, of_all_types):
    base, runs = of_all_types
    assert len(runs) >= 40
    for kind, run in runs.items():
        said = json.loads(command("show", run / "checkpoint-1", "--json", "-o", f"model={base},settle=0").stdout)
        view = said["info"]["views"]["merged"]
        if kind in MERGED:
            assert view["state"] == "ok", (kind, view)
        else:
            assert view["state"] == "none" and f"peft_type is {kind}," in view["why"], (kind, view)


@pytest.mark.parametrize("of, settings", [("llama", dict(target_modules=["embed_tokens"])),
                                          ("llama", dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"])),
                                          ("llama", dict(target_modules=["q_proj"], modules_to_save=["lm_head"])),
                                          ("t5", dict(target_modules=["q"], modules_to_save=["shared"]))],
                         ids=["embedding", "saved", "head", "shared"])
def test_a_change_of_one_of_two_tied_weights_is_refused(command, mount, tmp_path, of, settings):
    """What PEFT trained has two tensors, and what is loaded has one. Other weights of such a model are merged."""
    def tied(dtype):
        if of == "t5":
            torch.manual_seed(0)
            return T5ForConditionalGeneration(T5Config(vocab_size=101, d_model=24, d_kv=6, d_ff=50, num_layers=1, num_heads=4)).to(dtype)
        config = peft_models.base().config
        config.tie_word_embeddings = True
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).to(dtype)

    task = "SEQ_2_SEQ_LM" if of == "t5" else "CAUSAL_LM"
    run, *_ = saved(tmp_path, tied(torch.float32), torch.float32, settings, task)
    assert re.search("ties the model's embeddings|no tensor lm_head.weight",
                     cause(command, run, "settle=0", f"model={tmp_path}/base"))
    shutil.rmtree(tmp_path / "runs")
    run, before, live, _ = saved(tmp_path, tied(torch.float32), torch.float32,
                                 dict(r=3, lora_alpha=7, target_modules=["q", "q_proj"]), task)
    shown = mount(run.parent, f"model={tmp_path}/base") / "merged/run/checkpoint-1"
    got = trees.weights(shown)
    want = formula(before, live, dict(r=3, lora_alpha=7))
    trees.assert_same(got, {n: trees.rounded(t, torch.float32) for n, t in want.items() if n in got})
    loaded = type(tied(torch.float32)).from_pretrained(shown)
    trees.assert_same(loaded.state_dict(), {n: trees.rounded(t, torch.float32) for n, t in want.items()})


def base_named(run, name, **more):
    file = run / "checkpoint-1/adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(name)} | more))


def hub(tmp_path, monkeypatch, models):
    """A Hugging Face cache, as huggingface_hub lays it out: files are links to blobs. {commit: directory}"""
    model = tmp_path / "hf/hub/models--org--base"
    (model / "refs").mkdir(parents=True)
    (model / "blobs").mkdir()
    for commit, folder in models.items():
        (model / "snapshots" / commit).mkdir(parents=True)
        for file in folder.iterdir():
            blob = f"{commit}-{file.name}"
            shutil.copy(file, model / "blobs" / blob)
            (model / "snapshots" / commit / file.name).symlink_to(f"../../blobs/{blob}")
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return model


def loads_as(shown, want):
    """The directory is all that transformers needs."""
    model, said = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True)
    assert not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    trees.assert_same(model.state_dict(), {n: t for n, t in want.items() if n in model.state_dict()})


def test_the_base_model_that_the_adapter_names_by_its_path(command, mount, tmp_path):
    run, before, live, _ = saved(tmp_path, llama(torch.bfloat16), torch.bfloat16, LORAS["plain"])
    (tmp_path / "base/tokenizer.json").write_text("{}")
    base_named(run, tmp_path / "base")
    m = mount(run.parent, changing=True)
    shown = m / "merged/run/checkpoint-1"
    want = same_as_formula(trees.weights(shown), before, live, LORAS["plain"], torch.bfloat16)
    loads_as(shown, want)
    assert sorted(os.listdir(shown)) == ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
    for view in ("adapter", "weights"):  # what loads an adapter looks for the base model itself
        assert not {"config.json", "tokenizer.json"} & set(os.listdir(m / view / "run/checkpoint-1"))
    assert f"{tmp_path}/base" in (shown / ".unshard/provenance.json").read_text()

    for name, word in [("base", "has no model of this name"), ("../base", "a directory that is not recorded"),
                       ("org/../base", "a directory that is not recorded"),
                       (tmp_path / "absent", "No such file"), (tmp_path / "runs", "no model.safetensors")]:
        base_named(run, name)
        assert word in cause(command, run, "settle=0"), name
    base_named(run, tmp_path / "base")
    (tmp_path / "base/config.json").write_text("{")
    assert "base cannot be used" in cause(command, run, "settle=0")


def test_what_the_user_names_is_taken_first(mount, tmp_path):
    run, before, live, _ = saved(tmp_path, llama(torch.float32), torch.float32, LORAS["plain"])
    other = {n: t + 1 for n, t in before.items()}
    (tmp_path / "other").mkdir()
    save_file(other, tmp_path / "other/model.safetensors")
    base_named(run, tmp_path / "base")
    shown = mount(run.parent, f"model={tmp_path}/other") / "merged/run/checkpoint-1"
    same_as_formula(trees.weights(shown), other, live, LORAS["plain"], torch.float32)


def test_the_base_model_in_the_hugging_face_cache(command, mount, tmp_path, monkeypatch, eventually):
    run, before, live, _ = saved(tmp_path, llama(torch.float32), torch.float32, LORAS["plain"])
    shutil.copytree(tmp_path / "base", tmp_path / "newer")
    newer = {n: t + 1 for n, t in before.items()}
    save_file(newer, tmp_path / "newer/model.safetensors", metadata={"format": "pt"})
    model = hub(tmp_path, monkeypatch, {"a" * 40: tmp_path / "base", "b" * 40: tmp_path / "newer"})
    base_named(run, "org/base")
    assert "no revision main" in cause(command, run, "settle=0")

    def follows(base, shown):
        return same_as_formula(trees.weights(shown), base, live, LORAS["plain"], torch.float32)
    (model / "refs/main").write_text("a" * 40)
    (model / "refs/stable").write_text("b" * 40)
    m = mount(run.parent, changing=True)
    loads_as(m / "merged/run/checkpoint-1", follows(before, m / "merged/run/checkpoint-1"))
    for revision, base in [("b" * 40, newer), ("stable", newer), ("main", before)]:
        base_named(run, "org/base", revision=revision)
        follows(base, mount(run.parent, changing=True) / "merged/run/checkpoint-1")
    for revision in ("c" * 40, "../snapshots", "tomorrow"):
        base_named(run, "org/base", revision=revision)
        assert "revision" in cause(command, run, "settle=0")

    base_named(run, "org/base", revision=None)
    (model / "refs/main").write_text("b" * 40)  # a later download

    def is_new():
        try:
            return bool(follows(newer, m / "merged/run/checkpoint-1"))
        except (AssertionError, OSError, SafetensorError):
            return False
    eventually(is_new)


def test_an_adapter_of_another_user_opens_no_directory(command, tmp_path):
    """Who may write into SOURCE reads no model by that which only the user of the mount may read."""
    run, *_ = saved(tmp_path, llama(torch.float32), torch.float32, LORAS["plain"])
    base_named(run, tmp_path / "base")
    show = json.loads(command("show", run / "checkpoint-1", "--json", "-o", "settle=0").stdout)
    assert show["info"]["views"]["merged"]["state"] == "ok"
    os.chown(run / "checkpoint-1/adapter_config.json", 4321, 4321)
    assert "another user" in cause(command, run, "settle=0")


def test_convolutions_in_groups_are_refused(command, tmp_path):
    """As PEFT refuses to merge them."""
    base = filled(Grouped, torch.float32)
    base.save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["two"]))
    model.save_pretrained(tmp_path / "runs/run/checkpoint-1")
    with pytest.raises(NotImplementedError):
        model.merge_and_unload()
    assert "module two has no two matrices of one rank" in cause(command, tmp_path / "runs/run", "settle=0", f"model={tmp_path}/base")


def test_it_says_what_it_is_made_of(command, mount, tmp_path):
    run, *_ = saved(tmp_path, llama(torch.float32), torch.float32, LORAS["saved"])
    m = mount(run.parent, f"model={tmp_path}/base")
    said = json.loads((m / "merged/run/checkpoint-1/.unshard/provenance.json").read_text())
    text = json.dumps(said)
    assert f"{tmp_path}/base" in text and "W + scale * B A" in text
    assert f"adapter_config.json is of PEFT {peft.__version__}" in text and said["version"] in command("--version").stdout
    view = json.loads(command("show", run / "checkpoint-1", "--json", "-o", f"model={tmp_path}/base").stdout)["info"]["views"]["merged"]
    assert view["state"] == "ok" and "from_pretrained" in view["usage"]
    assert "merged" in command("show", run / "checkpoint-1", "-o", f"model={tmp_path}/base").stdout


@pytest.mark.parametrize("settings, passes", [(dict(), 1), (dict(use_dora=True), 2)], ids=["plain", "dora"])
def test_show_has_the_bytes_that_are_read_for_each_byte(command, tmp_path, settings, passes):
    """A matrix of 1024 x 1024 with two of rank 16; for the rows' norms all of them twice, and a number for each row."""
    run, *_ = saved(tmp_path, filled(Wide, torch.bfloat16), torch.bfloat16,
                    dict(r=16, target_modules=["linear"], **settings), task=None)
    said = command("show", run / "checkpoint-1", "-o", f"model={tmp_path}/base,settle=0,view=merged").stdout
    factor = (passes * (1024 * 1024 + 2 * 16 * 1024) + (passes - 1) * 1024) / (1024 * 1024)
    assert f"1 tensors are computed when they are read: in all, {factor:.2f} bytes are read for each byte shown" in " ".join(said.split())


def test_a_base_model_that_changes(mount, tmp_path, eventually):
    """What is open fails; what is opened later is of the new one."""
    run, before, live, _ = saved(tmp_path, llama(torch.float32), torch.float32, LORAS["plain"])
    shown = mount(run.parent, f"model={tmp_path}/base") / "merged/run/checkpoint-1/model.safetensors"
    with open(shown, "rb") as f:
        f.read(10)
        changed = {n: t + 1 for n, t in before.items()}
        with open(tmp_path / "base/model.safetensors", "r+b") as file:
            file.write(save(changed, metadata={"format": "pt"}))
        with pytest.raises(OSError) as failed:
            while f.read(1 << 20):
                pass
        assert failed.value.errno == errno.ESTALE
    want = {n: trees.rounded(t, torch.float32) for n, t in formula(changed, live, LORAS["plain"]).items()}

    def is_new():
        try:
            trees.assert_same(trees.tensors(shown), want)
        except (AssertionError, OSError, SafetensorError):
            return False
        return True
    eventually(is_new)


@pytest.mark.parametrize("launch, case", [
    *(("pf2", f"{m}-f2") for m in ("lora", "dora", "embedding", "saved", "ia3")),
    *(pytest.param("pz2", c, marks=pytest.mark.long) for c in ("lora-z2", "lora-z3", "ia3-z2", "saved-z3"))])
def test_a_sharded_run_s_adapter(made, mount, tmp_path, launch, case):
    """FSDP2 or ZeRO saved the adapter in shards: merged, it is what the live tensors make."""
    folder = made(launch, case)
    peft_models.base().save_pretrained(tmp_path / "base")
    live = trees.tensors(folder / "live-2.safetensors")
    config = json.loads((folder / "run/adapter_config.json").read_text())
    shown = mount(folder, f"model={tmp_path}/base") / "merged/run/checkpoint-2"
    before = peft_models.base().state_dict()
    if case.startswith("ia3"):
        trees.assert_same(trees.weights(shown), ia3(before, live, torch.float32, False))
    else:
        same_as_formula(trees.weights(shown), before, live, config, torch.float32)


def test_a_base_model_that_was_saved_with_it(made, mount, tmp_path):
    """Accelerate's state: nothing but the checkpoint is needed."""
    folder = made("pf2", "lora-acc-f2")
    peft_models.base().config.save_pretrained(tmp_path / "base")
    live = trees.tensors(folder / "live-2.safetensors")
    before = {n.removeprefix("base_model.model.").replace(".base_layer.", "."): t for n, t in live.items() if "lora_" not in n}
    config = json.loads((folder / "run/adapter_config.json").read_text())
    shown = mount(folder, f"model={tmp_path}/base") / "merged/run/state"
    want = same_as_formula(trees.weights(shown), before, live, config, torch.float32)
    trees.assert_same(AutoModelForCausalLM.from_pretrained(shown).state_dict(), want)


@pytest.mark.long
@pytest.mark.parametrize("case", LAUNCHES["pe2"][2])
def test_an_adapter_and_its_base_that_another_trainer_saved(made, mount, case):
    """veRL, EasyR1 and Lightning: nothing but the checkpoint and adapter_config.json is needed."""
    folder = made("pe2", case)
    lightning = case.startswith("lightning")
    live = trees.tensors(folder / ("live.safetensors" if lightning else "live/model.safetensors"))
    live = {n.removeprefix("model.") if lightning else n: t for n, t in live.items()}
    before = {n.removeprefix("base_model.model.").replace(".base_layer.", "."): t for n, t in live.items() if "lora_" not in n}
    config = json.loads((folder / "adapter_config.json").read_text())
    shown = mount(folder / "run", f"model={folder}") / "merged" / ("step=2.ckpt" if lightning else "global_step_2/actor")
    same_as_formula(trees.weights(shown), before, live, config, next(iter(before.values())).dtype)


SEVERAL = {"law": dict(r=3, lora_alpha=7, target_modules=LLAMA),
           "code": dict(r=5, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "embed_tokens"], modules_to_save=["norm"]),
           "math": dict(r=2, lora_alpha=3, target_modules=["q_proj", "up_proj"])}


def several(tmp_path, dtype, of, base=llama):
    """(run, the base's tensors, the adapted model): PEFT saves each adapter below checkpoint-1, `default` in it."""
    model = base(dtype)
    model.save_pretrained(tmp_path / "base")
    model.name_or_path = str(tmp_path / "base")
    before = {n: t.clone() for n, t in model.state_dict().items()}
    first, *others = of
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **of[first]), first, autocast_adapter_dtype=False)
    for name in others:
        model.add_adapter(name, peft.LoraConfig(task_type="CAUSAL_LM", **of[name]), autocast_adapter_dtype=False)
    torch.manual_seed(2)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                p.data = (torch.randn(p.shape) * 0.2).to(dtype)
    run = tmp_path / "runs/run"
    model.save_pretrained(run / "checkpoint-1", save_embedding_layers=False)
    return run, before, model


def weighted(before, live, of, weights):
    """name -> exact fp64 tensor: what each adapter adds, times its number, in this order."""
    out = before
    for adapter, times in weights.items():
        one = {re.sub(rf"\.{adapter}(?=\.|$)", ".default", n): t for n, t in live.items() if re.search(rf"\.{adapter}(\.|$)", n)}
        out = formula(out, one, of[adapter] | {"lora_alpha": times * of[adapter]["lora_alpha"]})
    return out


@pytest.mark.parametrize("dtype, weights", [("bf16", {"law": 1, "code": 1, "math": 0.5}), ("fp16", {"math": -2, "law": 0.25}),
                                            ("fp32", {"law": 1, "code": 1, "math": 0.5}), ("bf16", {"code": 1})], ids=str)
def test_several_adapters_with_weights(mount, tmp_path, dtype, weights):
    """In directories of their names, as PEFT saves them; and merge_and_unload of what add_weighted_adapter makes by "cat", or
    of one after the other."""
    kind = DTYPES[dtype]
    run, before, model = several(tmp_path, kind, SEVERAL)
    assert {"law", "code", "math"} <= set(os.listdir(run / "checkpoint-1"))
    live = dict(model.state_dict())
    option = "+".join(n if w == 1 else f"{n}:{w}" for n, w in weights.items())
    shown = mount(run.parent, f"adapters={option}") / "merged/run/checkpoint-1"
    exact = weighted(before, live, SEVERAL, weights)
    want = {n: trees.rounded(t, kind) for n, t in exact.items()}
    got = trees.weights(shown)
    assert set(want) - set(got) <= {"lm_head.weight"}
    trees.assert_same(got, {n: t for n, t in want.items() if n in got})
    assert sum(not torch.equal(before[n], t) for n, t in got.items()) >= 4
    loads_as(shown, want)
    assert "scale * B A" in (shown / ".unshard/provenance.json").read_text()

    if all(w == 1 for n, w in weights.items() if n != "math") and len(weights) > 1:
        for module in model.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer) and "math" in module.scaling:
                module.scaling["math"] *= weights["math"]
        merged = model.merge_and_unload(adapter_names=list(weights)).state_dict()
        size = {n: t.abs() for n, t in weighted({n: t.abs() for n, t in before.items()},
                                                {n: t.abs() for n, t in live.items()}, SEVERAL,
                                                {n: abs(w) for n, w in weights.items()}).items()}
        for name, tensor in merged.items():
            if "norm" in name:  # PEFT keeps those of the active adapter
                continue
            far = (tensor.double() - want[name].double()).abs()
            assert (far <= (2 if kind != torch.float32 else 10) * torch.finfo(kind).eps * size[name]).all(), name


def test_weights_of_adapters_are_those_of_add_weighted_adapter(mount, tmp_path):
    """PEFT's "cat", which is exact but for its rounding."""
    of = {n: {k: v for k, v in s.items() if k != "modules_to_save"} for n, s in SEVERAL.items()}
    run, before, model = several(tmp_path, torch.float32, of)
    weights = {"law": 0.5, "code": -1.25, "math": 3}
    shown = mount(run.parent, "adapters=" + "+".join(f"{n}:{w}" for n, w in weights.items())) / "merged/run/checkpoint-1"
    model.base_model.add_weighted_adapter(list(weights), list(weights.values()), "all", "cat")
    merged = model.merge_and_unload(adapter_names=["all"]).state_dict()
    got = trees.weights(shown)
    assert sum(not torch.equal(before[n], t) for n, t in got.items()) >= 8
    for name, tensor in got.items():
        assert torch.allclose(tensor, merged[name], rtol=0, atol=2e-6), name


def test_the_default_adapter_and_one_below_it(mount, tmp_path):
    """PEFT saves `default` in the directory itself."""
    of = {"default": SEVERAL["law"], "code": SEVERAL["math"]}
    run, before, model = several(tmp_path, torch.float32, of)
    m = mount(run.parent, "adapters=default:0.5+code")
    want = weighted(before, dict(model.state_dict()), of, {"default": 0.5, "code": 1})
    got = trees.weights(m / "merged/run/checkpoint-1")
    trees.assert_same(got, {n: trees.rounded(t, torch.float32) for n, t in want.items() if n in got})
    adapter = m / "adapter/run/checkpoint-1"
    for name in ("", "code/"):
        trees.assert_same(trees.tensors(adapter / f"{name}adapter_model.safetensors"),
                          trees.tensors(run / f"checkpoint-1/{name}adapter_model.safetensors"))
        assert (adapter / f"{name}adapter_config.json").read_bytes() == (run / f"checkpoint-1/{name}adapter_config.json").read_bytes()
    shown = mount(run.parent) / "merged/run/checkpoint-1"
    want = weighted(before, dict(model.state_dict()), of, {"default": 1})
    got = trees.weights(shown)
    trees.assert_same(got, {n: trees.rounded(t, torch.float32) for n, t in want.items() if n in got})


def test_adapters_that_cannot_be_added_to_each_other_are_refused_by_name(command, tmp_path):
    of = {"law": dict(r=3, target_modules=["q_proj"], modules_to_save=["norm"]),
          "code": dict(r=3, target_modules=["q_proj"], modules_to_save=["norm"]),
          "dora": dict(r=3, target_modules=["q_proj"], use_dora=True), "math": dict(r=3, target_modules=["v_proj"])}
    run, *_ = several(tmp_path, torch.float32, of)

    def said(option):
        return cause(command, run, "settle=0", f"adapters={option}")
    assert "another of the adapters has a model.layers.0.input_layernorm.weight of its own" in said("law+code")
    assert "input_layernorm.weight of its own, which nothing multiplies" in said("law:0.5+math")
    assert "adapter dora: its rows have magnitudes (DoRA)" in said("math+dora")
    for option, word in [("law:x", "x is no number"), ("law+law", "law is named twice"), ("law+", "no name"), ("../a", "no name"), (":1", "no name")]:
        failed = command("show", run / "checkpoint-1", "-o", f"settle=0,adapters={option}", check=False)
        assert failed.returncode == 2 and word in failed.stderr, (option, failed)
    file = run / "checkpoint-1/math/adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"base_model_name_or_path": "/another"}))
    assert "adapter math: it was made for /another" in said("law+math")
    file.unlink()
    assert "adapter math has no math/adapter_config.json" in said("law+math")


def test_several_adapters_of_a_sharded_run(command, made, mount, tmp_path):
    """FSDP2: the names of the shards' tensors contain those of the adapters; their configs lie in the run's directory."""
    folder = made("pf2", "two-acc-f2")
    live = trees.tensors(folder / "live-2.safetensors")
    shutil.copytree(folder / "run", tmp_path / "runs/run")
    peft_models.base().save_pretrained(tmp_path / "base")
    run, of = tmp_path / "runs/run", {"first": dict(r=3, lora_alpha=8), "second": dict(r=3, lora_alpha=2)}
    for name, settings in of.items():
        (run / name).mkdir()
        (run / name / "adapter_config.json").write_text(json.dumps(settings | dict(peft_type="LORA", use_dora=name == "second")))
    shown = mount(run.parent, f"model={tmp_path}/base", "adapters=first:0.5") / "merged/run/state"
    before = {n.removeprefix("base_model.model.").replace(".base_layer.", "."): t for n, t in live.items() if "lora_" not in n}
    want = weighted(before, live, of, {"first": 0.5})
    got = trees.weights(shown)
    trees.assert_same(got, {n: trees.rounded(t, torch.float32) for n, t in want.items() if n in got})
    said = json.loads(command("show", run / "state", "--json", "-o", f"model={tmp_path}/base,settle=0,adapters=first+third").stdout)
    assert "no adapter third, which -o adapters= names; it has first, second" in said["info"]["views"]["merged"]["why"]

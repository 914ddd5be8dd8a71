"""-o experts=split|fused: the weights of experts in the form that a reader wants. transformers is the oracle: what
save_pretrained writes, what from_pretrained makes of both forms, and the logits of that. Split forms that transformers
does not read are compared with what torch cuts out of the model's own tensors."""

import json
import re
import shutil
import warnings

import peft
import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import test_merged as peft_merged
import trees
from launches import RENAMED_FAMILIES
from test_mean import mean
from test_megatron import STEP
from test_names import as_loaded, assert_files_equal, build, problems, saved_sharded
from test_python import unshard

ONE = re.compile(r"\.experts\.\d+\.")
SPLIT = ["qwen3_moe", "mixtral", "minimax_m2", "phimoe", "qwen2_moe", "qwen3_next", "olmoe", "deepseek_v2", "deepseek_v3",
         "glm4_moe", "dots1", "jamba", "lfm2_moe", "ernie4_5_moe", "glm4_moe_lite", "glm_moe_dsa", "hunyuan_v1_moe",
         "flex_olmo", "minimax", "afmoe", "nemotron_h", "longcat_flash", "exaone_moe", "solar_open", "mimo_v2_flash",
         "qwen3_5_moe", "glm4v_moe"]
FUSED = ["gpt_oss", "qwen3_vl_moe", "granitemoe", "granitemoeshared", "granitemoehybrid", "llama4"]
ALWAYS = ("qwen3_moe", "gpt_oss")
NO_FORWARD = ("longcat_flash", "glm4v_moe")  # as small as they are here


def some(families):
    return [pytest.param(f, marks=() if f in ALWAYS else pytest.mark.long) for f in families]


def logits(model):
    model.set_experts_implementation("eager")  # the others take no model as small as these
    for router in (m for m in model.modules() if hasattr(m, "top_k")):
        router.top_k = 2  # by default more than there are experts
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # where a tensor begins in memory changes the last bits of products
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([[5, 7, 9, 11, 3, 8]])).logits


def is_loaded_alike(model, shown):
    """from_pretrained finds each tensor, and none that it does not know; the tensors and the logits are the model's."""
    loaded, info = type(model).from_pretrained(shown, output_loading_info=True, dtype=model.dtype)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    trees.assert_same(loaded.state_dict(), model.state_dict())
    if model.config.model_type not in NO_FORWARD:
        assert torch.equal(logits(loaded), logits(model))


def one_of(name, fused, interleaved, turned):
    """-> what the fused tensor of this name has of each expert: {name: tensor}"""
    out = {}
    head, _, what = name.rpartition("experts.")
    bias = what.endswith("_bias")
    for e, matrix in enumerate(fused):
        matrix = matrix.T if turned and not bias else matrix
        if what.startswith("down"):
            parts = {"down_proj": matrix}
        elif interleaved:
            parts = {"gate_proj": matrix[0::2], "up_proj": matrix[1::2]}
        else:
            parts = dict(zip(("gate_proj", "up_proj"), matrix.chunk(2)))
        for part, t in parts.items():
            out[f"{head}experts.{e}.{part}.{'bias' if bias else 'weight'}"] = t.contiguous()
    return out


def split_by_torch(family, state):
    """As vLLM and llm-compressor name the experts of families that are published fused."""
    out = {}
    for name, t in state.items():
        if family.startswith("granite"):
            base = name.rpartition("block_sparse_moe.")[0] + "block_sparse_moe.experts."
            if name.endswith("block_sparse_moe.input_linear.weight"):
                for e, (gate, up) in enumerate(m.chunk(2) for m in t):
                    out |= {f"{base}{e}.w1.weight": gate.contiguous(), f"{base}{e}.w3.weight": up.contiguous()}
            elif name.endswith("block_sparse_moe.output_linear.weight"):
                out |= {f"{base}{e}.w2.weight": m.contiguous() for e, m in enumerate(t)}
            else:
                out[name] = t
        elif ".experts." in name:
            out |= one_of(name, t, family == "gpt_oss", family in ("gpt_oss", "llama4"))
        else:
            out[name] = t
    return out


def identity(mount, tmp_path, run, small="3KB"):
    """split, fused, split again: byte for byte, in one file and in several. -> the mount of the fused form"""
    for i, options in enumerate(("", f",max_shard_size={small}")):
        first = tmp_path / f"split{i}"
        shutil.copytree(mount(run, f"experts=split{options}") / "weights/ckpt", first / "ckpt")
        shutil.copytree(mount(first, f"experts=fused{options}") / "weights/ckpt", tmp_path / f"fused{i}/ckpt")
        again = mount(tmp_path / f"fused{i}", f"experts=split{options}") / "weights/ckpt"
        assert_files_equal(again, first / "ckpt")
        assert len(list(again.glob("*.safetensors"))) > 1 or not i
        straight = mount(run, f"experts=fused{options}") / "weights/ckpt"
        assert_files_equal(straight, tmp_path / f"fused{i}/ckpt")


@pytest.mark.parametrize("family", some(SPLIT))
def test_families_that_are_published_split(mount, tmp_path, family):
    model = as_loaded(build(family))
    run = tmp_path / "run"
    saved_sharded(model, run)
    model.save_pretrained(tmp_path / "want")
    split = mount(run, "experts=split")
    assert_files_equal(split / "weights/ckpt", tmp_path / "want")
    fused = mount(run, "experts=fused")
    assert not [n for n in trees.weights(fused / "weights/ckpt") if ONE.search(n)]
    assert "all experts of a layer are in one tensor" in problems(fused)
    is_loaded_alike(model, fused / "weights/ckpt")
    is_loaded_alike(model, split / "weights/ckpt")
    identity(mount, tmp_path, run)


@pytest.mark.parametrize("family", some(FUSED))
def test_families_that_are_published_fused(mount, tmp_path, family):
    model = as_loaded(build(family))
    run = tmp_path / "run"
    saved_sharded(model, run)
    model.save_pretrained(tmp_path / "want")
    fused, split = mount(run, "experts=fused"), mount(run, "experts=split")
    assert_files_equal(fused / "weights/ckpt", tmp_path / "want")
    is_loaded_alike(model, fused / "weights/ckpt")
    trees.assert_same(trees.weights(split / "weights/ckpt"), split_by_torch(family, trees.weights(tmp_path / "want")))
    assert "each expert's weights are tensors of their own" in problems(split)
    identity(mount, tmp_path, run)


def test_without_the_option_nothing_changes(mount, tmp_path):
    """The files that save_pretrained wrote are shown themselves; with the form that they have, too."""
    model = as_loaded(build("mixtral"))
    model.save_pretrained(tmp_path / "run/ckpt", max_shard_size="3KB")
    for options in ("rng=keep", "experts=published", "experts=split"):
        assert_files_equal(mount(tmp_path / "run", options) / "weights/ckpt", tmp_path / "run/ckpt")


@pytest.mark.parametrize("launch,case", RENAMED_FAMILIES[:1], ids=["-".join(RENAMED_FAMILIES[0])])
def test_shards_of_fsdp(made, mount, launch, case):
    folder = made(launch, case)
    live = trees.tensors(folder / "live-2.safetensors")
    shown = trees.weights(mount(folder / "run", "experts=fused") / "weights/checkpoint-2")
    experts = {n: t for n, t in live.items() if ".experts." in n}
    assert experts
    trees.assert_same({n: t for n, t in shown.items() if ".experts." in n}, experts)


@pytest.mark.parametrize("case", ["f2", "z3"])
def test_experts_that_are_transposed_on_the_hub(made, mount, case):
    """qwen3_vl_moe: the base model has [experts, columns, rows], memory [experts, rows, columns]."""
    folder = made("w2", case)
    ckpt = {"f2": "ckpt", "z3": "global_step2"}[case]
    live = trees.tensors(folder / "live.safetensors")
    want = split_by_torch("qwen3_vl_moe", live)
    m = mount(folder / "run", "experts=split", f"model={folder.parent}/base")
    trees.assert_same(trees.weights(m / f"weights/{ckpt}"), want)


@pytest.mark.parametrize("view,dtype", [("weights-bf16", torch.bfloat16), ("weights-fp32", torch.float32)])
def test_another_dtype(mount, tmp_path, view, dtype):
    model = as_loaded(build("gpt_oss", torch.bfloat16))
    saved_sharded(model, tmp_path / "run")
    m = mount(tmp_path / "run", "experts=split")
    want = split_by_torch("gpt_oss", model.state_dict())
    trees.assert_same(trees.weights(m / f"{view}/ckpt"), {n: t.to(dtype) for n, t in want.items()})


def test_a_slice_of_a_fused_tensor(mount, tmp_path):
    """safe_open reads parts of it, through the mount and without."""
    model = as_loaded(build("qwen3_moe"))
    saved_sharded(model, tmp_path / "run")
    name, want = next((n, t) for n, t in model.state_dict().items() if n.endswith("gate_up_proj"))
    with safe_open(mount(tmp_path / "run", "experts=fused") / "weights/ckpt/model.safetensors", "pt") as f:
        assert torch.equal(f.get_slice(name)[1:3, 2:7, 1:4], want[1:3, 2:7, 1:4])
    with unshard.safe_open(tmp_path / "run/ckpt", experts="fused") as f:
        assert torch.equal(f.get_slice(name)[1:3, 2:7, 1:4], want[1:3, 2:7, 1:4])


def test_megatrons_torch_dist(made, mount):
    folder = made("mc2", "qwen3_moe-dp2")
    shown = mount(folder / "run", f"model={folder}/hf", "experts=fused") / "weights" / STEP
    assert not [n for n in trees.weights(shown) if ONE.search(n)]
    model, info = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True, experts_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    trees.assert_same(model.state_dict(), AutoModelForCausalLM.from_pretrained(folder / "hf").state_dict())
    want = load_file(folder / "logits.safetensors")["logits"]
    with torch.no_grad():
        torch.testing.assert_close(model(torch.arange(want.shape[1]).repeat(2, 1) % 17).logits, want, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family,form", [("qwen3_moe", "fused"), ("gpt_oss", "split")])
def test_merged(mount, tmp_path, family, form):
    """Equal to the merged weights, as they are published, put together or cut by torch."""
    model = peft_merged.experts(family, torch.float32)
    run, *_ = peft_merged.saved(tmp_path, model, torch.float32, dict(
        r=3, lora_alpha=7, target_modules=["q_proj"], target_parameters=peft_merged.PARAMETERS))
    base = f"model={tmp_path}/base"
    published = mount(run.parent, base) / "merged/run/checkpoint-1"
    shown = mount(run.parent, base, f"experts={form}") / "merged/run/checkpoint-1"
    if form == "fused":
        assert not [n for n in trees.weights(shown) if ONE.search(n)]
        loaded = [AutoModelForCausalLM.from_pretrained(p).state_dict() for p in (shown, published)]
        trees.assert_same(*loaded)
        assert not torch.equal(loaded[0]["model.layers.0.mlp.experts.down_proj"],
                               AutoModelForCausalLM.from_pretrained(tmp_path / "base").model.layers[0].mlp.experts.down_proj)
    else:
        trees.assert_same(trees.weights(shown), split_by_torch(family, trees.weights(published)))


def verdict(command, checkpoint, options, view):
    """What `show` has of it, without a mount."""
    said = command("show", checkpoint, "--json", "-o", f"settle=0,view={view},{options}", check=False).stdout
    return json.loads(said)["info"]["views"][view]


def as_modules(state):
    """A model of these tensors, each expert's projections a Linear of their own, as transformers before 5 has them. In
    fp64: what PEFT makes of it is exact but for the last bits of that."""
    model = torch.nn.Module()
    model.prepare_inputs_for_generation = None  # what PEFT asks a causal LM for
    for name, t in sorted(state.items(), key=lambda item: item[0].endswith(".bias")):  # a Linear is made for its weight
        *path, last = name.split(".")
        at = model
        for part in path[:-1]:
            if part not in at._modules:
                at.add_module(part, torch.nn.Module())
            at = at._modules[part]
        if path[-1] not in at._modules:
            one = t.dim() == 2 and last == "weight"
            at.add_module(path[-1], torch.nn.Linear(*reversed(t.shape), bias=f"{name[:-6]}bias" in state) if one
                          else torch.nn.Module())
        at._modules[path[-1]].register_parameter(last, torch.nn.Parameter(t.double()))
    return model


def merged_by_peft(tmp_path, family, shown, want, dtype):
    """PEFT puts the shown adapter on the model whose experts are split: that is the view merged with split experts."""
    base = as_modules(split_by_torch(family, trees.weights(tmp_path / "base")) if family in FUSED
                      else trees.weights(tmp_path / "base"))
    before = {n: t.clone() for n, t in base.state_dict().items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        model = peft.PeftModel.from_pretrained(base, shown, autocast_adapter_dtype=False)
    held = {n.replace(".default", ""): t for n, t in model.state_dict().items() if "lora_" in n}
    assert set(held) == set(trees.tensors(shown / "adapter_model.safetensors"))
    got = model.merge_and_unload().state_dict()
    assert sum(not torch.equal(before[n], t) for n, t in got.items() if ONE.search(n)) == 2 * 4 * 3
    trees.assert_same({n: trees.rounded(got[n], t.dtype) for n, t in want.items()}, want)
    return held


STACKED = dict(r=3, lora_alpha=7, target_modules=["q_proj"], target_parameters=peft_merged.PARAMETERS,
               rank_pattern={"layers.1.mlp.experts.down_proj": 5}, alpha_pattern={"gate_up_proj": 2})


@pytest.mark.parametrize("family,dtype", [pytest.param(f, d, marks=() if (f, d) == ("qwen3_moe", "bf16") else pytest.mark.long)
                                          for f in ("qwen3_moe", "gpt_oss") for d in peft_merged.DTYPES])
def test_an_adapter_of_stacked_experts_is_split(mount, command, tmp_path, family, dtype):
    """One LoRA for each expert and projection, of all ranks and alphas; fused and published ones are PEFT's own files."""
    kind = peft_merged.DTYPES[dtype]
    run, *_ = peft_merged.saved(tmp_path, peft_merged.experts(family, kind), kind, STACKED)
    base, ckpt = f"model={tmp_path}/base", "run/checkpoint-1"
    m = mount(run.parent, base, "experts=split")
    held = merged_by_peft(tmp_path, family, m / "adapter" / ckpt, trees.weights(m / "merged" / ckpt), kind)
    assert held["base_model.model.model.layers.1.mlp.experts.3.down_proj.lora_A.weight"].shape == (5, 24 if family == "gpt_oss" else 20)
    assert "each expert has a LoRA of its own" in (m / "adapter" / ckpt / ".unshard/problems.txt").read_text()
    shutil.copytree(m / "adapter" / ckpt, tmp_path / "split/ckpt")
    again = mount(tmp_path / "split", base, "experts=split") / "adapter/ckpt"
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (again / name).read_bytes() == (tmp_path / "split/ckpt" / name).read_bytes()
    said = verdict(command, tmp_path / "split/ckpt", f"experts=fused,{base}", "adapter")
    assert said["state"] != "ok" and "is of the LoRA of one expert" in said["why"]
    for form in ("fused", "published"):
        whole = mount(run.parent, base, f"experts={form}") / "adapter" / ckpt
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            assert (whole / name).read_bytes() == (run / "checkpoint-1" / name).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_an_adapter_as_another_peft_packed_it_is_split(mount, tmp_path, family):
    """A and B of the other dimension of the parameter: as PEFT before 0.19 has it, of gpt_oss as no PEFT had it."""
    run, _, live, _ = peft_merged.saved(tmp_path, peft_merged.experts(family, torch.float32), torch.float32, dict(
        r=3, lora_alpha=7, use_rslora=True, target_modules=[], target_parameters=peft_merged.PARAMETERS))
    old = {n: torch.randn(*reversed(live[n.translate(str.maketrans("AB", "BA"))].shape)) for n in live if "lora_" in n}
    peft_merged.as_older_peft_saved(run, "0.18.1", lambda n, t: old[n.replace(".weight", ".default.weight")].contiguous())
    m = mount(run.parent, f"model={tmp_path}/base", "experts=split")
    shown = m / "adapter/run/checkpoint-1"
    merged_by_peft(tmp_path, family, shown, trees.weights(m / "merged/run/checkpoint-1"), torch.float32)


@pytest.mark.long
def test_an_adapter_that_was_saved_with_its_model_is_split(mount, command, tmp_path):
    """One checkpoint of both: the same adapter. With a second adapter beside it, which has no experts, it is refused."""
    run, _, live, _ = peft_merged.saved(tmp_path, peft_merged.experts("qwen3_moe", torch.float32), torch.float32, STACKED)
    want = mount(run.parent, f"model={tmp_path}/base", "experts=split") / "adapter/run/checkpoint-1"
    for name in ("one", "two"):
        second = {n.replace(".default.", ".other."): t for n, t in live.items() if "q_proj.lora_" in n}
        dist_cp.save({"model": live | (second if name == "two" else {})}, checkpoint_id=tmp_path / name / "ckpt", no_dist=True)
        shutil.copy(run / "checkpoint-1/adapter_config.json", tmp_path / name)
        shutil.copy(tmp_path / "base/config.json", tmp_path / name)
    shown = mount(tmp_path / "one", "experts=split") / "adapter/ckpt"
    trees.assert_same(*(trees.tensors(d / "adapter_model.safetensors") for d in (shown, want)))
    assert (shown / "adapter_config.json").read_bytes() == (want / "adapter_config.json").read_bytes()
    said = verdict(command, tmp_path / "two/ckpt", "experts=split", "adapter")
    assert said["state"] != "ok" and "has several adapters" in said["why"]


@pytest.mark.long
def test_an_adapter_of_square_experts_is_refused_as_it_is_for_a_merge(command, tmp_path):
    run, *_ = peft_merged.saved(tmp_path, peft_merged.experts("gpt_oss", torch.float32), torch.float32, dict(
        r=3, lora_alpha=7, target_modules=["q_proj"], target_parameters=peft_merged.PARAMETERS[1:]))
    for view in ("adapter", "merged"):
        shown = verdict(command, run / "checkpoint-1", f"experts=split,model={tmp_path}/base", view)
        assert shown["state"] != "ok" and "square" in shown["why"], view


def test_an_adapter_of_experts_is_refused_by_name(mount, command, tmp_path):
    """In weights; and in adapter, if the base model that tells the matrices' dimensions apart is not there."""
    run, *_ = peft_merged.saved(tmp_path, peft_merged.experts("qwen3_moe", torch.float32), torch.float32, dict(
        r=3, target_modules=["q_proj"], target_parameters=peft_merged.PARAMETERS))
    m = mount(run.parent, f"model={tmp_path}/base", "experts=split")
    said = (m / "weights/run/checkpoint-1/UNSHARD_PROBLEM.txt").read_text()
    why = "is of an adapter of experts"
    assert re.search(rf"experts cannot be shown split: .*experts.*lora_[AB].* {why}", " ".join(said.split()))
    shown = verdict(command, run / "checkpoint-1", f"experts=split,model={tmp_path}/base", "weights")
    assert shown["state"] != "ok" and why in shown["why"]
    shutil.rmtree(tmp_path / "base")
    shown = verdict(command, run / "checkpoint-1", "experts=split", "adapter")
    assert shown["state"] != "ok" and "the experts cannot be shown split: " in shown["why"] and "base model" in shown["why"]
    assert verdict(command, run / "checkpoint-1", "experts=published", "adapter")["state"] == "ok"
    assert (mount(run.parent, "experts=published") / "adapter/run/checkpoint-1/adapter_model.safetensors").exists()


def test_an_adapter_of_other_modules_is_shown(mount, tmp_path):
    run, _, _, _ = peft_merged.saved(tmp_path, peft_merged.experts("qwen3_moe", torch.float32), torch.float32, dict(
        r=3, target_modules=["q_proj"]))
    shown = mount(run.parent, "experts=fused") / "adapter/run/checkpoint-1/adapter_model.safetensors"
    assert shown.read_bytes() == (run / "checkpoint-1/adapter_model.safetensors").read_bytes()


def test_mean(mount, tmp_path):
    """gpt_oss: what is computed is put in another order, too."""
    states = []
    for step in (1, 2):
        model = build("gpt_oss")
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * step)
        dist_cp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / f"runs/run/step-{step}", no_dist=True)
        states.append({n: t.clone() for n, t in model.state_dict().items()})
    model.config.save_pretrained(tmp_path / "runs/run")
    shown = mount(tmp_path / "runs", "experts=split") / "mean-2/run/step-2"
    trees.assert_same(trees.weights(shown), split_by_torch("gpt_oss", mean(states)))


def test_ema(mount, tmp_path):
    model, kept = as_loaded(build("qwen3_moe")), build("qwen3_moe")
    with torch.no_grad():
        for p in kept.parameters():
            p.mul_(0.5)
    dist_cp.save({"model": model.state_dict(), "ema": kept.state_dict()}, checkpoint_id=tmp_path / "run/ckpt", no_dist=True)
    model.config.save_pretrained(tmp_path / "run")
    is_loaded_alike(kept, mount(tmp_path / "run", "experts=fused") / "ema/ckpt")


def test_quantised_experts(mount, tmp_path, command):
    """weights-fp8 of experts that are split is what it is of a directory that has them so; fused ones are refused."""
    model = as_loaded(build("gpt_oss", torch.bfloat16))
    saved_sharded(model, tmp_path / "run")
    m = mount(tmp_path / "run", "experts=split")
    shutil.copytree(m / "weights/ckpt", tmp_path / "split/ckpt")
    want = trees.weights(mount(tmp_path / "split") / "weights-fp8/ckpt")
    assert want["model.layers.0.mlp.experts.1.up_proj.weight"].dtype == torch.float8_e4m3fn
    trees.assert_same(trees.weights(m / "weights-fp8/ckpt"), want)
    said = command("show", tmp_path / "run/ckpt", "--json", "-o", "experts=fused,view=weights-fp8,settle=0").stdout
    view = json.loads(said)["info"]["views"]["weights-fp8"]
    assert view["state"] == "none" and "has all experts of a layer" in view["why"]


def refusal(mount, folder, form):
    return " ".join((mount(folder, f"experts={form}") / "weights/ckpt/UNSHARD_PROBLEM.txt").read_text().split())


def test_what_cannot_be_converted_is_refused_by_name(mount, tmp_path):
    """A part that is absent, one of another shape, another dtype, names of an unknown family or a quantised form."""
    model = as_loaded(build("qwen3_moe"))
    model.save_pretrained(tmp_path / "whole/ckpt")
    whole = trees.weights(tmp_path / "whole/ckpt")
    one = "model.layers.1.mlp.experts.1.up_proj.weight"

    def changed(name, change, config=None):
        shutil.copytree(tmp_path / "whole/ckpt", tmp_path / name / "ckpt")
        tensors = dict(whole)
        change(tensors)
        save_file(tensors, tmp_path / name / "ckpt/model.safetensors", metadata={"format": "pt"})
        path = tmp_path / name / "ckpt/config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
        return refusal(mount, tmp_path / name, "fused")

    stack = "model.layers.1.mlp.experts.gate_up_proj"
    assert f"of {stack} the second part (up) of expert 1 is not there" in changed("absent", lambda t: t.pop(one))
    assert f"they are not parts of one {stack}" in changed("shape", lambda t: t.update({one: whole[one][:-1].contiguous()}))
    assert "has dtype float32" in changed("dtype", lambda t: t.update({one: whole[one].bfloat16()}))
    assert "knows for models of type qwen3_next_of_tomorrow" in changed(
        "family", lambda t: None, {"model_type": "qwen3_next_of_tomorrow"})
    assert f"{one}_scale_inv is of experts" in changed(
        "scales", lambda t: t.update({f"{one}_scale_inv": torch.ones(1, 1)}))


def with_a_scale(tmp_path):
    """[(view, checkpoint, options)]: each of a model that has a tensor more."""
    more = {"model.layers.0.mlp.experts.0.up_proj.weight_scale": torch.ones(1)}
    model = peft_merged.experts("qwen3_moe", torch.float32)
    run, *_ = peft_merged.saved(tmp_path, model, torch.float32, dict(r=3, target_modules=["q_proj"]))
    base = tmp_path / "base/model.safetensors"
    save_file(load_file(base) | more, base, metadata={"format": "pt"})
    state = build("qwen3_moe").state_dict() | more
    for step in (1, 2):
        dist_cp.save({"model": state, "ema": state}, checkpoint_id=tmp_path / f"dcp/step-{step}", no_dist=True)
    build("qwen3_moe").config.save_pretrained(tmp_path / "dcp")
    return [("merged", run / "checkpoint-1", f",model={tmp_path}/base"), ("mean-2", tmp_path / "dcp/step-2", ""),
            ("ema", tmp_path / "dcp/step-2", "")]


def test_every_view_refuses(command, mount, tmp_path):
    """A base model, a mean and an EMA with a scale of the experts, which no form has."""
    for view, checkpoint, options in with_a_scale(tmp_path):
        assert verdict(command, checkpoint, f"experts=published{options}", view)["state"] == "ok", view
        shown = verdict(command, checkpoint, f"experts=split{options}", view)
        assert shown["state"] != "ok" and "weight_scale is of experts" in shown["why"], view
        m = mount(checkpoint.parent, f"experts=split{options}")
        assert "weight_scale is of experts" in " ".join(
            (m / view / checkpoint.name / "UNSHARD_PROBLEM.txt").read_text().split()), view


def test_export_has_the_form(command, mount, tmp_path):
    model = as_loaded(build("qwen3_moe"))
    saved_sharded(model, tmp_path / "run")
    command("export", tmp_path / "run/ckpt", tmp_path / "out", "-o", "settle=0,experts=fused")
    assert_files_equal(tmp_path / "out", mount(tmp_path / "run", "experts=fused") / "weights/ckpt")


def test_a_form_that_does_not_exist_is_refused(command, tmp_path):
    (tmp_path / "run").mkdir()
    said = command("show", tmp_path / "run", "-o", "experts=stacked", check=False)
    assert said.returncode and "experts=stacked: expected published, split or fused" in said.stderr


def test_python(tmp_path):
    model = as_loaded(build("qwen3_moe"))
    saved_sharded(model, tmp_path / "run")
    got = unshard.load_file(tmp_path / "run/ckpt", experts="fused")
    trees.assert_same({n: t for n, t in got.items() if ".experts." in n},
                      {n: t for n, t in model.state_dict().items() if ".experts." in n})
    with pytest.raises(unshard.Error, match="experts=stacked"):
        unshard.load_file(tmp_path / "run/ckpt", experts="stacked")


@pytest.mark.parametrize("family,form", [("gpt_oss", "split"), ("qwen3_moe", "fused")])
def test_show_has_the_bytes_that_are_read(command, tmp_path, family, form):
    """gpt_oss' split form alone is computed; gate and up of one expert are put in order together, and read once."""
    model = as_loaded(build(family))
    saved_sharded(model, tmp_path / "run")
    said = " ".join(command("show", tmp_path / "run/ckpt", "-o", f"experts={form},view=weights,settle=0").stdout.split())
    if (family, form) != ("gpt_oss", "split"):
        assert "bytes are read for each byte shown" not in said
        return
    state = model.state_dict()
    turned = {n: t for n, t in state.items() if ".experts." in n}
    computed = sum(len(t) * (2 if "gate_up" in n else 1) for n, t in turned.items() if not n.endswith("down_proj_bias"))
    assert (f"{computed} tensors are computed when they are read: in all, 1.00 bytes are read for each byte shown") in said

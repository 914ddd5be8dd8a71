"""NeMo 2's directories: weights/ (torch_dist) and context/ (model.yaml, tokenizer). NeMo's own code wrote the model.yaml of
each case, and its exporter's config is beside it (tests/golden/nemo/make.py); megatron-core saved the weights. Those of
--long are saved by NeMo's own code."""

import json
import re
import shutil

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import trees
from conftest import ROOT
from launches import NEMO

GOLDEN, STEP, NAME = ROOT / "tests/golden/nemo", "iter_0000002", "model--step=2"
# The file -> the case whose weights it describes, if that has another name.
WEIGHTS = {"llama31": "llama-tp2", "llama32": "llama-tp2"}
CASES = ["llama-tp2", "llama31", "llama32", "mistral-pp2", "mixtral-dp2", "qwen2-tp2", "qwen3-tp2-bf16", "qwen3_moe-tp2",
         "gemma-tp2", "gemma2-pp2"]
# What the exporter says otherwise: the tokens of one tokenizer, or of none; the wrong class of a mixture of experts.
OTHERWISE = {"architectures", "bos_token_id", "eos_token_id", "dtype", "transformers_version", "_name_or_path"}


def save_tokenizer(where, n=40):
    words = {f"w{i}": i for i in range(n - 2)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    assert len(fast) == n
    fast.save_pretrained(where)
    return fast


def nemo(made, where, case, change=lambda text: text):
    """A NeMo 2 checkpoint of the case's weights."""
    checkpoint = where / "run" / NAME
    shutil.copytree(made("mc2", WEIGHTS.get(case, case)) / "run" / STEP, checkpoint / "weights")
    (checkpoint / "context").mkdir()
    (checkpoint / "context/model.yaml").write_text(change((GOLDEN / f"{case}.yaml").read_text()))
    save_tokenizer(checkpoint / "context/nemo_tokenizer")
    return where / "run"


def shown_in(mount, run, view="weights"):
    return mount(run) / view / NAME / "weights"


@pytest.mark.parametrize("case", [
    case if case == "llama-tp2" else pytest.param(case, marks=pytest.mark.long) for case in CASES])
def test_the_config_is_the_exporters_and_the_model_the_published_one(made, mount, tmp_path, case):
    folder = made("mc2", WEIGHTS.get(case, case))
    shown = shown_in(mount, nemo(made, tmp_path, case))
    trees.assert_same(trees.weights(shown), trees.weights(folder / "hf"))
    want = AutoConfig.for_model(**json.loads((GOLDEN / f"{case}.json").read_text()))
    got = AutoConfig.from_pretrained(shown)
    assert {k: v for k, v in got.to_dict().items() if k not in OTHERWISE} == {
        k: v for k, v in want.to_dict().items() if k not in OTHERWISE | {"seq_length"}}
    assert (got.bos_token_id, got.eos_token_id) == (38, 39)
    assert AutoTokenizer.from_pretrained(shown).convert_tokens_to_ids(["w7", "</s>"]) == [7, 39]
    ids = torch.arange(9).repeat(2, 1)
    how = {"experts_implementation": "eager"} if "moe" in case or "mixtral" in case else {}
    loaded, info = AutoModelForCausalLM.from_pretrained(shown, output_loading_info=True, **how)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    published = AutoModelForCausalLM.from_pretrained(
        folder / "hf", **({"config": want} if case in WEIGHTS else {}), **how)
    assert type(loaded) is type(published) and loaded.dtype == published.dtype
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, published(ids).logits)


def test_where_the_config_is_from_is_said(made, mount, command, tmp_path):
    run = nemo(made, tmp_path, "llama-tp2")
    shown = shown_in(mount, run)
    provenance = json.loads((shown / ".unshard/provenance.json").read_text())
    assert provenance["files"]["config.json"]["origin"] == f"made from {NAME}/context/model.yaml"
    said = "no config.json was found: the one shown is made from the training's own"
    assert said in (shown / ".unshard/problems.txt").read_text()
    assert " ok" in command("ls", run, "-o", "settle=0").stdout
    assert json.loads((shown_in(mount, run, "weights-bf16") / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_config_of_the_model_itself_comes_first(made, mount, tmp_path):
    run = nemo(made, tmp_path, "llama-tp2")
    hf = made("mc2", "llama-tp2") / "hf"
    m = mount(run, f"model={hf}")
    assert (m / "weights" / NAME / "weights/config.json").read_bytes() == (hf / "config.json").read_bytes()


@pytest.mark.parametrize("old,new,said", [
    (r"llama\.Llama2Config7B", "llama.Llama4Config", "its class is nemo.collections.llm.gpt.model.llama.Llama4Config"),
    ("rotary_percent: 1.0", "rotary_percent: 0.5", "rotary_percent is 0.5, and in a model of type llama it is 1"),
    *(pytest.param(*row, marks=pytest.mark.long) for row in [
        (r"nemo\.collections\.llm\.gpt\.model\.llama\.Llama2Config7B", "mine.LlamaConfig", "its class is mine.LlamaConfig"),
        ("num_moe_experts: null", "num_moe_experts: 4", "with num_moe_experts, of which unshard does not know"),
        ("normalization: RMSNorm", "normalization: LayerNorm", 'normalization is "LayerNorm"'),
        ("torch.nn.functional.silu", "torch.nn.functional.gelu", "in a model of type llama it is silu"),
        ("window_size: null", "window_size: [8, 0]", "window_size is [8,0]"),
        ("num_layers: 2", "num_layers: null", "num_layers is no number"),
        ("hidden_size: 16", "hidden_size: &x 16\n  y: *x", "YAML aliases"),
        (r"\nconfig:\n", "\nother:\n", 'it has no object "config"'),
        ("\n  hidden_size: 16", "\n  hidden_size: 18", "hidden_size is 18"),
    ]),
])
def test_what_no_model_of_transformers_does_is_refused_with_its_rule(made, mount, command, tmp_path, old, new, said):
    def change(text):
        changed, n = re.subn(old, new, text, count=1)
        assert n
        return changed
    run = nemo(made, tmp_path, "llama-tp2", change)
    told = " ".join(command("check", run, "-o", "settle=0,store=none", check=False).stdout.split())
    assert "no config.json is made from" in told and said in told
    shown = shown_in(mount, run)
    assert not (shown / "config.json").exists()
    assert said in (shown / ".unshard/problems.txt").read_text()
    assert "decoder.layers.self_attention.linear_qkv.weight" in trees.weights(shown)


def test_without_a_tokenizer_the_vocabulary_is_not_guessed(made, mount, tmp_path):
    run = nemo(made, tmp_path, "llama32")
    shutil.rmtree(run / NAME / "context/nemo_tokenizer")
    shown = shown_in(mount, run)
    assert "vocab_size is null, and no tokenizer.json beside it" in (shown / ".unshard/problems.txt").read_text()
    assert not (shown / "config.json").exists()


# -- what NeMo 2's own code saves in weights/ (make/nemo_weights.py); test_megatron_optimizer.py has its optimizer --


@pytest.fixture(params=[case for _, case in NEMO])
def saved_by_nemo(made, mount, request):
    folder = made("ne4", request.param)
    return folder, mount(folder / "run", f"model={folder}/hf")


@pytest.mark.long
def test_its_names_and_its_step_are_read(saved_by_nemo, command):
    folder, mounted = saved_by_nemo
    dtype = next(iter(trees.weights(folder / "hf").values())).dtype
    param = trees.weights(folder / "live/param")
    trees.assert_same(trees.weights(mounted / "weights" / NAME / "weights"), {n: t.to(dtype) for n, t in param.items()})
    info = json.loads((mounted / "weights" / NAME / "weights/.unshard/info.json").read_text())
    assert info["step"] == 2 and info["finished"]


@pytest.mark.long
def test_it_saves_one_form_of_its_optimizer(saved_by_nemo):
    """Also where the strategy was told ckpt_parallel_save_optim=False, which asks for dp_zero_gather_scatter."""
    common = torch.load(saved_by_nemo[0] / "run" / NAME / "weights/common.pt", weights_only=False)
    chained = common["optimizer"][0]
    for one in [chained] if "optimizer" in chained else chained.values():
        assert one["param_state_sharding_type"] == "fully_sharded_model_space"


@pytest.mark.long
def test_megatron_lm_does_not_load_it(saved_by_nemo, command):
    folder, mounted = saved_by_nemo
    assert not (mounted / "torch_dist" / NAME / "weights").exists()
    said = command("show", folder / "run" / NAME / "weights", "-o", f"model={folder}/hf").stdout
    assert "NeMo saved it, and loads other names" in " ".join(said.split())


def test_its_param_groups_and_its_step_are_taken(made, mount, tmp_path):
    """NeMo multiplies weight decay itself, and keeps the factor as pre_wd_mult."""
    folder = made("mo2", "llama-tp2")
    weights = tmp_path / "run" / NAME / "weights"
    shutil.copytree(folder / "run" / STEP, weights)
    common = torch.load(weights / "common.pt", weights_only=False)
    for group in common["optimizer"]["optimizer"]["param_groups"]:
        group |= {"pre_wd_mult": group.pop("wd_mult"), "pre_lr_mult": group.pop("lr_mult"), "pre_mult_wd": 0.1}
    del common["args"], common["iteration"]
    torch.save(common | {"optimizer": [common["optimizer"]], "global_step": 2, "pytorch-lightning_version": "2.4.0"},
               weights / "common.pt")
    full = mount(tmp_path / "run", f"model={folder}/hf") / "full" / NAME / "weights"
    got = torch.load(full / "optimizer.pt", weights_only=True)["param_groups"]
    assert [(g["weight_decay"], g["pre_wd_mult"]) for g in got] == [(0.1, 1.0), (0.0, 0.0)]
    assert json.loads((full / "trainer_state.json").read_text())["global_step"] == 2
    assert torch.load(full / "scheduler.pt", weights_only=True)["last_epoch"] == 2

"""Names that wrapping modules put their own attributes into, as a script that saves by its model's own names has them."""

import json
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dist_cp
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
import transformers
from transformers import AutoModel, AutoModelForCausalLM

import trees

sys.path.insert(0, str(Path(__file__).parent / "make"))
import models  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.module = nn.Linear(3, 2)  # an attribute of the user's


def net():
    torch.manual_seed(2)
    model = nn.Module()
    model.layers = nn.ModuleList([Block(), Block()])
    model.head = nn.Linear(3, 2)
    return model


def inside(model, wrap):
    model.layers[1] = wrap(model.layers[1])
    return model


WRAPPED = {"compiled": lambda m: torch.compile(m),
           "compiled-inside": lambda m: inside(m, torch.compile),
           "checkpointed": lambda m: inside(m, checkpoint_wrapper),
           "data-parallel": nn.DataParallel,
           "all": lambda m: nn.DataParallel(torch.compile(inside(inside(m, checkpoint_wrapper), torch.compile)))}


def saved(model):
    """As a script's own dict of states by name, one of them no tensor."""
    weights = {n: p.detach() for n, p in model.named_parameters()}
    names = list(weights)
    states = {n: {"exp_avg": weights[n] + 1, "exp_avg_sq": weights[n] + 2, "step": torch.tensor(3.)}
              for n in names}
    return {"model": weights, "optimizer": {"state": states, "param_groups": [
        {"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0, "params": names}]}}


@pytest.mark.parametrize("case", WRAPPED)
def test_names_are_as_torch_gives_them(mount, tmp_path, command, case):
    live = net().state_dict()
    state = saved(WRAPPED[case](net()))
    assert state["model"].keys() != live.keys()
    dist_cp.save(state, checkpoint_id=tmp_path / "source/step-3", no_dist=True)
    torch.save(state, tmp_path / "source/last.pt")
    m = mount(tmp_path / "source")
    for name in ("step-3", "last.pt"):
        trees.assert_same(trees.tensors(m / "weights" / name / "model.safetensors"), live)
        said = json.loads((m / "weights" / name / ".unshard/provenance.json").read_text())
        assert set(said["inferred"]) & set(live)
        assert "wrappers_left_out" in command("check", tmp_path / "source", "--json").stdout
    zero = m / "universal/step-3/global_step3/zero"
    assert {p.name for p in zero.iterdir() if p.is_dir()} == set(live)
    for name, weight in live.items():
        assert torch.equal(torch.load(zero / name / "exp_avg.pt")["param"], weight + 1), name
    net().load_state_dict(trees.tensors(m / "weights/step-3/model.safetensors"))


def test_names_that_no_model_of_the_config_has_are_told(mount, tmp_path, command):
    """By check and by problems.txt; not if the names fit, or fit behind -o strip=. A prefix in front of all is left out."""
    model = models.llama(torch.float32, tie=False)
    run = tmp_path / "source/run"
    model.config.save_pretrained(run)
    live = model.state_dict()
    prefixed, inner = {f"net.{n}": t for n, t in live.items()}, model.model.state_dict()
    twice = {f"model.{n}": t for n, t in live.items()}  # from_pretrained takes one off
    trained = {n: t for n, t in live.items() if "layers." in n}
    other = {f"net.{n}".replace("layers", "blocks").replace("embed_tokens", "wte"): t for n, t in live.items()}
    for name, weights in (("own", live), ("other", other), ("inner", inner), ("part", trained), ("prefixed", prefixed),
                          ("twice", twice), ("beside", {**prefixed, "scale": torch.ones(2)})):
        dist_cp.save({"model": weights}, checkpoint_id=run / name, no_dist=True)
    found = json.loads(command("check", run, "--json", check=False).stdout)["findings"]
    assert {(f["path"], f["id"]) for f in found} == {
        ("run/other", "config_has_other_names"), ("run/part", "model_part_missing"),
        ("run/prefixed", "prefix_left_out"), ("run/beside", "config_has_other_prefix")}
    m = mount(run)
    for name in ("own", "inner", "prefixed", "twice"):
        loaded, told = AutoModelForCausalLM.from_pretrained(m / "weights" / name, output_loading_info=True)
        assert set(told["missing_keys"]) <= {"lm_head.weight"} and (name == "inner" or not told["missing_keys"]), name
        loaded = loaded.state_dict()
        trees.assert_same({n: loaded[n] for n in live if n in loaded and n != "lm_head.weight"},
                          {n: t for n, t in live.items() if n in loaded and n != "lm_head.weight"})
    for name, said in (("other", "and the names are like net."), ("beside", "with -o strip=net.")):
        assert said in (m / "weights" / name / ".unshard/problems.txt").read_text()
        assert AutoModelForCausalLM.from_pretrained(m / "weights" / name, output_loading_info=True)[1]["missing_keys"]
    trees.assert_same(trees.weights(mount(run, "names=memory") / "weights/prefixed"), prefixed)
    stripped = mount(run, "strip=net.") / "weights/beside"
    assert "-o strip" not in (stripped / ".unshard/problems.txt").read_text()
    loaded = AutoModelForCausalLM.from_pretrained(stripped).state_dict()
    trees.assert_same(loaded, {n: t for n, t in live.items() if n in loaded})


@pytest.mark.parametrize("family", ["BertConfig", "RobertaConfig", "MPNetConfig", "DistilBertConfig", "T5Config",
                                    "GPT2Config", "LlamaConfig", "Qwen3Config", "BartConfig"])
@pytest.mark.parametrize("prefix", ["", "BASE.", "0.model.", "model.", "policy.", "student.", "generator.", "module.model."])
def test_prefixes(tmp_path, mount, family, prefix):
    """By what from_pretrained itself loads of the same names: all that it would miss is missed no more, and what it
    loads stays as it is."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20,
             "max_position_embeddings": 12, "head_dim": 8, "num_key_value_heads": 2, "dim": 16, "hidden_dim": 16,
             "n_layers": 1, "n_heads": 2, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2,
             "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
             "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "pad_token_id": 0}
    kind = getattr(transformers, family)
    config = kind(**{k: v for k, v in sizes.items() if hasattr(kind(), k)})
    model = AutoModel.from_config(config)
    live = {n: t for n, t in model.state_dict().items() if n != "embeddings.position_ids"}
    model.save_pretrained(tmp_path / "saved")
    front = prefix.replace("BASE", model.base_model_prefix)
    run = tmp_path / "run"
    config.save_pretrained(run)
    dist_cp.save({"state": {f"{front}{n}": t.clone() for n, t in live.items()}}, checkpoint_id=run / "x", no_dist=True)
    shown = mount(run) / "weights/x"
    told = AutoModel.from_pretrained(shown, output_loading_info=True)[1]
    assert not told["missing_keys"] and not told["unexpected_keys"]
    base = f"{model.base_model_prefix}."  # from_pretrained takes it off
    kept = base if f".{front}".endswith(f".{base}") else ""
    assert trees.weights(shown).keys() == {f"{kept}{n}" for n in trees.weights(tmp_path / "saved")}


def test_names_that_would_be_alike_stay(mount, tmp_path):
    weights = {"a._orig_mod.w": torch.ones(2), "a.w": torch.zeros(2)}
    dist_cp.save({"model": weights}, checkpoint_id=tmp_path / "source/ckpt", no_dist=True)
    trees.assert_same(trees.tensors(mount(tmp_path / "source") / "weights/ckpt/model.safetensors"), weights)


def test_a_module_of_that_name_stays(mount, tmp_path):
    """`module.` in front of some names is the user's."""
    live = Block().state_dict()
    dist_cp.save({"model": live}, checkpoint_id=tmp_path / "source/ckpt", no_dist=True)
    trees.assert_same(trees.tensors(mount(tmp_path / "source") / "weights/ckpt/model.safetensors"), live)

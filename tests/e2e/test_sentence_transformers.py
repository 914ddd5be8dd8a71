"""A SentenceTransformer's state in shards: with its modules.json, `weights` is the directory that its save_pretrained
writes; without, a note names what to give. programs/sentence_transformers_trainer.py has the program itself load it."""

import json
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

import trees

TYPES = "sentence_transformers.models."
MODULES = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Dense", "Dense"), ("3", "3_Normalize", "Normalize")]
FILES = ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "config.json",
         "config_sentence_transformers.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
         "tokenizer.json", "tokenizer_config.json"]


def native(where, modules=MODULES):
    """What save_pretrained of sentence-transformers 6.2 writes, without its model card. -> the tensors of each module"""
    torch.manual_seed(3)
    bert = BertModel(BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                intermediate_size=32, max_position_embeddings=32))
    root = where / modules[0][1]
    bert.save_pretrained(root)
    dense = {"linear.weight": torch.randn(8, 16), "linear.bias": torch.randn(8)}
    for name, text in (("1_Pooling/config.json", {"embedding_dimension": 16, "pooling_mode": "cls"}),
                       ("2_Dense/config.json", {"in_features": 16, "out_features": 8}),
                       ("config_sentence_transformers.json", {"model_type": "SentenceTransformer"}),
                       (root / "sentence_bert_config.json", {"max_seq_length": 16}), ("tokenizer.json", {}),
                       ("tokenizer_config.json", {}),
                       ("modules.json", [{"idx": i, "name": n, "path": p, "type": TYPES + t}
                                         for i, (n, p, t) in enumerate(modules)])):
        (where / name).parent.mkdir(exist_ok=True)
        (where / name).write_text(json.dumps(text))
    save_file(dense, where / "2_Dense/model.safetensors")
    return {"model.": bert.state_dict(), "": dense}


def beside(base, run):
    """All but the weights into the run: the directory of a model would be a checkpoint itself."""
    shutil.copytree(base, run, ignore=shutil.ignore_patterns("*.safetensors"))


def shards(where, tensors):
    dcp.save({"model": tensors}, checkpoint_id=where / "pytorch_model_fsdp_0", no_dist=True)


def state(parts, attribute="model.", names=("0", "2")):
    return {f"{name}.{attribute if inner else ''}{n}": t
            for name, (inner, tensors) in zip(names, parts.items()) for n, t in tensors.items()}


@pytest.mark.parametrize("attribute", ["model.", "auto_model."])
@pytest.mark.parametrize("where", ["run", "option"])
def test_weights_is_the_directory_that_save_pretrained_writes(mount, command, tmp_path, attribute, where):
    base, run = tmp_path / "base", tmp_path / "run"
    parts = native(base)
    if where == "run":
        beside(base, run)
    shards(run / "checkpoint-2", state(parts, attribute))
    shown = mount(run, *(() if where == "run" else (f"model={base}",))) / "weights/checkpoint-2"
    assert trees.listing(shown) == FILES
    trees.assert_same(load_file(shown / "model.safetensors"), load_file(base / "model.safetensors"))
    trees.assert_same(load_file(shown / "2_Dense/model.safetensors"), load_file(base / "2_Dense/model.safetensors"))
    for name in FILES:
        if name.endswith(".json"):
            assert (shown / name).read_bytes() == (base / name).read_bytes(), name
    missing = BertModel.from_pretrained(shown, output_loading_info=True)[1]["missing_keys"]
    assert not missing
    if where == "run":
        line = command("show", run / "checkpoint-2").stdout
        assert f'SentenceTransformer("{shown}")' in line and "modules.json was not found" not in line


def test_full_is_what_their_trainer_resumes_from(mount, tmp_path):
    """SentenceTransformerTrainer loads SentenceTransformer(checkpoint), which takes random weights for other names."""
    base, run = tmp_path / "base", tmp_path / "run"
    parts = native(base)
    beside(base, run)
    shards(run / "checkpoint-2", state(parts))
    m = mount(run)
    assert set(FILES) < set(trees.listing(m / "full/checkpoint-2"))
    for name in FILES:
        shown, want = ((m / view / "checkpoint-2" / name).read_bytes() for view in ("full", "weights"))
        assert shown == want, name


def test_modules_in_directories_and_other_names(mount, tmp_path):
    """Version 2.0 saved the first module in 0_Transformer; a user may name modules."""
    run = tmp_path / "run"
    modules = [("words", "0_Transformer", "Transformer"), ("1", "1_Pooling", "Pooling"), ("out", "2_Dense", "Dense")]
    shards(run / "checkpoint-2", state(native(run, modules), names=("words", "out")))
    shown = mount(run) / "weights/checkpoint-2"
    assert not (shown / "model.safetensors").exists()
    for name in ("0_Transformer", "2_Dense"):
        trees.assert_same(load_file(shown / name / "model.safetensors"), load_file(run / name / "model.safetensors"))
    assert (shown / "0_Transformer/sentence_bert_config.json").exists()


def test_each_module_is_converted(mount, tmp_path):
    run = tmp_path / "run"
    parts = native(tmp_path / "base")
    beside(tmp_path / "base", run)
    shards(run / "checkpoint-2", state(parts))
    shown = mount(run) / "weights-bf16/checkpoint-2"
    for name, tensors in (("model.safetensors", parts["model."]), ("2_Dense/model.safetensors", parts[""])):
        trees.assert_same(load_file(shown / name), {n: t.bfloat16() for n, t in tensors.items()})
    assert json.loads((shown / "config.json").read_text())["dtype"] == "bfloat16"


def test_without_modules_json_a_note_names_what_to_give(mount, command, tmp_path):
    base, run = tmp_path / "base", tmp_path / "run"
    shards(run / "checkpoint-2", state(native(base)))
    said = (mount(run) / "weights/checkpoint-2/.unshard/problems.txt").read_text()
    assert "whose modules.json was not found" in said and "-o model=DIR" in said
    found = json.loads(command("check", run, "--json", "-o", "settle=0", check=False).stdout)["findings"]
    assert "sentence_modules_missing" in [f["id"] for f in found]


def test_a_modules_json_of_another_model_is_not_taken(mount, tmp_path):
    base, run = tmp_path / "base", tmp_path / "run"
    parts = native(base)
    shards(run / "checkpoint-2", {**state(parts), "4.linear.weight": torch.ones(2, 2)})
    shown = mount(run, f"model={base}") / "weights/checkpoint-2"
    assert not (shown / "modules.json").exists()
    assert "whose modules.json was not found" in (shown / ".unshard/problems.txt").read_text()


@pytest.mark.parametrize("text", ["[", '{"a": 1}', '[{"idx": 0, "name": "0", "path": "../x", "type": "t.Transformer"}]',
                                  '[{"idx": 0, "path": "", "type": "t.Transformer"}]', '[3]',
                                  '[{"idx": 0, "name": "0", "path": "", "type": "t.Router"}]',
                                  '[{"idx": 0, "name": "0", "path": "", "type": "t.Transformer"}, '
                                  '{"idx": 1, "name": "2", "path": "", "type": "t.Dense"}]'])
def test_a_modules_json_that_is_none_is_told(mount, tmp_path, text):
    run = tmp_path / "run"
    parts = native(tmp_path / "base")
    shards(run / "checkpoint-2", state(parts))
    (run / "modules.json").write_text(text)
    shown = mount(run) / "weights/checkpoint-2"
    assert "modules.json of the run directory cannot be used" in (shown / ".unshard/problems.txt").read_text()
    trees.assert_same(load_file(shown / "model.safetensors"), state(parts))


@pytest.mark.parametrize("view", ["weights", "weights-bf16"])
def test_a_saved_model_stays_whole(mount, tmp_path, view):
    """A plain Trainer's checkpoint is that directory already. Converted, only the model of transformers is."""
    native(tmp_path / "run/checkpoint-2")
    shown, saved = mount(tmp_path / "run") / view / "checkpoint-2", tmp_path / "run/checkpoint-2"
    assert trees.listing(shown) == FILES
    for name in set(FILES) - ({"config.json", "model.safetensors"} if view != "weights" else set()):
        assert (shown / name).read_bytes() == (saved / name).read_bytes(), name


def test_options_about_names_are_heeded(mount, tmp_path):
    run = tmp_path / "run"
    parts = native(tmp_path / "base")
    beside(tmp_path / "base", run)
    shards(run / "checkpoint-2", state(parts))
    trees.assert_same(load_file(mount(run, "names=memory") / "weights/checkpoint-2/model.safetensors"), state(parts))

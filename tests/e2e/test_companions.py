"""config, tokenizer and the like: which are borrowed, from where, and what is said about it."""

import json
import shutil

import pytest
from transformers import AutoConfig

import trees

TOKENIZER = {"tokenizer.json": "{}", "tokenizer_config.json": '{"a": 1}',
             "special_tokens_map.json": "{}", "chat_template.jinja": "hello"}


@pytest.fixture
def bare(made, copied):
    """A run without any config, its directory free to change."""
    run = copied(made("t2", "tied-f1-fp32") / "run")
    (run / "config.json").unlink()
    return run


@pytest.fixture
def model_dir(made, tmp_path):
    """A base model's directory, as in the hub's cache: links to blobs."""
    base, blobs = tmp_path / "hub/snapshots/abc", tmp_path / "hub/blobs"
    base.mkdir(parents=True)
    blobs.mkdir()
    config = (made("t2", "tied-f1-fp32") / "run/config.json").read_text()
    for i, (name, text) in enumerate({"config.json": config, **TOKENIZER}.items()):
        (blobs / str(i)).write_text(text)
        (base / name).symlink_to(f"../../blobs/{i}")
    return base


def names(m):
    return sorted(p.name for p in (m / "weights/checkpoint-2").iterdir())


def problems(m, ckpt="checkpoint-2"):
    return (m / f"weights/{ckpt}/.unshard/problems.txt").read_text()


def test_from_the_run_directory(made, mount, copied):
    run = copied(made("t2", "tied-f1-fp32") / "run")
    for name, text in TOKENIZER.items():
        (run / name).write_text(text)
    m = mount(run)
    assert names(m) == sorted(["config.json", "model.safetensors", *TOKENIZER])
    for name, text in TOKENIZER.items():
        assert (m / f"weights/checkpoint-2/{name}").read_text() == text


def test_from_a_given_directory(bare, mount, model_dir):
    m = mount(bare, f"model={model_dir}")
    assert names(m) == sorted(["config.json", "model.safetensors", *TOKENIZER])
    assert AutoConfig.from_pretrained(m / "weights/checkpoint-2").hidden_size == 24


def test_from_a_directory_given_for_one_run(made, mount, bare, model_dir, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    bare.rename(runs / "one")
    shutil.copytree(runs / "one", runs / "other")
    m = mount(runs, f"model=one={model_dir}")
    assert (m / "weights/one/checkpoint-2/config.json").exists()
    assert not (m / "weights/other/checkpoint-2/config.json").exists()


def test_from_nowhere_is_said(bare, mount):
    m = mount(bare)
    assert names(m) == ["model.safetensors"]
    text = problems(m)
    assert "config.json" in text and "-o model=" in text
    assert "lm_head.weight" in trees.weights(m / "weights/checkpoint-2")


def test_the_checkpoints_own_come_first(bare, mount, model_dir):
    config = json.loads((model_dir / "config.json").read_text())
    config["mark"] = "own"
    (bare / "checkpoint-2/config.json").write_text(json.dumps(config))
    config["mark"] = "run"
    (bare / "config.json").write_text(json.dumps(config))
    m = mount(bare, f"model={model_dir}")
    marks = [json.loads((m / f"weights/{c}/config.json").read_text())["mark"]
             for c in ("checkpoint-1", "checkpoint-2")]
    assert marks == ["run", "own"]


def test_a_set_is_never_mixed(bare, mount, model_dir):
    """The run has a tokenizer.json of its own: nothing of the model's tokenizer joins it."""
    (bare / "tokenizer.json").write_text('{"of": "the run"}')
    m = mount(bare, f"model={model_dir}")
    assert names(m) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert "of" in (m / "weights/checkpoint-2/tokenizer.json").read_text()


@pytest.mark.parametrize("key,wrong", [("vocab_size", 102), ("hidden_size", 32),
                                       ("num_hidden_layers", 4)])
def test_a_borrowed_config_of_another_model_is_refused(bare, mount, model_dir, key, wrong):
    config = json.loads((model_dir / "config.json").read_text())
    config[key] = wrong
    (bare / "config.json").write_text(json.dumps(config))
    m = mount(bare)
    text = problems(m)
    assert str(wrong) in text and key in text


def test_code_named_by_auto_map_comes_along(bare, mount, model_dir):
    config = json.loads((model_dir / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_x.XConfig"}
    (bare / "config.json").write_text(json.dumps(config))
    (bare / "configuration_x.py").write_text("x = 1\n")
    (bare / "train.py").write_text("y = 1\n")
    m = mount(bare)
    assert names(m) == ["config.json", "configuration_x.py", "model.safetensors"]

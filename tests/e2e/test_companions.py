"""config, tokenizer and the like: which are borrowed, from where, and what is said about it."""

import json
import shutil

import pytest
from transformers import AutoConfig, DefaultFlowCallback, TrainerControl, TrainerState, TrainingArguments

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
                                       ("num_hidden_layers", 4), ("num_attention_heads", 16),
                                       ("num_key_value_heads", 1), ("intermediate_size", 12)])
def test_a_borrowed_config_of_another_model_is_refused(bare, mount, model_dir, key, wrong):
    config = json.loads((model_dir / "config.json").read_text())
    config[key] = wrong
    (bare / "config.json").write_text(json.dumps(config))
    m = mount(bare)
    text = problems(m)
    assert "does not fit this checkpoint" in text and key in text


def test_code_named_by_auto_map_comes_along(bare, mount, model_dir):
    config = json.loads((model_dir / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_x.XConfig"}
    (bare / "config.json").write_text(json.dumps(config))
    (bare / "configuration_x.py").write_text("x = 1\n")
    (bare / "train.py").write_text("y = 1\n")
    m = mount(bare)
    assert names(m) == ["config.json", "configuration_x.py", "model.safetensors"]


@pytest.mark.parametrize("where", ["checkpoint", "run", "option"])
def test_a_file_that_is_added_to_a_listed_set(bare, model_dir, mount, eventually, where):
    """A program that began to read before the last file of a tokenizer was copied sees that file, too."""
    folder = {"checkpoint": bare / "checkpoint-2", "run": bare, "option": model_dir}[where]
    for name, text in TOKENIZER.items():
        (folder / name).write_text(text)
    m = mount(bare, f"model={model_dir}", changing=True)
    assert "tokenizer.json" in names(m) and not (m / "weights/checkpoint-2/tokenizer.model").exists()
    (folder / "tokenizer.model").write_bytes(b"pieces")
    eventually(lambda: "tokenizer.model" in names(m))
    assert (m / "weights/checkpoint-2/tokenizer.model").read_bytes() == b"pieces"
    (folder / "tokenizer.model").unlink()
    eventually(lambda: "tokenizer.model" not in names(m))


LATER = {"best_global_step": None, "stateful_callbacks": {}}
STATE = {"best_metric": None, "best_model_checkpoint": None, "epoch": 1.0, "eval_steps": 500, "global_step": 2,
         "is_hyper_param_search": False, "is_local_process_zero": True, "is_world_process_zero": True,
         "log_history": [{"loss": 4.5, "learning_rate": 1e-05, "step": 1}], "logging_steps": 500, "max_steps": 4,
         "num_input_tokens_seen": 0, "num_train_epochs": 2, "save_steps": 500, "total_flos": 12.0,
         "train_batch_size": 2, "trial_name": None, "trial_params": None}
WRITTEN = {
    "transformers 4.40": STATE,
    "transformers 5.23": {**STATE, **LATER},
    "no steps but epochs": {**STATE, **LATER, "save_steps": 0, "eval_steps": 0, "logging_steps": 0},
    "steps unset": {**STATE, "save_steps": None, "eval_steps": None},
    "ratios": {**STATE, "save_steps": 0.25, "eval_steps": 0.5, "num_train_epochs": 0.5},
    "ms-swift": {**STATE, **LATER, "last_model_checkpoint": "/out/checkpoint-2"},
    "LLaMA-Factory": {**STATE, **LATER, "log_history": [{"loss": 4.5, "step": 1, "epoch": 0.5},
                                                        {"eval_loss": float("nan"), "step": 2}]},
    "unsloth": {**STATE, **LATER, "max_steps": 60, "num_train_epochs": 9223372036854775807},
    "no total of steps": {**STATE, **LATER, "max_steps": -1, "best_metric": float("inf")},
}


@pytest.mark.parametrize("writer", WRITTEN)
@pytest.mark.parametrize("view", ["full", "full-fsdp", "dcp"])
def test_a_trainer_state_of_another_writer_is_taken_as_it_is(made, copied, mount, writer, view):
    run = copied(made("t2", "tied-f1-fp32") / "run")
    text = json.dumps(WRITTEN[writer], indent=2, sort_keys=True) + "\n"
    (run / "checkpoint-2/trainer_state.json").write_text(text)
    assert (mount(run) / view / "checkpoint-2/trainer_state.json").read_text() == text


# transformers 5 fails with TypeError where train_batch_size is absent or null, and takes 500 for absent steps.
UNSET = {
    "transformers 4.30": {k: v for k, v in STATE.items() if k not in ("train_batch_size", "num_input_tokens_seen",
                          "logging_steps", "eval_steps", "save_steps")},
    "batch size unset": {**STATE, "train_batch_size": None, "save_steps": 7},
}


@pytest.mark.parametrize("writer", UNSET)
def test_what_is_absent_is_added_to_what_was_written(made, copied, mount, writer):
    run = copied(made("t2", "tied-f1-fp32") / "run")
    (run / "checkpoint-2/trainer_state.json").write_text(json.dumps(UNSET[writer]))
    shown = json.loads((mount(run) / "full/checkpoint-2/trainer_state.json").read_text())
    assert isinstance(shown.pop("train_batch_size"), int)
    wrote = {k: v for k, v in UNSET[writer].items() if k != "train_batch_size" and v is not None}
    assert {k: shown[k] for k in wrote} == wrote


def test_logging_steps_of_0_is_a_trainer_s_own_and_stays(made, copied, mount, tmp_path):
    """transformers writes it for a run that does not log by steps, and resumes such a run from it. One that logs by steps
    cannot have been the writer: its arguments are refused. It fails in its first step from the native directory too."""
    quiet = TrainingArguments(tmp_path / "out", use_cpu=True, logging_strategy="no", logging_steps=0)
    state = TrainerState()
    state.compute_steps(quiet, max_steps=10)
    assert state.logging_steps == 0
    with pytest.raises(ValueError, match="non-zero --logging_steps"):
        TrainingArguments(tmp_path / "out", use_cpu=True, logging_strategy="steps", logging_steps=0)
    run = copied(made("t2", "tied-f1-fp32") / "run")
    file = run / "checkpoint-2/trainer_state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "logging_steps": 0}))
    shown = mount(run) / "full/checkpoint-2/trainer_state.json"
    assert shown.read_text() == file.read_text()
    loud = TrainingArguments(tmp_path / "out", use_cpu=True, logging_steps=1)
    for path in (file, shown):
        state = TrainerState.load_from_json(path)
        assert not DefaultFlowCallback().on_step_end(quiet, state, TrainerControl()).should_log
        with pytest.raises(ZeroDivisionError):
            DefaultFlowCallback().on_step_end(loud, state, TrainerControl())


@pytest.mark.parametrize("case", ["acc-z2-bf16", "acc-z3-fp32"])
def test_a_model_of_diffusers_in_a_state_of_deepspeed(made, mount, tmp_path, case):
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "UNet2DModel", "_diffusers_version": "0.42.1"}))
    run = made("h2", case) / "run"
    name = next(p.name for p in run.iterdir() if p.is_dir())
    shown = mount(run, f"model={tmp_path}") / "weights" / name
    want = trees.weights(mount(run) / "weights" / name)
    assert "model.safetensors" not in [p.name for p in shown.iterdir()]
    trees.assert_same(trees.tensors(shown / "diffusion_pytorch_model.safetensors"), want)


@pytest.mark.parametrize("size", ["50GB", "20KB"])
def test_a_model_of_diffusers_has_has_the_name_that_diffusers_looks_for(bare, mount, command, size):
    """diffusers itself: tests/e2e/programs/diffusers.py."""
    config = {"_class_name": "UNet2DModel", "_diffusers_version": "0.42.1", "sample_size": 8}
    (bare / "config.json").write_text(json.dumps(config))
    shown = mount(bare, f"max_shard_size={size}") / "weights/checkpoint-2"
    files = sorted(p.name for p in shown.iterdir() if "safetensors" in p.name)
    if size == "50GB":
        assert files == ["diffusion_pytorch_model.safetensors"]
    else:
        index = json.loads((shown / "diffusion_pytorch_model.safetensors.index.json").read_text())
        assert sorted({*index["weight_map"].values(), "diffusion_pytorch_model.safetensors.index.json"}) == files
    assert json.loads((shown / "config.json").read_text()) == config
    assert "diffusers.AutoModel.from_pretrained" in command("show", bare / "checkpoint-2", "-o", "settle=0").stdout

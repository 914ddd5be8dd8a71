"""adapter_config.json of LoRAs that were saved without one: made of names, shapes and what the run records, and PEFT's
model of it has the live model's logits."""

import json
import shutil
import sys

import peft
import pytest
import torch
import torch.distributed.checkpoint as dcp
from peft.utils.save_and_load import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import conftest

sys.path.insert(0, str(conftest.MAKE))
import peft_models  # noqa: E402

QV = ["q_proj", "v_proj"]
ALPHA = 24  # no default


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=24, n_layer=2, n_head=2, n_positions=32))


# case -> (base model, LoraConfig's arguments)
CASES = {
    "plain": (peft_models.base, {"target_modules": QV, "r": 3}),
    "one layer": (peft_models.base, {"target_modules": QV, "r": 3, "layers_to_transform": [1]}),
    "ranks": (peft_models.base, {"target_modules": QV + ["down_proj"], "r": 3,
                                 "rank_pattern": {"model.layers.1.self_attn.q_proj": 5, "down_proj": 2}}),
    "dora": (peft_models.base, {"target_modules": QV, "r": 3, "use_dora": True}),
    "embedding": (peft_models.base, {"target_modules": ["embed_tokens", "q_proj"], "r": 3}),
    "saved": (peft_models.base, {"target_modules": QV, "r": 3, "modules_to_save": ["lm_head", "norm"]}),
    "saved container": (peft_models.base, {"target_modules": QV, "r": 3, "modules_to_save": ["mlp"]}),
    "lora bias": (peft_models.base, {"target_modules": QV, "r": 3, "lora_bias": True}),
    "all biases": (gpt2, {"target_modules": ["c_attn"], "r": 3, "bias": "all", "fan_in_fan_out": True}),
    "biases of lora": (gpt2, {"target_modules": ["c_attn"], "r": 3, "bias": "lora_only", "fan_in_fan_out": True}),
}


def trained(base, **config):
    """The model with an adapter in which every trained tensor differs from its beginning."""
    model = peft.get_peft_model(base(), peft.LoraConfig(lora_alpha=ALPHA, **config))
    torch.manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p) * 0.1)
    return model.eval()


def save(model, run, step=2, names="file"):
    """As a Trainer with FSDP2 (names of PEFT's files) or a loop of Accelerate's (names in memory, the base too)."""
    tensors = get_peft_model_state_dict(model) if names == "file" else model.state_dict()
    where = run / f"checkpoint-{step}/pytorch_model_fsdp_0"
    where.mkdir(parents=True)
    dcp.save({"model": tensors}, checkpoint_id=where, no_dist=True)


def logits(model):
    return model.eval()(torch.arange(24)[None] % 60).logits


def shown(mount, run, *options):
    return mount(run, *options) / "adapter/checkpoint-2"


@pytest.mark.parametrize("names", ["file", "memory"])
@pytest.mark.parametrize("case", CASES)
def test_peft_s_model_is_the_live_one(command, mount, tmp_path, case, names):
    base, config = CASES[case]
    live = trained(base, **config)
    save(live, tmp_path / "run", names=names)
    command("meta", "set", tmp_path / "run", f"lora_alpha={ALPHA}")
    where, plain = mount(tmp_path / "run"), base()
    if names == "memory":  # without an optimizer, nothing says that the base model's own biases were trained
        told = plain.load_state_dict(load_file(where / "weights/checkpoint-2/model.safetensors"), strict=False)
        assert not told.unexpected_keys and set(told.missing_keys) <= {"lm_head.weight"}
    loaded = peft.PeftModel.from_pretrained(plain, where / "adapter/checkpoint-2")
    assert torch.equal(logits(loaded), logits(live))
    assert not torch.equal(logits(loaded), logits(base()))
    tensors = live.state_dict()
    for name, tensor in loaded.state_dict().items():
        if name in tensors:
            assert torch.equal(tensor, tensors[name]), name


def test_what_is_made(command, mount, tmp_path):
    run = tmp_path / "run"
    live = trained(peft_models.base, r=3, target_modules=QV, rank_pattern={"v_proj": 3, "layers.0.self_attn.q_proj": 5},
                   modules_to_save=["lm_head"])
    save(live, run)
    command("meta", "set", run, f"lora_alpha={ALPHA}", "base_model_name_or_path=some/base")
    assert json.loads((shown(mount, run) / "adapter_config.json").read_text()) == {
        "peft_type": "LORA", "inference_mode": True, "r": 3, "bias": "none", "use_dora": False, "lora_alpha": ALPHA,
        "alpha_pattern": {}, "base_model_name_or_path": "some/base", "use_rslora": False, "modules_to_save": ["lm_head"],
        "target_modules": [f"model.layers.{i}.self_attn.{m}" for i in (0, 1) for m in QV],
        "rank_pattern": {"^model.layers.0.self_attn.q_proj": 5}}


def test_full_has_it_too(command, mount, tmp_path):
    run = tmp_path / "run"
    save(trained(peft_models.base, r=3, target_modules=QV), run)
    command("meta", "set", run, f"lora_alpha={ALPHA}")
    m = mount(run)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (m / "full/checkpoint-2" / name).read_bytes() == (m / "adapter/checkpoint-2" / name).read_bytes()


def test_what_was_assumed_is_said_beside_it(command, mount, tmp_path):
    run = tmp_path / "run"
    save(trained(peft_models.base, r=3, target_modules=QV), run)
    command("meta", "set", run, f"lora_alpha={ALPHA}")
    where = shown(mount, run)
    said = [(where / ".unshard/problems.txt").read_text(), command("show", run / "checkpoint-2").stdout,
            json.loads((where / ".unshard/provenance.json").read_text())["files"]["adapter_config.json"]["origin"]]
    for text in said:
        text = " ".join(text.split())
        assert "lora_alpha = 24 is from the store" in text
        assert "assumed, because no file records it: alpha_pattern = {}, base_model_name_or_path = null, use_rslora = " \
            "false" in text


def test_without_alpha_it_is_not_made_and_a_command_is_named(command, mount, tmp_path):
    run = tmp_path / "a run"
    live = trained(peft_models.base, r=3, target_modules=QV)
    save(live, run)
    where = shown(mount, run)
    assert sorted(p.name for p in where.iterdir()) == ["adapter_model.safetensors"]
    for text in ((where / ".unshard/problems.txt").read_text(), command("show", run / "checkpoint-2").stdout):
        assert f"`unshard meta set '{run}' lora_alpha=N`" in " ".join(text.split())
    command("meta", "set", run, f"lora_alpha={ALPHA}")
    conftest.eventually(lambda: (where / "adapter_config.json").exists())


def written_json(run):
    (run / "args.json").write_text(json.dumps({"model": "some/base", "lora_alpha": ALPHA, "use_rslora": False}))


def written_arguments(run):
    args = TrainingArguments("out", use_cpu=True)
    args.lora_alpha, args.model_name_or_path = ALPHA, "some/base"
    torch.save(args, run / "training_args.bin")


def written_card(run):
    (run / "README.md").write_text(
        f"---\nlibrary_name: peft\nbase_model: some/base\ntags:\n- lora\n---\n\n# A run\n\n<details>\n\n```yaml\n"
        f"base_model: some/base\nadapter: lora\nlora_r: 3\nlora_alpha: {ALPHA}\n```\n\n</details>\n")


def written_board(run):
    (run / "training_args.yaml").write_text(f"finetuning_type: lora\nmodel_name_or_path: some/base\nlora_alpha: {ALPHA}\n")


@pytest.mark.parametrize("write", [written_json, written_arguments, written_card, written_board])
def test_alpha_and_base_are_found_in_the_run(mount, tmp_path, write):
    run = tmp_path / "run"
    save(trained(peft_models.base, r=3, target_modules=QV), run)
    write(run)
    config = json.loads((shown(mount, run) / "adapter_config.json").read_text())
    assert (config["lora_alpha"], config["base_model_name_or_path"]) == (ALPHA, "some/base")


def test_a_neighbour_s_config_is_taken_as_it_is(mount, tmp_path):
    run = tmp_path / "run"
    live = trained(peft_models.base, r=3, target_modules=QV)
    save(live, run)
    live.peft_config["default"].save_pretrained(run / "checkpoint-4")
    where = shown(mount, run)
    assert (where / "adapter_config.json").read_bytes() == (run / "checkpoint-4/adapter_config.json").read_bytes()
    assert torch.equal(logits(peft.PeftModel.from_pretrained(peft_models.base(), where)), logits(live))


def test_the_card_of_a_base_model_says_nothing_of_this_adapter(command, mount, tmp_path):
    """-o model=BASE: its README names the model that BASE itself was made of."""
    run, base = tmp_path / "run", tmp_path / "base"
    save(trained(peft_models.base, r=3, target_modules=QV), run)
    base.mkdir()
    written_card(base)
    assert not (shown(mount, run, f"model={base}") / "adapter_config.json").exists()
    command("meta", "set", run, f"lora_alpha={ALPHA}")
    config = json.loads((shown(mount, run, f"model={base}") / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] is None


def test_another_method_s_config_is_not_made(command, mount, made, tmp_path):
    shutil.copytree(made("pf2", "ia3-f2") / "run", tmp_path / "run")
    (tmp_path / "run/adapter_config.json").unlink()
    command("meta", "set", tmp_path / "run", f"lora_alpha={ALPHA}")
    where = shown(mount, tmp_path / "run")
    assert not (where / "adapter_config.json").exists()
    assert "put it into the run directory" in (where / ".unshard/problems.txt").read_text()


def test_a_value_that_is_no_alpha_is_refused(command, tmp_path):
    for value in ("0", "-1", "x", "true"):
        done = command("meta", "set", tmp_path, f"lora_alpha={value}", check=False)
        assert done.returncode and "lora_alpha takes a number above 0" in done.stderr

"""Megatron-Core's torch_dist directories: read as what they are besides, DCP directories (real ones:
tests/golden/dcp/make_megatron.py), and with a config.json as models of Hugging Face (make/torch_dist.py and
make/torch_dist_vision.py: mbridge converts what save_pretrained wrote, megatron-core saves it)."""

import argparse
import json
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader

from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
from transformers.modeling_layers import MtpModel

import trees
from conftest import ROOT
from launches import LAUNCHES, MEGATRON, MEGATRON_OF_8, MEGATRON_SPLITS, MEGATRON_VISION
from test_names import assert_files_equal
from test_nemo import save_tokenizer
from test_python import unshard

NAME = "iter_0000010"


@pytest.fixture
def source(tmp_path):
    return shutil.copytree(ROOT / "tests/golden/dcp/megatron", tmp_path / "source")


def live(source):
    return trees.tensors(source / "live.safetensors")


def is_weight(name):
    return not name.startswith("optimizer.")


def test_weights_are_stacked_under_their_own_names(source, mount):
    want = {n: t for n, t in live(source).items() if is_weight(n)}
    assert want["decoder.layers.self_attention.linear_qkv.weight"].shape == (2, 12, 4)
    mounted = mount(source)
    trees.assert_same(trees.weights(mounted / "weights" / NAME), want)
    trees.assert_same(trees.weights(mounted / "weights-bf16" / NAME),
                      {n: t.bfloat16() for n, t in want.items()})


def test_dcp_is_passed_through_and_loads(source, mount):
    """Plain torch reads the metadata, all_local_plans and all, and every tensor out of it."""
    shown = mount(source) / "dcp" / NAME
    assert trees.listing(shown) == trees.listing(source / NAME)
    for name in trees.listing(shown):
        assert (shown / name).read_bytes() == (source / NAME / name).read_bytes(), name
    metadata = FileSystemReader(str(shown)).read_metadata()
    assert len(metadata.all_local_plans) == 2 and metadata.planner_data is None
    want = live(source)
    got = {n: torch.zeros_like(t) for n, t in want.items()}
    dcp.load(got, checkpoint_id=str(shown), no_dist=True)
    trees.assert_same(got, want)


def test_what_else_was_saved_is_listed(source, mount, command):
    info = json.loads((mount(source) / "weights" / NAME / ".unshard/info.json").read_text())
    assert info["framework"] == "Megatron-Core distributed checkpoint"
    assert info["step"] == 10 and info["world_size"] == 2 and info["finished"]
    assert [o["name"] for o in info["objects"]] == [
        "decoder.layers.self_attention.core_attention._extra_state/shard_0_2",
        "decoder.layers.self_attention.core_attention._extra_state/shard_1_2",
        "rng_state/shard_0.0_1.1"]
    assert "rng_state/shard_0.0_1.1" in command("show", source / NAME).stdout
    tensors = json.loads((mount(source) / "weights" / NAME / ".unshard/tensors.json").read_text())
    moments = {t["name"] for t in tensors if t["state"] == "exp_avg"}
    assert moments == {n.removeprefix("optimizer.state.exp_avg.") for n in live(source)
                       if not is_weight(n)}


def test_the_optimizer_is_not_taken_apart(source, mount, command):
    """It was saved without param groups: no damage, and no optimizer made up."""
    mounted = mount(source)
    for view in ("full", "full-fsdp", "universal"):
        assert not (mounted / view / NAME).exists()
    assert "common.pt does not have the param groups" in command("show", source / NAME).stdout
    assert " ok" in command("ls", source).stdout


def test_a_lost_shard_is_named(source, mount):
    (source / NAME / "__1_0.distcp").unlink()
    problem = mount(source) / "weights" / NAME / "UNSHARD_PROBLEM.txt"
    assert "__1_0.distcp" in problem.read_text()


# -- with a config.json --

STEP = "iter_0000002"


def loader(case):
    return AutoModelForImageTextToText if "_vl" in case else AutoModelForCausalLM


@pytest.mark.parametrize("launch,case", [
    *MEGATRON, *MEGATRON_VISION, *(pytest.param(*c, marks=pytest.mark.long) for c in MEGATRON_SPLITS + MEGATRON_OF_8)],
    ids=["-".join(c) for c in MEGATRON + MEGATRON_VISION + MEGATRON_SPLITS + MEGATRON_OF_8])
def test_a_config_makes_them_what_save_pretrained_wrote(made, mount, launch, case):
    folder = made(launch, case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    assert (shown / "model.safetensors").read_bytes() == (folder / "hf/model.safetensors").read_bytes()
    assert (shown / "config.json").read_bytes() == (folder / "hf/config.json").read_bytes()


@pytest.mark.parametrize("case", ["llama-biased", "qwen2-dp2", "mixtral-dp2", "qwen2_moe-dp2", "qwen3_moe-dp2",
                                  "qwen3_vl_moe-dp2", "gpt_oss-dp2"])
def test_logits_are_those_of_megatrons_own_model(made, mount, case):
    folder = made("mc2", case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    model, info = loader(case).from_pretrained(shown, output_loading_info=True, experts_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    want = load_file(folder / "logits.safetensors")["logits"]
    with torch.no_grad():
        got = model(torch.arange(want.shape[1]).repeat(2, 1) % 17).logits
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("case,layer", [("deepseek_v3-mtp-pp2", 61), ("glm4_moe-mtp-tp2", 3)])
def test_transformers_loads_the_layers_for_multi_token_prediction(made, mount, case, layer):
    folder = made("mt2", case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    model = AutoModelForCausalLM.from_pretrained(shown)
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{layer}.*"]  # it lists the models of the Hub
    got = MtpModel.from_pretrained(model).layers[0].state_dict()
    want = trees.weights(folder / "hf")
    before = f"model.layers.{layer}."
    inside = {n: t for n, t in got.items() if n.startswith("mtp_block.") and ".experts." not in n}
    assert len(inside) > 8
    for name, tensor in inside.items():
        assert torch.equal(tensor, want[before + name.removeprefix("mtp_block.")]), name
    for name, published in {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj",
                            "post_norm": "shared_head.norm"}.items():
        assert torch.equal(got[name + ".weight"], want[f"{before}{published}.weight"]), name
    downs = [want[f"{before}mlp.experts.{e}.down_proj.weight"] for e in range(4)]
    assert torch.equal(got["mtp_block.mlp.experts.down_proj"], torch.stack(downs))
    problems = (shown / ".unshard/problems.txt").read_text()
    assert f"(mtp.layers) are model.layers from {layer} to {layer}; their embed_tokens and shared_head.head" in problems


def test_a_training_without_layers_for_multi_token_prediction_has_none(made, mount, tmp_path):
    run = with_config(made, tmp_path, "glm4_moe-tp2", num_nextn_predict_layers=1)
    shown = mount(run) / "weights" / STEP
    trees.assert_same(trees.weights(shown), trees.weights(made("mc2", "glm4_moe-tp2") / "hf"))
    said = "num_nextn_predict_layers is 1, but the checkpoint has no mtp.layers"
    assert said in (shown / ".unshard/problems.txt").read_text()


@pytest.mark.parametrize("case", ["llama-tp2", "qwen2-tied", "qwen3_vl-tp2"])
def test_several_files_are_split_as_save_pretrained_splits(made, mount, tmp_path, case):
    folder = made("mc2", case)
    model = loader(case).from_config(AutoConfig.from_pretrained(folder / "hf"))
    model.load_state_dict(loader(case).from_pretrained(folder / "hf").state_dict())
    model.save_pretrained(tmp_path / "want", max_shard_size="3KB")
    m = mount(folder / "run", f"model={folder}/hf,max_shard_size=3KB")
    assert_files_equal(m / "weights" / STEP, tmp_path / "want")


@pytest.mark.parametrize("launch,case,name", [
    ("mc2", "qwen2-tp2", "model.layers.1.self_attn.q_proj.weight"),
    ("mc2", "mixtral-ep2", "model.layers.1.self_attn.q_proj.weight"),
    ("mv2", "qwen3_vl-tp2", "model.visual.blocks.1.attn.qkv.weight")])
def test_parts_are_converted_and_read_as_tensors(made, mount, launch, case, name):
    folder = made(launch, case)
    want = {n: t.bfloat16() for n, t in trees.weights(folder / "hf").items()}
    options = {"model": [str(folder / "hf")]}
    trees.assert_same(trees.weights(mount(folder / "run", f"model={folder}/hf") / "weights-bf16" / STEP), want)
    trees.assert_same(unshard.load_file(folder / "run" / STEP, "weights-bf16", **options), want)
    with unshard.safe_open(folder / "run" / STEP, view="weights-bf16", **options) as f:
        assert torch.equal(f.get_slice(name)[3:9, 2:5], want[name][3:9, 2:5])


def with_config(made, tmp_path, case, **changes):
    """A run of the case's checkpoint, with the model's config.json changed."""
    folder = made("mt2" if case in LAUNCHES["mt2"][2] else "mc2", case)
    shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text())
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    return tmp_path / "run"


def test_the_runs_directory_has_the_config(made, mount, tmp_path, command):
    run = with_config(made, tmp_path, "llama-tp2")
    want = trees.weights(made("mc2", "llama-tp2") / "hf")
    m = mount(run)
    trees.assert_same(trees.weights(m / "weights" / STEP), want)
    said = "publishes for model type llama, converted from Megatron's"
    notes = json.loads((m / f"weights/{STEP}/.unshard/provenance.json").read_text())["notes"]
    assert [n for n in notes if said in n]
    shown = command("show", run / STEP).stdout
    assert said in shown and "from_pretrained" in shown


# -- directories of those who train with Megatron-Core, as they lay them out: where shards, config and tokenizer are --


def llama(made, shards):
    """The shards as `shards`; the folder of the published model."""
    folder = made("mc2", "llama-tp2")
    shutil.copytree(folder / "run" / STEP, shards)
    return folder


def published(folder, where):
    """config.json and a tokenizer."""
    where.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "hf/config.json", where)
    save_tokenizer(where)


def check_is_loaded(shown, folder, step):
    """As transformers loads it: the published model and its tokenizer."""
    trees.assert_same(trees.weights(shown), trees.weights(folder / "hf"))
    trees.assert_same(AutoModelForCausalLM.from_pretrained(shown).state_dict(),
                      AutoModelForCausalLM.from_pretrained(folder / "hf").state_dict())
    assert AutoTokenizer.from_pretrained(shown).convert_tokens_to_ids(["w7", "</s>"]) == [7, 39]
    assert json.loads((shown / ".unshard/info.json").read_text())["step"] == step


def test_verl_has_the_config_beside_the_shards(made, mount, tmp_path):
    """verl b178a3cd, utils/checkpoint/megatron_checkpoint_manager.py: dist_ckpt/ and huggingface/."""
    actor = tmp_path / "run/global_step_9/actor"
    folder = llama(made, actor / "dist_ckpt")
    common = torch.load(actor / "dist_ckpt/common.pt", weights_only=False)
    del common["iteration"]
    torch.save(common, actor / "dist_ckpt/common.pt")
    published(folder, actor / "huggingface")
    check_is_loaded(mount(tmp_path / "run") / "weights/global_step_9/actor/dist_ckpt", folder, 9)
    check_is_loaded(mount(actor / "dist_ckpt") / "weights", folder, 9)


def test_ms_swift_names_the_model_in_args_json(made, mount, command, tmp_path):
    """ms-swift 3602360a, megatron/trainers/base.py (save_checkpoint): checkpoint-N/args.json and iter_N."""
    checkpoint = tmp_path / "run/v0-20260101-000000/checkpoint-2"
    folder = llama(made, checkpoint / STEP)
    published(folder, tmp_path / "base")
    (checkpoint / "latest_checkpointed_iteration.txt").write_text("2")
    (checkpoint / "args.json").write_text(json.dumps({"model": str(tmp_path / "base"), "model_type": "llama"}))
    check_is_loaded(mount(tmp_path / "run") / f"weights/v0-20260101-000000/checkpoint-2/{STEP}", folder, 2)
    assert "0 problems" in command("check", tmp_path / "run", "-o", "settle=0,store=none").stdout


def test_slime_names_the_model_in_its_arguments(made, mount, command, tmp_path):
    """slime 624b824a: Megatron-LM saves, with --hf-checkpoint in common.pt's args."""
    folder = llama(made, tmp_path / "run" / STEP)
    published(folder, tmp_path / "base")
    file = tmp_path / "run" / STEP / "common.pt"
    common = torch.load(file, weights_only=False)
    torch.save(common | {"args": argparse.Namespace(hf_checkpoint=str(tmp_path / "base"))}, file)
    (tmp_path / "run/latest_checkpointed_iteration.txt").write_text("2")
    check_is_loaded(mount(tmp_path / "run") / "weights" / STEP, folder, 2)
    assert "0 problems" in command("check", tmp_path / "run", "-o", "settle=0,store=none").stdout


def test_mcore_adapter_has_config_and_tokenizer_above_the_shards(made, mount, command, tmp_path):
    """ROLL 8eb27cc2, mcore_adapter/checkpointing.py and trainer/trainer.py (save_model); LLaMA-Factory trains with it."""
    checkpoint = tmp_path / "run/checkpoint-7"
    folder = llama(made, checkpoint / "iter_0000001/dist_model")
    save_tokenizer(checkpoint)
    config = (folder / "hf/config.json").read_text()
    (checkpoint / "mca_config.json").write_text(json.dumps({"hf_config_json": config, "hf_model_type": "llama"}))
    (checkpoint / "latest_checkpointed_iteration.txt").write_text("1")
    check_is_loaded(mount(tmp_path / "run") / "weights/checkpoint-7/iter_0000001/dist_model", folder, 7)
    assert "0 problems" in command("check", tmp_path / "run", "-o", "settle=0,store=none").stdout


@pytest.mark.parametrize("name,text", [
    ("run_config.yaml", "model:\n  hf_model_id: {}\n"),
    ("run_config.yaml", "model:\n  extra_checkpoint_metadata:\n    hf_model_id: {}\n"),
    ("run_config.yaml", "checkpoint:\n  hf_source_path: {}\n"),
    ("args.json", '{{"model": "{}"}}'),
])
def test_a_file_of_the_training_names_the_model(made, mount, tmp_path, command, name, text):
    """Megatron-Bridge's in the checkpoint, ms-swift's beside it."""
    folder = made("mc2", "llama-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    named = run / STEP / name if name == "run_config.yaml" else run / name
    named.write_text(text.format(tmp_path / "nothing"))
    said = command("check", run, "-o", "settle=0,store=none").stdout
    assert f"{name} names the model {tmp_path}/nothing, which was not found" in " ".join(said.split())
    named.write_text(text.format(folder / "hf"))
    trees.assert_same(trees.weights(mount(run) / "weights" / STEP), trees.weights(folder / "hf"))


@pytest.mark.parametrize("place", ["context", "iter_0000002/tokenizer"])
def test_the_config_is_in_a_directory_of_the_trainings(made, mount, tmp_path, place):
    """NeMo 2 has context/ beside weights/, Megatron-Bridge tokenizer/ in the checkpoint."""
    folder = made("mc2", "llama-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    shutil.copytree(folder / "hf", run / place)
    trees.assert_same(trees.weights(mount(run) / "weights" / STEP), trees.weights(folder / "hf"))


@pytest.mark.parametrize("case,changes,said", [
    ("llama-tp2", {"head_dim": 8}, "decoder.layers.self_attention.linear_qkv.weight has the shape"),
    ("llama-tp2", {"num_key_value_heads": 1}, "decoder.layers.self_attention.linear_qkv.weight has the shape"),
    ("llama-tp2", {"tie_word_embeddings": True}, "output_layer.weight is a tensor that a model of type"),
    ("qwen2-tied", {"tie_word_embeddings": False},
     "which is made from output_layer.weight: the checkpoint does not have it"),
    ("qwen3-by-layer", {"model_type": "llama"},
     "decoder.layers.0.self_attention.q_layernorm.weight is a tensor that a model of type"),
    ("gemma2-untied", {"model_type": "gemma"}, "post_attention_layernorm.weight is a tensor that a model of type gemma"),
    ("glm4-tp2", {"intermediate_size": 12}, "decoder.layers.mlp.linear_fc1.weight has the shape"),
    ("qwen3_vl-tp2", {"vision_config": {"patch_size": 3}},
     "vision_model.patch_embed.proj.weight has the shape [8, 3, 3, 2, 2]; by config.json it would have [8, 3, 3, 3, 3]"),
    ("qwen3_vl-tp2", {"vision_config": {"depth": 3}}, "is made from vision_model.blocks.2.norm1.weight"),
    ("qwen3_vl-tp2", {"vision_config": {"deepstack_visual_indexes": []}}, "vision_model.deepstack_merger_list.0."),
    ("qwen2_5_vl-tp2", {"text_config": {"vocab_size": 41}}, "language_model.embedding.word_embeddings.weight has the shape"),
    ("glm4_moe-mtp-tp2", {"num_nextn_predict_layers": 0}, "mtp.layers.0.enorm.weight is a tensor that a model of type"),
    ("glm4_moe-mtp-tp2", {"num_nextn_predict_layers": 2}, "is made from mtp.layers.1.enorm.weight"),
    ("mixtral-ep2", {"num_local_experts": 8}, "decoder.layers.mlp.router.weight has the shape"),
    ("qwen3_moe-dense", {"mlp_only_layers": []},
     "which is made from decoder.layers.0.mlp.router.weight: the checkpoint does not have it"),
], ids=lambda x: x if isinstance(x, str) and len(x) < 20 else "")
def test_a_config_of_another_model_is_refused_by_the_tensors_name(made, mount, tmp_path, command, case, changes, said):
    run = with_config(made, tmp_path, case, **changes)
    shown = mount(run) / "weights" / STEP
    assert said in (shown / "UNSHARD_PROBLEM.txt").read_text() and not (shown / "model.safetensors").exists()
    assert said in command("show", run / STEP, check=False).stdout
    assert said in command("check", run, check=False).stdout
    kept = trees.weights(mount(run, "names=memory") / "weights" / STEP)
    assert [n for n in kept if n.endswith("embedding.word_embeddings.weight")]


def test_without_a_config_and_for_other_families_the_names_are_megatrons(made, mount, tmp_path):
    folder = made("mc2", "llama-tp2")
    m = mount(folder / "run")
    assert "decoder.layers.self_attention.linear_qkv.weight" in trees.weights(m / "weights" / STEP)
    problems = (m / f"weights/{STEP}/.unshard/problems.txt").read_text()
    assert "have Megatron's own names" in problems and "-o model=DIR" in problems
    run = with_config(made, tmp_path, "llama-tp2", model_type="gpt_neox")
    m = mount(run)
    assert "decoder.layers.self_attention.linear_qkv.weight" in trees.weights(m / "weights" / STEP)
    assert "does not know the names that Hugging Face publishes for model type gpt_neox" in (m / f"weights/{STEP}/.unshard/problems.txt").read_text()


@pytest.mark.parametrize("args,said", [
    ({"num_attention_heads": 1234}, "but the model was trained with 1234 (num_attention_heads in its arguments)"),
    ({"apply_layernorm_1p": True}, "norms minus one"),
])
def test_a_config_that_the_trainings_own_arguments_contradict_is_refused(made, mount, command, tmp_path, args, said):
    folder = made("mo2", "llama-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    common = torch.load(run / STEP / "common.pt", weights_only=False)
    torch.save({**common, "args": argparse.Namespace(**args)}, run / STEP / "common.pt")
    mounted = mount(run, f"model={folder}/hf")
    for view in ("weights", "full", "universal"):
        assert said in (mounted / view / STEP / "UNSHARD_PROBLEM.txt").read_text(), view
    assert said in command("check", run, "-o", f"model={folder}/hf", "-o", "settle=0", check=False).stdout


def test_a_config_that_the_trainings_own_arguments_confirm_is_taken(made, mount, tmp_path):
    folder = made("mo2", "llama-tp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text())
    common = torch.load(run / STEP / "common.pt", weights_only=False)
    args = {"num_attention_heads": config["num_attention_heads"], "group_query_attention": True, "rotary_percent": 1.0,
            "num_query_groups": config["num_key_value_heads"], "norm_epsilon": config["rms_norm_eps"],
            "position_embedding_type": "rope", "rotary_base": config["rope_parameters"]["rope_theta"]}
    torch.save({**common, "args": argparse.Namespace(**args)}, run / STEP / "common.pt")
    shown, without = (mount(r, f"model={folder}/hf") / "weights" / STEP for r in (run, folder / "run"))
    assert (shown / "model.safetensors").read_bytes() == (without / "model.safetensors").read_bytes()

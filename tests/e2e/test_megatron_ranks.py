"""What Megatron-LM saves with --ckpt-format torch (make/megatron_ranks.py): a file of each model-parallel rank, shown as the
model of Hugging Face that they were made of."""

import json
import shutil

import pytest
import torch

import trees
from launches import MEGATRON_RANKS, MEGATRON_RANKS_OF_8

STEP = "iter_0000002"


@pytest.mark.parametrize("launch,case", [*MEGATRON_RANKS,
                                         *(pytest.param(*c, marks=pytest.mark.long) for c in MEGATRON_RANKS_OF_8)])
def test_weights_are_what_save_pretrained_wrote(made, mount, launch, case):
    folder = made(launch, case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    assert (shown / "model.safetensors").read_bytes() == (folder / "hf/model.safetensors").read_bytes()
    assert (shown / "config.json").read_bytes() == (folder / "hf/config.json").read_bytes()


def test_it_is_known_and_only_the_optimizer_is_not_read(made, mount, command):
    folder = made("mr2", "llama-tp2")
    mounted = mount(folder / "run", f"model={folder}/hf")
    info = json.loads((mounted / "weights" / STEP / ".unshard/info.json").read_text())
    assert info["framework"] == "Megatron-LM, one file per model-parallel rank"
    assert info["step"] == 2 and info["world_size"] == 2 and info["finished"]
    for view in ("full", "full-fsdp", "universal"):
        assert not (mounted / view / STEP / "config.json").exists()
    assert "does not read the optimizer of Megatron-LM's files" in command("show", folder / "run" / STEP).stdout
    assert " ok" in command("ls", folder / "run").stdout


def of_mcore_adapter(made, where, case, sizes, shards="iter_0000001", **changes):
    """A copy of the run as mcore_adapter saves it: mca_config.json has what Megatron-LM's args have, and the config."""
    folder, checkpoint = made("mr2", case), where / "out/checkpoint-7"
    shutil.copytree(folder / "run" / STEP, checkpoint / shards)
    for file in checkpoint.glob("iter_*/mp_rank_*/model_optim_rng.pt"):
        state = torch.load(file, weights_only=False)
        torch.save({k: v for k, v in state.items() if k.startswith("model")}, file)
    (checkpoint / "latest_checkpointed_iteration.txt").write_text("1")
    config = (folder / "hf/config.json").read_text()
    hf = json.loads(config)
    said = {"hf_config_json": config, "hf_model_type": hf["model_type"], "num_layers": hf["num_hidden_layers"],
            "num_moe_experts": hf.get("num_experts", hf.get("num_local_experts")), "num_query_groups": hf["num_key_value_heads"],
            "tie_embeddings_and_output_weights": hf["tie_word_embeddings"], "virtual_pipeline_model_parallel_size": None}
    (checkpoint / "mca_config.json").write_text(json.dumps(said | sizes | changes))
    return where / "out"


MCA = [("llama-tp2", {"tensor_model_parallel_size": 2}), ("qwen3_moe-ep2", {"expert_model_parallel_size": 2}),
       ("qwen2-pp2-bf16", {"pipeline_model_parallel_size": 2}), ("llama-pp2-vpp2", {"pipeline_model_parallel_size": 2})]


@pytest.mark.parametrize("case,sizes", MCA)
def test_mcore_adapters_need_no_config_beside_them(made, mount, tmp_path, case, sizes):
    run = of_mcore_adapter(made, tmp_path, case, sizes)
    shown = mount(run) / "weights/checkpoint-7/iter_0000001"
    want = made("mr2", case) / "hf"
    assert (shown / "model.safetensors").read_bytes() == (want / "model.safetensors").read_bytes()
    assert (shown / "config.json").read_bytes() == (want / "config.json").read_bytes()
    files = json.loads((shown / ".unshard/provenance.json").read_text())["files"]
    assert files["config.json"]["origin"].endswith("mca_config.json, unchanged")
    info = json.loads((shown / ".unshard/info.json").read_text())
    assert "mcore_adapter" in info["framework"] and info["step"] == 7 and info["finished"]
    assert json.loads((mount(run) / "weights-bf16/checkpoint-7/iter_0000001/config.json").read_text())["dtype"] == "bfloat16"


def test_mcore_adapters_torch_dist_has_the_same_config(made, mount, tmp_path):
    run = of_mcore_adapter(made, tmp_path, "llama-tp2", {"tensor_model_parallel_size": 2})
    shards = run / "checkpoint-7/iter_0000001"
    shutil.rmtree(shards)
    folder = made("mc2", "llama-tp2")
    shutil.copytree(folder / "run" / STEP, shards / "dist_model")
    config = run / "checkpoint-7/mca_config.json"
    config.write_text(json.dumps({"hf_config_json": (folder / "hf/config.json").read_text()}))
    shown = mount(run) / "weights/checkpoint-7/iter_0000001/dist_model"
    assert (shown / "model.safetensors").read_bytes() == (folder / "hf/model.safetensors").read_bytes()


@pytest.mark.parametrize("changes,said", [
    ({"tensor_model_parallel_size": 1}, "there are 2 directories"),
    ({"tensor_model_parallel_size": "2"}, "tensor_model_parallel_size, by which ranks share the model, is no number"),
    ({"num_layers": None}, "num_layers or tie_embeddings_and_output_weights is not recorded"),
    ({"num_layers": 9}, "num_layers is 9"),
])
def test_what_mcore_adapter_does_not_record_is_refused(made, mount, tmp_path, changes, said):
    run = of_mcore_adapter(made, tmp_path, "llama-tp2", {"tensor_model_parallel_size": 2}, **changes)
    assert said in (mount(run) / "weights/checkpoint-7/iter_0000001/UNSHARD_PROBLEM.txt").read_text()


def changed(made, where, case, change, rank="mp_rank_00"):
    """A copy of the run; `change` gets the content of the rank's file, and may change it."""
    run = shutil.copytree(made("mr2", case) / "run", where)
    file = run / STEP / rank / "model_optim_rng.pt"
    state = torch.load(file, weights_only=False)
    change(state)
    torch.save(state, file)
    return run


def told(made, mount, run, case):
    shown = mount(run, f"model={made('mr2', case)}/hf") / "weights" / STEP
    assert trees.listing(shown) == ["UNSHARD_PROBLEM.txt"]
    return (shown / "UNSHARD_PROBLEM.txt").read_text()


def set_arg(name, value):
    return lambda state: setattr(state["args"], name, value)


def put(name, tensor):
    return lambda state: state["model"].update({name: tensor})


@pytest.mark.parametrize("case,change,said", [
    ("llama-tp2", lambda state: state.pop("args"), "has no args"),
    ("llama-tp2", lambda state: state.update(checkpoint_version=2.0), "checkpoint_version of at least 3"),
    ("llama-tp2", set_arg("num_layers", 4), "another number of ranks, layers or experts"),
    ("qwen3-tp1", set_arg("tensor_model_parallel_size", 2), "mp_rank_01/model_optim_rng.pt is missing"),
    ("llama-tp2", set_arg("num_query_groups", 1), "share 1 query groups"),
    ("qwen3_moe-tp2", set_arg("expert_tensor_parallel_size", 1), "expert_tensor_parallel_size is 1"),
    ("llama-tp2", put("decoder.layers.0.mixer.weight", torch.zeros(4)), "decoder.layers.0.mixer.weight"),
    ("llama-tp2", put("decoder.layers.0.mlp.linear_fc1.weight", torch.zeros(9, 16)), "of shape [24, 16] here"),
    ("qwen3-tp1", put("decoder.layers.0.mixer.weight", torch.zeros(4)), "decoder.layers.0.mixer.weight is a tensor that"),
    ("qwen3-tp1", lambda state: state["model"].pop("decoder.final_layernorm.weight"), "decoder.final_layernorm.weight"),
])
def test_what_fits_no_rule_is_refused(made, mount, tmp_path, case, change, said):
    assert said in told(made, mount, changed(made, tmp_path / "run", case, change), case)


def test_gate_and_up_are_known_by_the_other_projection(made, mount, tmp_path):
    """Both ranks' rows would fit if they were one projection of another width."""
    run = changed(made, tmp_path / "run", "llama-tp2", put("decoder.layers.0.mlp.linear_fc1.weight", torch.zeros(36, 16)))
    file = run / STEP / "mp_rank_01/model_optim_rng.pt"
    state = torch.load(file, weights_only=False)
    state["model"]["decoder.layers.0.mlp.linear_fc1.weight"] = torch.zeros(36, 16)
    torch.save(state, file)
    assert "whether it is gate and up is not known" in told(made, mount, run, "llama-tp2")


def test_a_directory_of_another_save_is_refused(made, mount, tmp_path):
    run = shutil.copytree(made("mr2", "llama-tp2") / "run", tmp_path / "run")
    shutil.copytree(run / STEP / "mp_rank_00", run / STEP / "mp_rank_00_001")
    assert "there are 3 directories" in told(made, mount, run, "llama-tp2")


def test_a_lost_file_is_named(made, mount, tmp_path):
    run = shutil.copytree(made("mr2", "qwen3_moe-ep2") / "run", tmp_path / "run")
    (run / STEP / "mp_rank_00_001/model_optim_rng.pt").unlink()
    assert "mp_rank_00_001/model_optim_rng.pt is missing" in told(made, mount, run, "qwen3_moe-ep2")

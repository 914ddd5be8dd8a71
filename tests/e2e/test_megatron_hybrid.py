"""`weights` of Nemotron-H as Megatron-Core saves it (make/torch_dist_hybrid.py): the bytes of save_pretrained, what
Megatron-Bridge exports, and the logits of Megatron's own model. The names are also those of NVIDIA's modelopt 0.47.0
(export/plugins/mcore_nemotron.py) and of mcore_bridge 1.6.5 (model/gpts/nemotron_h.py)."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import megatron_logits
import trees
from conftest import launch
from launches import MEGATRON_HYBRID, MEGATRON_HYBRID_OF_4

pytestmark = pytest.mark.long  # tests/unit/test_megatron_names.c has the rows always
STEP = "iter_0000002"
OF_2 = [case for _, case in MEGATRON_HYBRID]


@pytest.mark.parametrize("launch_name,case", MEGATRON_HYBRID + MEGATRON_HYBRID_OF_4)
def test_a_config_makes_them_what_save_pretrained_wrote(made, mount, launch_name, case):
    folder = made(launch_name, case)
    shown = mount(folder / "run", f"model={folder}/hf") / "weights" / STEP
    assert (shown / "model.safetensors").read_bytes() == (folder / "hf/model.safetensors").read_bytes()


def test_logits_are_those_of_megatrons_own_model(made, mount):
    folder = made("mh2", "nemotron_h-dp2")
    megatron_logits.assert_equal(folder, mount(folder / "run", f"model={folder}/hf") / "weights" / STEP)


def test_megatron_bridge_exports_the_same_bytes(made, mount, tmp_path):
    folder = made("mh2", OF_2[0]).parent
    launch("megatron_bridge_hybrid.py", 1, tmp_path, [folder, *OF_2])
    for case in OF_2:
        got = load_file(tmp_path / f"{case}.safetensors")
        lacks = {n for n, mapped in json.loads((tmp_path / f"{case}.json").read_text()).items() if not mapped}
        want = trees.weights(mount(folder / case / "run", f"model={folder / case}/hf") / "weights" / STEP)
        # Bridge 0.3.1 has no names for projections between the model's width and that of experts; modelopt has.
        assert {n.split(".", 3)[3] for n in lacks} <= {"mlp.fc1_latent_proj.weight", "mlp.fc2_latent_proj.weight"}, case
        rows = json.loads((folder / case / "hf/config.json").read_text())["vocab_size"]
        for name in ("backbone.embeddings.weight", "lm_head.weight"):  # Bridge exports the rows that pad them
            got[name] = got[name][:rows]
        trees.assert_same(got, {n: t for n, t in want.items() if "_latent_proj." not in n})


def test_the_pattern_of_layers_may_be_written_as_the_hub_has_it(made, mount, tmp_path):
    folder = made("mh2", "nemotron_h-pp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text())
    del config["layers_block_type"]
    (run / "config.json").write_text(json.dumps(config | {"hybrid_override_pattern": "M-*M", "num_hidden_layers": 4}))
    trees.assert_same(trees.weights(mount(run) / "weights" / STEP), trees.weights(folder / "hf"))


def test_full_has_the_names_in_memory(made, mount):
    folder = made("mh2", "nemotron_h-dp2")
    shown = mount(folder / "run", f"model={folder}/hf") / "full-fsdp" / STEP / "pytorch_model_fsdp.bin"
    want = AutoModelForCausalLM.from_pretrained(folder / "hf").state_dict()
    got = torch.load(shown, weights_only=True)
    trees.assert_same(got, want)
    assert list(got) == [n for n in want if n in got]


@pytest.mark.parametrize("changes,said", [
    ({"layers_block_type": ["mamba", "mlp", "attention", "mlp"]}, "is made from decoder.layers.3.mlp.linear_fc1.weight"),
    ({"layers_block_type": ["mamba", "mlp", "attention", "rwkv"]},
     "layers_block_type has a layer that unshard does not know: number 3"),
    ({"layers_block_type": None, "hybrid_override_pattern": "M-*/"},
     "hybrid_override_pattern has a layer that unshard does not know: /"),
    ({"ssm_state_size": 4}, "decoder.layers.0.mixer.conv1d.weight.B has the shape [6, 1, 4]; by config.json it would"),
    ({"use_conv_bias": False}, "is a tensor that a model of type nemotron_h with this config.json does not have"),
])
def test_a_config_of_another_model_is_refused_by_the_tensors_name(made, mount, tmp_path, changes, said):
    folder = made("mh2", "nemotron_h-pp2")
    run = shutil.copytree(folder / "run", tmp_path / "run")
    config = json.loads((folder / "hf/config.json").read_text()) | changes
    (run / "config.json").write_text(json.dumps(config))
    assert said in (mount(run) / "weights" / STEP / "UNSHARD_PROBLEM.txt").read_text()

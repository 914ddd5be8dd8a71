"""Megatron-Core's torch_dist checkpoints with a vision model of Megatron's own modules, as mbridge has it:

    torchrun --nproc_per_node=2 torch_dist_vision.py OUT CASE...

OUT/CASE/hf and OUT/CASE/run/iter_0000002 are what torch_dist.py makes. qwen2_5_vl's vision model is mbridge's class, small.
The mbridge on PyPI has none for qwen3_vl: this one has the modules and names of mbridge's repository. mbridge converts the
weights of both, there and back.
"""

import os

import torch
import torch.distributed as dist

import torch_dist
from torch_dist import MOE, MROPE, QWEN2_5_VISION, QWEN3_VISION, STEP

BY_LAYER = {"non_homogeneous_layers": True}
QWEN2_5 = {"qkv_bias": True, "vision": QWEN2_5_VISION}
QWEN3 = {"qk_norm": True, "vision": QWEN3_VISION | {"num_heads": 4, "deepstack_visual_indexes": [0, 1]}}

# case -> model_type, changes to torch_dist.TEXT, sizes of parallelism, more (torch_dist.build)
CASES = {
    "qwen2_5_vl-tp2": ("qwen2_5_vl", MROPE | {"head_dim": 4}, {"tp": 2}, QWEN2_5),
    "qwen2_5_vl-by-layer": ("qwen2_5_vl", MROPE | {"head_dim": 4, "tie_word_embeddings": True}, {"pp": 2},
                            QWEN2_5 | {"metadata": BY_LAYER}),
    "qwen3_vl-tp2": ("qwen3_vl", MROPE, {"tp": 2}, QWEN3),
    "qwen3_vl-by-layer": ("qwen3_vl", MROPE, {"pp": 2}, QWEN3 | {"metadata": BY_LAYER}),
    "qwen3_vl_moe-ep2-bf16": ("qwen3_vl_moe", MROPE | MOE, {"ep": 2}, QWEN3 | {"moe": True}),
}

# In front of a projection that is no part of it, as it is with Transformer Engine, which mbridge's names are of.
FUSED = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_", "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}

LAYER, BLOCK = "vision_model.decoder.layers.{layer_number}.", "model.visual.blocks.{layer_number}."
MERGER = "vision_model.decoder.deepstack_merger_list.{layer_number}."
BOTH = ("weight", "bias")


def qwen3_names(names):
    return {f"{a}{kind}": [f"{b}{kind}"] for a, b in names.items() for kind in BOTH}


# mbridge's repository: models/qwen3_vl/__init__.py
QWEN3_ATTENTION = qwen3_names({LAYER + "self_attention.linear_qkv.": BLOCK + "attn.qkv.",
                               LAYER + "self_attention.linear_proj.": BLOCK + "attn.proj.",
                               LAYER + "self_attention.linear_qkv.layer_norm_": BLOCK + "norm1."})
QWEN3_MLP = qwen3_names({LAYER + "mlp.linear_fc1.": BLOCK + "mlp.linear_fc1.",
                         LAYER + "mlp.linear_fc2.": BLOCK + "mlp.linear_fc2.",
                         LAYER + "mlp.linear_fc1.layer_norm_": BLOCK + "norm2."})
QWEN3_OTHER = qwen3_names({MERGER + a: f"model.visual.deepstack_merger_list.{{layer_number}}.{b}"
                           for a, b in (("patch_norm.", "norm."), ("linear_fc1.", "linear_fc1."),
                                        ("linear_fc2.", "linear_fc2."))})
QWEN3_DIRECT = {n: p[0] for n, p in qwen3_names({
    "vision_model.patch_embed.proj.": "model.visual.patch_embed.proj.", "vision_model.pos_embed.": "model.visual.pos_embed.",
    "vision_model.merger.patch_norm.": "model.visual.merger.norm.",
    "vision_model.merger.linear_fc1.": "model.visual.merger.linear_fc1.",
    "vision_model.merger.linear_fc2.": "model.visual.merger.linear_fc2."}).items()}


def vision_config(vision, sizes, dtype, **more):
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=vision["depth"], hidden_size=vision["hidden_size"], ffn_hidden_size=vision["intermediate_size"],
        num_attention_heads=vision["num_heads"], add_bias_linear=True, add_qkv_bias=True,
        tensor_model_parallel_size=sizes.get("tp", 1), params_dtype=dtype, use_cpu_initialization=True,
        gradient_accumulation_fusion=False, bias_activation_fusion=False, **more)
    for key in ("patch_size", "temporal_patch_size", "spatial_merge_size", "fullatt_block_indexes"):
        setattr(config, key, vision.get(key))
    config.in_channels, config._qwen2_5_vl_window_size, config.seq_length = 3, 112, 1
    return config


def layer_spec():
    from megatron.core.models.vision.vit_layer_specs import get_vit_layer_with_local_spec

    spec = get_vit_layer_with_local_spec()
    spec.submodules.sharded_state_dict_keys_map = FUSED  # what megatron-core does in its GPT models
    return spec


def qwen2_5_vision(vision, sizes, dtype):
    """mbridge's. -> it, the config of its layers and that of its projection"""
    from mbridge.models.qwen2_5_vl.transformer_config import get_vision_projection_config
    from mbridge.models.qwen2_5_vl.vision_model import Qwen2_5VisionModel
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.mlp import MLPSubmodules

    kind = {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "normalization": "RMSNorm"}
    config = vision_config(vision, sizes, dtype, **kind)
    projection = vision_config(vision | {"hidden_size": vision["out_hidden_size"]}, sizes, dtype)
    get_vision_projection_config(projection, config.hidden_size, config.spatial_merge_size)
    model = Qwen2_5VisionModel(
        config, layer_spec(), projection, MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear),
        pre_process=True, post_process=True)
    return model, config, projection


def qwen3_merger(config, width, out, norm):
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.module import MegatronModule
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    merger, common = MegatronModule(config), {"config": config, "init_method": config.init_method, "bias": True}
    merger.patch_norm = WrappedTorchNorm(config, norm)
    merger.linear_fc1 = ColumnParallelLinear(width, width, gather_output=False, **common)
    merger.linear_fc2 = RowParallelLinear(width, out, input_is_parallel=True, skip_bias_add=False, **common)
    return merger


def qwen3_decoder(config, mergers):
    """Qwen3VLVisionTransformerBlock, which stacks its mergers as its layers."""
    from megatron.core.dist_checkpointing.utils import replace_prefix_for_sharding
    from megatron.core.transformer.transformer_block import TransformerBlock

    class Decoder(TransformerBlock):
        def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
            del self.deepstack_merger_list
            state = super().sharded_state_dict(prefix, sharded_offsets, metadata)
            self.deepstack_merger_list = mergers
            by_layer = (metadata or {}).get("non_homogeneous_layers")
            for i, merger in enumerate(mergers):
                own = f"{prefix}deepstack_merger_list.{i}."
                part = merger.sharded_state_dict(own, [] if by_layer else [(0, i, len(mergers))], metadata)
                replace_prefix_for_sharding(part, own, own if by_layer else f"{prefix}deepstack_merger_list.")
                state.update(part)
            return state

    decoder = Decoder(config, layer_spec(), post_layer_norm=False)
    decoder.deepstack_merger_list = mergers
    return decoder


def qwen3_vision(vision, sizes, dtype):
    from megatron.core.models.common.vision_module.vision_module import VisionModule
    from mbridge.models.qwen2_5_vl.vision_model import PatchEmbed

    config = vision_config(vision, sizes, dtype, normalization="LayerNorm")
    width, out = vision["hidden_size"] * vision["spatial_merge_size"] ** 2, vision["out_hidden_size"]
    model = VisionModule(config)
    model.patch_embed = PatchEmbed(config.patch_size, config.temporal_patch_size, 3, config.hidden_size)
    model.patch_embed.proj.bias = torch.nn.Parameter(torch.empty(config.hidden_size))
    model.pos_embed = torch.nn.Embedding(vision["num_position_embeddings"], config.hidden_size)
    model.decoder = qwen3_decoder(config, torch.nn.ModuleList(
        qwen3_merger(config, width, out, width) for _ in vision["deepstack_visual_indexes"]))
    model.merger = qwen3_merger(config, width, out, config.hidden_size)
    return model, config, config


def bridge_of(hf, config, projection, dtype):
    """mbridge's for qwen2_5_vl. In 0.15.1 it takes the projection for a gated one; in the repository it asks so."""
    from mbridge.models import Qwen2_5VLBridge

    own = {"_build_config": lambda self: config, "_adjust_mapping_for_shared_weights": lambda self: None,
           "_get_mcore_config_by_name": lambda self, name: projection if ".projection." in name else config}
    if hf.model_type != "qwen2_5_vl":
        own |= {"_DIRECT_MAPPING": QWEN3_DIRECT, "_ATTENTION_MAPPING": QWEN3_ATTENTION | QWEN3_OTHER, "_MLP_MAPPING": QWEN3_MLP,
                "_weight_name_mapping_other": Qwen2_5VLBridge._weight_name_mapping_attention}
    return type("Bridge", (Qwen2_5VLBridge,), own)(hf, dtype=dtype)


def fill(model, bridge, weights):
    from megatron.core import parallel_state

    rank, ranks = (parallel_state.get_tensor_model_parallel_rank(),
                   parallel_state.get_tensor_model_parallel_world_size())
    for name, param in model.state_dict(prefix="vision_model.").items():
        if "_extra_state" in name:
            continue
        for plain, fused in FUSED.items():
            name = name.replace(plain, fused)
        published = bridge._weight_name_mapping_mcore_to_hf(name)
        whole = bridge._weight_to_mcore_format(name, [weights[n] for n in published])
        names, back = bridge._weight_to_hf_format(name, whole)
        assert names == published and all(map(torch.equal, back, [weights[n] for n in names])), name
        param.copy_(bridge._weight_split_across_tp(name, whole, param, ranks)[rank])


def run(case, out):
    import mbridge  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file

    model_type, changes, sizes, more = CASES[case]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    hf = torch_dist.hf_model(model_type, changes, more["vision"]).to(dtype)
    if dist.get_rank() == 0:
        hf.save_pretrained(f"{out}/hf")
        os.makedirs(f"{out}/run/iter_{STEP:07}")
    dist.barrier()
    parallel_state.initialize_model_parallel(
        sizes.get("tp", 1), sizes.get("pp", 1), expert_model_parallel_size=sizes.get("ep", 1))
    weights = load_file(f"{out}/hf/model.safetensors")
    text = hf.config.get_text_config()
    text.tie_word_embeddings = hf.config.tie_word_embeddings
    config, model = torch_dist.build(text, sizes, more, dtype, None)
    torch_dist.fill(model, text, torch_dist.bridge_of(text, config, dtype, more), torch_dist.text_weights(weights))
    if parallel_state.is_pipeline_first_stage():
        own, config, projection = (qwen2_5_vision if model_type == "qwen2_5_vl" else qwen3_vision)(more["vision"], sizes, dtype)
        own = own.to(dtype)
        fill(own, bridge_of(hf.config, config, projection, dtype), weights)
        model = torch_dist.with_tower(model, own, "vision_model")
    else:
        model = torch_dist.with_tower(model, None, None)
    torch_dist.save({"model": model.sharded_state_dict(metadata=more.get("metadata"))}, out)


if __name__ == "__main__":
    torch_dist.run_all(run)

"""Further families as Megatron-Core's torch_dist checkpoints:

    torchrun --nproc_per_node=2 torch_dist_families.py OUT CASE...

OUT/CASE/hf, OUT/CASE/run/iter_0000002 and OUT/CASE/logits.safetensors are what torch_dist.py makes. mbridge has none of
llama4 and phi3: their published weights get the names of families that it has. The vision model is transformers' own module
below `visual`, as in mcore_bridge; of internvl_chat, which transformers has no class for, it is mbridge's, and mbridge converts
its weights, there and back.
"""

import copy
import json
import os
import types

import torch
import torch.distributed as dist

import torch_dist
from torch_dist import LATENT, PLAIN_ROPE, ROUTED, STEP

BY_LAYER = {"metadata": {"non_homogeneous_layers": True}}
ONE_BY_ONE = {"metadata": {"singleton_local_shards": True}}

# Dense layers are wider than experts; positions are plain ones in all layers.
LLAMA4 = {"intermediate_size": 10, "intermediate_size_mlp": 24, "num_local_experts": 4, "num_experts_per_tok": 1,
          "interleave_moe_layer_step": 1, "use_qk_norm": False, "attn_temperature_tuning": False,
          "rope_parameters": PLAIN_ROPE, "no_rope_layers": [1, 1]}
LLAMA4_DENSE = LLAMA4 | {"interleave_moe_layer_step": 2, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 1]}
LLAMA4_VISION = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 6,
                 "patch_size": 2, "vision_output_dim": 12, "projector_input_dim": 14, "projector_output_dim": 12,
                 "pixel_shuffle_ratio": 0.5}
INTERNVL_VISION = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
                   "image_size": [6, 6], "patch_size": [2, 2], "attention_bias": True}
INTERNVL_LARGE = INTERNVL_VISION | {"attention_bias": False, "use_qk_norm": True, "norm_type": "rms_norm"}
QWEN2_WITHIN = {"model_type": "qwen2"}
QWEN3_WITHIN = {"model_type": "qwen3"}
GLM_FLASH = LATENT | {"num_hidden_layers": 4}

# case -> model_type, changes to torch_dist.TEXT, sizes of parallelism, more (torch_dist.build)
CASES = {
    "llama4_text-dp2": ("llama4_text", LLAMA4, {}, {"moe": True}),
    "llama4_text-tp2": ("llama4_text", LLAMA4_DENSE | {"vocab_size": 37}, {"tp": 2}, {"moe": [0, 1, 0, 1], "padded": 48}),
    "llama4_text-one-by-one": ("llama4_text", LLAMA4_DENSE, {"pp": 2}, {"moe": [0, 1, 0, 1]} | ONE_BY_ONE),
    "llama4_text-etp2": ("llama4_text", LLAMA4, {"etp": 2}, {"moe": True}),
    "llama4-ep2-bf16": ("llama4", LLAMA4, {"ep": 2}, {"moe": True, "vision": LLAMA4_VISION}),
    "phi3-dp2": ("phi3", {"rope_parameters": PLAIN_ROPE, "head_dim": 4}, {}, {}),
    "phi3-tp2-bf16": ("phi3", {"vocab_size": 37, "head_dim": 4}, {"tp": 2}, {"padded": 48}),
    "phi3-one-by-one": ("phi3", {"num_key_value_heads": 1, "head_dim": 4}, {"pp": 2}, ONE_BY_ONE),
    "internvl-tp2": ("internvl", QWEN2_WITHIN | {"head_dim": 4}, {"tp": 2}, {"qkv_bias": True, "vision": INTERNVL_VISION}),
    "internvl-pp2-bf16": ("internvl", QWEN3_WITHIN | {"vocab_size": 37}, {"pp": 2},
                          {"qk_norm": True, "padded": 48, "vision": INTERNVL_LARGE}),
    "internvl_chat-tp2": ("internvl_chat", {"vocab_size": 37, "head_dim": 4}, {"tp": 2}, {"qkv_bias": True, "padded": 48}),
    "internvl_chat-by-layer": ("internvl_chat", {"head_dim": 4}, {"pp": 2}, {"qkv_bias": True} | BY_LAYER),
    "deepseek_v2-ep2": ("deepseek_v2", LATENT | {"q_lora_rank": None}, {"ep": 2}, {"moe": [0, 1, 1], "latent": True}),
    "glm4_moe_lite-tp2": ("glm4_moe_lite", GLM_FLASH, {"tp": 2},
                          {"moe": [0, 1, 1, 1], "latent": True, "router_bias": True}),
    "llama4-tp2-pp2": ("llama4", LLAMA4_DENSE, {"tp": 2, "pp": 2}, {"moe": [0, 1, 0, 1], "vision": LLAMA4_VISION}),
    "llama4_text-tp2-ep2-etp1": ("llama4_text", LLAMA4, {"tp": 2, "ep": 2, "etp": 1}, {"moe": True}),
    "internvl-tp2-pp2": ("internvl", QWEN3_WITHIN, {"tp": 2, "pp": 2}, {"qk_norm": True, "vision": INTERNVL_VISION}),
    "phi3-tp2-pp2": ("phi3", {"head_dim": 4}, {"tp": 2, "pp": 2}, {}),
    "glm4_moe_lite-pp2-ep2": ("glm4_moe_lite", GLM_FLASH, {"pp": 2, "ep": 2},
                              {"moe": [0, 1, 1, 1], "latent": True, "router_bias": True}),
}

# What torch_dist.py makes, in a further parallelism.
OTHERS = {"gpt_oss-pp2-vpp2": ("gpt_oss", torch_dist.GPT_OSS | {"num_hidden_layers": 4}, {"pp": 2, "vpp": 2},
                               {"moe": True, "bias": True, "sinks": True})}
torch_dist.CASES |= OTHERS

# The modules of a vision model, which the tower has.
TOWERS = {"llama4": ("vision_model", "multi_modal_projector"), "internvl": ("vision_tower", "multi_modal_projector")}
torch_dist.BRIDGE |= {"llama4_text": "qwen2_moe", "phi3": "llama", "glm4_moe_lite": "deepseek_v3"}


def llama4_as_qwen2_moe(text):
    """Experts one by one, as modelopt and mcore_bridge take them apart: gate above up, transposed."""
    out = {n.replace(".feed_forward.", ".mlp.").replace(".mlp.router.", ".mlp.gate."): t for n, t in text.items()}
    for name in [n for n in out if n.endswith(".experts.gate_up_proj")]:
        block = name.removesuffix("gate_up_proj")
        for e, (up, down) in enumerate(zip(out.pop(name), out.pop(block + "down_proj"))):
            out[f"{block}{e}.gate_proj.weight"], out[f"{block}{e}.up_proj.weight"] = up.T.chunk(2)
            out[f"{block}{e}.down_proj.weight"] = down.T
    return out


def phi3_as_llama(hf, text):
    """Queries, keys and values apart, and gate and up, as NeMo's HFPhi3Importer takes them."""
    rows = [hf.num_attention_heads, hf.num_key_value_heads, hf.num_key_value_heads]
    for name in [n for n in text if n.endswith(".qkv_proj.weight")]:
        parts = text.pop(name).split([n * hf.head_dim for n in rows])
        text |= {name.replace("qkv_proj", f"{part}_proj"): t for part, t in zip("qkv", parts)}
    for name in [n for n in text if n.endswith(".gate_up_proj.weight")]:
        text[name.replace("gate_up", "gate")], text[name.replace("gate_up", "up")] = text.pop(name).chunk(2)
    return text


def as_megatron_has_it(hf, weights):
    """config.json of the text model with the sizes of Megatron's modules, and its weights under names that mbridge knows."""
    text = {n.removeprefix("language_model."): t for n, t in weights.items()}
    if hf.model_type != "llama4_text":
        return hf, phi3_as_llama(hf, text) if hf.model_type == "phi3" else torch_dist.text_weights(text)
    hf = copy.deepcopy(hf)
    hf.moe_intermediate_size, hf.intermediate_size, hf.n_shared_experts = hf.intermediate_size, hf.intermediate_size_mlp, 1
    return hf, llama4_as_qwen2_moe(text)


def moe_config(hf, more, of_others=torch_dist.moe_config):
    """llama4 multiplies what goes into an expert by its weight, and turns neighbouring elements by positions."""
    own = {"moe_router_score_function": "sigmoid", "moe_apply_probs_on_input": True, "rotary_interleaved": True}
    return of_others(hf, more) | (own if hf.model_type == "llama4_text" else {})


torch_dist.moe_config = moe_config


def tower_of(published, model_type):
    """The modules of mcore_bridge's HuggingFaceVit."""
    tower, within = torch.nn.Module(), getattr(published, "model", published)
    for name in TOWERS[model_type]:
        tower.add_module(name, getattr(within if hasattr(within, name) else published, name))
    return tower


CHAT = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12, "image_size": 6,
        "patch_size": 2, "num_channels": 3, "qkv_bias": True, "qk_normalization": False, "norm_type": "layer_norm"}


def chat_weights(hidden):
    """What InternVL's own code calls its vision model and its projector."""
    width, inside, places = CHAT["hidden_size"], CHAT["intermediate_size"], (CHAT["image_size"] // CHAT["patch_size"]) ** 2 + 1
    shapes = {"embeddings.class_embedding": [1, 1, width], "embeddings.position_embedding": [1, places, width],
              "embeddings.patch_embedding.weight": [width, 3, 2, 2], "embeddings.patch_embedding.bias": [width]}
    for layer in range(CHAT["num_hidden_layers"]):
        both = {"attn.qkv": [3 * width, width], "attn.proj": [width, width], "mlp.fc1": [inside, width],
                "mlp.fc2": [width, inside], "norm1": [width], "norm2": [width]}
        for name, shape in both.items():
            shapes |= {f"encoder.layers.{layer}.{name}.weight": shape, f"encoder.layers.{layer}.{name}.bias": shape[:1]}
        shapes |= {f"encoder.layers.{layer}.{name}": [width] for name in ("ls1", "ls2")}
    shapes = {f"vision_model.{name}": shape for name, shape in shapes.items()}
    for name, shape in {"0": [4 * width], "1": [hidden, 4 * width], "3": [hidden, hidden]}.items():
        shapes |= {f"mlp1.{name}.weight": shape, f"mlp1.{name}.bias": shape[:1]}
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def save_chat(text, dtype, where):
    from safetensors.torch import save_file

    torch.manual_seed(12)
    weights = {f"language_model.{n}": t for n, t in text.state_dict().items()} | chat_weights(text.config.hidden_size)
    weights = {n: t.detach().to(dtype).contiguous() for n, t in weights.items()}
    if dist.get_rank() == 0:
        os.makedirs(where)
        save_file(weights, f"{where}/model.safetensors", metadata={"format": "pt"})
        with open(f"{where}/config.json", "w") as f:
            json.dump({"model_type": "internvl_chat", "llm_config": text.config.to_dict(), "vision_config": CHAT,
                       "downsample_ratio": 0.5, "tie_word_embeddings": False}, f)


def chat_modules(text, sizes, dtype):
    """mbridge's vision model and megatron-core's projector. Norms are parts of projections, as in Transformer Engine.
    -> both, and the configs of both"""
    from mbridge.models.internvl3.internvl_vit_model import InternvlVitModel
    from mbridge.models.internvl3.transformer_config import InternvlTransformerConfig, get_vision_projection_config
    from mbridge.models.internvl3.transformer_layer import Internvl2bVitTransformerLayer
    from megatron.core.models.vision.multimodal_projector import MultimodalProjector
    from megatron.core.models.vision.vit_layer_specs import get_vit_layer_with_local_spec
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.mlp import MLPSubmodules

    class Normed(ColumnParallelLinear):
        def __init__(self, inputs, *args, **kwargs):
            super().__init__(inputs, *args, **kwargs)
            self.layer_norm_weight, self.layer_norm_bias = (torch.nn.Parameter(torch.empty(inputs)) for _ in range(2))

    config = InternvlTransformerConfig(
        num_layers=CHAT["num_hidden_layers"], hidden_size=CHAT["hidden_size"], ffn_hidden_size=CHAT["intermediate_size"],
        num_attention_heads=CHAT["num_attention_heads"], add_bias_linear=True, add_qkv_bias=True, normalization="LayerNorm",
        tensor_model_parallel_size=sizes.get("tp", 1), params_dtype=dtype, use_cpu_initialization=True,
        gradient_accumulation_fusion=False, bias_activation_fusion=False)
    projection = get_vision_projection_config(copy.deepcopy(config))
    projection.hidden_size = projection.ffn_hidden_size = text.hidden_size
    spec = get_vit_layer_with_local_spec()
    spec.module = Internvl2bVitTransformerLayer
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = IdentityOp
    spec.submodules.self_attention.submodules.linear_qkv = spec.submodules.mlp.submodules.linear_fc1 = Normed
    vision = InternvlVitModel(config, spec, CHAT["patch_size"], CHAT["image_size"], CHAT["image_size"])
    projector = MultimodalProjector(projection, MLPSubmodules(linear_fc1=Normed, linear_fc2=RowParallelLinear), "mlp",
                                    4 * CHAT["hidden_size"])
    return vision.to(dtype), projector.to(dtype), config, projection


def with_chat_modules(model, text, sizes, dtype, weights):
    from mbridge.models.internvl3 import InternVL3Bridge
    from megatron.core import parallel_state
    from megatron.core.transformer.module import MegatronModule

    whole = MegatronModule(model.config)
    whole.language_model = model
    if not parallel_state.is_pipeline_first_stage():
        return whole
    whole.vision_model, whole.vision_projection, config, projection = chat_modules(text, sizes, dtype)
    hf = types.SimpleNamespace(vision_config=types.SimpleNamespace(**CHAT), llm_config=text, tie_word_embeddings=False)
    own = {"_build_config": lambda self: config, "vision_config": config, "vision_projection_config": projection}
    bridge = type("Bridge", (InternVL3Bridge,), own)(hf, dtype=dtype)
    rank, ranks = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_tensor_model_parallel_world_size()
    for name, param in whole.state_dict().items():
        if name.startswith("language_model.") or "_extra_state" in name:
            continue
        published = bridge._weight_name_mapping_mcore_to_hf(name)
        value = bridge._weight_to_mcore_format(name, [weights[n] for n in published])
        names, back = bridge._weight_to_hf_format(name, value)
        assert names == published and all(map(torch.equal, back, [weights[n] for n in names])), name
        param.copy_(bridge._weight_split_across_tp(name, value, param, ranks)[rank])
    return whole


def run(case, out):
    import mbridge  # noqa: F401
    import megatron.core  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file, save_file

    if case in OTHERS:
        torch_dist.run(case, out)
        return
    model_type, changes, sizes, more = CASES[case]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    chat = model_type == "internvl_chat"
    published = torch_dist.hf_model("qwen2" if chat else model_type, changes, more.get("vision"), dtype=dtype).to(dtype)
    if chat:
        save_chat(published, dtype, f"{out}/hf")
    if dist.get_rank() == 0:
        if not chat:
            published.save_pretrained(f"{out}/hf")
        os.makedirs(f"{out}/run/iter_{STEP:07}")
    dist.barrier()
    parallel_state.initialize_model_parallel(
        sizes.get("tp", 1), sizes.get("pp", 1), expert_model_parallel_size=sizes.get("ep", 1),
        expert_tensor_parallel_size=sizes.get("etp"))
    text = published.config.get_text_config()
    text.tie_word_embeddings = published.config.tie_word_embeddings
    text, weights = as_megatron_has_it(text, load_file(f"{out}/hf/model.safetensors"))
    config, model = torch_dist.build(text, sizes, more, dtype, None)
    torch_dist.fill(model, text, torch_dist.bridge_of(text, config, dtype, more), weights)
    if not sizes and dist.get_rank() == 0:
        save_file({"logits": torch_dist.logits(model, 9)}, f"{out}/logits.safetensors")
    if chat:
        model = with_chat_modules(model, text, sizes, dtype, load_file(f"{out}/hf/model.safetensors"))
    if model_type in TOWERS:
        model = torch_dist.with_tower(model, tower_of(published, model_type), "visual")
    metadata = more.get("metadata", {}) | {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    torch_dist.save({"model": model.sharded_state_dict(metadata=metadata)}, out)


if __name__ == "__main__":
    torch_dist.run_all(run)

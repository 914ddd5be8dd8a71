"""Hugging Face models as Megatron-Core's torch_dist checkpoints, several cases in one launch:

    torchrun --nproc_per_node=2 torch_dist.py OUT CASE...

Each makes OUT/CASE/hf, what save_pretrained writes of a tiny model, and OUT/CASE/run/iter_0000002, the same model
as megatron-core saves it: mbridge converts the weights of hf/ for a GPTModel, which is sharded as the case says. Layers for
multi-token prediction, of which transformers saves none, are in hf/ under the names of DeepSeek-V3's own files. A vision
model is transformers' own module beside the GPTModel, as in Megatron-Bridge. Where every rank holds all of it,
OUT/CASE/logits.safetensors has what Megatron's model computes.
"""

import contextlib
import copy
import os
import queue
import re
import sys

import torch
import torch.distributed as dist

import gated_delta
from leaving import leave

torch.cuda.current_device = lambda: torch.device("cpu")  # there is no GPU
torch.cuda.synchronize = lambda *args, **kwargs: None
torch.Tensor.cuda = lambda self, *args, **kwargs: self
# Nothing here runs often enough to be compiled, and megatron's import would load the compiler for each rank.
torch.compile = lambda model=None, **kwargs: model or (lambda function: function)

STEP = 2

TEXT = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "norm_topk_prob": True}
SHARED = MOE | {"shared_expert_intermediate_size": 14}
ROUTED = {"moe_intermediate_size": 10, "n_routed_experts": 4, "n_shared_experts": 2, "num_experts_per_tok": 2,
          "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "num_hidden_layers": 3}
LATENT = ROUTED | {"kv_lora_rank": 10, "q_lora_rank": 12, "qk_rope_head_dim": 2, "qk_nope_head_dim": 4,
                   "v_head_dim": 6, "num_key_value_heads": 4, "head_dim": 2}

# The window is longer than what the tests compute, and positions are plain ones. Megatron-Core does not cut experts
# that have biases (etp).
GPT_OSS = {"intermediate_size": 10, "num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": True,
           "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}

# Norms that a family's layers have besides, of which megatron-core has no module: Megatron's name -> the published one.
GLM4_NORMS = {"post_self_attn_layernorm": "post_self_attn_layernorm", "post_mlp_layernorm": "post_mlp_layernorm"}
GEMMA_NORMS = {"post_attention_layernorm": "post_attention_layernorm",  # mbridge
               "post_feedforward_layernorm": "post_feedforward_layernorm"}
GEMMA_NORMS_INSIDE = {"self_attention.linear_proj.post_layernorm": "post_attention_layernorm",  # Megatron-Bridge
                      "mlp.linear_fc2.post_layernorm": "post_feedforward_layernorm"}

VISION = {"depth": 2, "hidden_size": 8, "intermediate_size": 12, "num_heads": 2, "out_hidden_size": 16, "patch_size": 2,
          "temporal_patch_size": 3, "spatial_merge_size": 2}
QWEN2_5_VISION = VISION | {"fullatt_block_indexes": [1]}
QWEN3_VISION = VISION | {"num_position_embeddings": 9, "deepstack_visual_indexes": [1]}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}  # as Megatron's GPTModel has it
MROPE = {"rope_parameters": PLAIN_ROPE | {"mrope_section": [1, 1, 1]}}
# What Megatron-Bridge calls the vision model.
TOWER = {"qwen2_5_vl": "visual"} | dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe"), "vision_model")

# mbridge knows the one size of DeepSeek-V3.
DEEPSEEK_MTP = LATENT | {"num_hidden_layers": 61}
GLM_MTP = ROUTED | {"attention_bias": True, "use_qk_norm": True}

# Every second head of values has a key of its own. What is turned by positions is half a head.
DELTA = {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2, "head_dim": 8,
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 6, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5}}
DELTA_VL = DELTA | {"rope_parameters": DELTA["rope_parameters"] | {"mrope_section": [1, 1, 0]}}
DELTA_MOE = {"moe": True, "qk_norm": True}
QWEN3_5_VISION = VISION | {"num_position_embeddings": 9}

# case -> model_type, changes to TEXT, Megatron's sizes of parallelism, and more (see `build`)
CASES = {
    "llama-tp2": ("llama", {}, {"tp": 2}, {}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}, {}, {"bias": True}),
    "gemma-tp2": ("gemma", {"tie_word_embeddings": True}, {"tp": 2}, {"padded": 48}),
    "gemma2-pp2": ("gemma2", {"tie_word_embeddings": True}, {"pp": 2}, {"norms": GEMMA_NORMS_INSIDE}),
    "gemma2-untied": ("gemma2", {}, {"tp": 2}, {"norms": GEMMA_NORMS}),
    "gemma3-tp2": ("gemma3_text", {"tie_word_embeddings": True, "vocab_size": 37}, {"tp": 2},
                   {"norms": GEMMA_NORMS, "qk_norm": True, "padded": 48}),
    "gemma3-inside": ("gemma3_text", {"tie_word_embeddings": True, "num_key_value_heads": 1}, {"pp": 2},
                      {"norms": GEMMA_NORMS_INSIDE, "qk_norm": True, "metadata": {"non_homogeneous_layers": True}}),
    "glm4-tp2": ("glm4", {"attention_bias": True}, {"tp": 2}, {"norms": GLM4_NORMS, "qkv_bias": True}),
    "glm4-pp2": ("glm4", {"attention_bias": False}, {"pp": 2}, {"norms": GLM4_NORMS}),
    "mistral-pp2": ("mistral", {"num_key_value_heads": 1}, {"pp": 2}, {}),
    "qwen2-tp2": ("qwen2", {"num_key_value_heads": 4, "head_dim": 4}, {"tp": 2}, {"qkv_bias": True}),
    "qwen2-tied": ("qwen2", {"tie_word_embeddings": True, "head_dim": 4}, {"pp": 2}, {"qkv_bias": True}),
    "qwen2-dp2": ("qwen2", {"head_dim": 4}, {}, {"qkv_bias": True}),
    "mixtral-dp2": ("mixtral", {"num_local_experts": 4, "rope_parameters": PLAIN_ROPE}, {}, {"moe": True}),
    "qwen2_moe-dp2": ("qwen2_moe", SHARED | {"head_dim": 4}, {}, {"moe": True, "qkv_bias": True}),
    "llama-pp2-vpp2": ("llama", {"num_hidden_layers": 4}, {"pp": 2, "vpp": 2}, {}),
    "qwen3_moe-pp2-vpp2": ("qwen3_moe", MOE | {"num_hidden_layers": 4, "mlp_only_layers": [0]}, {"pp": 2, "vpp": 2},
                           {"moe": [0, 1, 1, 1], "qk_norm": True}),
    "qwen3_moe-tp2-pp2-ep2": ("qwen3_moe", MOE | {"num_key_value_heads": 4}, {"tp": 2, "pp": 2, "ep": 2},
                              {"moe": True, "qk_norm": True, "padded": 48}),
    "deepseek_v3-tp2-pp2-ep2": ("deepseek_v3", LATENT | {"num_hidden_layers": 4}, {"tp": 2, "pp": 2, "ep": 2},
                                {"moe": [0, 1, 1, 1], "latent": True, "router_bias": True}),
    "qwen3_vl_moe-tp2-pp2-ep2": ("qwen3_vl_moe", MROPE | MOE | {"vocab_size": 37}, {"tp": 2, "pp": 2, "ep": 2},
                                 {"moe": True, "qk_norm": True, "padded": 48, "vision": QWEN3_VISION}),
    "qwen2_5_vl-tp2": ("qwen2_5_vl", MROPE | {"head_dim": 4}, {"tp": 2},
                       {"qkv_bias": True, "vision": QWEN2_5_VISION}),
    "qwen2_5_vl-tied": ("qwen2_5_vl", MROPE | {"head_dim": 4, "tie_word_embeddings": True}, {"pp": 2},
                        {"qkv_bias": True, "vision": QWEN2_5_VISION}),
    "qwen3_vl-tp2": ("qwen3_vl", MROPE | {"vocab_size": 37}, {"tp": 2},
                     {"qk_norm": True, "padded": 48, "vision": QWEN3_VISION}),
    "qwen3_vl-pp2-bf16": ("qwen3_vl", MROPE, {"pp": 2},
                          {"qk_norm": True, "vision": QWEN3_VISION | {"deepstack_visual_indexes": [0, 1]}}),
    "qwen3_vl_moe-ep2": ("qwen3_vl_moe", MROPE | MOE, {"ep": 2}, {"moe": True, "qk_norm": True, "vision": QWEN3_VISION}),
    "qwen3_vl_moe-dp2": ("qwen3_vl_moe", MROPE | MOE, {}, {"moe": True, "qk_norm": True, "vision": QWEN3_VISION}),
    "qwen3-tp2-bf16": ("qwen3", {"vocab_size": 37}, {"tp": 2}, {"qk_norm": True, "padded": 48}),
    "qwen3-by-layer": ("qwen3", {}, {"pp": 2}, {"qk_norm": True, "metadata": {"non_homogeneous_layers": True}}),
    "mixtral-ep2": ("mixtral", {"num_local_experts": 4}, {"ep": 2}, {"moe": True}),
    "qwen2_moe-ep2": ("qwen2_moe", SHARED | {"head_dim": 4}, {"ep": 2}, {"moe": True, "qkv_bias": True}),
    "qwen3_moe-tp2": ("qwen3_moe", MOE, {"tp": 2}, {"moe": True, "qk_norm": True}),
    "qwen3_moe-dp2": ("qwen3_moe", MOE, {}, {"moe": True, "qk_norm": True}),
    "qwen3_moe-dense": ("qwen3_moe", MOE | {"mlp_only_layers": [0]}, {"pp": 2},
                        {"moe": [0, 1], "qk_norm": True}),
    "qwen3_moe-one-by-one": ("qwen3_moe", MOE, {"ep": 2},
                             {"moe": True, "qk_norm": True, "metadata": {"singleton_local_shards": True}}),
    "qwen3_vl_moe-one-by-one": ("qwen3_vl_moe", MROPE | MOE, {"ep": 2},
                                {"moe": True, "qk_norm": True, "vision": QWEN3_VISION,
                                 "metadata": {"singleton_local_shards": True}}),
    "gpt_oss-dp2": ("gpt_oss", GPT_OSS, {}, {"moe": True, "bias": True, "sinks": True}),
    "gpt_oss-tp2": ("gpt_oss", GPT_OSS | {"vocab_size": 37}, {"tp": 2, "etp": 1},
                    {"moe": True, "bias": True, "sinks": True, "padded": 48}),
    "gpt_oss-ep2-bf16": ("gpt_oss", GPT_OSS, {"ep": 2}, {"moe": True, "bias": True, "sinks": True}),
    "gpt_oss-by-layer": ("gpt_oss", GPT_OSS, {"pp": 2},
                         {"moe": True, "bias": True, "sinks": True, "metadata": {"non_homogeneous_layers": True}}),
    "gpt_oss-one-by-one": ("gpt_oss", GPT_OSS, {"tp": 2, "etp": 1},
                           {"moe": True, "bias": True, "sinks": True, "metadata": {"singleton_local_shards": True}}),
    "gpt_oss-tp2-pp2-ep2": ("gpt_oss", GPT_OSS, {"tp": 2, "etp": 1, "pp": 2, "ep": 2},
                            {"moe": True, "bias": True, "sinks": True}),
    "deepseek_v3-ep2": ("deepseek_v3", LATENT, {"ep": 2}, {"moe": [0, 1, 1], "latent": True, "router_bias": True}),
    "deepseek_v3-tp2": ("deepseek_v3", LATENT | {"q_lora_rank": None}, {"tp": 2},
                        {"moe": [0, 1, 1], "latent": True, "router_bias": True}),
    "deepseek_v2-pp2": ("deepseek_v2", LATENT | {"num_hidden_layers": 4}, {"pp": 2},
                        {"moe": [0, 1, 1, 1], "latent": True}),
    "deepseek_v3-mtp-pp2": ("deepseek_v3", DEEPSEEK_MTP, {"pp": 2, "first": 31},
                            {"moe": [0] + [1] * 60, "latent": True, "router_bias": True, "mtp": 1}),
    "glm4_moe-mtp-tp2": ("glm4_moe", GLM_MTP | {"vocab_size": 37}, {"tp": 2},
                         {"moe": [0, 1, 1], "qkv_bias": True, "qk_norm": True, "router_bias": True, "padded": 48,
                          "mtp": 1}),
    "glm4_moe-mtp2-ep2": ("glm4_moe", GLM_MTP, {"ep": 2},
                          {"moe": [0, 1, 1], "qkv_bias": True, "qk_norm": True, "router_bias": True, "mtp": 2}),
    "glm4_moe-mtp-pp2-vpp2": ("glm4_moe", GLM_MTP | {"num_hidden_layers": 4}, {"pp": 2, "vpp": 2},
                              {"moe": [0, 1, 1, 1], "qkv_bias": True, "qk_norm": True, "router_bias": True, "mtp": 1,
                               "metadata": {"singleton_local_shards": True}}),
    "qwen3_next-dp2": ("qwen3_next", DELTA | SHARED, {}, DELTA_MOE),
    "qwen3_next-tp2-bf16": ("qwen3_next", DELTA | SHARED | {"vocab_size": 37}, {"tp": 2}, DELTA_MOE | {"padded": 48}),
    "qwen3_next-mtp-ep2": ("qwen3_next", DELTA | SHARED, {"ep": 2}, DELTA_MOE | {"mtp": 1}),
    "qwen3_next-one-by-one": ("qwen3_next", DELTA | SHARED, {"pp": 2},
                              DELTA_MOE | {"metadata": {"singleton_local_shards": True}}),
    "qwen3_next-tp2-pp2": ("qwen3_next", DELTA | SHARED, {"tp": 2, "pp": 2}, DELTA_MOE | {"mtp": 1}),
    "qwen3_5_text-dp2": ("qwen3_5_text", DELTA, {}, {"qk_norm": True}),
    "qwen3_5_moe_text-tp2-bf16": ("qwen3_5_moe_text", DELTA | SHARED, {"tp": 2}, DELTA_MOE | {"mtp": 1}),
    "qwen3_5-pp2": ("qwen3_5", DELTA_VL, {"pp": 2},
                    {"qk_norm": True, "mtp": 1, "vision": QWEN3_5_VISION}),
    "qwen3_5_moe-tp2": ("qwen3_5_moe", DELTA_VL | SHARED, {"tp": 2}, DELTA_MOE | {"vision": QWEN3_5_VISION}),
    "llama-pp2-embedding": ("llama", {"num_hidden_layers": 3, "attention_bias": True, "mlp_bias": True},
                            {"pp": 2, "embedding": True},
                            {"bias": True, "metadata": {"singleton_local_shards": True}}),
    "llama-pp2-loss": ("llama", {"num_hidden_layers": 3}, {"pp": 2, "loss": True}, {}),
    "llama-pp2-first": ("llama", {"num_hidden_layers": 3}, {"pp": 2, "first": 1}, {}),
    "qwen3-pp2-vpp2-layout": ("qwen3", {"num_hidden_layers": 5},
                              {"pp": 2, "vpp": 2, "layout": [["embedding", "decoder"], ["decoder"] * 2, ["decoder"],
                                                             ["decoder", "loss"]]}, {"qk_norm": True}),
    "qwen2-cp2": ("qwen2", {"head_dim": 4}, {"cp": 2}, {"qkv_bias": True}),
    "qwen3_moe-cp2-ep2": ("qwen3_moe", MOE, {"cp": 2, "ep": 2}, {"moe": True, "qk_norm": True}),
    "qwen3_moe-etp2": ("qwen3_moe", MOE, {"etp": 2}, {"moe": True, "qk_norm": True}),
    "qwen3_moe-tp2-ep2-etp1": ("qwen3_moe", MOE, {"tp": 2, "ep": 2, "etp": 1}, {"moe": True, "qk_norm": True}),
    "qwen3_moe-etp2-one-by-one": ("qwen3_moe", MOE, {"etp": 2},
                                  {"moe": True, "qk_norm": True, "metadata": {"singleton_local_shards": True}}),
    "glm4_moe-tp2": ("glm4_moe", ROUTED | {"attention_bias": True, "use_qk_norm": True, "num_nextn_predict_layers": 0},
                     {"tp": 2}, {"moe": [0, 1, 1], "qkv_bias": True, "qk_norm": True, "router_bias": True}),
}


def hf_model(model_type, changes, vision, mtp=0, dtype=torch.float32):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    torch.manual_seed(11)
    text = TEXT | changes
    text["num_hidden_layers"] += mtp
    if "layer_types" in text:
        text["layer_types"] = text["layer_types"] + ["full_attention"] * mtp
    if vision:
        tied = text.pop("tie_word_embeddings")
        config = AutoConfig.for_model(model_type, text_config=text, vision_config=vision, tie_word_embeddings=tied)
        model = AutoModelForImageTextToText.from_config(config)
    else:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **text))
    with torch.no_grad():
        for param in model.parameters():  # norms and biases too
            param.copy_(torch.randn(param.shape) * 0.2 + (0.9 if param.dim() == 1 else 0))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn(buffer.shape))
    gated_delta.publish_norms(model, dtype)
    if mtp:
        config, n_layers = model.config.get_text_config(), text["num_hidden_layers"] - mtp
        config.num_hidden_layers = n_layers
        if "layer_types" in text:
            config.layer_types = text["layer_types"][:n_layers]
        if model_type != "qwen3_next":  # it has one, and no number in its config.json
            setattr(config, "mtp_num_hidden_layers" if "layer_types" in text else "num_nextn_predict_layers", mtp)
    return model


def save_published(model, mtp, where):
    """The model's last `mtp` layers become those for multi-token prediction."""
    from safetensors.torch import load_file, save_file

    model.save_pretrained(where)
    if not mtp:
        return
    tensors, text = load_file(f"{where}/model.safetensors"), model.config.get_text_config()
    if text.model_type in gated_delta.FAMILIES:
        tensors = gated_delta.published_mtp(tensors, text.num_hidden_layers)
        save_file(tensors, f"{where}/model.safetensors", metadata={"format": "pt"})
        return
    embedding, head, norm = (tensors[n] for n in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"))
    for layer in range(mtp):
        name = f"model.layers.{model.config.num_hidden_layers + layer}."
        tensors |= {name + "embed_tokens.weight": embedding.clone(), name + "shared_head.head.weight": head.clone(),
                    name + "eh_proj.weight": torch.randn(len(norm), 2 * len(norm)).to(norm.dtype)}
        tensors |= {f"{name}{n}.weight": torch.randn_like(norm) for n in ("enorm", "hnorm", "shared_head.norm")}
    save_file(tensors, f"{where}/model.safetensors", metadata={"format": "pt"})


def moe_config(hf, more):
    if not more.get("moe"):
        return {}
    shared = getattr(hf, "shared_expert_intermediate_size", None)
    if getattr(hf, "n_shared_experts", None):
        shared = hf.n_shared_experts * hf.moe_intermediate_size
    return {"num_moe_experts": next(getattr(hf, k) for k in ("n_routed_experts", "num_experts", "num_local_experts")
                                    if getattr(hf, k, None)),
            "moe_router_topk": hf.num_experts_per_tok, "moe_router_load_balancing_type": "none",
            "moe_ffn_hidden_size": getattr(hf, "moe_intermediate_size", None) or hf.intermediate_size,
            "moe_shared_expert_intermediate_size": shared,
            "moe_shared_expert_gate": hasattr(hf, "shared_expert_intermediate_size"),
            "moe_router_enable_expert_bias": bool(more.get("router_bias")),
            "moe_router_score_function": "sigmoid" if more.get("router_bias") else "softmax",
            "moe_token_dispatcher_type": "allgather",
            "moe_layer_freq": more["moe"] if isinstance(more["moe"], list) else 1}


def transformer_config(hf, sizes, more, dtype):
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig

    kind, latent = TransformerConfig, {}
    if more.get("latent"):
        kind = MLATransformerConfig
        latent = {"q_lora_rank": hf.q_lora_rank, "kv_lora_rank": hf.kv_lora_rank, "v_head_dim": hf.v_head_dim,
                  "qk_head_dim": hf.qk_nope_head_dim, "qk_pos_emb_head_dim": hf.qk_rope_head_dim, "rope_type": "rope",
                  "apply_rope_fusion": False}
    bias, activation = bool(more.get("bias")), {"activation_func": torch.nn.functional.silu}
    if more.get("sinks"):
        from megatron.core.fusions.fused_bias_geglu import quick_gelu
        activation = {"activation_func": quick_gelu, "activation_func_clamp_value": 7.0, "glu_linear_offset": 1.0,
                      "softmax_type": "learnable"}
    delta = gated_delta.config_of(hf) if hf.model_type in gated_delta.FAMILIES else {}
    return kind(
        num_layers=hf.num_hidden_layers, hidden_size=hf.hidden_size, ffn_hidden_size=hf.intermediate_size,
        num_attention_heads=hf.num_attention_heads, num_query_groups=hf.num_key_value_heads,
        kv_channels=getattr(hf, "head_dim", None), **activation,
        gated_linear_unit=True, normalization="RMSNorm", layernorm_epsilon=hf.rms_norm_eps,
        add_bias_linear=bias, add_qkv_bias=bias or bool(more.get("qkv_bias")),
        qk_layernorm=bool(more.get("qk_norm") or more.get("latent")), hidden_dropout=0.0, attention_dropout=0.0,
        virtual_pipeline_model_parallel_size=sizes.get("vpp"), mtp_num_layers=more.get("mtp"),
        num_layers_in_first_pipeline_stage=sizes.get("first"),
        account_for_embedding_in_pipeline_split=sizes.get("embedding", False),
        account_for_loss_in_pipeline_split=sizes.get("loss", False), pipeline_model_parallel_layout=sizes.get("layout"),
        context_parallel_size=sizes.get("cp", 1),
        tensor_model_parallel_size=sizes.get("tp", 1), pipeline_model_parallel_size=sizes.get("pp", 1),
        expert_model_parallel_size=sizes.get("ep", 1), expert_tensor_parallel_size=sizes.get("etp"), params_dtype=dtype, pipeline_dtype=dtype,
        use_cpu_initialization=True, gradient_accumulation_fusion=False, bias_activation_fusion=False,
        masked_softmax_fusion=False, **moe_config(hf, more), **latent, **delta)


def with_tower(language_model, tower, name):
    """The modules of Megatron-Bridge's Qwen25VLModel and Qwen3VLModel; the first stage has the tower."""
    from megatron.core import parallel_state
    from megatron.core.transformer.module import MegatronModule

    model = MegatronModule(language_model.config)
    if parallel_state.is_pipeline_first_stage():
        model.add_module(name, tower)
    model.add_module("language_model", language_model)
    return model


def each_expert_of_gpt_oss(text):
    """As the other families' experts are. Megatron-Bridge's GPTOSSMLPGateUpProjMapping takes the same columns."""
    for name in [n for n in text if n.endswith(".mlp.experts.gate_up_proj")]:
        block = name.removesuffix("gate_up_proj")
        for part, turned in ((".weight", lambda t: t.T), (".bias", lambda t: t)):
            suffix = part.replace(".weight", "").replace(".", "_")
            for e, (up, down) in enumerate(zip(text.pop(name + suffix), text.pop(f"{block}down_proj{suffix}"))):
                text[f"{block}{e}.gate_proj{part}"] = turned(up[..., 0::2])
                text[f"{block}{e}.up_proj{part}"] = turned(up[..., 1::2])
                text[f"{block}{e}.down_proj{part}"] = turned(down)


def text_weights(weights):
    """Those of the language model, as those of a family without a vision model are published."""
    text = {n.replace("model.language_model.", "model."): t for n, t in weights.items()}
    if any(n.endswith(".gate_up_proj_bias") for n in text):
        each_expert_of_gpt_oss(text)
    for name in [n for n in text if n.endswith(".mlp.experts.gate_up_proj")]:
        block = name.removesuffix("gate_up_proj")
        for e, (up, down) in enumerate(zip(text.pop(name), text.pop(block + "down_proj"))):
            text[f"{block}{e}.gate_proj.weight"], text[f"{block}{e}.up_proj.weight"] = up.chunk(2)
            text[f"{block}{e}.down_proj.weight"] = down
    return text


class Nothing(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()


def build(hf, sizes, more, dtype, stage):
    """`stage`: of the virtual ones that this rank has, if there are such."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
    from megatron.core.transformer import multi_latent_attention

    multi_latent_attention.HAVE_TE = False  # it says so whether there is one or not
    config = transformer_config(hf, sizes, more, dtype)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm", vp_stage=stage)
    # What computes these takes Transformer Engine.
    for layer in spec.layer_specs if more.get("latent") or sizes.get("cp") else []:
        layer.submodules.self_attention.submodules.core_attention = Nothing
    if hf.model_type in gated_delta.FAMILIES:
        gated_delta.put_into(spec.layer_specs, config, stage)
    mtp = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False, vp_stage=stage) if more.get("mtp") else None
    model = GPTModel(
        config, spec, mtp_block_spec=mtp, vocab_size=more.get("padded", hf.vocab_size), max_sequence_length=64,
        position_embedding_type="rope", vp_stage=stage,
        rotary_percent=(getattr(hf, "rope_parameters", None) or {}).get("partial_rotary_factor", 1.0),
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
        share_embeddings_and_output_weights=hf.tie_word_embeddings)
    for layer in model.decoder.layers:
        for name in more.get("norms", ()):
            within, _, leaf = name.rpartition(".")
            layer.get_submodule(within).add_module(leaf, copy.deepcopy(layer.input_layernorm))
    return config, model.to(dtype)


# A norm in front of a projection is a part of it with Transformer Engine, which mbridge's names are of.
FUSED = {"input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
         "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
         "self_attention.q_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
         "self_attention.kv_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight"}


# What mbridge has for no family, or for another one.
LAYER = "model.layers.{layer_number}."
MORE_ATTENTION = {"self_attention.linear_proj.bias": [LAYER + "self_attn.o_proj.bias"],
                  "self_attention.core_attention.softmax_offset": [LAYER + "self_attn.sinks"]}
MORE_MLP = {"mlp.linear_fc1.bias": [LAYER + "mlp.gate_proj.bias", LAYER + "mlp.up_proj.bias"],
            "mlp.linear_fc2.bias": [LAYER + "mlp.down_proj.bias"]}
GEMMA2_MLP = {"mlp.linear_fc1.layer_norm_weight": [LAYER + "pre_feedforward_layernorm.weight"]}
OWN_MLP = {"gemma2": GEMMA2_MLP, "gemma3_text": GEMMA2_MLP,
           "glm4": {"mlp.linear_fc1.weight": [LAYER + "mlp.gate_up_proj.weight"]},
           "gpt_oss": {f"mlp.router.{part}": [f"{LAYER}mlp.router.{part}"] for part in ("weight", "bias")}}
BRIDGE = {"gemma": "llama", "gemma2": "qwen2", "gemma3_text": "qwen3", "glm4": "qwen2", "mistral": "llama",
          "gpt_oss": "qwen3_moe", "qwen3_next": "qwen2_moe", "qwen3_5_moe_text": "qwen2_moe", "qwen3_5_text": "qwen3",
          "deepseek_v2": "deepseek_v3", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
          "qwen3_vl_moe_text": "qwen3_moe"}


def bridge_of(hf, config, dtype, more):
    from mbridge.core.auto_bridge import _MODEL_REGISTRY
    from mbridge.models import Qwen2Bridge

    family = _MODEL_REGISTRY[BRIDGE.get(hf.model_type, hf.model_type)]
    mlp = {k: v for k, v in (MORE_MLP | Qwen2Bridge._MLP_MAPPING).items() if k not in family._MLP_MAPPING}
    norms = {k + ".weight": [LAYER + v + ".weight"] for k, v in more.get("norms", {}).items()}
    bridge = type("Bridge", (family,), {
        "_build_config": lambda self: config, "_DIRECT_MAPPING": dict(family._DIRECT_MAPPING),  # it changes that
        "_MLP_MAPPING": family._MLP_MAPPING | mlp | OWN_MLP.get(hf.model_type, {}), "norms": norms,
        "_ATTENTION_MAPPING": family._ATTENTION_MAPPING | MORE_ATTENTION})(
            hf, dtype=dtype, make_vocab_size_divisible_by=more.get("padded"))
    bridge.vocab_size, bridge.padded_vocab_size = hf.vocab_size, more.get("padded")
    return bridge


def name_in_bridge(name, first_layer, first_expert):
    """A parameter's name in the whole model, experts as Transformer Engine's grouped ones are called."""
    if not name.startswith("mtp."):
        name = re.sub(r"(?<=layers\.)\d+", lambda m: str(int(m[0]) + first_layer), name, count=1)
    return re.sub(r"local_experts\.(\d+)\.(.*)", lambda m: f"{m[2]}{int(m[1]) + first_expert}", name)


def hf_names(bridge, name):
    bias = re.fullmatch(r"(.*\.mlp\.experts\..*\.)bias(\d+)", name)
    if bias:  # mbridge has no family whose experts have biases
        return [re.sub("weight$", "bias", n) for n in hf_names(bridge, f"{bias[1]}weight{bias[2]}")]
    mtp = re.fullmatch(r"mtp\.layers\.([1-9]\d*)(\..*)", name)
    if mtp:  # mbridge has names for the first of them
        first, layer = (f"model.layers.{bridge.config.num_layers + n}." for n in (0, int(mtp[1])))
        return [n.replace(first, layer) for n in hf_names(bridge, f"mtp.layers.0{mtp[2]}")]
    layer, _, within = name.removeprefix("decoder.layers.").partition(".")
    if within in bridge.norms:
        return [n.format(layer_number=layer) for n in bridge.norms[within]]
    try:
        return bridge._weight_name_mapping_mcore_to_hf(name)
    except NotImplementedError:
        for plain, fused in FUSED.items():
            name = name.replace(plain, fused)
        return bridge._weight_name_mapping_mcore_to_hf(name)


def fill(model, hf, bridge, weights):
    """mbridge's conversion of the published weights into this rank's parameters."""
    from megatron.core import parallel_state

    first_layer = model.decoder.layers[0].layer_number - 1
    experts = bridge.config.num_moe_experts or 0
    first_expert = parallel_state.get_expert_model_parallel_rank() * (
        experts // parallel_state.get_expert_model_parallel_world_size())
    of_layers = (parallel_state.get_tensor_model_parallel_rank(),
                 parallel_state.get_tensor_model_parallel_world_size())
    of_experts = (parallel_state.get_expert_tensor_parallel_rank(),
                  parallel_state.get_expert_tensor_parallel_world_size())
    for local, param in model.state_dict().items():
        if "_extra_state" in local:
            continue
        name = name_in_bridge(local, first_layer, first_expert)
        rank, ranks = of_experts if ".mlp.experts." in name else of_layers
        if hf.model_type in gated_delta.FAMILIES:
            mine = gated_delta.local(hf, name, weights, rank, ranks, param.dtype)
            if mine is not None:
                param.copy_(mine)
                continue
            name = name.replace("mtp.layers.0.transformer_layer.", f"decoder.layers.{hf.num_hidden_layers}.")
        whole = bridge._weight_to_mcore_format(name, [weights[n] for n in hf_names(bridge, name)])
        param.copy_(bridge._weight_split_across_tp(name, whole, param, ranks)[rank])


def logits(model, rows):
    from megatron.core import tensor_parallel
    from megatron.core.transformer.moe import moe_utils

    moe_utils.te_general_gemm = None  # it asks for that without having looked for it
    tensor_parallel.get_cuda_rng_tracker().fork = lambda *args: contextlib.nullcontext()  # it draws no dropout
    if model.config.experimental_attention_variant:
        gated_delta.add_one_to_norms(model)
    ids = torch.arange(rows).repeat(2, 1) % 17
    hidden = torch.triu(torch.ones(rows, rows), diagonal=1).bool()[None, None]
    with torch.no_grad():
        return model.eval()(ids, torch.arange(rows).repeat(2, 1), hidden)


def run(case, out):
    import mbridge  # noqa: F401
    import megatron.core  # noqa: F401
    from megatron.core import parallel_state
    from safetensors.torch import load_file, save_file

    model_type, changes, sizes, more = CASES[case]
    dtype = torch.bfloat16 if case.endswith("bf16") else torch.float32
    published = hf_model(model_type, changes, more.get("vision"), more.get("mtp", 0), dtype).to(dtype)
    if dist.get_rank() == 0:
        save_published(published, more.get("mtp"), f"{out}/hf")
        os.makedirs(f"{out}/run/iter_{STEP:07}")
    dist.barrier()
    parallel_state.initialize_model_parallel(
        sizes.get("tp", 1), sizes.get("pp", 1), sizes.get("vpp"), expert_model_parallel_size=sizes.get("ep", 1),
        expert_tensor_parallel_size=sizes.get("etp"), context_parallel_size=sizes.get("cp", 1))
    text = published.config.get_text_config()
    text.tie_word_embeddings = published.config.tie_word_embeddings
    weights = text_weights(load_file(f"{out}/hf/model.safetensors"))
    if text.model_type in gated_delta.FAMILIES:
        weights = gated_delta.as_of_decoder(weights, text.num_hidden_layers)
    metadata = more.get("metadata", {}) | {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    state = {}
    for stage in range(sizes["vpp"]) if "vpp" in sizes else [None]:
        config, model = build(text, sizes, more, dtype, stage)
        fill(model, text, bridge_of(text, config, dtype, more), weights)
        if not sizes and dist.get_rank() == 0:
            save_file({"logits": logits(model, 9)}, f"{out}/logits.safetensors")
        if model_type in TOWER:
            model = with_tower(model, published.model.visual, TOWER[model_type])
        state["model" if stage is None else f"model{stage}"] = model.sharded_state_dict(metadata=metadata)
    save(state, out)


def save(state, out, **how):
    from megatron.core import dist_checkpointing

    dist_checkpointing.save({"iteration": STEP, "checkpoint_version": 3.0} | state, f"{out}/run/iter_{STEP:07}", **how)
    end_groups()


def end_groups():
    """Those of one case. Megatron only forgets them, and each has threads that wake up now and then."""
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.barrier()  # no other rank is still at work in a group
    for group in [g for g in dist.distributed_c10d._world.pg_map if g != dist.group.WORLD]:
        dist.destroy_process_group(group)


def write_here(transforms, use_msc, rank, buckets, results):
    """Writes one file after another. Megatron's write_preloaded_data_multiproc starts a process for each of them."""
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    written, begun = queue.Queue(), queue.Queue()
    of_files = {}
    for number, bucket in enumerate(buckets):
        begun.put(number)
        FileSystemWriterAsync.write_preloaded_data(transforms, number, bucket, written, begun, False)
        _, of_files[number] = written.get()
        if isinstance(of_files[number], Exception):
            raise of_files[number]
    results.put(of_files)


def start_no_processes():
    """What Megatron-Core saves, this process writes."""
    from megatron.core.dist_checkpointing.strategies import base, filesystem_async

    filesystem_async._results_queue = queue.Queue()  # else another Python has it, which imports the frameworks
    filesystem_async.FileSystemWriterAsync.write_preloaded_data_multiproc = staticmethod(write_here)
    # As from 0.15 on. Before, one more process calls that.
    base.AsyncSaveShardedStrategy.save = lambda self, *what: self.async_save(*what).execute_sync()


def run_all(run):
    """Each case of the command line."""
    start_no_processes()
    dist.init_process_group("gloo")
    for one in sys.argv[2:]:
        run(one, f"{sys.argv[1]}/{one}")
    leave()


if __name__ == "__main__":
    run_all(run)

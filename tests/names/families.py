"""A tiny model of each family whose published tensor names are known: (model_type, class, config). With them
tests/names/generate.py writes lib/names/published_table.c, and tests/e2e/test_names.py compares mounts with
save_pretrained. No dimension equals another that it could be taken for."""

import transformers as T


def text(**more):
    base = {"vocab_size": 40, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
            "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return base | more


def vision(**more):
    base = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 4, "patch_size": 2}
    return base | more


def qwen_vision(**more):
    base = {"depth": 1, "hidden_size": 8, "num_heads": 2, "patch_size": 2,
            "spatial_merge_size": 2, "temporal_patch_size": 2}
    return base | more


MOE = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5,
       "decoder_sparse_step": 1}
SHARED = MOE | {"shared_expert_intermediate_size": 7}
ROUTED = {"moe_intermediate_size": 5, "n_routed_experts": 4, "n_shared_experts": 1,
          "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
LATENT = ROUTED | {"kv_lora_rank": 6, "q_lora_rank": 6, "qk_rope_head_dim": 2,
                   "qk_nope_head_dim": 2, "v_head_dim": 4, "num_hidden_layers": 3,
                   "num_key_value_heads": 2}
LINEAR = {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 4,
          "linear_value_head_dim": 4, "num_hidden_layers": 4}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                            "mrope_section": [1, 1, 0]}}
CLIP = vision(model_type="clip_vision_model", projection_dim=8)
SIGLIP = vision(model_type="siglip_vision_model")
VISION3 = qwen_vision(intermediate_size=12, out_hidden_size=8, num_position_embeddings=4,
                      deepstack_visual_indexes=[0])
LLAMA = text(model_type="llama")
QWEN2 = text(model_type="qwen2")

FAMILIES = [
    ("llama", "LlamaForCausalLM", T.LlamaConfig, text(attention_bias=True, mlp_bias=True)),
    ("mistral", "MistralForCausalLM", T.MistralConfig, text(head_dim=4)),
    ("qwen2", "Qwen2ForCausalLM", T.Qwen2Config, text()),
    ("qwen3", "Qwen3ForCausalLM", T.Qwen3Config, text(head_dim=4)),
    ("gemma2", "Gemma2ForCausalLM", T.Gemma2Config, text(head_dim=4)),
    ("gemma3_text", "Gemma3ForCausalLM", T.Gemma3TextConfig, text(head_dim=4)),
    ("phi3", "Phi3ForCausalLM", T.Phi3Config, text()),
    ("glm4", "Glm4ForCausalLM", T.Glm4Config, text(head_dim=4, attention_bias=True)),
    ("gpt_oss", "GptOssForCausalLM", T.GptOssConfig,
     text(num_local_experts=3, head_dim=4, num_experts_per_tok=2)),
    ("qwen2_moe", "Qwen2MoeForCausalLM", T.Qwen2MoeConfig, text(**SHARED)),
    ("qwen3_moe", "Qwen3MoeForCausalLM", T.Qwen3MoeConfig, text(head_dim=4, **MOE)),
    ("qwen3_next", "Qwen3NextForCausalLM", T.Qwen3NextConfig,
     text(head_dim=4, **SHARED, **LINEAR)),
    ("mixtral", "MixtralForCausalLM", T.MixtralConfig, text(num_local_experts=3)),
    ("phimoe", "PhimoeForCausalLM", T.PhimoeConfig, text(num_local_experts=3)),
    ("minimax_m2", "MiniMaxM2ForCausalLM", T.MiniMaxM2Config,
     text(num_local_experts=3, head_dim=4)),
    ("olmoe", "OlmoeForCausalLM", T.OlmoeConfig, text(num_experts=3)),
    ("deepseek_v2", "DeepseekV2ForCausalLM", T.DeepseekV2Config, text(**LATENT)),
    ("deepseek_v3", "DeepseekV3ForCausalLM", T.DeepseekV3Config, text(**LATENT)),
    ("glm4_moe", "Glm4MoeForCausalLM", T.Glm4MoeConfig,
     text(head_dim=4, use_qk_norm=True, attention_bias=True, **ROUTED)),
    ("dots1", "Dots1ForCausalLM", T.Dots1Config, text(head_dim=4, **ROUTED)),
    ("granitemoe", "GraniteMoeForCausalLM", T.GraniteMoeConfig,
     text(num_local_experts=3, num_experts_per_tok=2)),
    ("jamba", "JambaForCausalLM", T.JambaConfig,
     text(num_experts=3, num_experts_per_tok=2, mamba_d_state=4, mamba_dt_rank=3,
          use_mamba_kernels=False, num_hidden_layers=4, attn_layer_period=2,
          attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1)),
    ("lfm2_moe", "Lfm2MoeForCausalLM", T.Lfm2MoeConfig,
     text(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=5, num_dense_layers=1,
          layer_types=["conv", "full_attention"])),
    ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", T.Ernie4_5_MoeConfig,
     text(moe_num_experts=3, moe_k=2, moe_intermediate_size=5, moe_num_shared_experts=1,
          moe_layer_start_index=1)),
    ("glm4_moe_lite", "Glm4MoeLiteForCausalLM", T.Glm4MoeLiteConfig, text(**LATENT)),
    ("glm_moe_dsa", "GlmMoeDsaForCausalLM", T.GlmMoeDsaConfig,
     text(index_n_heads=2, index_head_dim=4, index_topk=2, **LATENT)),
    ("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", T.HunYuanMoEV1Config,
     text(head_dim=4, num_experts=3, moe_topk=2)),
    ("flex_olmo", "FlexOlmoForCausalLM", T.FlexOlmoConfig,
     text(num_experts=3, num_experts_per_tok=2)),
    ("minimax", "MiniMaxForCausalLM", T.MiniMaxConfig,
     text(num_local_experts=3, head_dim=4, layer_types=["linear_attention", "full_attention"])),
    ("afmoe", "AfmoeForCausalLM", T.AfmoeConfig,
     text(head_dim=4, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=5,
          num_dense_layers=1, num_shared_experts=1)),
    ("granitemoeshared", "GraniteMoeSharedForCausalLM", T.GraniteMoeSharedConfig,
     text(num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=7)),
    ("nemotron_h", "NemotronHForCausalLM", T.NemotronHConfig,
     text(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=5,
          moe_shared_expert_intermediate_size=7, head_dim=4, mamba_num_heads=2, mamba_head_dim=4,
          ssm_state_size=4, n_groups=1, n_group=1, topk_group=1,
          layers_block_type=["mamba", "moe", "attention"])),
    ("longcat_flash", "LongcatFlashForCausalLM", T.LongcatFlashConfig,
     text(num_layers=2, ffn_hidden_size=12, expert_ffn_hidden_size=5, n_routed_experts=4,
          zero_expert_num=1, moe_topk=2, kv_lora_rank=6, q_lora_rank=6, qk_rope_head_dim=2,
          qk_nope_head_dim=2, v_head_dim=4, num_key_value_heads=2)),
    ("exaone_moe", "ExaoneMoeForCausalLM", T.ExaoneMoeConfig,
     text(head_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=5,
          num_shared_experts=1, n_group=2, topk_group=1, first_k_dense_replace=1)),
    ("solar_open", "SolarOpenForCausalLM", T.SolarOpenConfig, text(head_dim=4, **ROUTED)),
    ("mimo_v2_flash", "MiMoV2FlashForCausalLM", T.MiMoV2FlashConfig, text(head_dim=4, **ROUTED)),
    ("qwen2_vl", "Qwen2VLForConditionalGeneration", T.Qwen2VLConfig,
     {"text_config": text(**ROPE), "vision_config": qwen_vision(embed_dim=8, mlp_ratio=2)}),
    ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", T.Qwen2_5_VLConfig,
     {"text_config": text(**ROPE),
      "vision_config": qwen_vision(intermediate_size=12, out_hidden_size=8,
                                   fullatt_block_indexes=[0])}),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration", T.Qwen3VLConfig,
     {"text_config": text(head_dim=4, **ROPE), "vision_config": VISION3}),
    ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", T.Qwen3VLMoeConfig,
     {"text_config": text(head_dim=4, **ROPE, **MOE), "vision_config": VISION3}),
    ("qwen3_5", "Qwen3_5ForConditionalGeneration", T.Qwen3_5Config,
     {"text_config": text(head_dim=4, **ROPE, **LINEAR), "vision_config": VISION3}),
    ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", T.Qwen3_5MoeConfig,
     {"text_config": text(head_dim=4, **ROPE, **SHARED, **LINEAR), "vision_config": VISION3}),
    ("glm4v", "Glm4vForConditionalGeneration", T.Glm4vConfig,
     {"text_config": text(**ROPE),
      "vision_config": {"depth": 1, "hidden_size": 8, "num_heads": 2, "image_size": 8,
                        "patch_size": 2, "out_hidden_size": 8, "intermediate_size": 12}}),
    ("llama4", "Llama4ForConditionalGeneration", T.Llama4Config,
     {"text_config": text(num_local_experts=3, intermediate_size_mlp=12, head_dim=4),
      "vision_config": vision(intermediate_size=32, vision_output_dim=8, projector_input_dim=8,
                              projector_output_dim=8)}),
    ("llava", "LlavaForConditionalGeneration", T.LlavaConfig,
     {"text_config": LLAMA, "vision_config": CLIP}),
    ("llava_next", "LlavaNextForConditionalGeneration", T.LlavaNextConfig,
     {"text_config": LLAMA, "vision_config": CLIP}),
    ("llava_onevision", "LlavaOnevisionForConditionalGeneration", T.LlavaOnevisionConfig,
     {"text_config": QWEN2, "vision_config": SIGLIP}),
    ("gemma3", "Gemma3ForConditionalGeneration", T.Gemma3Config,
     {"text_config": text(head_dim=4), "vision_config": SIGLIP, "mm_tokens_per_image": 4}),
    ("paligemma", "PaliGemmaForConditionalGeneration", T.PaliGemmaConfig,
     {"text_config": text(model_type="gemma", head_dim=4), "vision_config": SIGLIP,
      "projection_dim": 8}),
    ("internvl", "InternVLForConditionalGeneration", T.InternVLConfig,
     {"text_config": QWEN2, "vision_config": vision(image_size=[4, 4], patch_size=[2, 2])}),
    ("mistral3", "Mistral3ForConditionalGeneration", T.Mistral3Config,
     {"text_config": text(model_type="mistral", head_dim=4),
      "vision_config": vision(model_type="pixtral")}),
    ("llava_next_video", "LlavaNextVideoForConditionalGeneration", T.LlavaNextVideoConfig,
     {"text_config": LLAMA, "vision_config": CLIP}),
    ("vipllava", "VipLlavaForConditionalGeneration", T.VipLlavaConfig,
     {"text_config": LLAMA, "vision_config": CLIP, "vision_feature_layers": [-1]}),
    ("gpt_neox", "GPTNeoXForCausalLM", T.GPTNeoXConfig, text()),
    ("esm", "EsmForMaskedLM", T.EsmConfig, text(mask_token_id=3)),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", T.GraniteMoeHybridConfig,
     text(num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=7, layer_types=["mamba", "attention"],
          mamba_n_heads=2, mamba_d_head=8, mamba_d_state=4, mamba_n_groups=1)),
    ("qwen2_audio", "Qwen2AudioForConditionalGeneration", T.Qwen2AudioConfig,
     {"text_config": QWEN2, "audio_config": {"d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2,
                                             "encoder_ffn_dim": 12, "num_mel_bins": 5, "max_source_positions": 6}}),
    ("aya_vision", "AyaVisionForConditionalGeneration", T.AyaVisionConfig,
     {"text_config": text(model_type="cohere2", head_dim=4), "vision_config": SIGLIP}),
    ("glm4v_moe", "Glm4vMoeForConditionalGeneration", T.Glm4vMoeConfig,
     {"text_config": text(head_dim=4, **ROPE, **ROUTED),
      "vision_config": {"depth": 1, "hidden_size": 8, "num_heads": 2, "image_size": 8,
                        "patch_size": 2, "out_hidden_size": 8, "intermediate_size": 12}}),
]


def build(family):
    """The family's model, with random weights."""
    _, cls, config, arguments = family
    return getattr(T, cls)(config(**arguments))

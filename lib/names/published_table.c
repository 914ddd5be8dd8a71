/* Written by tests/names/generate.py from transformers 5.23.0: do not edit. */
/* clang-format off */
#include "names/published_table.h"

#include <stddef.h>

const char uns_published_source[] = "transformers 5.23.0";

static const struct uns_name_rule none[] = { { 0 } };

static const struct uns_name_rule tails_0[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule heads_1[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.vision_model.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_2[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_3[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ "mlp.gate.moe_statics.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_4[] = {
	{ "LayerNorm.bias", "LayerNorm.beta", 0, 1, false },
	{ "LayerNorm.weight", "LayerNorm.gamma", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_5[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ "mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_6[] = {
	{ "lm_head.", "embed_out.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_7[] = {
	{ "block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight", 0, 1, false },
	{ "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight", 0, 1, false },
	{ "block_sparse_moe.router.weight", "block_sparse_moe.router.layer.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_8[] = {
	{ "feed_forward.experts.down_proj", "feed_forward.experts.#.down_proj.weight", 0, 1, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.gate_proj.weight", 0, 2, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.up_proj.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule tails_9[] = {
	{ "feed_forward.experts.down_proj", "feed_forward.experts.#.w2.weight", 0, 1, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.w1.weight", 0, 2, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.w3.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule heads_10[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.image_newline", "image_newline", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.vision_model.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_11[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.image_newline", "image_newline", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_12[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ "self_attn.sinks", "self_attn.attention_sink_bias", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_13[] = {
	{ "mlp.experts.down_proj", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ "mlp.gate.weight", "block_sparse_moe.gate.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_14[] = {
	{ "mlp.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias", 0, 1, false },
	{ "mlp.experts.down_proj", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ "mlp.gate.weight", "block_sparse_moe.gate.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_15[] = {
	{ "model.", "backbone.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_16[] = {
	{ "mixer.experts.down_proj", "mixer.experts.#.down_proj.weight", 0, 1, true },
	{ "mixer.experts.up_proj", "mixer.experts.#.up_proj.weight", 0, 1, true },
	{ 0 },
};

static const struct uns_name_rule tails_17[] = {
	{ "mlp.experts.down_proj", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ "mlp.router.weight", "block_sparse_moe.gate.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_18[] = {
	{ "model.language_model.", "model.", 0, 1, false },
	{ "model.visual.", "visual.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_19[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.audio_tower.", "audio_tower.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

/* Sorted by model_type. */
const struct uns_name_family uns_published_table[] = {
	{ "afmoe", none, none, tails_0, { NULL } },
	{ "aya_vision", heads_1, heads_2, none, { NULL } },
	{ "deepseek_v2", none, none, tails_0, { NULL } },
	{ "deepseek_v3", none, none, tails_0, { NULL } },
	{ "dots1", none, none, tails_0, { NULL } },
	{ "ernie4_5_moe", none, none, tails_3, { NULL } },
	{ "esm", none, none, tails_4, { NULL } },
	{ "exaone_moe", none, none, tails_5, { NULL } },
	{ "flex_olmo", none, none, tails_0, { NULL } },
	{ "gemma3", heads_1, heads_2, none, { NULL } },
	{ "glm4_moe", none, none, tails_0, { NULL } },
	{ "glm4_moe_lite", none, none, tails_0, { NULL } },
	{ "glm4v_moe", none, none, tails_0, { NULL } },
	{ "glm_moe_dsa", none, none, tails_0, { NULL } },
	{ "gpt_neox", heads_6, heads_6, none, { NULL } },
	{ "granitemoe", none, none, tails_7, { NULL } },
	{ "granitemoehybrid", none, none, tails_7, { NULL } },
	{ "granitemoeshared", none, none, tails_7, { NULL } },
	{ "hunyuan_v1_moe", none, none, tails_0, { NULL } },
	{ "internvl", heads_2, heads_2, none, { NULL } },
	{ "jamba", none, none, tails_8, { NULL } },
	{ "lfm2_moe", none, none, tails_9, { NULL } },
	{ "llava", heads_1, heads_2, none, { NULL } },
	{ "llava_next", heads_10, heads_11, none, { NULL } },
	{ "llava_next_video", heads_10, heads_11, none, { NULL } },
	{ "llava_onevision", heads_10, heads_11, none, { NULL } },
	{ "longcat_flash", none, none, tails_0, { NULL } },
	{ "mimo_v2_flash", none, none, tails_12, { NULL } },
	{ "minimax", none, none, tails_13, { NULL } },
	{ "minimax_m2", none, none, tails_14, { NULL } },
	{ "mistral3", heads_2, heads_2, none, { NULL } },
	{ "mixtral", none, none, tails_13, { NULL } },
	{ "nemotron_h", heads_15, heads_15, tails_16, { NULL } },
	{ "olmoe", none, none, tails_0, { NULL } },
	{ "paligemma", heads_1, heads_2, none, { NULL } },
	{ "phimoe", none, none, tails_17, { NULL } },
	{ "qwen2_5_vl", heads_18, heads_18, none, { NULL } },
	{ "qwen2_audio", heads_19, heads_19, none, { NULL } },
	{ "qwen2_moe", none, none, tails_0, { NULL } },
	{ "qwen2_vl", heads_18, heads_18, none, { NULL } },
	{ "qwen3_5", none, none, none, { NULL } },
	{ "qwen3_5_moe", none, none, tails_0, { NULL } },
	{ "qwen3_moe", none, none, tails_0, { NULL } },
	{ "qwen3_next", none, none, tails_0, { NULL } },
	{ "qwen3_vl_moe", none, none, none, { "mlp.experts.down_proj", "mlp.experts.gate_up_proj" } },
	{ "solar_open", none, none, tails_0, { NULL } },
	{ "vipllava", heads_1, heads_2, none, { NULL } },
};
const size_t uns_n_published_table = sizeof(uns_published_table) / sizeof(uns_published_table[0]);

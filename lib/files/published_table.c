/* Written by tests/names/generate.py from transformers 5.23.0: do not edit. */
/* clang-format off */
#include "files/published_table.h"

#include <stddef.h>

const char uns_published_source[] = "transformers 5.23.0";

static const struct uns_name_rule none[] = { { 0 } };

static const struct uns_name_rule tails_0[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule tails_1[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ "mlp.gate.moe_statics.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_2[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.vision_model.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_3[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_4[] = {
	{ "block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight", 0, 1, false },
	{ "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight", 0, 1, false },
	{ "block_sparse_moe.router.weight", "block_sparse_moe.router.layer.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_5[] = {
	{ "feed_forward.experts.down_proj", "feed_forward.experts.#.down_proj.weight", 0, 1, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.gate_proj.weight", 0, 2, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.up_proj.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule tails_6[] = {
	{ "feed_forward.experts.down_proj", "feed_forward.experts.#.w2.weight", 0, 1, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.w1.weight", 0, 2, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.w3.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule heads_7[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.image_newline", "image_newline", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.vision_model.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_8[] = {
	{ "model.multi_modal_projector.", "multi_modal_projector.", 0, 1, false },
	{ "model.language_model.", "language_model.model.", 0, 1, false },
	{ "model.image_newline", "image_newline", 0, 1, false },
	{ "model.vision_tower.", "vision_tower.", 0, 1, false },
	{ "lm_head.", "language_model.lm_head.", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_9[] = {
	{ "mlp.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias", 0, 1, false },
	{ "mlp.experts.down_proj", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ "mlp.gate.weight", "block_sparse_moe.gate.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_10[] = {
	{ "mlp.experts.down_proj", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ "mlp.gate.weight", "block_sparse_moe.gate.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule tails_11[] = {
	{ "mlp.experts.down_proj", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ "mlp.router.weight", "block_sparse_moe.gate.weight", 0, 1, false },
	{ 0 },
};

static const struct uns_name_rule heads_12[] = {
	{ "model.language_model.", "model.", 0, 1, false },
	{ "model.visual.", "visual.", 0, 1, false },
	{ 0 },
};

/* Sorted by model_type. */
const struct uns_name_family uns_published_table[] = {
	{ "deepseek_v2", none, none, tails_0 },
	{ "deepseek_v3", none, none, tails_0 },
	{ "dots1", none, none, tails_0 },
	{ "ernie4_5_moe", none, none, tails_1 },
	{ "gemma3", heads_2, heads_3, none },
	{ "glm4_moe", none, none, tails_0 },
	{ "granitemoe", none, none, tails_4 },
	{ "internvl", heads_3, heads_3, none },
	{ "jamba", none, none, tails_5 },
	{ "lfm2_moe", none, none, tails_6 },
	{ "llava", heads_2, heads_3, none },
	{ "llava_next", heads_7, heads_8, none },
	{ "llava_onevision", heads_7, heads_8, none },
	{ "minimax_m2", none, none, tails_9 },
	{ "mistral3", heads_3, heads_3, none },
	{ "mixtral", none, none, tails_10 },
	{ "olmoe", none, none, tails_0 },
	{ "paligemma", heads_2, heads_3, none },
	{ "phimoe", none, none, tails_11 },
	{ "qwen2_5_vl", heads_12, heads_12, none },
	{ "qwen2_moe", none, none, tails_0 },
	{ "qwen2_vl", heads_12, heads_12, none },
	{ "qwen3_5", none, none, none },
	{ "qwen3_5_moe", none, none, tails_0 },
	{ "qwen3_moe", none, none, tails_0 },
	{ "qwen3_next", none, none, tails_0 },
	{ "qwen3_vl_moe", none, none, none },
};
const size_t uns_n_published_table = sizeof(uns_published_table) / sizeof(uns_published_table[0]);

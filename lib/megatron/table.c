/* The families. Sources: megatron-core 0.16.1 (what sharded_state_dict calls things: models/gpt,
 * transformer/attention.py, mlp.py, moe/experts.py, multi_latent_attention.py), mbridge 0.15.1 (models/),
 * Megatron-Bridge 0.3.1 (models/); glm4: miles (backends/megatron_utils/megatron_to_hf); nemotron_h: also modelopt
 * 0.47.0 (export/plugins/mcore_nemotron.py). */
/* clang-format off */
#include "megatron/table.h"

/* Most rows end before `order`: the rest is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define ONE UNS_MG_ONE
#define VOCAB UNS_MG_VOCAB
#define HIDDEN UNS_MG_HIDDEN
#define QUERY UNS_MG_QUERY
#define KEY UNS_MG_KEY
#define GROUPS UNS_MG_GROUPS
#define FFN UNS_MG_FFN
#define GATE_AND_UP UNS_MG_GATE_AND_UP
#define EXPERTS UNS_MG_EXPERTS
#define EXPERT_FFN UNS_MG_EXPERT_FFN
#define Q_RANK UNS_MG_Q_RANK
#define KV_RANK UNS_MG_KV_RANK
#define V_HIDDEN UNS_MG_VISION_HIDDEN
#define V_FFN UNS_MG_VISION_FFN
#define V_OUT UNS_MG_VISION_OUT
#define V_MERGED UNS_MG_MERGED
#define VECTOR UNS_MG_NONE
#define ALWAYS UNS_MG_ALWAYS
#define DENSE UNS_MG_DENSE
#define SPARSE UNS_MG_SPARSE
#define ATTENTION_BIAS UNS_MG_ATTENTION_BIAS
#define MLP_BIAS UNS_MG_MLP_BIAS

#define FROM UNS_MEGATRON_LAYER
#define TO "model.layers.*."

const struct uns_megatron_rule uns_megatron_first[] = {
	{ "embedding.word_embeddings.weight", "model.embed_tokens.weight", VOCAB, HIDDEN, ALWAYS, ONE },
	{ 0 },
};

const struct uns_megatron_rule uns_megatron_last[] = {
	{ "decoder.final_layernorm.weight", "model.norm.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ "output_layer.weight", "lm_head.weight", VOCAB, HIDDEN, UNS_MG_UNTIED, ONE },
	{ 0 },
};

/* -- attention: of each group the queries, then the key, then the value -- */

#define QKV_PART(part, rows) \
	{ FROM "self_attention.linear_qkv.weight", TO "self_attn." part ".weight", rows, HIDDEN, ALWAYS, GROUPS }
#define QKV_BIAS(part, rows, when) \
	{ FROM "self_attention.linear_qkv.bias", TO "self_attn." part ".bias", rows, VECTOR, when, GROUPS }
#define QKV \
	QKV_PART("q_proj", QUERY), QKV_PART("k_proj", KEY), QKV_PART("v_proj", KEY)
#define QKV_BIASED(when) \
	QKV_PART("q_proj", QUERY), QKV_BIAS("q_proj", QUERY, when), \
	QKV_PART("k_proj", KEY), QKV_BIAS("k_proj", KEY, when), \
	QKV_PART("v_proj", KEY), QKV_BIAS("v_proj", KEY, when)
#define O_PROJ \
	{ FROM "self_attention.linear_proj.weight", TO "self_attn.o_proj.weight", HIDDEN, QUERY, ALWAYS, ONE }
#define O_BIAS(when) \
	{ FROM "self_attention.linear_proj.bias", TO "self_attn.o_proj.bias", HIDDEN, VECTOR, when, ONE }
#define QK_NORM(when) \
	{ FROM "self_attention.q_layernorm.weight", TO "self_attn.q_norm.weight", UNS_MG_HEAD, VECTOR, when, ONE }, \
	{ FROM "self_attention.k_layernorm.weight", TO "self_attn.k_norm.weight", UNS_MG_HEAD, VECTOR, when, ONE }

static const struct uns_megatron_rule attention[] = {
	QKV, O_PROJ,
	{ 0 },
};

static const struct uns_megatron_rule attention_llama[] = {
	QKV_BIASED(ATTENTION_BIAS), O_PROJ, O_BIAS(ATTENTION_BIAS),
	{ 0 },
};

/* Queries, keys and values are one published tensor: all queries, below them all keys, then all values (NeMo 2.5.3,
 * llm/gpt/model/phi3mini.py). */
#define QKV_APART(rows) \
	{ FROM "self_attention.linear_qkv.weight", TO "self_attn.qkv_proj.weight", rows, HIDDEN, ALWAYS, GROUPS, UNS_MG_APART }

static const struct uns_megatron_rule attention_phi3[] = {
	O_PROJ, QKV_APART(QUERY), QKV_APART(KEY), QKV_APART(KEY),
	{ 0 },
};

static const struct uns_megatron_rule attention_qwen2[] = {
	QKV_BIASED(ALWAYS), O_PROJ,
	{ 0 },
};

static const struct uns_megatron_rule attention_qwen3[] = {
	QKV_BIASED(ATTENTION_BIAS), O_PROJ, O_BIAS(ATTENTION_BIAS), QK_NORM(ALWAYS),
	{ 0 },
};

static const struct uns_megatron_rule attention_gpt_oss[] = {
	{ FROM "self_attention.core_attention.softmax_offset", TO "self_attn.sinks", UNS_MG_HEADS, VECTOR, ALWAYS, ONE },
	QKV_BIASED(ALWAYS), O_PROJ, O_BIAS(ALWAYS),
	{ 0 },
};

static const struct uns_megatron_rule attention_gemma3[] = {
	QKV, O_PROJ, QK_NORM(ALWAYS),
	{ 0 },
};

static const struct uns_megatron_rule attention_glm4[] = {
	QKV_BIASED(ATTENTION_BIAS), O_PROJ,
	{ 0 },
};

static const struct uns_megatron_rule attention_glm4_moe[] = {
	QKV_BIASED(ATTENTION_BIAS), O_PROJ, QK_NORM(UNS_MG_QK_NORM),
	{ 0 },
};

/* Gated attention: of each group the queries, then as many gates. Each head's queries and gates are published together. */
#define GATED_QUERIES(kind, columns, when) \
	{ FROM "self_attention.linear_qkv." kind, TO "self_attn.q_proj." kind, QUERY, columns, when, GROUPS, UNS_MG_BY_HEAD }
#define GATED_QKV(kind, columns, when) \
	GATED_QUERIES(kind, columns, when), GATED_QUERIES(kind, columns, when), \
	{ FROM "self_attention.linear_qkv." kind, TO "self_attn.k_proj." kind, KEY, columns, when, GROUPS }, \
	{ FROM "self_attention.linear_qkv." kind, TO "self_attn.v_proj." kind, KEY, columns, when, GROUPS }
#define GATED_ATTENTION \
	GATED_QKV("weight", HIDDEN, UNS_MG_FULL), GATED_QKV("bias", VECTOR, UNS_MG_FULL_BIAS), \
	{ FROM "self_attention.linear_proj.weight", TO "self_attn.o_proj.weight", HIDDEN, QUERY, UNS_MG_FULL, ONE }, \
	QK_NORM(UNS_MG_FULL)

/* Gated delta nets. megatron-core saves queries, keys, values, gates (z), and what the decay (alpha) and the rate of
 * writing (beta) are made of as tensors of their own (ssm/gated_delta_net.py). */
#define DELTA(from, to, rows, columns) \
	{ FROM "self_attention." from, TO "linear_attn." to, rows, columns, UNS_MG_LINEAR, ONE }
#define DELTA_PART(from, to, rows, columns, repeats) \
	{ FROM "self_attention." from, TO "linear_attn." to, rows, columns, UNS_MG_LINEAR, repeats, UNS_MG_JOINED }
#define DELTA_QKV(from, to, columns, repeats) \
	DELTA_PART(from ".query", to, UNS_MG_LINEAR_KEY, columns, repeats), \
	DELTA_PART(from ".key", to, UNS_MG_LINEAR_KEY, columns, repeats), \
	DELTA_PART(from ".value", to, UNS_MG_LINEAR_VALUE, columns, repeats)
#define DELTA_FIRST \
	DELTA("dt_bias", "dt_bias", UNS_MG_LINEAR_VALUE_HEADS, VECTOR), \
	DELTA("A_log", "A_log", UNS_MG_LINEAR_VALUE_HEADS, VECTOR), \
	DELTA_QKV("conv1d.weight", "conv1d.weight", UNS_MG_CONVOLUTION, ONE)
#define DELTA_NORM \
	{ FROM "self_attention.out_norm.weight", TO "linear_attn.norm.weight", UNS_MG_LINEAR_VALUE_HEAD, VECTOR, \
	  UNS_MG_LINEAR, ONE, UNS_MG_MINUS_ONE }
#define DELTA_OUT \
	DELTA("out_proj.weight", "out_proj.weight", HIDDEN, UNS_MG_LINEAR_VALUE)
#define DELTA_IN_PART(part, to, rows) \
	DELTA_PART("in_proj.weight." part, to ".weight", rows, HIDDEN, UNS_MG_LINEAR_KEY_HEADS)

/* Of each head of keys what belongs to it. */
static const struct uns_megatron_rule attention_qwen3_next[] = {
	DELTA_FIRST,
	DELTA_QKV("in_proj.weight", "in_proj_qkvz.weight", HIDDEN, UNS_MG_LINEAR_KEY_HEADS),
	DELTA_IN_PART("z", "in_proj_qkvz", UNS_MG_LINEAR_VALUE),
	DELTA_IN_PART("beta", "in_proj_ba", UNS_MG_LINEAR_VALUE_HEADS),
	DELTA_IN_PART("alpha", "in_proj_ba", UNS_MG_LINEAR_VALUE_HEADS),
	DELTA_NORM, DELTA_OUT,
	GATED_ATTENTION,
	{ 0 },
};

static const struct uns_megatron_rule attention_qwen3_5[] = {
	DELTA_FIRST, DELTA_NORM, DELTA_OUT,
	DELTA_QKV("in_proj.weight", "in_proj_qkv.weight", HIDDEN, ONE),
	DELTA("in_proj.weight.z", "in_proj_z.weight", UNS_MG_LINEAR_VALUE, HIDDEN),
	DELTA("in_proj.weight.beta", "in_proj_b.weight", UNS_MG_LINEAR_VALUE_HEADS, HIDDEN),
	DELTA("in_proj.weight.alpha", "in_proj_a.weight", UNS_MG_LINEAR_VALUE_HEADS, HIDDEN),
	GATED_ATTENTION,
	{ 0 },
};

/* Multi-latent attention. The norm of a projection belongs to the projection if both are one module. */
static const struct uns_megatron_rule attention_mla[] = {
	{ FROM "self_attention.linear_q_proj.weight", TO "self_attn.q_proj.weight", UNS_MG_QUERIES, HIDDEN, UNS_MG_FULL_RANK_Q, ONE },
	{ FROM "self_attention.linear_q_down_proj.weight", TO "self_attn.q_a_proj.weight", Q_RANK, HIDDEN, UNS_MG_LOW_RANK_Q, ONE },
	{ FROM "self_attention.linear_q_up_proj.layer_norm_weight", TO "self_attn.q_a_layernorm.weight", Q_RANK, VECTOR, UNS_MG_LOW_RANK_Q, ONE },
	{ FROM "self_attention.q_layernorm.weight", TO "self_attn.q_a_layernorm.weight", Q_RANK, VECTOR, UNS_MG_LOW_RANK_Q, ONE },
	{ FROM "self_attention.linear_q_up_proj.weight", TO "self_attn.q_b_proj.weight", UNS_MG_QUERIES, Q_RANK, UNS_MG_LOW_RANK_Q, ONE },
	{ FROM "self_attention.linear_kv_down_proj.weight", TO "self_attn.kv_a_proj_with_mqa.weight", UNS_MG_KV_DOWN, HIDDEN, ALWAYS, ONE },
	{ FROM "self_attention.linear_kv_up_proj.layer_norm_weight", TO "self_attn.kv_a_layernorm.weight", KV_RANK, VECTOR, ALWAYS, ONE },
	{ FROM "self_attention.kv_layernorm.weight", TO "self_attn.kv_a_layernorm.weight", KV_RANK, VECTOR, ALWAYS, ONE },
	{ FROM "self_attention.linear_kv_up_proj.weight", TO "self_attn.kv_b_proj.weight", UNS_MG_KV_UP, KV_RANK, ALWAYS, ONE },
	{ FROM "self_attention.linear_proj.weight", TO "self_attn.o_proj.weight", HIDDEN, UNS_MG_VALUES, ALWAYS, ONE },
	{ 0 },
};

/* -- MLP: gate above up, or two tensors, if it was saved with singleton_local_shards -- */

#define GATE_OR_UP(half, when, from, to, rows, columns) \
	{ FROM from, TO to, rows, columns, when, ONE }, \
	{ FROM from half, TO to, rows, columns, when, ONE }
#define GATED(when, from, to, rows) \
	GATE_OR_UP("_w", when, from "linear_fc1.weight", to "gate_proj.weight", rows, HIDDEN), \
	GATE_OR_UP("_v", when, from "linear_fc1.weight", to "up_proj.weight", rows, HIDDEN), \
	{ FROM from "linear_fc2.weight", TO to "down_proj.weight", HIDDEN, rows, when, ONE }
/* Of each expert. */
#define EXPERTS_AS(gate, up, down, to, rows) \
	GATE_OR_UP("_w", SPARSE, "mlp.experts.experts.#.linear_fc1.weight", to ".experts.#." gate ".weight", rows, HIDDEN), \
	GATE_OR_UP("_v", SPARSE, "mlp.experts.experts.#.linear_fc1.weight", to ".experts.#." up ".weight", rows, HIDDEN), \
	{ FROM "mlp.experts.experts.#.linear_fc2.weight", TO to ".experts.#." down ".weight", HIDDEN, rows, SPARSE, ONE }
#define ROUTER(to) \
	{ FROM "mlp.router.weight", TO to ".gate.weight", EXPERTS, HIDDEN, SPARSE, ONE }
#define ROUTER_BIAS \
	{ FROM "mlp.router.expert_bias", TO "mlp.gate.e_score_correction_bias", EXPERTS, VECTOR, SPARSE, ONE }

static const struct uns_megatron_rule mlp[] = {
	GATED(ALWAYS, "mlp.", "mlp.", FFN),
	{ 0 },
};

static const struct uns_megatron_rule mlp_llama[] = {
	GATE_OR_UP("_w", ALWAYS, "mlp.linear_fc1.weight", "mlp.gate_proj.weight", FFN, HIDDEN),
	GATE_OR_UP("_w", MLP_BIAS, "mlp.linear_fc1.bias", "mlp.gate_proj.bias", FFN, VECTOR),
	GATE_OR_UP("_v", ALWAYS, "mlp.linear_fc1.weight", "mlp.up_proj.weight", FFN, HIDDEN),
	GATE_OR_UP("_v", MLP_BIAS, "mlp.linear_fc1.bias", "mlp.up_proj.bias", FFN, VECTOR),
	{ FROM "mlp.linear_fc2.weight", TO "mlp.down_proj.weight", HIDDEN, FFN, ALWAYS, ONE },
	{ FROM "mlp.linear_fc2.bias", TO "mlp.down_proj.bias", HIDDEN, VECTOR, MLP_BIAS, ONE },
	{ 0 },
};

static const struct uns_megatron_rule mlp_glm4[] = {
	{ FROM "mlp.linear_fc1.weight", TO "mlp.gate_up_proj.weight", GATE_AND_UP, HIDDEN, ALWAYS, ONE },
	{ FROM "mlp.linear_fc1.weight_w", TO "mlp.gate_up_proj.weight", GATE_AND_UP, HIDDEN, ALWAYS, ONE, UNS_MG_AS_STORED,
	  FROM "mlp.linear_fc1.weight_v" },
	{ FROM "mlp.linear_fc2.weight", TO "mlp.down_proj.weight", HIDDEN, FFN, ALWAYS, ONE },
	{ 0 },
};

static const struct uns_megatron_rule moe_mixtral[] = {
	ROUTER("block_sparse_moe"),
	EXPERTS_AS("w1", "w3", "w2", "block_sparse_moe", FFN),
	{ 0 },
};

static const struct uns_megatron_rule moe_qwen2[] = {
	GATED(DENSE, "mlp.", "mlp.", FFN),
	ROUTER("mlp"),
	EXPERTS_AS("gate_proj", "up_proj", "down_proj", "mlp", EXPERT_FFN),
	GATED(SPARSE, "mlp.shared_experts.", "mlp.shared_expert.", UNS_MG_SHARED_FFN),
	{ FROM "mlp.shared_experts.gate_weight", TO "mlp.shared_expert_gate.weight", ONE, HIDDEN, SPARSE, ONE },
	{ 0 },
};

static const struct uns_megatron_rule moe_qwen3[] = {
	GATED(DENSE, "mlp.", "mlp.", FFN),
	ROUTER("mlp"),
	EXPERTS_AS("gate_proj", "up_proj", "down_proj", "mlp", EXPERT_FFN),
	{ 0 },
};

/* The experts of a layer are one tensor. */
#define STACKED_AS(part, to, rows, columns, order) \
	{ FROM "mlp.experts.experts.#." part, TO to, rows, columns, SPARSE, ONE, order, NULL }
#define STACKED_GATED_AS(part, to, rows, columns, order) \
	STACKED_AS(part, to, rows, columns, order), \
	{ FROM "mlp.experts.experts.#." part "_w", TO to, rows, columns, SPARSE, ONE, order, \
	  FROM "mlp.experts.experts.#." part "_v" }
#define STACKED(part, to, rows, columns, order) \
	STACKED_AS(part, "mlp.experts." to, rows, columns, order)
#define STACKED_GATED(part, to, rows, columns, order) \
	STACKED_GATED_AS(part, "mlp.experts." to, rows, columns, order)

static const struct uns_megatron_rule moe_qwen3_vl[] = {
	GATED(DENSE, "mlp.", "mlp.", FFN),
	STACKED_GATED("linear_fc1.weight", "gate_up_proj", UNS_MG_EXPERT_GATE_AND_UP, HIDDEN, UNS_MG_AS_STORED),
	STACKED("linear_fc2.weight", "down_proj", HIDDEN, EXPERT_FFN, UNS_MG_AS_STORED),
	ROUTER("mlp"),
	{ 0 },
};

static const struct uns_megatron_rule moe_gpt_oss[] = {
	{ FROM "mlp.router.weight", TO "mlp.router.weight", EXPERTS, HIDDEN, SPARSE, ONE },
	{ FROM "mlp.router.bias", TO "mlp.router.bias", EXPERTS, VECTOR, SPARSE, ONE },
	STACKED_GATED("linear_fc1.weight", "gate_up_proj", HIDDEN, GATE_AND_UP, UNS_MG_ALTERNATING),
	STACKED_GATED("linear_fc1.bias", "gate_up_proj_bias", GATE_AND_UP, VECTOR, UNS_MG_ALTERNATING),
	STACKED("linear_fc2.weight", "down_proj", FFN, HIDDEN, UNS_MG_TRANSPOSED),
	STACKED("linear_fc2.bias", "down_proj_bias", HIDDEN, VECTOR, UNS_MG_AS_STORED),
	{ 0 },
};

/* modelopt 0.47.0 (export/plugins/mcore_llama.py), mcore_bridge 1.6.5 (model/mm_gpts/llama4.py). */
static const struct uns_megatron_rule moe_llama4[] = {
	GATED(DENSE, "mlp.", "feed_forward.", UNS_MG_DENSE_FFN),
	STACKED_GATED_AS("linear_fc1.weight", "feed_forward.experts.gate_up_proj", HIDDEN, GATE_AND_UP, UNS_MG_TRANSPOSED),
	STACKED_AS("linear_fc2.weight", "feed_forward.experts.down_proj", FFN, HIDDEN, UNS_MG_TRANSPOSED),
	{ FROM "mlp.router.weight", TO "feed_forward.router.weight", EXPERTS, HIDDEN, SPARSE, ONE },
	GATED(SPARSE, "mlp.shared_experts.", "feed_forward.shared_expert.", FFN),
	{ 0 },
};

static const struct uns_megatron_rule moe_deepseek_v2[] = {
	GATED(DENSE, "mlp.", "mlp.", FFN),
	ROUTER("mlp"),
	EXPERTS_AS("gate_proj", "up_proj", "down_proj", "mlp", EXPERT_FFN),
	GATED(SPARSE, "mlp.shared_experts.", "mlp.shared_experts.", UNS_MG_SHARED_FFNS),
	{ 0 },
};

static const struct uns_megatron_rule moe_deepseek_v3[] = {
	GATED(DENSE, "mlp.", "mlp.", FFN),
	ROUTER("mlp"),
	ROUTER_BIAS,
	EXPERTS_AS("gate_proj", "up_proj", "down_proj", "mlp", EXPERT_FFN),
	GATED(SPARSE, "mlp.shared_experts.", "mlp.shared_experts.", UNS_MG_SHARED_FFNS),
	{ 0 },
};

/* -- hybrid models: a layer is one thing, with a norm in front. megatron-core keeps the parts of a Mamba layer's
 * projection (gates, what goes through the convolution, steps of time), which one tensor is published of, and of its
 * convolution as tensors of their own (ssm/mamba_mixer.py) -- */

#define HYBRID_TO "backbone.layers.*."
#define HYBRID(from, to, rows, columns, when) \
	{ FROM from, HYBRID_TO to, rows, columns, when, ONE }
#define HYBRID_NORM(from) \
	HYBRID(from, "norm.weight", HIDDEN, VECTOR, ALWAYS)
#define MAMBA(from, to, rows, columns) \
	HYBRID("mixer." from, "mixer." to, rows, columns, UNS_MG_MAMBA)
#define MAMBA_PART(from, to, rows, columns, when) \
	{ FROM "mixer." from, HYBRID_TO "mixer." to, rows, columns, when, ONE, UNS_MG_JOINED }
#define MAMBA_IN(part, rows) \
	MAMBA_PART("in_proj.weight." part, "in_proj.weight", rows, HIDDEN, UNS_MG_MAMBA)
#define MAMBA_CONVOLUTION(kind, columns, when) \
	MAMBA_PART("conv1d." kind ".x", "conv1d." kind, UNS_MG_MAMBA_INNER, columns, when), \
	MAMBA_PART("conv1d." kind ".B", "conv1d." kind, UNS_MG_MAMBA_STATES, columns, when), \
	MAMBA_PART("conv1d." kind ".C", "conv1d." kind, UNS_MG_MAMBA_STATES, columns, when)
#define HYBRID_QKV(part, rows) \
	{ FROM "self_attention.linear_qkv.weight", HYBRID_TO "mixer." part ".weight", rows, HIDDEN, UNS_MG_ATTENTION_ALONE, GROUPS }
#define UP_DOWN(from, to, rows, inside, when) \
	HYBRID(from "linear_fc1.weight", to "up_proj.weight", rows, inside, when), \
	HYBRID(from "linear_fc2.weight", to "down_proj.weight", inside, rows, when)

static const struct uns_megatron_rule hybrid_first[] = {
	{ "embedding.word_embeddings.weight", "backbone.embeddings.weight", VOCAB, HIDDEN, ALWAYS, ONE },
	{ 0 },
};

static const struct uns_megatron_rule hybrid_last[] = {
	{ "decoder.final_norm.weight", "backbone.norm_f.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ "decoder.final_layernorm.weight", "backbone.norm_f.weight", HIDDEN, VECTOR, ALWAYS, ONE }, /* newer versions */
	{ "output_layer.weight", "lm_head.weight", VOCAB, HIDDEN, UNS_MG_UNTIED, ONE },
	{ 0 },
};

static const struct uns_megatron_rule hybrid_norms[] = {
	HYBRID_NORM("mixer.in_proj.layer_norm_weight"), HYBRID_NORM("norm.weight"),
	HYBRID_NORM("self_attention.linear_qkv.layer_norm_weight"), HYBRID_NORM("input_layernorm.weight"),
	HYBRID_NORM("mlp.linear_fc1.layer_norm_weight"), HYBRID_NORM("pre_mlp_layernorm.weight"),
	{ 0 },
};

static const struct uns_megatron_rule hybrid_mixers[] = {
	MAMBA("dt_bias", "dt_bias", UNS_MG_MAMBA_HEADS, VECTOR),
	MAMBA("A_log", "A_log", UNS_MG_MAMBA_HEADS, VECTOR),
	MAMBA("D", "D", UNS_MG_MAMBA_HEADS, VECTOR),
	MAMBA_CONVOLUTION("weight", UNS_MG_MAMBA_CONVOLUTION, UNS_MG_MAMBA),
	MAMBA_CONVOLUTION("bias", VECTOR, UNS_MG_MAMBA_BIAS),
	MAMBA_IN("z", UNS_MG_MAMBA_INNER),
	MAMBA_IN("x", UNS_MG_MAMBA_INNER),
	MAMBA_IN("B", UNS_MG_MAMBA_STATES),
	MAMBA_IN("C", UNS_MG_MAMBA_STATES),
	MAMBA_IN("dt", UNS_MG_MAMBA_HEADS),
	MAMBA("norm.weight", "norm.weight", UNS_MG_MAMBA_INNER, VECTOR),
	MAMBA("out_proj.weight", "out_proj.weight", HIDDEN, UNS_MG_MAMBA_INNER),
	HYBRID_QKV("q_proj", QUERY), HYBRID_QKV("k_proj", KEY), HYBRID_QKV("v_proj", KEY),
	HYBRID("self_attention.linear_proj.weight", "mixer.o_proj.weight", HIDDEN, QUERY, UNS_MG_ATTENTION_ALONE),
	UP_DOWN("mlp.", "mixer.", FFN, HIDDEN, UNS_MG_MLP_ALONE),
	UP_DOWN("mlp.experts.experts.#.", "mixer.experts.#.", EXPERT_FFN, UNS_MG_EXPERT_IN, SPARSE),
	HYBRID("mlp.router.weight", "mixer.gate.weight", EXPERTS, HIDDEN, SPARSE),
	HYBRID("mlp.router.expert_bias", "mixer.gate.e_score_correction_bias", EXPERTS, VECTOR, SPARSE),
	UP_DOWN("mlp.shared_experts.", "mixer.shared_experts.", UNS_MG_SHARED_FFN, HIDDEN, SPARSE),
	HYBRID("mlp.fc1_latent_proj.weight", "mixer.fc1_latent_proj.weight", UNS_MG_EXPERT_LATENT, HIDDEN, UNS_MG_LATENT_EXPERTS),
	HYBRID("mlp.fc2_latent_proj.weight", "mixer.fc2_latent_proj.weight", HIDDEN, UNS_MG_EXPERT_LATENT, UNS_MG_LATENT_EXPERTS),
	{ 0 },
};

/* -- norms: in Transformer Engine a norm belongs to the projection that follows it -- */

#define NORM(from, to) \
	{ FROM from, TO to ".weight", HIDDEN, VECTOR, ALWAYS, ONE }
#define NORM_OF_ATTENTION(to) \
	NORM("self_attention.linear_qkv.layer_norm_weight", to), NORM("input_layernorm.weight", to)
#define NORM_OF_MLP(to) \
	NORM("mlp.linear_fc1.layer_norm_weight", to), NORM("pre_mlp_layernorm.weight", to)

static const struct uns_megatron_rule norms[] = {
	NORM_OF_ATTENTION("input_layernorm"),
	NORM_OF_MLP("post_attention_layernorm"),
	{ 0 },
};

static const struct uns_megatron_rule norms_delta[] = {
	NORM_OF_ATTENTION("input_layernorm"),
	NORM("self_attention.in_proj.layer_norm_weight", "input_layernorm"),
	NORM_OF_MLP("post_attention_layernorm"),
	{ 0 },
};

static const struct uns_megatron_rule norms_glm4[] = {
	NORM_OF_ATTENTION("input_layernorm"),
	NORM_OF_MLP("post_attention_layernorm"),
	NORM("post_self_attn_layernorm.weight", "post_self_attn_layernorm"),
	NORM("post_mlp_layernorm.weight", "post_mlp_layernorm"),
	{ 0 },
};

/* A norm behind a projection belongs to the projection (Megatron-Bridge) or to the layer (mbridge). */
static const struct uns_megatron_rule norms_gemma2[] = {
	NORM_OF_ATTENTION("input_layernorm"),
	NORM("self_attention.linear_proj.post_layernorm.weight", "post_attention_layernorm"),
	NORM("post_attention_layernorm.weight", "post_attention_layernorm"),
	NORM_OF_MLP("pre_feedforward_layernorm"),
	NORM("mlp.linear_fc2.post_layernorm.weight", "post_feedforward_layernorm"),
	NORM("post_feedforward_layernorm.weight", "post_feedforward_layernorm"),
	{ 0 },
};

/* -- layers for multi-token prediction: embedding and head are the model's own, and are published again (mbridge;
 * mcore_bridge 1.6.5, bridge/gpt_bridge.py) -- */

static const struct uns_megatron_rule mtp_layer[] = {
	{ "embedding.word_embeddings.weight", TO "embed_tokens.weight", VOCAB, HIDDEN, ALWAYS, ONE },
	{ UNS_MEGATRON_MTP "enorm.weight", TO "enorm.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ UNS_MEGATRON_MTP "hnorm.weight", TO "hnorm.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ UNS_MEGATRON_MTP "eh_proj.weight", TO "eh_proj.weight", HIDDEN, UNS_MG_TWO_HIDDEN, ALWAYS, ONE },
	{ UNS_MEGATRON_MTP "final_layernorm.weight", TO "shared_head.norm.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ "output_layer.weight", TO "shared_head.head.weight", VOCAB, HIDDEN, UNS_MG_UNTIED, ONE },
	{ 0 },
};

static const struct uns_megatron_mtp mtp = { NULL, mtp_layer, NULL };

/* Of one layer; embedding and head are the model's own, and are not published again. megatron-core puts the embedding
 * in front of the hidden states (transformer/multi_token_prediction.py), as Qwen does. */
static const struct uns_megatron_rule mtp_once_qwen[] = {
	{ UNS_MEGATRON_MTP "eh_proj.weight", "mtp.fc.weight", HIDDEN, UNS_MG_TWO_HIDDEN, ALWAYS, ONE },
	{ UNS_MEGATRON_MTP "enorm.weight", "mtp.pre_fc_norm_embedding.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ UNS_MEGATRON_MTP "hnorm.weight", "mtp.pre_fc_norm_hidden.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ UNS_MEGATRON_MTP "final_layernorm.weight", "mtp.norm.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ 0 },
};

static const struct uns_megatron_mtp mtp_qwen = { mtp_once_qwen, NULL, "mtp." };

/* -- vision models: as transformers has them (Megatron-Bridge), or of Megatron's own modules (mbridge) -- */

#define COPIED(from, to, name, rows, columns) \
	{ from name, to name, rows, columns, ALWAYS, ONE }
#define COPIED_BOTH(from, to, name, rows, columns) \
	COPIED(from, to, name ".weight", rows, columns), COPIED(from, to, name ".bias", rows, VECTOR)
#define COPIED_PATCHES(from, to) \
	COPIED(from, to, "patch_embed.proj.weight", V_HIDDEN, UNS_MG_PATCHES)

#define OWN "vision_model.decoder.layers.*."
#define OWN_BOTH(from, to, rows, columns) \
	{ from ".weight", to ".weight", rows, columns, ALWAYS, ONE }, { from ".bias", to ".bias", rows, VECTOR, ALWAYS, ONE }
#define OWN_NORM(from, to, kind) \
	{ OWN from ".layer_norm_" kind, to "." kind, V_HIDDEN, VECTOR, ALWAYS, ONE }
/* Queries, keys and values are one published tensor, one below the other. The stored one has them of one head after the other. */
#define OWN_QKV_PART(kind, to, columns) \
	{ OWN "self_attention.linear_qkv." kind, to "." kind, V_HIDDEN, columns, ALWAYS, UNS_MG_VISION_HEADS }
#define OWN_QKV(kind, to, columns) \
	OWN_QKV_PART(kind, to, columns), OWN_QKV_PART(kind, to, columns), OWN_QKV_PART(kind, to, columns)
#define OWN_ATTENTION(to) \
	OWN_QKV("weight", to ".qkv", V_HIDDEN), OWN_QKV("bias", to ".qkv", VECTOR), \
	OWN_BOTH(OWN "self_attention.linear_proj", to ".proj", V_HIDDEN, V_HIDDEN)
#define OWN_GATED(kind, to, columns) \
	{ OWN "mlp.linear_fc1." kind, to ".gate_proj." kind, V_FFN, columns, ALWAYS, ONE }, \
	{ OWN "mlp.linear_fc1." kind, to ".up_proj." kind, V_FFN, columns, ALWAYS, ONE }

#define QWEN2_5(name, rows, columns) COPIED("visual.", "visual.", name, rows, columns)
#define QWEN2_5_BOTH(name, rows, columns) COPIED_BOTH("visual.", "visual.", name, rows, columns)

static const struct uns_megatron_rule vision_first_qwen2_5[] = {
	COPIED_PATCHES("visual.", "visual."),
	COPIED_PATCHES("vision_model.", "visual."),
	{ 0 },
};

static const struct uns_megatron_rule vision_layer_qwen2_5[] = {
	QWEN2_5("blocks.*.norm1.weight", V_HIDDEN, VECTOR),
	QWEN2_5("blocks.*.norm2.weight", V_HIDDEN, VECTOR),
	QWEN2_5_BOTH("blocks.*.attn.qkv", UNS_MG_VISION_QKV, V_HIDDEN),
	QWEN2_5_BOTH("blocks.*.attn.proj", V_HIDDEN, V_HIDDEN),
	QWEN2_5_BOTH("blocks.*.mlp.gate_proj", V_FFN, V_HIDDEN),
	QWEN2_5_BOTH("blocks.*.mlp.up_proj", V_FFN, V_HIDDEN),
	QWEN2_5_BOTH("blocks.*.mlp.down_proj", V_HIDDEN, V_FFN),
	OWN_NORM("self_attention.linear_qkv", "visual.blocks.*.norm1", "weight"),
	OWN_NORM("mlp.linear_fc1", "visual.blocks.*.norm2", "weight"),
	OWN_ATTENTION("visual.blocks.*.attn"),
	OWN_GATED("weight", "visual.blocks.*.mlp", V_HIDDEN),
	OWN_GATED("bias", "visual.blocks.*.mlp", VECTOR),
	OWN_BOTH(OWN "mlp.linear_fc2", "visual.blocks.*.mlp.down_proj", V_HIDDEN, V_FFN),
	{ 0 },
};

static const struct uns_megatron_rule vision_last_qwen2_5[] = {
	QWEN2_5("merger.ln_q.weight", V_HIDDEN, VECTOR),
	QWEN2_5_BOTH("merger.mlp.0", V_MERGED, V_MERGED),
	QWEN2_5_BOTH("merger.mlp.2", V_OUT, V_MERGED),
	{ "vision_model.decoder.final_layernorm.weight", "visual.merger.ln_q.weight", V_HIDDEN, VECTOR, ALWAYS, ONE },
	OWN_BOTH("vision_model.projection.encoder.linear_fc1", "visual.merger.mlp.0", V_MERGED, V_MERGED),
	OWN_BOTH("vision_model.projection.encoder.linear_fc2", "visual.merger.mlp.2", V_OUT, V_MERGED),
	{ 0 },
};

static const struct uns_megatron_vision qwen2_5_vl = {
	"language_model.", "model.", vision_first_qwen2_5, vision_layer_qwen2_5, vision_last_qwen2_5, NULL,
};

#define QWEN3(name, rows, columns) COPIED("vision_model.", "model.visual.", name, rows, columns)
#define QWEN3_BOTH(name, rows, columns) COPIED_BOTH("vision_model.", "model.visual.", name, rows, columns)
#define QWEN3_MERGER(merger, norm) \
	QWEN3_BOTH(merger "norm", norm, VECTOR), \
	QWEN3_BOTH(merger "linear_fc1", V_MERGED, V_MERGED), \
	QWEN3_BOTH(merger "linear_fc2", V_OUT, V_MERGED)

static const struct uns_megatron_rule vision_first_qwen3[] = {
	COPIED_PATCHES("vision_model.", "model.visual."),
	QWEN3("patch_embed.proj.bias", V_HIDDEN, VECTOR),
	QWEN3("pos_embed.weight", UNS_MG_POSITIONS, V_HIDDEN),
	{ 0 },
};

static const struct uns_megatron_rule vision_layer_qwen3[] = {
	QWEN3_BOTH("blocks.*.norm1", V_HIDDEN, VECTOR),
	QWEN3_BOTH("blocks.*.norm2", V_HIDDEN, VECTOR),
	QWEN3_BOTH("blocks.*.attn.qkv", UNS_MG_VISION_QKV, V_HIDDEN),
	QWEN3_BOTH("blocks.*.attn.proj", V_HIDDEN, V_HIDDEN),
	QWEN3_BOTH("blocks.*.mlp.linear_fc1", V_FFN, V_HIDDEN),
	QWEN3_BOTH("blocks.*.mlp.linear_fc2", V_HIDDEN, V_FFN),
	OWN_NORM("self_attention.linear_qkv", "model.visual.blocks.*.norm1", "weight"),
	OWN_NORM("self_attention.linear_qkv", "model.visual.blocks.*.norm1", "bias"),
	OWN_NORM("mlp.linear_fc1", "model.visual.blocks.*.norm2", "weight"),
	OWN_NORM("mlp.linear_fc1", "model.visual.blocks.*.norm2", "bias"),
	OWN_ATTENTION("model.visual.blocks.*.attn"),
	OWN_BOTH(OWN "mlp.linear_fc1", "model.visual.blocks.*.mlp.linear_fc1", V_FFN, V_HIDDEN),
	OWN_BOTH(OWN "mlp.linear_fc2", "model.visual.blocks.*.mlp.linear_fc2", V_HIDDEN, V_FFN),
	{ 0 },
};

static const struct uns_megatron_rule vision_last_qwen3[] = {
	QWEN3_MERGER("merger.", V_HIDDEN),
	OWN_BOTH("vision_model.merger.patch_norm", "model.visual.merger.norm", V_HIDDEN, VECTOR),
	{ 0 },
};

#define OWN_DEEPSTACK "vision_model.decoder.deepstack_merger_list.*."
#define PUBLISHED_DEEPSTACK "model.visual.deepstack_merger_list.*."

static const struct uns_megatron_rule vision_deepstack_qwen3[] = {
	QWEN3_MERGER("deepstack_merger_list.*.", V_MERGED),
	OWN_BOTH(OWN_DEEPSTACK "patch_norm", PUBLISHED_DEEPSTACK "norm", V_MERGED, VECTOR),
	OWN_BOTH(OWN_DEEPSTACK "linear_fc1", PUBLISHED_DEEPSTACK "linear_fc1", V_MERGED, V_MERGED),
	OWN_BOTH(OWN_DEEPSTACK "linear_fc2", PUBLISHED_DEEPSTACK "linear_fc2", V_OUT, V_MERGED),
	{ 0 },
};

static const struct uns_megatron_vision qwen3_vl = {
	"language_model.", "model.language_model.",
	vision_first_qwen3, vision_layer_qwen3, vision_last_qwen3, vision_deepstack_qwen3,
};

/* A language model within, whose head is there too. */
static const struct uns_megatron_rule last_within[] = {
	{ "decoder.final_layernorm.weight", "model.norm.weight", HIDDEN, VECTOR, ALWAYS, ONE },
	{ "output_layer.weight", "language_model.lm_head.weight", VOCAB, HIDDEN, UNS_MG_UNTIED, ONE },
	{ 0 },
};

/* transformers' own module, as mcore_bridge has it. */
#define LLAMA4(name, rows, columns) COPIED("visual.", "", name, rows, columns)
#define LLAMA4_BOTH(name, rows, columns) COPIED_BOTH("visual.", "", name, rows, columns)
#define LLAMA4_LAYER "vision_model.model.layers.*."

static const struct uns_megatron_rule vision_first_llama4[] = {
	LLAMA4("vision_model.class_embedding", V_HIDDEN, VECTOR),
	LLAMA4("vision_model.positional_embedding_vlm", UNS_MG_PATCHES_AND_ONE, V_HIDDEN),
	LLAMA4("vision_model.patch_embedding.linear.weight", V_HIDDEN, UNS_MG_PATCH_VALUES),
	LLAMA4_BOTH("vision_model.layernorm_pre", V_HIDDEN, VECTOR),
	LLAMA4_BOTH("vision_model.layernorm_post", V_HIDDEN, VECTOR),
	{ 0 },
};

static const struct uns_megatron_rule vision_layer_llama4[] = {
	LLAMA4_BOTH(LLAMA4_LAYER "self_attn.q_proj", V_HIDDEN, V_HIDDEN),
	LLAMA4_BOTH(LLAMA4_LAYER "self_attn.k_proj", V_HIDDEN, V_HIDDEN),
	LLAMA4_BOTH(LLAMA4_LAYER "self_attn.v_proj", V_HIDDEN, V_HIDDEN),
	LLAMA4_BOTH(LLAMA4_LAYER "self_attn.o_proj", V_HIDDEN, V_HIDDEN),
	LLAMA4_BOTH(LLAMA4_LAYER "mlp.fc1", V_FFN, V_HIDDEN),
	LLAMA4_BOTH(LLAMA4_LAYER "mlp.fc2", V_HIDDEN, V_FFN),
	LLAMA4_BOTH(LLAMA4_LAYER "input_layernorm", V_HIDDEN, VECTOR),
	LLAMA4_BOTH(LLAMA4_LAYER "post_attention_layernorm", V_HIDDEN, VECTOR),
	{ 0 },
};

static const struct uns_megatron_rule vision_last_llama4[] = {
	LLAMA4("vision_model.vision_adapter.mlp.fc1.weight", UNS_MG_VISION_PROJECTED, V_FFN),
	LLAMA4("vision_model.vision_adapter.mlp.fc2.weight", UNS_MG_VISION_ADAPTED, UNS_MG_VISION_ADAPTED),
	LLAMA4("multi_modal_projector.linear_1.weight", HIDDEN, UNS_MG_VISION_FEATURES),
	{ 0 },
};

static const struct uns_megatron_vision llama4_vision = {
	"language_model.", "language_model.model.", vision_first_llama4, vision_layer_llama4, vision_last_llama4, NULL,
};

/* InternVL in transformers: its own module, as mcore_bridge has it (model/mm_gpts/internvl.py). */
#define INTERN(name, rows, columns, when) { "visual." name, name, rows, columns, when, ONE }
#define INTERN_BOTH(name, rows, columns) COPIED_BOTH("visual.", "", name, rows, columns)
#define INTERN_NORM(name) \
	INTERN(name ".weight", V_HIDDEN, VECTOR, ALWAYS), INTERN(name ".bias", V_HIDDEN, VECTOR, UNS_MG_VISION_CENTRED)
#define INTERN_QKV(name) \
	INTERN(name ".weight", V_HIDDEN, V_HIDDEN, ALWAYS), INTERN(name ".bias", V_HIDDEN, VECTOR, UNS_MG_VISION_BIAS)
#define INTERN_LAYER "vision_tower.encoder.layer.*."

static const struct uns_megatron_rule vision_first_internvl[] = {
	INTERN("vision_tower.embeddings.cls_token", ONE, UNS_MG_ONE_OF_VISION, ALWAYS),
	INTERN("vision_tower.embeddings.position_embeddings", ONE, UNS_MG_EACH_PATCH, ALWAYS),
	INTERN("vision_tower.embeddings.patch_embeddings.projection.weight", V_HIDDEN, UNS_MG_FLAT_PATCHES, ALWAYS),
	INTERN("vision_tower.embeddings.patch_embeddings.projection.bias", V_HIDDEN, VECTOR, ALWAYS),
	{ 0 },
};

static const struct uns_megatron_rule vision_layer_internvl[] = {
	INTERN(INTERN_LAYER "lambda_1", V_HIDDEN, VECTOR, ALWAYS),
	INTERN(INTERN_LAYER "lambda_2", V_HIDDEN, VECTOR, ALWAYS),
	INTERN_QKV(INTERN_LAYER "attention.q_proj"),
	INTERN_QKV(INTERN_LAYER "attention.k_proj"),
	INTERN_QKV(INTERN_LAYER "attention.v_proj"),
	INTERN_BOTH(INTERN_LAYER "attention.projection_layer", V_HIDDEN, V_HIDDEN),
	INTERN(INTERN_LAYER "attention.q_norm.weight", V_HIDDEN, VECTOR, UNS_MG_VISION_QK_NORM),
	INTERN(INTERN_LAYER "attention.k_norm.weight", V_HIDDEN, VECTOR, UNS_MG_VISION_QK_NORM),
	INTERN_BOTH(INTERN_LAYER "mlp.fc1", V_FFN, V_HIDDEN),
	INTERN_BOTH(INTERN_LAYER "mlp.fc2", V_HIDDEN, V_FFN),
	INTERN_NORM(INTERN_LAYER "layernorm_before"),
	INTERN_NORM(INTERN_LAYER "layernorm_after"),
	{ 0 },
};

static const struct uns_megatron_rule vision_last_internvl[] = {
	INTERN_BOTH("multi_modal_projector.layer_norm", V_MERGED, VECTOR),
	INTERN_BOTH("multi_modal_projector.linear_1", HIDDEN, V_MERGED),
	INTERN_BOTH("multi_modal_projector.linear_2", HIDDEN, HIDDEN),
	{ 0 },
};

static const struct uns_megatron_vision internvl = {
	"language_model.", "language_model.model.", vision_first_internvl, vision_layer_internvl, vision_last_internvl, NULL,
};

/* InternVL with its own code: of Megatron's own modules (mbridge), or its module (mcore_bridge). */
#define CHAT(from, to, rows, columns, when) \
	{ from, to, rows, columns, when, ONE }, { "visual." to, to, rows, columns, when, ONE }
#define CHAT_BOTH(from, to, rows, columns) \
	CHAT(from ".weight", to ".weight", rows, columns, ALWAYS), CHAT(from ".bias", to ".bias", rows, VECTOR, ALWAYS)
#define CHAT_LAYER "vision_model.encoder.layers.*."
#define CHAT_NORM(from, to) \
	CHAT(OWN from "weight", CHAT_LAYER to ".weight", V_HIDDEN, VECTOR, ALWAYS), \
	CHAT(OWN from "bias", CHAT_LAYER to ".bias", V_HIDDEN, VECTOR, UNS_MG_VISION_CENTRED)
#define CHAT_QKV_PART(kind, columns, when) \
	{ OWN "self_attention.linear_qkv." kind, CHAT_LAYER "attn.qkv." kind, V_HIDDEN, columns, when, UNS_MG_VISION_HEADS }
#define CHAT_QKV(kind, columns, when) \
	CHAT_QKV_PART(kind, columns, when), CHAT_QKV_PART(kind, columns, when), CHAT_QKV_PART(kind, columns, when), \
	{ "visual." CHAT_LAYER "attn.qkv." kind, CHAT_LAYER "attn.qkv." kind, UNS_MG_VISION_QKV, columns, when, ONE }
#define CHAT_OWN_MODULE(name, rows, columns, when) { "visual." name, name, rows, columns, when, ONE }

static const struct uns_megatron_rule vision_first_internvl_chat[] = {
	CHAT("vision_model.class_token", "vision_model.embeddings.class_embedding", ONE, UNS_MG_ONE_OF_VISION, ALWAYS),
	CHAT("vision_model.position_embedding", "vision_model.embeddings.position_embedding", ONE, UNS_MG_EACH_PATCH, ALWAYS),
	CHAT("vision_model.conv1.weight", "vision_model.embeddings.patch_embedding.weight", V_HIDDEN, UNS_MG_FLAT_PATCHES, ALWAYS),
	CHAT("vision_model.conv1.bias", "vision_model.embeddings.patch_embedding.bias", V_HIDDEN, VECTOR, ALWAYS),
	{ 0 },
};

static const struct uns_megatron_rule vision_layer_internvl_chat[] = {
	CHAT(OWN "ls1", CHAT_LAYER "ls1", V_HIDDEN, VECTOR, ALWAYS),
	CHAT(OWN "ls2", CHAT_LAYER "ls2", V_HIDDEN, VECTOR, ALWAYS),
	CHAT_QKV("weight", V_HIDDEN, ALWAYS),
	CHAT_QKV("bias", VECTOR, UNS_MG_VISION_BIAS),
	CHAT_OWN_MODULE(CHAT_LAYER "attn.q_norm.weight", V_HIDDEN, VECTOR, UNS_MG_VISION_QK_NORM),
	CHAT_OWN_MODULE(CHAT_LAYER "attn.k_norm.weight", V_HIDDEN, VECTOR, UNS_MG_VISION_QK_NORM),
	CHAT_BOTH(OWN "self_attention.linear_proj", CHAT_LAYER "attn.proj", V_HIDDEN, V_HIDDEN),
	CHAT_BOTH(OWN "mlp.linear_fc1", CHAT_LAYER "mlp.fc1", V_FFN, V_HIDDEN),
	CHAT_BOTH(OWN "mlp.linear_fc2", CHAT_LAYER "mlp.fc2", V_HIDDEN, V_FFN),
	CHAT_NORM("self_attention.linear_qkv.layer_norm_", "norm1"),
	CHAT_NORM("mlp.linear_fc1.layer_norm_", "norm2"),
	{ 0 },
};

static const struct uns_megatron_rule vision_last_internvl_chat[] = {
	CHAT("vision_projection.encoder.linear_fc1.layer_norm_weight", "mlp1.0.weight", V_MERGED, VECTOR, ALWAYS),
	CHAT("vision_projection.encoder.linear_fc1.layer_norm_bias", "mlp1.0.bias", V_MERGED, VECTOR, ALWAYS),
	CHAT_BOTH("vision_projection.encoder.linear_fc1", "mlp1.1", HIDDEN, V_MERGED),
	CHAT_BOTH("vision_projection.encoder.linear_fc2", "mlp1.3", HIDDEN, HIDDEN),
	{ 0 },
};

static const struct uns_megatron_vision internvl_chat = {
	"language_model.", "language_model.model.",
	vision_first_internvl_chat, vision_layer_internvl_chat, vision_last_internvl_chat, NULL,
};

#define TEXT(model_type, attention, mlp, norms) \
	{ model_type, { attention, mlp, norms } }
#define TEXT_ADDS_ONE(model_type, attention, mlp, norms) \
	{ model_type, { attention, mlp, norms }, NULL, NULL, NULL, NULL, true }
#define TEXT_MTP(model_type, attention, mlp, norms) \
	{ model_type, { attention, mlp, norms }, NULL, &mtp }
#define QWEN_DELTA(model_type, attention, mlp, vision) \
	{ model_type, { attention, mlp, norms_delta }, vision, &mtp_qwen, NULL, NULL, true }

/* Sorted by model_type. */
const struct uns_megatron_family uns_megatron_table[] = {
	TEXT("deepseek_v2", attention_mla, moe_deepseek_v2, norms),
	TEXT_MTP("deepseek_v3", attention_mla, moe_deepseek_v3, norms),
	TEXT_ADDS_ONE("gemma", attention, mlp, norms),
	TEXT_ADDS_ONE("gemma2", attention, mlp, norms_gemma2),
	TEXT_ADDS_ONE("gemma3_text", attention_gemma3, mlp, norms_gemma2),
	TEXT("glm4", attention_glm4, mlp_glm4, norms_glm4),
	TEXT_MTP("glm4_moe", attention_glm4_moe, moe_deepseek_v3, norms),
	TEXT_MTP("glm4_moe_lite", attention_mla, moe_deepseek_v3, norms),
	TEXT("gpt_oss", attention_gpt_oss, moe_gpt_oss, norms),
	{ "internvl", { NULL }, &internvl, NULL, NULL, last_within },
	{ "internvl_chat", { NULL }, &internvl_chat, NULL, NULL, last_within },
	TEXT_MTP("kimi_k2", attention_mla, moe_deepseek_v3, norms),
	TEXT("llama", attention_llama, mlp_llama, norms),
	{ "llama4", { attention, moe_llama4, norms }, &llama4_vision, NULL, NULL, last_within },
	TEXT("llama4_text", attention, moe_llama4, norms),
	TEXT("mimo", attention_qwen2, mlp, norms),
	TEXT("mistral", attention, mlp, norms),
	TEXT("mixtral", attention, moe_mixtral, norms),
	{ "nemotron_h", { hybrid_norms, hybrid_mixers }, NULL, NULL, hybrid_first, hybrid_last },
	TEXT("phi3", attention_phi3, mlp_glm4, norms),
	TEXT("qwen2", attention_qwen2, mlp, norms),
	{ "qwen2_5_vl", { attention_qwen2, mlp, norms }, &qwen2_5_vl },
	TEXT("qwen2_moe", attention_qwen2, moe_qwen2, norms),
	TEXT("qwen3", attention_qwen3, mlp, norms),
	QWEN_DELTA("qwen3_5", attention_qwen3_5, mlp, &qwen3_vl),
	QWEN_DELTA("qwen3_5_moe", attention_qwen3_5, moe_qwen2, &qwen3_vl),
	QWEN_DELTA("qwen3_5_moe_text", attention_qwen3_5, moe_qwen2, NULL),
	QWEN_DELTA("qwen3_5_text", attention_qwen3_5, mlp, NULL),
	TEXT("qwen3_moe", attention_qwen3, moe_qwen3, norms),
	QWEN_DELTA("qwen3_next", attention_qwen3_next, moe_qwen2, NULL),
	{ "qwen3_vl", { attention_qwen3, mlp, norms }, &qwen3_vl },
	{ "qwen3_vl_moe", { attention_qwen3, moe_qwen3_vl, norms }, &qwen3_vl },
};
const size_t uns_n_megatron_table = sizeof(uns_megatron_table) / sizeof(uns_megatron_table[0]);

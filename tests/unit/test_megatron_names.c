/* What is published of a few of Megatron's tensors: which elements, and what is refused by which name. The families
 * are compared with transformers and megatron-core themselves in tests/e2e/test_megatron.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "megatron/names.h"
#include "megatron/table.h"
#include "model/sum_tensor.h"

/* clang-format off: tables, a case a row */

enum { MAX_IN = 42, MAX_WANT = 14 };

#define CONFIG(type, vocab, layers, groups, head, ffn, more)                                                    \
	"{\"model_type\": \"" type "\", \"hidden_size\": 2, \"num_attention_heads\": 4, \"vocab_size\": " vocab \
	", \"num_hidden_layers\": " layers ", \"num_key_value_heads\": " groups ", \"head_dim\": " head         \
	", \"intermediate_size\": " ffn more "}"
#define VISION(patch)                                                                                                                 \
	", \"vision_config\": {\"depth\": 1, \"hidden_size\": 2, \"in_chans\": 3, \"temporal_patch_size\": 2, \"patch_size\": " patch \
	"}"
#define OWN_VISION(heads)                                                                                                        \
	", \"vision_config\": {\"depth\": 2, \"hidden_size\": 4, \"in_chans\": 3, \"temporal_patch_size\": 2, \"patch_size\": 2" \
	", \"num_heads\": " heads ", \"intermediate_size\": 3, \"out_hidden_size\": 2, \"spatial_merge_size\": 1}"
#define MISTRAL CONFIG("mistral", "5", "2", "2", "1", "3", "")

struct named {
	const char *name;
	struct uns_shape shape;
};

#define EMBEDDING                                   \
	{                                           \
		"embedding.word_embeddings.weight", \
		{                                   \
			2, { 8, 2 }                 \
		}                                   \
	}
#define NORM                                      \
	{                                         \
		"decoder.final_layernorm.weight", \
		{                                 \
			1, { 2 }                  \
		}                                 \
	}
#define HEAD                           \
	{                              \
		"output_layer.weight", \
		{                      \
			2, { 5, 2 }    \
		}                      \
	}
#define QKV                                                        \
	{                                                          \
		"decoder.layers.self_attention.linear_qkv.weight", \
		{                                                  \
			3, { 2, 8, 2 }                             \
		}                                                  \
	}
#define O                                                           \
	{                                                           \
		"decoder.layers.self_attention.linear_proj.weight", \
		{                                                   \
			3, { 2, 2, 4 }                              \
		}                                                   \
	}
#define FC1                                             \
	{                                               \
		"decoder.layers.mlp.linear_fc1.weight", \
		{                                       \
			3, { 2, 6, 2 }                  \
		}                                       \
	}
#define FC2                                             \
	{                                               \
		"decoder.layers.mlp.linear_fc2.weight", \
		{                                       \
			3, { 2, 2, 3 }                  \
		}                                       \
	}
#define NORM1                                                                 \
	{                                                                     \
		"decoder.layers.self_attention.linear_qkv.layer_norm_weight", \
		{                                                             \
			2, { 2, 2 }                                           \
		}                                                             \
	}
#define NORM2                                                      \
	{                                                          \
		"decoder.layers.mlp.linear_fc1.layer_norm_weight", \
		{                                                  \
			2, { 2, 2 }                                \
		}                                                  \
	}
#define ALL EMBEDDING, QKV, O, FC1, FC2, NORM1, NORM2, NORM
#define ROUTER                                      \
	{                                           \
		"decoder.layers.mlp.router.weight", \
		{                                   \
			3, { 2, 2, 2 }              \
		}                                   \
	}
#define EXPERTS1                                                        \
	{                                                               \
		"decoder.layers.mlp.experts.experts.linear_fc1.weight", \
		{                                                       \
			4, { 2, 2, 6, 2 }                               \
		}                                                       \
	}
#define TEXT(name, ...)                 \
	{                               \
		"language_model." name, \
		{                       \
			__VA_ARGS__     \
		}                       \
	}
#define TEXT_LAYER(name, ...) TEXT("decoder.layers." name, __VA_ARGS__)
#define ALL_TEXT                                                                                                 \
	TEXT("embedding.word_embeddings.weight", 2, { 5, 2 }), TEXT("decoder.final_layernorm.weight", 1, { 2 }), \
		TEXT("output_layer.weight", 2, { 5, 2 }),                                                        \
		TEXT_LAYER("self_attention.linear_qkv.weight", 3, { 1, 8, 2 }),                                  \
		TEXT_LAYER("self_attention.linear_qkv.bias", 2, { 1, 8 }),                                       \
		TEXT_LAYER("self_attention.linear_proj.weight", 3, { 1, 2, 4 }),                                 \
		TEXT_LAYER("mlp.linear_fc1.weight", 3, { 1, 6, 2 }),                                             \
		TEXT_LAYER("mlp.linear_fc2.weight", 3, { 1, 2, 3 }),                                             \
		TEXT_LAYER("self_attention.linear_qkv.layer_norm_weight", 2, { 1, 2 }),                          \
		TEXT_LAYER("mlp.linear_fc1.layer_norm_weight", 2, { 1, 2 })
#define SEEN(name, ...)               \
	{                             \
		"vision_model." name, \
		{                     \
			__VA_ARGS__   \
		}                     \
	}
#define SEEN_LAYER(name, ...) SEEN("decoder.layers." name, __VA_ARGS__)
#define ALL_SEEN                                                                                                     \
	SEEN("patch_embed.proj.weight", 5, { 4, 3, 2, 2, 2 }), SEEN("decoder.final_layernorm.weight", 1, { 4 }),     \
		SEEN("projection.encoder.linear_fc1.weight", 2, { 4, 4 }),                                           \
		SEEN("projection.encoder.linear_fc1.bias", 1, { 4 }),                                                \
		SEEN("projection.encoder.linear_fc2.weight", 2, { 2, 4 }),                                           \
		SEEN("projection.encoder.linear_fc2.bias", 1, { 2 }),                                                \
		SEEN_LAYER("self_attention.linear_qkv.weight", 3, { 2, 12, 4 }),                                     \
		SEEN_LAYER("self_attention.linear_qkv.bias", 2, { 2, 12 }),                                          \
		SEEN_LAYER("self_attention.linear_proj.weight", 3, { 2, 4, 4 }),                                     \
		SEEN_LAYER("self_attention.linear_proj.bias", 2, { 2, 4 }),                                          \
		SEEN_LAYER("mlp.linear_fc1.weight", 3, { 2, 6, 4 }), SEEN_LAYER("mlp.linear_fc1.bias", 2, { 2, 6 }), \
		SEEN_LAYER("mlp.linear_fc2.weight", 3, { 2, 4, 3 }), SEEN_LAYER("mlp.linear_fc2.bias", 2, { 2, 4 }), \
		SEEN_LAYER("self_attention.linear_qkv.layer_norm_weight", 2, { 2, 4 }),                              \
		SEEN_LAYER("mlp.linear_fc1.layer_norm_weight", 2, { 2, 4 })
#define GPT_OSS CONFIG("gpt_oss", "5", "2", "2", "1", "3", ", \"num_local_experts\": 2")
#define GPT_OSS_ATTENTION                                                                           \
	{ "decoder.layers.self_attention.core_attention.softmax_offset", { 2, { 2, 4 } } }, QKV, O, \
		{ "decoder.layers.self_attention.linear_qkv.bias", { 2, { 2, 8 } } },               \
	{                                                                                           \
		"decoder.layers.self_attention.linear_proj.bias",                                   \
		{                                                                                   \
			2, { 2, 2 }                                                                 \
		}                                                                                   \
	}
#define GPT_OSS_ROUTER                            \
	ROUTER,                                   \
	{                                         \
		"decoder.layers.mlp.router.bias", \
		{                                 \
			2, { 2, 2 }               \
		}                                 \
	}
#define GPT_OSS_MORE                                                                               \
	{ "decoder.layers.mlp.experts.experts.linear_fc1.bias", { 3, { 2, 2, 6 } } },              \
		{ "decoder.layers.mlp.experts.experts.linear_fc2.weight", { 4, { 2, 2, 2, 3 } } }, \
	{                                                                                          \
		"decoder.layers.mlp.experts.experts.linear_fc2.bias",                              \
		{                                                                                  \
			3, { 2, 2, 2 }                                                             \
		}                                                                                  \
	}
#define GATE(name, layer, expert)                                                           \
	{                                                                                   \
		"decoder.layers." layer ".mlp.experts.experts." expert ".linear_fc1." name, \
		{                                                                           \
			2, { 3, 2 }                                                         \
		}                                                                           \
	}
/* By layer and by expert. */
#define EXPERT2(layer, expert)                                                               \
	{                                                                                    \
		"decoder.layers." layer ".mlp.experts.experts." expert ".linear_fc2.weight", \
		{                                                                            \
			2, { 2, 3 }                                                          \
		}                                                                            \
	}

#define GLM(more)                                   \
	CONFIG("glm4_moe", "5", "1", "2", "1", "4", \
	       ", \"n_routed_experts\": 2, \"moe_intermediate_size\": 3, \"n_shared_experts\": 1" more)
#define ONE_MTP ", \"num_nextn_predict_layers\": 1"
#define GLM_LAYER(in)                                                                                         \
	{ in "self_attention.linear_qkv.weight", { 2, { 8, 2 } } },                                           \
		{ in "self_attention.linear_proj.weight", { 2, { 2, 4 } } },                                  \
		{ in "self_attention.linear_qkv.layer_norm_weight", { 1, { 2 } } },                           \
		{ in "pre_mlp_layernorm.weight", { 1, { 2 } } }, { in "mlp.router.weight", { 2, { 2, 2 } } }, \
		{ in "mlp.router.expert_bias", { 1, { 2 } } },                                                \
		{ in "mlp.experts.experts.linear_fc1.weight", { 3, { 2, 6, 2 } } },                           \
		{ in "mlp.experts.experts.linear_fc2.weight", { 3, { 2, 2, 3 } } },                           \
		{ in "mlp.shared_experts.linear_fc1.weight_w", { 2, { 3, 2 } } },                             \
		{ in "mlp.shared_experts.linear_fc1.weight_v", { 2, { 3, 2 } } },                             \
	{                                                                                                     \
		in "mlp.shared_experts.linear_fc2.weight",                                                    \
		{                                                                                             \
			2, { 2, 3 }                                                                           \
		}                                                                                             \
	}
#define EH_PROJ(columns)                       \
	{                                      \
		"mtp.layers.0.eh_proj.weight", \
		{                              \
			2,                     \
			{                      \
				2, columns     \
			}                      \
		}                              \
	}
#define ENORM                                \
	{                                    \
		"mtp.layers.0.enorm.weight", \
		{                            \
			1, { 2 }             \
		}                            \
	}
#define MTP_REST                                                                                                \
	{ "mtp.layers.0.hnorm.weight", { 1, { 2 } } }, { "mtp.layers.0.final_layernorm.weight", { 1, { 2 } } }, \
		GLM_LAYER("mtp.layers.0.transformer_layer.")
#define GLM_ALL EMBEDDING, GLM_LAYER("decoder.layers.0."), NORM, HEAD

#define QWEN_DELTA(heads)                                                                                          \
	CONFIG("qwen3_next", "5", "2", "2", "1", "3",                                                              \
	       ", \"layer_types\": [\"linear_attention\", \"full_attention\"], \"linear_num_key_heads\": 2, "      \
	       "\"linear_num_value_heads\": " heads ", \"linear_key_head_dim\": 1, \"linear_value_head_dim\": 2, " \
	       "\"linear_conv_kernel_dim\": 3")
#define DELTA(name, ...)                                 \
	{                                                \
		"decoder.layers.0.self_attention." name, \
		{                                        \
			__VA_ARGS__                      \
		}                                        \
	}
#define DELTA_MLP(in)                                                                                             \
	{ in "mlp.linear_fc1.weight", { 2, { 6, 2 } } }, { in "mlp.linear_fc1.layer_norm_weight", { 1, { 2 } } }, \
	{                                                                                                         \
		in "mlp.linear_fc2.weight",                                                                       \
		{                                                                                                 \
			2, { 2, 3 }                                                                               \
		}                                                                                                 \
	}
#define DELTA_FULL(in)                                                              \
	{ in "self_attention.linear_qkv.weight", { 2, { 12, 2 } } },                \
		{ in "self_attention.linear_qkv.layer_norm_weight", { 1, { 2 } } }, \
		{ in "self_attention.linear_proj.weight", { 2, { 2, 4 } } },        \
		{ in "self_attention.q_layernorm.weight", { 1, { 1 } } },           \
		{ in "self_attention.k_layernorm.weight", { 1, { 1 } } }, DELTA_MLP(in)
#define DELTA_BUT_BETA                                                                                    \
	EMBEDDING, NORM, HEAD, DELTA("dt_bias", 1, { 4 }), DELTA("A_log", 1, { 4 }),                      \
		DELTA("conv1d.weight.query", 3, { 2, 1, 3 }), DELTA("conv1d.weight.key", 3, { 2, 1, 3 }), \
		DELTA("conv1d.weight.value", 3, { 8, 1, 3 }), DELTA("in_proj.weight.query", 2, { 2, 2 }), \
		DELTA("in_proj.weight.key", 2, { 2, 2 }), DELTA("in_proj.weight.value", 2, { 8, 2 }),     \
		DELTA("in_proj.weight.z", 2, { 8, 2 }), DELTA("in_proj.weight.alpha", 2, { 4, 2 }),       \
		DELTA("in_proj.layer_norm_weight", 1, { 2 }), DELTA("out_norm.weight", 1, { 2 }),         \
		DELTA("out_proj.weight", 2, { 2, 8 }), DELTA_MLP("decoder.layers.0."), DELTA_FULL("decoder.layers.1.")
#define DELTA_MTP                                                                                          \
	{ "mtp.layers.0.eh_proj.weight", { 2, { 2, 4 } } }, { "mtp.layers.0.hnorm.weight", { 1, { 2 } } }, \
		{ "mtp.layers.0.final_layernorm.weight", { 1, { 2 } } }, ENORM,                            \
		DELTA_FULL("mtp.layers.0.mtp_model_layer.")

#define HYBRID(layers)                                                                                          \
	CONFIG("nemotron_h", "5", "9", "2", "1", "3",                                                           \
	       ", \"hybrid_override_pattern\": \"" layers "\", \"mamba_num_heads\": 2, \"mamba_head_dim\": 2, " \
	       "\"n_groups\": 1, \"ssm_state_size\": 3, \"conv_kernel\": 2, \"n_routed_experts\": 2, "          \
	       "\"moe_intermediate_size\": 3, \"moe_shared_expert_intermediate_size\": 4, \"moe_latent_size\": 1")
#define HYBRID_ENDS                          \
	EMBEDDING, HEAD,                     \
	{                                    \
		"decoder.final_norm.weight", \
		{                            \
			1, { 2 }             \
		}                            \
	}
#define MAMBA(name, ...)                        \
	{                                       \
		"decoder.layers.0.mixer." name, \
		{                               \
			__VA_ARGS__             \
		}                               \
	}
#define MAMBA_ALL                                                                                                     \
	MAMBA("in_proj.layer_norm_weight", 1, { 2 }), MAMBA("dt_bias", 1, { 2 }), MAMBA("A_log", 1, { 2 }),           \
		MAMBA("D", 1, { 2 }), MAMBA("conv1d.weight.x", 3, { 4, 1, 2 }),                                       \
		MAMBA("conv1d.weight.B", 3, { 3, 1, 2 }), MAMBA("conv1d.weight.C", 3, { 3, 1, 2 }),                   \
		MAMBA("conv1d.bias.x", 1, { 4 }), MAMBA("conv1d.bias.B", 1, { 3 }), MAMBA("conv1d.bias.C", 1, { 3 }), \
		MAMBA("in_proj.weight.z", 2, { 4, 2 }), MAMBA("in_proj.weight.x", 2, { 4, 2 }),                       \
		MAMBA("in_proj.weight.B", 2, { 3, 2 }), MAMBA("in_proj.weight.C", 2, { 3, 2 }),                       \
		MAMBA("in_proj.weight.dt", 2, { 2, 2 }), MAMBA("norm.weight", 1, { 4 }),                              \
		MAMBA("out_proj.weight", 2, { 2, 4 })
#define HYBRID_EXPERTS                                                                            \
	{ "decoder.layers.1.pre_mlp_layernorm.weight", { 1, { 2 } } },                            \
		{ "decoder.layers.1.mlp.router.weight", { 2, { 2, 2 } } },                        \
		{ "decoder.layers.1.mlp.router.expert_bias", { 1, { 2 } } },                      \
		{ "decoder.layers.1.mlp.experts.experts.linear_fc1.weight", { 3, { 2, 3, 1 } } }, \
		{ "decoder.layers.1.mlp.experts.experts.linear_fc2.weight", { 3, { 2, 1, 3 } } }, \
		{ "decoder.layers.1.mlp.shared_experts.linear_fc1.weight", { 2, { 4, 2 } } },     \
		{ "decoder.layers.1.mlp.shared_experts.linear_fc2.weight", { 2, { 2, 4 } } },     \
		{ "decoder.layers.1.mlp.fc1_latent_proj.weight", { 2, { 1, 2 } } },               \
	{                                                                                         \
		"decoder.layers.1.mlp.fc2_latent_proj.weight",                                    \
		{                                                                                 \
			2, { 2, 1 }                                                               \
		}                                                                                 \
	}

static const struct row {
	const char *config;
	struct named in[MAX_IN];
	/* Of some of the result, in its order: "name shape first, runs, stride[, rounds, elements][; parts, elements]"
	 * of a slice; "name shape of FIRST.., shape" of the first two blocks; "name shape plus N" of a sum. */
	const char *want[MAX_WANT];
	const char *refused; /* part of the sentence; NULL = it is published */
} rows[] = {
	{ MISTRAL,
	  { ALL, HEAD },
	  { "model.embed_tokens.weight [5, 2] 0 1 10", "model.layers.0.self_attn.q_proj.weight [4, 2] 0 2 8",
	    "model.layers.0.self_attn.k_proj.weight [2, 2] 4 2 8",
	    "model.layers.0.self_attn.v_proj.weight [2, 2] 6 2 8",
	    "model.layers.0.self_attn.o_proj.weight [2, 4] 0 1 8", "model.layers.0.mlp.gate_proj.weight [3, 2] 0 1 12",
	    "model.layers.0.mlp.up_proj.weight [3, 2] 6 1 12", "model.layers.1.self_attn.k_proj.weight [2, 2] 20 2 8",
	    "model.layers.1.mlp.up_proj.weight [3, 2] 18 1 12", "model.layers.1.input_layernorm.weight [2] 2 1 2",
	    "model.norm.weight [2] 0 1 2", "lm_head.weight [5, 2] 0 1 10" },
	  NULL },
	{ CONFIG("mixtral", "5", "2", "2", "1", "3", ", \"num_local_experts\": 2"),
	  { EMBEDDING, QKV, O, ROUTER, EXPERTS1, EXPERT2("0", "0"), EXPERT2("0", "1"), EXPERT2("1", "0"),
	    EXPERT2("1", "1"), NORM1, NORM2, NORM, HEAD },
	  { "model.layers.0.block_sparse_moe.gate.weight [2, 2] 0 1 4",
	    "model.layers.0.block_sparse_moe.experts.0.w1.weight [3, 2] 0 1 12",
	    "model.layers.0.block_sparse_moe.experts.1.w1.weight [3, 2] 12 1 12",
	    "model.layers.0.block_sparse_moe.experts.0.w3.weight [3, 2] 6 1 12",
	    "model.layers.1.block_sparse_moe.experts.1.w3.weight [3, 2] 42 1 12",
	    "model.layers.1.block_sparse_moe.experts.1.w2.weight [2, 3] 0 1 6" },
	  NULL },
	/* queries, keys and values, which are stored head by head */
	{ CONFIG("qwen2_5_vl", "5", "1", "2", "1", "3", OWN_VISION("2")),
	  { ALL_SEEN, ALL_TEXT },
	  { "visual.blocks.0.attn.qkv.weight [12, 4] 0 2 24, 3 8", "visual.blocks.0.attn.qkv.bias [12] 0 2 6, 3 2",
	    "visual.blocks.0.mlp.up_proj.bias [3] 3 1 6", "visual.blocks.1.attn.qkv.weight [12, 4] 48 2 24, 3 8",
	    "visual.blocks.1.attn.qkv.bias [12] 12 2 6, 3 2", "model.layers.0.self_attn.k_proj.bias [2] 2 2 4" },
	  NULL },
	{ CONFIG("qwen2_5_vl", "5", "1", "2", "1", "3", OWN_VISION("3")),
	  { ALL_SEEN, ALL_TEXT },
	  { 0 },
	  "config.json: vision_config.hidden_size is 4, which is not a multiple of vision_config.num_heads, 3" },
	{ CONFIG("qwen2_5_vl", "5", "1", "2", "1", "3", OWN_VISION("null")),
	  { ALL_SEEN, ALL_TEXT },
	  { 0 },
	  "config.json has no vision_config.num_heads, and without it the shape of vision_model.decoder.layers.self_attention.linear_qkv.weight" },
	/* experts that are one tensor, transposed; gate and up alternate */
	{ GPT_OSS,
	  { EMBEDDING, GPT_OSS_ATTENTION, GPT_OSS_ROUTER, EXPERTS1, GPT_OSS_MORE, NORM1, NORM2, NORM, HEAD },
	  { "model.layers.0.self_attn.sinks [4] 0 1 4", "model.layers.0.mlp.router.bias [2] 0 1 2",
	    "model.layers.0.mlp.experts.gate_up_proj [2, 2, 6] of 0 12, 2x3x2 reversed",
	    "model.layers.0.mlp.experts.gate_up_proj_bias [2, 6] of 0 6, 2x3x1 reversed",
	    "model.layers.0.mlp.experts.down_proj [2, 3, 2] of 0 6, 1x2x3 reversed",
	    "model.layers.0.mlp.experts.down_proj_bias [2, 2] 0 1 2",
	    "model.layers.1.mlp.experts.gate_up_proj [2, 2, 6] of 24 36, 2x3x2 reversed" },
	  NULL },
	/* a gated delta net, in which each head of keys has its queries, key, values and gates; gated attention, in
	 * which each head has its queries and gates */
	{ QWEN_DELTA("4"),
	  { DELTA_BUT_BETA, DELTA("in_proj.weight.beta", 2, { 4, 2 }), DELTA_MTP },
	  { "model.layers.0.linear_attn.A_log [4] 0 1 4",
	    "model.layers.0.linear_attn.conv1d.weight [12, 1, 3] of 0 0, 1x2x3",
	    "model.layers.0.linear_attn.in_proj_qkvz.weight [20, 2] of 0 0, 1x1x2",
	    "model.layers.0.linear_attn.in_proj_ba.weight [8, 2] of 0 0, 1x2x2",
	    "model.layers.0.linear_attn.norm.weight [2] plus 1", "model.layers.0.input_layernorm.weight [2] 0 1 2",
	    "model.layers.1.self_attn.q_proj.weight [8, 2] 0 2 2, 2 12; 2 4",
	    "model.layers.1.self_attn.k_proj.weight [2, 2] 8 2 12",
	    "model.layers.1.self_attn.v_proj.weight [2, 2] 10 2 12", "mtp.fc.weight [2, 4] 0 1 8",
	    "mtp.layers.0.self_attn.q_proj.weight [8, 2] 0 2 2, 2 12; 2 4",
	    "mtp.layers.0.post_attention_layernorm.weight [2] 0 1 2", "model.norm.weight [2] 0 1 2" },
	  NULL },
	{ QWEN_DELTA("4"),
	  { DELTA_BUT_BETA },
	  { 0 },
	  "needs the tensor model.layers.0.linear_attn.in_proj_ba.weight, which is made from "
	  "decoder.layers.0.self_attention.in_proj.weight.beta: the checkpoint does not have it" },
	{ QWEN_DELTA("4"),
	  { DELTA_BUT_BETA, DELTA("in_proj.weight.beta", 2, { 2, 2 }) },
	  { 0 },
	  "decoder.layers.0.self_attention.in_proj.weight.beta has the shape [2, 2]; by config.json it would have [4, 2]" },
	{ QWEN_DELTA("3"),
	  { DELTA_BUT_BETA },
	  { 0 },
	  "config.json: linear_num_value_heads is 3, which is not a multiple of linear_num_key_heads, 2" },
	/* all queries, below them all keys, then all values; gate and up that were saved apart are one tensor */
	{ CONFIG("phi3", "5", "2", "2", "1", "3", ""),
	  { ALL, HEAD },
	  { "model.layers.0.self_attn.qkv_proj.weight [8, 2] of 0 8, 1x2x2",
	    "model.layers.1.self_attn.qkv_proj.weight [8, 2] of 16 24, 1x2x2",
	    "model.layers.1.mlp.gate_up_proj.weight [6, 2] 12 1 12" },
	  NULL },
	/* the same of long heads, whose rows are copied in several blocks */
	{ CONFIG("phi3", "5", "1", "2", "1048576", "3", ""),
	  { EMBEDDING,
	    { "decoder.layers.self_attention.linear_qkv.weight", { 3, { 1, 8388608, 2 } } },
	    { "decoder.layers.self_attention.linear_proj.weight", { 3, { 1, 2, 4194304 } } },
	    { "decoder.layers.mlp.linear_fc1.weight", { 3, { 1, 6, 2 } } },
	    { "decoder.layers.mlp.linear_fc2.weight", { 3, { 1, 2, 3 } } },
	    { "decoder.layers.self_attention.linear_qkv.layer_norm_weight", { 2, { 1, 2 } } },
	    { "decoder.layers.mlp.linear_fc1.layer_norm_weight", { 2, { 1, 2 } } },
	    NORM,
	    HEAD },
	  { "model.layers.0.self_attn.qkv_proj.weight [8388608, 2] of 0 1048576, 1x524288x2" },
	  NULL },
	/* layers for multi-token prediction of a family that is published without them */
	{ CONFIG("mimo", "5", "2", "2", "1", "3", ""),
	  { ALL, HEAD, { "decoder.layers.self_attention.linear_qkv.bias", { 2, { 2, 8 } } }, ENORM },
	  { 0 },
	  "mtp.layers.0.enorm.weight is a tensor that a model of type mimo with this config.json does not have" },
	/* a language model within, of a family without rows */
	{ "{\"model_type\": \"internvl\", \"text_config\": {\"model_type\": \"gpt2\", \"num_hidden_layers\": 1}}",
	  { ALL, HEAD },
	  { 0 },
	  "unshard does not know Megatron's tensors of a language model of type gpt2 within internvl" },
	/* a hybrid model, whose pattern has the number of layers; a Mamba layer's projection is five tensors */
	{ HYBRID("ME"),
	  { HYBRID_ENDS, MAMBA_ALL, HYBRID_EXPERTS },
	  { "backbone.embeddings.weight [5, 2] 0 1 10", "backbone.layers.0.norm.weight [2] 0 1 2",
	    "backbone.layers.0.mixer.A_log [2] 0 1 2", "backbone.layers.0.mixer.conv1d.weight [10, 1, 2] of 0 0, 1x4x2",
	    "backbone.layers.0.mixer.conv1d.bias [10] of 0 0, 1x4x1",
	    "backbone.layers.0.mixer.in_proj.weight [16, 2] of 0 0, 1x4x2",
	    "backbone.layers.0.mixer.out_proj.weight [2, 4] 0 1 8", "backbone.layers.1.norm.weight [2] 0 1 2",
	    "backbone.layers.1.mixer.experts.1.up_proj.weight [3, 1] 3 1 3",
	    "backbone.layers.1.mixer.shared_experts.down_proj.weight [2, 4] 0 1 8",
	    "backbone.layers.1.mixer.fc2_latent_proj.weight [2, 1] 0 1 2", "backbone.norm_f.weight [2] 0 1 2",
	    "lm_head.weight [5, 2] 0 1 10" },
	  NULL },
	{ HYBRID("M-"),
	  { HYBRID_ENDS, MAMBA_ALL, HYBRID_EXPERTS },
	  { 0 },
	  "needs the tensor backbone.layers.1.mixer.up_proj.weight, which is made from decoder.layers.1.mlp.linear_fc1.weight" },
	{ HYBRID("ME"),
	  { HYBRID_ENDS, MAMBA_ALL, HYBRID_EXPERTS, ENORM },
	  { 0 },
	  "mtp.layers.0.enorm.weight is a tensor that a model of type nemotron_h with this config.json does not have" },
	{ HYBRID("Mx"),
	  { HYBRID_ENDS, MAMBA_ALL },
	  { 0 },
	  "config.json: hybrid_override_pattern has a layer that unshard does not know: x" },
	/* layers for multi-token prediction, behind the others */
	{ GLM(ONE_MTP),
	  { EMBEDDING, GLM_LAYER("decoder.layers.0."), NORM, HEAD, ENORM, EH_PROJ(4), MTP_REST },
	  { "model.layers.0.mlp.shared_experts.up_proj.weight [3, 2] 0 1 6",
	    "model.layers.1.embed_tokens.weight [5, 2] 0 1 10", "model.layers.1.enorm.weight [2] 0 1 2",
	    "model.layers.1.eh_proj.weight [2, 4] 0 1 8", "model.layers.1.shared_head.norm.weight [2] 0 1 2",
	    "model.layers.1.shared_head.head.weight [5, 2] 0 1 10",
	    "model.layers.1.self_attn.k_proj.weight [2, 2] 4 2 8",
	    "model.layers.1.mlp.experts.1.up_proj.weight [3, 2] 18 1 12", "model.norm.weight [2] 0 1 2" },
	  NULL },
	{ GLM(ONE_MTP),
	  { GLM_ALL },
	  { "model.layers.0.input_layernorm.weight [2] 0 1 2", "model.norm.weight [2] 0 1 2" },
	  NULL },
	{ GLM(ONE_MTP),
	  { GLM_ALL, ENORM, EH_PROJ(2), MTP_REST },
	  { 0 },
	  "mtp.layers.0.eh_proj.weight has the shape [2, 2]; by config.json it would have [2, 4]" },
	{ GLM(", \"num_nextn_predict_layers\": 2"),
	  { GLM_ALL, ENORM, EH_PROJ(4), MTP_REST },
	  { 0 },
	  "model.layers.2.enorm.weight, which is made from mtp.layers.1.enorm.weight: the checkpoint does not have it" },
	{ GLM(ONE_MTP),
	  { GLM_ALL, ENORM, EH_PROJ(4) },
	  { 0 },
	  "model.layers.1.hnorm.weight, which is made from mtp.layers.0.hnorm.weight: the checkpoint does not have it" },
	{ GLM(""), { GLM_ALL, ENORM }, { 0 }, "mtp.layers.0.enorm.weight is a tensor that a model of type glm4_moe" },
	{ CONFIG("mistral", "5", "2", "2", "1", "3", ONE_MTP),
	  { ALL, HEAD, ENORM },
	  { 0 },
	  "mtp.layers.0.enorm.weight is a tensor that a model of type mistral" },
	/* what config.json says is not what is stored */
	{ CONFIG("mistral", "5", "2", "2", "2", "3", ""),
	  { ALL, HEAD },
	  { 0 },
	  "decoder.layers.self_attention.linear_qkv.weight has the shape [2, 8, 2]; by config.json it would have [2, 16, 2]" },
	{ CONFIG("mistral", "5", "2", "1", "1", "3", ""), { ALL, HEAD }, { 0 }, "it would have [2, 6, 2]" },
	{ CONFIG("mistral", "5", "3", "2", "1", "3", ""), { ALL, HEAD }, { 0 }, "it would have [3, 8, 2]" },
	{ CONFIG("mistral", "9", "2", "2", "1", "3", ""),
	  { ALL, HEAD },
	  { 0 },
	  "embedding.word_embeddings.weight has the shape [8, 2]; by config.json it would have [9, 2]" },
	{ CONFIG("mistral", "5", "2", "3", "1", "3", ""),
	  { ALL, HEAD },
	  { 0 },
	  "not a multiple of num_key_value_heads, 3" },
	{ CONFIG("mistral", "5", "2", "2", "1", "null", ""),
	  { ALL, HEAD },
	  { 0 },
	  "config.json has no intermediate_size, and without it the shape of "
	  "decoder.layers.mlp.linear_fc1.weight is not known" },
	{ CONFIG("mistral", "5", "2", "2", "4611686018427387904", "3", ""),
	  { ALL, HEAD },
	  { 0 },
	  "config.json has no head_dim" },
	{ CONFIG("mistral", "5", "2", "2", "1", "9223372036854774784", ""),
	  { ALL, HEAD },
	  { 0 },
	  "config.json has no intermediate_size" },
	{ GPT_OSS,
	  { EMBEDDING,
	    GPT_OSS_ATTENTION,
	    GPT_OSS_ROUTER,
	    { "decoder.layers.mlp.experts.experts.linear_fc1.weight", { 4, { 2, 2, 2, 6 } } },
	    GPT_OSS_MORE },
	  { 0 },
	  "linear_fc1.weight has the shape [2, 2, 2, 6]; by config.json it would have [2, 2, 6, 2]" },
	/* a tensor too few, and too many */
	{ GPT_OSS,
	  { EMBEDDING, GPT_OSS_ATTENTION, GPT_OSS_ROUTER, GATE("weight_w", "0", "0"), GATE("weight_v", "0", "0"),
	    GATE("weight_w", "0", "1"), GPT_OSS_MORE },
	  { 0 },
	  "needs the tensor model.layers.0.mlp.experts.gate_up_proj, which is made from "
	  "decoder.layers.0.mlp.experts.experts.1.linear_fc1.weight_w: the checkpoint does not have it" },
	{ MISTRAL,
	  { ALL },
	  { 0 },
	  "needs the tensor lm_head.weight, which is made from output_layer.weight: the checkpoint does not"
	  " have it" },
	{ CONFIG("mistral", "5", "2", "2", "1", "3", ", \"tie_word_embeddings\": true"),
	  { ALL, HEAD },
	  { 0 },
	  "output_layer.weight is a tensor that a model of type mistral with this config.json does not have" },
	{ MISTRAL,
	  { ALL, HEAD, { "decoder.layers.pre_mlp_layernorm.weight", { 2, { 2, 2 } } } },
	  { 0 },
	  "decoder.layers.pre_mlp_layernorm.weight is a tensor that a model of type mistral" },
	{ CONFIG("qwen3", "5", "2", "2", "1", "3", ""),
	  { ALL, HEAD },
	  { 0 },
	  "model.layers.0.self_attn.q_norm.weight, which is made from decoder.layers.0.self_attention.q_layernorm.weight: "
	  "the checkpoint does not have it" },
	/* a vision model under names of neither form, and one of unknown size */
	{ CONFIG("qwen2_5_vl", "5", "2", "2", "1", "3", VISION("2")),
	  { { "vision_tower.patch_embed.proj.weight", { 5, { 2, 3, 2, 2, 2 } } } },
	  { 0 },
	  "needs the tensor visual.patch_embed.proj.weight, which is made from visual.patch_embed.proj.weight: the checkpoint "
	  "does not have it" },
	{ CONFIG("qwen2_5_vl", "5", "2", "2", "1", "3", VISION("0")),
	  { { "visual.patch_embed.proj.weight", { 5, { 2, 3, 2, 2, 2 } } } },
	  { 0 },
	  "config.json has no vision_config.patch_size" },
	{ CONFIG("mixtral", "5", "2", "2", "1", "3", ", \"num_local_experts\": 3"),
	  { EMBEDDING, QKV, O, ROUTER, EXPERTS1 },
	  { 0 },
	  "decoder.layers.mlp.router.weight has the shape [2, 2, 2]; by config.json it would have [2, 3, 2]" },
};

static void print(const struct uns_named_tensor *t, char *out, size_t size)
{
	const struct uns_slice_loop *loop = t->slice ? t->slice->loop : NULL;
	const struct uns_block *b;
	char shape[128], outer[64] = "", inner[64] = "";

	if (t->tensor->sum) {
		snprintf(out, size, "%s %s plus %g", t->name, uns_shape_text(uns_named_shape(t), shape, sizeof(shape)),
			 t->tensor->sum->plus);
		return;
	}
	if (!loop) {
		b = t->tensor->own[0].block;
		snprintf(out, size, "%s %s of %llu %llu, %llux%llux%llu%s", t->name,
			 uns_shape_text(uns_named_shape(t), shape, sizeof(shape)),
			 (unsigned long long)b->source[0].first_elem,
			 (unsigned long long)t->tensor->own[1].block->source[0].first_elem,
			 (unsigned long long)b->len[0], (unsigned long long)b->len[1], (unsigned long long)b->len[2],
			 b->reversed ? " reversed" : "");
		return;
	}
	if (loop[0].n > 1)
		snprintf(outer, sizeof(outer), ", %llu %llu", (unsigned long long)loop[0].n,
			 (unsigned long long)loop[0].step_elems);
	if (loop[2].n)
		snprintf(inner, sizeof(inner), "; %llu %llu", (unsigned long long)loop[2].n,
			 (unsigned long long)loop[2].step_elems);
	snprintf(out, size, "%s %s %llu %llu %llu%s%s", t->name,
		 uns_shape_text(uns_named_shape(t), shape, sizeof(shape)), (unsigned long long)t->slice->first_elem,
		 (unsigned long long)loop[1].n, (unsigned long long)loop[1].step_elems, outer, inner);
}

static void assert_has(const struct uns_named_tensor *v, size_t n, const char *const *want)
{
	char got[256] = "";
	size_t i = 0;

	for (; *want; want++) {
		for (; i < n && strcmp(got, *want) != 0; i++)
			print(&v[i], got, sizeof(got));
		if (strcmp(got, *want) != 0)
			fail_msg("no %s behind the one before it", *want);
	}
}

static void publish(const struct row *row)
{
	const struct uns_span config = uns_span_of(row->config, strlen(row->config));
	struct uns_named_tensor *v = calloc(MAX_IN, sizeof(*v));
	struct uns_tensor tensor[MAX_IN];
	struct uns_config_info info;
	const struct uns_catalog cat = { 0 }; /* without the training's arguments: test_megatron_args.c */
	struct uns_vtree out = { 0 };
	struct uns_err err = { 0 };
	size_t n = 0;
	int code;

	for (; n < MAX_IN && row->in[n].name; n++) {
		tensor[n] = (struct uns_tensor){
			.name = row->in[n].name, .shape = row->in[n].shape, .dtype = UNS_F32, UNS_TENSOR_ALONE
		};
		v[n] = (struct uns_named_tensor){ row->in[n].name, &tensor[n], UNS_F32, NULL };
	}
	assert_int_equal(uns_config_parse(config, &out.arena, &info, &err), 0);
	code = uns_megatron_apply(&cat, &info, config, &v, &n, &out, &err);
	if (row->refused ? (code != -EBADMSG && code != -ENOTSUP) || !strstr(err.text, row->refused) : code != 0)
		fail_msg("%s: %d %s", row->refused ? row->refused : "published", code, err.text);
	if (!row->refused)
		assert_has(v, n, row->want);
	free(v);
	uns_vtree_fini(&out);
}

static void megatron_names_are_published(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		publish(&rows[i]);
}

/* A name that fits what it is written into, a number that is known. */
static void assert_sound(const struct uns_megatron_rule *rule, bool of_layers)
{
	const struct uns_megatron_rule *other;
	unsigned joined;

	for (; rule && rule->from; rule++) {
		assert_true(strlen(rule->from) < 200 && strlen(rule->to) < 200);
		assert_true(strchr(rule->from, '#') || !strchr(rule->to, '#'));
		assert_true(rule->order == UNS_MG_AS_STORED || rule->order == UNS_MG_BY_HEAD ||
			    rule->order == UNS_MG_JOINED || rule->order == UNS_MG_APART || rule->repeats == UNS_MG_ONE);
		assert_true(!rule->rest || (strlen(rule->rest) < 200 && strchr(rule->rest, '*')));
		assert_int_equal(!strchr(rule->from, '*'), !of_layers);
		assert_int_equal(!strchr(rule->to, '*'), !of_layers);
		assert_true(rule->rows != UNS_MG_NONE && rule->repeats != UNS_MG_NONE);
		for (other = rule, joined = 0; other->from; other++)
			joined += rule->order == UNS_MG_JOINED && strcmp(other->to, rule->to) == 0;
		assert_true(joined <= 5); /* MAX_JOINED in names.c */
	}
}

static void assert_mtp_sound(const struct uns_megatron_mtp *mtp)
{
	const struct uns_megatron_rule *rule;

	for (rule = mtp ? mtp->layer : NULL; rule && rule->from; rule++)
		assert_true(strchr(rule->to, '*') && !rule->rest && rule->repeats == UNS_MG_ONE);
	for (rule = mtp ? mtp->once : NULL; rule && rule->from; rule++)
		assert_true(!strchr(rule->to, '*') && !rule->rest && rule->repeats == UNS_MG_ONE);
}

static void rows_are_sound(void **state)
{
	const struct uns_megatron_vision *vision;
	size_t i, k;

	(void)state;
	for (i = 0; i < uns_n_megatron_table; i++) {
		if (i)
			assert_true(strcmp(uns_megatron_table[i - 1].model_type, uns_megatron_table[i].model_type) < 0);
		for (k = 0; k < 4 && uns_megatron_table[i].layer[k]; k++)
			assert_sound(uns_megatron_table[i].layer[k], true);
		assert_mtp_sound(uns_megatron_table[i].mtp);
		vision = uns_megatron_table[i].vision;
		assert_sound(vision ? vision->first : NULL, false);
		assert_sound(vision ? vision->layer : NULL, true);
		assert_sound(vision ? vision->last : NULL, false);
		assert_sound(vision ? vision->deepstack : NULL, true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(megatron_names_are_published),
					    cmocka_unit_test(rows_are_sound) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

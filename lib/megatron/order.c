/* The tables of names in order. */
#include "megatron/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/path.h"

enum when { EITHER, APART, FUSED };

#define BOTH(name, when)           \
	{ name ".weight", when },  \
	{                          \
		name ".bias", when \
	}
#define NORM_INSIDE(name, when)               \
	{ name ".layer_norm_weight", when },  \
	{                                     \
		name ".layer_norm_bias", when \
	}
#define ATTENTION "self_attention."
#define EXPERTS   "mlp.experts.experts."

static const struct {
	const char *name;
	enum when when;
} of_layer[] = {
	BOTH("input_layernorm", EITHER),
	NORM_INSIDE(ATTENTION "linear_qkv", APART),
	{ ATTENTION "core_attention.softmax_offset", EITHER },
	BOTH(ATTENTION "linear_proj", EITHER),
	NORM_INSIDE(ATTENTION "linear_qkv", FUSED),
	BOTH(ATTENTION "linear_qkv", EITHER),
	BOTH(ATTENTION "linear_q_proj", EITHER),
	BOTH(ATTENTION "linear_q_down_proj", EITHER),
	NORM_INSIDE(ATTENTION "linear_q_up_proj", EITHER),
	BOTH(ATTENTION "linear_q_up_proj", EITHER),
	BOTH(ATTENTION "linear_kv_down_proj", EITHER),
	NORM_INSIDE(ATTENTION "linear_kv_up_proj", EITHER),
	BOTH(ATTENTION "linear_kv_up_proj", EITHER),
	BOTH(ATTENTION "q_layernorm", EITHER),
	BOTH(ATTENTION "k_layernorm", EITHER),
	BOTH(ATTENTION "kv_layernorm", EITHER),
	BOTH("pre_mlp_layernorm", EITHER),
	NORM_INSIDE("mlp.linear_fc1", EITHER),
	BOTH("mlp.linear_fc1", EITHER),
	BOTH("mlp.linear_fc2", EITHER),
	BOTH("mlp.router", EITHER),
	{ EXPERTS, EITHER },
	{ "mlp.shared_experts.gate_weight", EITHER },
	BOTH("mlp.shared_experts.linear_fc1", EITHER),
	BOTH("mlp.shared_experts.linear_fc2", EITHER),
};

static const struct {
	const char *name;
	enum uns_megatron_where where;
} alone[] = {
	{ "embedding.word_embeddings.weight", UNS_MG_HEAD },
	{ "embedding.position_embeddings.weight", UNS_MG_HEAD },
	{ "decoder.final_layernorm.weight", UNS_MG_TAIL },
	{ "decoder.final_layernorm.bias", UNS_MG_TAIL },
	{ "output_layer.weight", UNS_MG_TAIL },
	{ "output_layer.bias", UNS_MG_TAIL },
};

static const char *const of_expert[] = { "linear_fc1.weight", "linear_fc1.bias", "linear_fc2.weight",
					 "linear_fc2.bias" };
static const char *const buffers[] = { "mlp.router.expert_bias", "mlp.router.local_tokens_per_expert", NULL };

#define N(table) (sizeof(table) / sizeof((table)[0]))

/* "12." in front of the rest: the number, and *name behind it; -1 = there is none. */
static int64_t number_of(const char **name)
{
	char *end;
	long long n;

	if (**name < '0' || **name > '9')
		return -1;
	n = strtoll(*name, &end, 10);
	if (*end != '.')
		return -1;
	*name = end + 1;
	return n;
}

/* Is it this name, with or without the mark of a half? */
static bool is_named(const char *name, const char *row, unsigned *half)
{
	const size_t len = strlen(row);

	*half = 0;
	if (strncmp(name, row, len) != 0)
		return false;
	if (strcmp(name + len, "_w") == 0)
		*half = 1;
	else if (strcmp(name + len, "_v") == 0)
		*half = 2;
	return !name[len] || *half;
}

static bool place_expert(const char *name, struct uns_megatron_place *out)
{
	unsigned i;

	out->is_expert = true;
	out->expert = number_of(&name);
	for (i = 0; i < N(of_expert); i++)
		if (is_named(name, of_expert[i], &out->half)) {
			out->of_expert = i;
			return true;
		}
	return false;
}

/* The row of a layer's table, if norms are so; -1 = there is none. */
static int row_of(const char *name, enum when norms, unsigned *half)
{
	int i;

	for (i = 0; i < (int)N(of_layer); i++)
		if ((of_layer[i].when == EITHER || of_layer[i].when == norms) &&
		    (strcmp(of_layer[i].name, EXPERTS) == 0 ? uns_str_starts(name, EXPERTS)
							    : is_named(name, of_layer[i].name, half)))
			return i;
	return -1;
}

static bool place_in_layer(const char *name, struct uns_megatron_place *out)
{
	int apart, fused;

	out->where = UNS_MG_LAYER;
	out->layer = number_of(&name);
	if (uns_str_in(name, buffers)) {
		out->where = UNS_MG_BUFFER;
		return true;
	}
	apart = row_of(name, APART, &out->half);
	fused = row_of(name, FUSED, &out->half);
	if (apart < 0 || fused < 0)
		return false;
	out->at[UNS_MG_NORMS_APART] = (unsigned)apart;
	out->at[UNS_MG_NORMS_FUSED] = (unsigned)fused;
	return !uns_str_starts(name, EXPERTS) || place_expert(name + strlen(EXPERTS), out);
}

bool uns_megatron_place_of(const char *name, struct uns_megatron_place *out)
{
	static const char layers[] = "decoder.layers.";
	unsigned i;

	*out = (struct uns_megatron_place){ .layer = -1, .expert = -1 };
	for (i = 0; i < N(alone); i++)
		if (strcmp(name, alone[i].name) == 0) {
			out->where = alone[i].where;
			out->at[UNS_MG_NORMS_APART] = out->at[UNS_MG_NORMS_FUSED] = i;
			return true;
		}
	return uns_str_starts(name, layers) && place_in_layer(name + strlen(layers), out);
}

uint32_t uns_megatron_leading_dims(const struct uns_megatron_place *place)
{
	return (place->where == UNS_MG_LAYER && place->layer < 0) + (place->is_expert && place->expert < 0);
}

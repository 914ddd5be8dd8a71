/* Source: transformers 5.23, modeling_*.py and configuration_*.py of the families below. All others have rules of their
 * own: gates beside q, latent attention, layers of several sizes, one tensor for q, k and v. */
#include "names/config_layers.h"

#include <stdlib.h>
#include <string.h>

#include "names/config_families.h"
#include "names/template.h"

enum {
	HEADS = 1, /* q_proj has num_attention_heads x head_dim rows, k_proj num_key_value_heads x head_dim */
	SHARES = 2, /* head_dim is hidden_size / num_attention_heads where it is absent */
	FFN = 4, /* mlp.gate_proj has intermediate_size rows in every layer */
	EXPERTS = 8 /* every layer that has experts has all of them */
};

/* Sorted by strcmp. */
static const struct family {
	const char *model_type;
	unsigned is;
} families[] = {
	{ "gemma", HEADS | FFN },
	{ "gemma2", HEADS | FFN },
	{ "gemma3_text", HEADS | FFN },
	{ "llama", HEADS | SHARES | FFN },
	{ "mistral", HEADS | SHARES | FFN },
	{ "mixtral", HEADS | SHARES | EXPERTS },
	{ "qwen2", HEADS | SHARES | FFN },
	{ "qwen2_moe", HEADS | SHARES | EXPERTS },
	{ "qwen3", HEADS | FFN },
	{ "qwen3_moe", HEADS | EXPERTS },
};

static const struct {
	const char *suffix, *what;
} tensors[UNS_N_LAYER_ROWS] = {
	[UNS_ROWS_Q] = { "self_attn.q_proj.weight", "num_attention_heads x head_dim" },
	[UNS_ROWS_K] = { "self_attn.k_proj.weight", "num_key_value_heads x head_dim" },
	[UNS_ROWS_GATE] = { "mlp.gate_proj.weight", "intermediate_size" },
};

static int64_t size_of(const cJSON *text, const char *key)
{
	enum { MOST = 1 << 30 };
	int64_t n;

	return uns_json_int(text, key, &n) && n > 0 && n <= MOST ? n : UNS_UNKNOWN;
}

static int64_t head_dim(const cJSON *text, unsigned is)
{
	const int64_t own = size_of(text, "head_dim"), hidden = size_of(text, "hidden_size"),
		      heads = size_of(text, "num_attention_heads");

	if (own > 0)
		return own;
	return (is & SHARES) && hidden > 0 && heads > 0 ? hidden / heads : UNS_UNKNOWN;
}

struct uns_config_layers uns_config_layers_read(const cJSON *text, const char *type)
{
	const struct family *family =
		uns_family_row(families, sizeof(families) / sizeof(*families), sizeof(*families), type);
	const unsigned is = family ? family->is : 0;
	const int64_t dim = head_dim(text, is), heads = size_of(text, "num_attention_heads"),
		      of_keys = size_of(text, "num_key_value_heads"), local = size_of(text, "num_local_experts");

	return (struct uns_config_layers){
		.columns = size_of(text, "hidden_size"),
		.rows[UNS_ROWS_Q] = (is & HEADS) && dim > 0 && heads > 0 ? dim * heads : UNS_UNKNOWN,
		.rows[UNS_ROWS_K] = (is & HEADS) && dim > 0 && of_keys > 0 ? dim * of_keys : UNS_UNKNOWN,
		.rows[UNS_ROWS_GATE] = is & FFN ? size_of(text, "intermediate_size") : UNS_UNKNOWN,
		.n_experts = !(is & EXPERTS) ? UNS_UNKNOWN
			     : local > 0     ? local
					     : size_of(text, "num_experts"),
	};
}

/* -- against the tensors -- */

static int rows_check(const struct uns_config_layers *layers, const struct uns_tensor *t, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < UNS_N_LAYER_ROWS; i++) {
		if (layers->rows[i] == UNS_UNKNOWN || !uns_name_ends(t->name, tensors[i].suffix) || t->shape.n != 2 ||
		    t->shape.dim[1] != (uint64_t)layers->columns || t->shape.dim[0] == (uint64_t)layers->rows[i])
			continue;
		return uns_fail(err, -EBADMSG, "%s is %lld, but %s has %llu rows", tensors[i].what,
				(long long)layers->rows[i], t->name, (unsigned long long)t->shape.dim[0]);
	}
	return 0;
}

/* Experts that a tensor shows to be there: those up to its own number, or as many as it holds. */
static uint64_t experts_shown(const struct uns_tensor *t)
{
	static const char inside[] = ".experts.";
	const char *at = strstr(t->name, inside);

	if (!at)
		return 0;
	at += strlen(inside);
	if (*at >= '0' && *at <= '9')
		return strtoull(at, NULL, 10) + 1;
	return uns_name_ends(t->name, "experts.gate_up_proj") && t->shape.n == 3 ? t->shape.dim[0] : 0;
}

static int experts_check(const struct uns_config_layers *layers, const struct uns_tensor *t, struct uns_err *err)
{
	const uint64_t n = experts_shown(t);

	if (layers->n_experts == UNS_UNKNOWN || n <= (uint64_t)layers->n_experts)
		return 0;
	return uns_fail(err, -EBADMSG, "the number of experts is %lld, but %s is one of %llu or more",
			(long long)layers->n_experts, t->name, (unsigned long long)n);
}

int uns_config_layers_check(const struct uns_config_layers *layers, const struct uns_catalog *cat, const char *prefix,
			    size_t prefix_len, struct uns_err *err)
{
	const struct uns_tensor *t = cat->tensors, *end = t + cat->n_tensors;

	if (cat->summary.is_megatron)
		return 0; /* megatron/args.c compares what Megatron records, under Megatron's names */
	for (; t < end; t++) {
		if (t->role != UNS_ROLE_WEIGHT || t->strange || strncmp(t->name, prefix, prefix_len) != 0)
			continue;
		UNS_TRY(rows_check(layers, t, err));
		UNS_TRY(experts_check(layers, t, err));
	}
	return 0;
}

/* The rules, as a table. */
#include "megatron/rank_cuts.h"

#include "base/path.h"

enum { EACH = -1, ROWS, COLUMNS };

static const struct {
	const char *end;
	struct uns_megatron_cut cut;
} rules[] = {
	{ "word_embeddings.weight", { ROWS, false } },
	{ "position_embeddings.weight", { EACH, false } },
	{ "output_layer.weight", { ROWS, false } },
	{ "self_attention.linear_qkv.weight", { ROWS, false } },
	{ "self_attention.linear_qkv.bias", { ROWS, false } },
	{ "self_attention.linear_q_proj.weight", { ROWS, false } },
	{ "self_attention.linear_q_up_proj.weight", { ROWS, false } },
	{ "self_attention.linear_kv_up_proj.weight", { ROWS, false } },
	{ "self_attention.linear_proj.weight", { COLUMNS, false } },
	{ "self_attention.linear_proj.bias", { EACH, false } },
	{ "core_attention.softmax_offset", { ROWS, false } },
	{ "linear_fc1.weight", { ROWS, true } },
	{ "linear_fc1.bias", { ROWS, true } },
	{ "linear_fc2.weight", { COLUMNS, false } },
	{ "linear_fc2.bias", { EACH, false } },
	{ "mlp.router.weight", { EACH, false } },
	{ "mlp.router.bias", { EACH, false } },
	{ "mlp.router.expert_bias", { EACH, false } },
	{ "mlp.shared_experts.gate_weight", { EACH, false } },
	{ "layernorm.weight", { EACH, false } },
	{ "layernorm.bias", { EACH, false } },
	{ "layer_norm_weight", { EACH, false } },
	{ "layer_norm_bias", { EACH, false } },
	{ ".enorm.weight", { EACH, false } },
	{ ".hnorm.weight", { EACH, false } },
	{ ".eh_proj.weight", { ROWS, false } },
};

int uns_megatron_cut_of(const char *name, struct uns_megatron_cut *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (uns_str_ends(name, rules[i].end)) {
			*out = rules[i].cut;
			return 0;
		}
	return uns_fail(err, -ENOTSUP,
			"%s: unshard knows no rule by which tensor parallelism cuts a tensor of this name", name);
}

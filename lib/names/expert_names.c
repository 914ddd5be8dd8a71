/* Split names: gpt_oss, llama4 and qwen3_vl_moe as vLLM and llm-compressor name the experts that they take apart,
 * granitemoe as vLLM does, which loads it as mixtral. How the fused ones lie: transformers 5.23.0, the decorators
 * use_experts_implementation in models/gpt_oss and models/llama4. */
#include "names/expert_names.h"

#include <string.h>

#include "base/path.h"
#include "names/config_families.h"
#include "names/published_names.h"
#include "names/template.h"

/* clang-format off */
static const struct uns_name_rule gpt_oss[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.down_proj_bias", "mlp.experts.#.down_proj.bias", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ "mlp.experts.gate_up_proj_bias", "mlp.experts.#.gate_proj.bias", 0, 2, true },
	{ "mlp.experts.gate_up_proj_bias", "mlp.experts.#.up_proj.bias", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule granite[] = {
	{ "block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ "block_sparse_moe.experts.down_proj", "block_sparse_moe.experts.#.w2.weight", 0, 1, true },
	{ "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.#.w1.weight", 0, 2, true },
	{ "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.#.w3.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule llama4[] = {
	{ "feed_forward.experts.down_proj", "feed_forward.experts.#.down_proj.weight", 0, 1, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.gate_proj.weight", 0, 2, true },
	{ "feed_forward.experts.gate_up_proj", "feed_forward.experts.#.up_proj.weight", 1, 2, true },
	{ 0 },
};

static const struct uns_name_rule qwen3_vl_moe[] = {
	{ "mlp.experts.down_proj", "mlp.experts.#.down_proj.weight", 0, 1, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.gate_proj.weight", 0, 2, true },
	{ "mlp.experts.gate_up_proj", "mlp.experts.#.up_proj.weight", 1, 2, true },
	{ 0 },
};

/* Sorted by model_type. */
static const struct family {
	const char *model_type;
	struct uns_expert_names names;
} families[] = {
	{ "gpt_oss", { gpt_oss, UNS_EXPERTS_TURNED, true } },
	{ "granitemoe", { granite, UNS_EXPERTS_AS_SPLIT, false } },
	{ "granitemoehybrid", { granite, UNS_EXPERTS_AS_SPLIT, false } },
	{ "granitemoeshared", { granite, UNS_EXPERTS_AS_SPLIT, false } },
	{ "llama4", { llama4, UNS_EXPERTS_TURNED, false } },
	{ "llama4_text", { llama4, UNS_EXPERTS_TURNED, false } },
	{ "qwen3_vl_moe", { qwen3_vl_moe, UNS_EXPERTS_EITHER, false } },
	{ "qwen3_vl_moe_text", { qwen3_vl_moe, UNS_EXPERTS_EITHER, false } },
};
/* clang-format on */

static const struct family *family_of(const char *model_type)
{
	return uns_family_row(families, sizeof(families) / sizeof(families[0]), sizeof(families[0]), model_type);
}

bool uns_expert_names_of(const struct uns_config_info *config, struct uns_expert_names *out)
{
	const struct family *family = family_of(config->model_type);
	const struct uns_name_rule *rule;
	struct uns_naming naming;

	family = family ? family : family_of(config->text_type);
	if (family) {
		*out = family->names;
		return true;
	}
	if (!uns_published_rules(config, &naming))
		return false;
	for (rule = naming.tail; rule->from && !rule->unstack; rule++)
		;
	*out = (struct uns_expert_names){ naming.tail, UNS_EXPERTS_AS_SPLIT, false };
	return rule->from;
}

const struct uns_name_rule *uns_expert_fused(const struct uns_expert_names *names, const char *name)
{
	const struct uns_name_rule *rule = names->rule;

	while (rule->from && !(rule->unstack && uns_name_ends(name, rule->from)))
		rule++;
	return rule->from ? rule : NULL;
}

const struct uns_name_rule *uns_expert_split(const struct uns_expert_names *names, const char *name, size_t *kept,
					     uint64_t *expert)
{
	const struct uns_name_rule *rule = names->rule;

	while (rule->from && !(rule->unstack && uns_template_ends(name, rule->to, kept, expert)))
		rule++;
	return rule->from ? rule : NULL;
}

bool uns_expert_like(const char *name)
{
	static const char experts[] = "experts";
	size_t len;

	for (;; name += len + 1) {
		len = strcspn(name, ".");
		if (len == sizeof(experts) - 1 && memcmp(name, experts, len) == 0)
			return true;
		if (!name[len])
			return false;
	}
}

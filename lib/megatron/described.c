/* Owns which classes are of which family, which field becomes which key, and what a field must be. */
#include "megatron/described.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "base/path.h"
#include "model/catalog.h"
#include "wire/json.h"

enum { MAX_STEMS = 6, MAX_RULES = 6, MAX_KEYS = 8 };

#define TARGET "_target_"

/* Most keys end before `is_float`: the rest is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* `to`: a key of config.json; `from`: the field. transformers takes no integer where it declares a float. */
struct key {
	const char *to, *from;
	bool is_float;
};

/* A field that a model of the family in transformers does one way alone: `want`, as JSON. Where the file does not have
 * the field, its version of Megatron-Core had no other way. */
struct rule {
	const char *field, *want;
};

static const struct family {
	const char *model_type, *architecture;
	const char *stem[MAX_STEMS]; /* its classes are called STEMConfig..., or STEMModelProvider... */
	const char *activation;      /* the function's name */
	bool has_experts;
	struct rule rule[MAX_RULES]; /* beside those of all families */
	struct key key[MAX_KEYS];    /* beside those of all families */
} families[] = {
	{ "llama",
	  "LlamaForCausalLM",
	  { "Llama", "Llama2", "Llama3", "Llama31", "Llama32", "CodeLlama" },
	  "silu",
	  false,
	  { { "add_qkv_bias", "false" }, { "qk_layernorm", "false" }, { "layernorm_zero_centered_gamma", "false" } },
	  { { "max_position_embeddings", "seq_length" } } },
	{ "mistral",
	  "MistralForCausalLM",
	  { "Mistral", "MistralNeMo", "MistralSmall3" },
	  "silu",
	  false,
	  { { "add_qkv_bias", "false" }, { "qk_layernorm", "false" }, { "layernorm_zero_centered_gamma", "false" } },
	  { { "max_position_embeddings", "seq_length" } } },
	{ "mixtral",
	  "MixtralForCausalLM",
	  { "Mixtral" },
	  "silu",
	  true,
	  { { "add_qkv_bias", "false" }, { "qk_layernorm", "false" }, { "layernorm_zero_centered_gamma", "false" } },
	  { { "max_position_embeddings", "max_position_embeddings" },
	    { "num_local_experts", "num_moe_experts" },
	    { "num_experts_per_tok", "moe_router_topk" } } },
	{ "qwen2",
	  "Qwen2ForCausalLM",
	  { "Qwen2", "Qwen25" },
	  "silu",
	  false,
	  { { "add_qkv_bias", "true" }, { "qk_layernorm", "false" }, { "layernorm_zero_centered_gamma", "false" } },
	  { { "max_position_embeddings", "seq_length" } } },
	{ "qwen3",
	  "Qwen3ForCausalLM",
	  { "Qwen3" },
	  "silu",
	  false,
	  { { "add_qkv_bias", "false" }, { "qk_layernorm", "true" }, { "layernorm_zero_centered_gamma", "false" } },
	  { { "max_position_embeddings", "max_position_embeddings" }, { "max_window_layers", "num_layers" } } },
	{ "qwen3_moe",
	  "Qwen3MoeForCausalLM",
	  { "Qwen3", "Qwen3MoE" },
	  "silu",
	  true,
	  { { "add_qkv_bias", "false" }, { "qk_layernorm", "true" }, { "layernorm_zero_centered_gamma", "false" } },
	  { { "max_position_embeddings", "max_position_embeddings" },
	    { "max_window_layers", "num_layers" },
	    { "num_experts", "num_moe_experts" },
	    { "num_experts_per_tok", "moe_router_topk" },
	    { "moe_intermediate_size", "moe_ffn_hidden_size" },
	    { "router_aux_loss_coef", "moe_aux_loss_coeff", true } } },
	{ "gemma",
	  "GemmaForCausalLM",
	  { "Gemma", "CodeGemma" },
	  "openai_gelu",
	  false,
	  { { "add_qkv_bias", "false" },
	    { "qk_layernorm", "false" },
	    { "layernorm_zero_centered_gamma", "true" },
	    { "share_embeddings_and_output_weights", "true" } },
	  { { "max_position_embeddings", "seq_length" } } },
	{ "gemma2",
	  "Gemma2ForCausalLM",
	  { "Gemma2" },
	  "openai_gelu",
	  false,
	  { { "add_qkv_bias", "false" }, { "qk_layernorm", "false" }, { "layernorm_zero_centered_gamma", "true" } },
	  { { "max_position_embeddings", "seq_length" },
	    { "query_pre_attn_scalar", "query_pre_attn_scalar" },
	    { "attn_logit_softcapping", "attn_logit_softcapping", true },
	    { "final_logit_softcapping", "final_logit_softcapping", true } } },
};

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static const struct rule all_rules[] = {
	{ "normalization", "\"RMSNorm\"" },
	{ "gated_linear_unit", "true" },
	{ "add_bias_linear", "false" },
	{ "position_embedding_type", "\"rope\"" },
	{ "rotary_percent", "1" },
	{ "rotary_interleaved", "false" },
	{ "seq_len_interpolation_factor", "null" },
	{ "multi_latent_attention", "false" },
	{ "mtp_num_layers", "null" },
	{ "softmax_type", "\"vanilla\"" },
	{ "softmax_scale", "null" },
	{ "qk_l2_norm", "false" },
	{ "attention_output_gate", "false" },
	{ "apply_residual_connection_post_layernorm", "false" },
	{ "heterogeneous_block_specs", "false" },
};

static const struct rule expert_rules[] = {
	{ "moe_layer_freq", "1" },
	{ "moe_router_score_function", "\"softmax\"" },
	{ "moe_router_pre_softmax", "false" }, /* the weights of the chosen experts add up to 1 */
	{ "moe_shared_expert_intermediate_size", "null" },
	{ "moe_router_enable_expert_bias", "false" },
	{ "moe_router_topk_scaling_factor", "null" },
	{ "moe_router_num_groups", "null" },
	{ "moe_apply_probs_on_input", "false" },
};

static const struct key all_keys[] = {
	{ "num_hidden_layers", "num_layers" },
	{ "hidden_size", "hidden_size" },
	{ "intermediate_size", "ffn_hidden_size" },
	{ "num_attention_heads", "num_attention_heads" },
	{ "num_key_value_heads", "num_query_groups" },
	{ "head_dim", "kv_channels" },
	{ "rms_norm_eps", "layernorm_epsilon", true },
	{ "rope_theta", "rotary_base", true },
	{ "initializer_range", "init_method_std", true },
	{ "tie_word_embeddings", "share_embeddings_and_output_weights" },
	{ "vocab_size", "vocab_size" },
};

/* Of Llama 3.1 and 3.2; their classes alone have the fields. */
static const struct key llama3_scaling[] = {
	{ "factor", "scale_factor", true },
	{ "low_freq_factor", "low_freq_factor", true },
	{ "high_freq_factor", "high_freq_factor", true },
	{ "original_max_position_embeddings", "old_context_len" },
};

#define N(table) (sizeof(table) / sizeof((table)[0]))

struct describing {
	const cJSON *fields;
	const struct uns_tokenizer *tokens;
	const struct family *family;
	cJSON *out;
};

static const cJSON *field_of(const struct describing *d, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(d->fields, name);

	return cJSON_IsNull(v) ? NULL : v;
}

/* -- the family -- */

static bool class_is_of(const struct family *f, const char *class)
{
	const char *rest;
	size_t i;

	for (i = 0; i < MAX_STEMS && f->stem[i]; i++) {
		rest = class + strlen(f->stem[i]);
		if (uns_str_starts(class, f->stem[i]) &&
		    (uns_str_starts(rest, "Config") || uns_str_starts(rest, "ModelProvider")))
			return true;
	}
	return false;
}

static int family_find(struct describing *d, struct uns_err *err)
{
	const char *target = uns_json_str(d->fields, TARGET), *dot;
	size_t i;

	if (!target)
		return uns_fail(err, -ENOTSUP, "it does not have the class of the model's config (" TARGET ")");
	dot = strrchr(target, '.');
	for (i = 0; i < N_FAMILIES && dot &&
		    (uns_str_starts(target, "nemo.collections.llm.gpt.model.") ||
		     uns_str_starts(target, "megatron.bridge.models."));
	     i++)
		if (class_is_of(&families[i], dot + 1) &&
		    families[i].has_experts == (field_of(d, "num_moe_experts") != NULL)) {
			d->family = &families[i];
			return 0;
		}
	return uns_fail(err, -ENOTSUP, "its class is %s%s, of which unshard does not know the config.json", target,
			field_of(d, "num_moe_experts") ? " with num_moe_experts" : "");
}

/* -- rules -- */

static int rule_broken(const struct describing *d, const char *field, const cJSON *is, const char *want,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *text = cJSON_PrintUnformatted(is);

	UNS_TRY_ALLOC(text, err);
	return uns_fail(err, -ENOTSUP, "%s is %.200s, and in a model of type %s it is %s", field, text,
			d->family->model_type, want);
}

static int rules_check(const struct describing *d, const struct rule *rule, size_t n, struct uns_err *err)
{
	const cJSON *is;
	size_t i;

	for (i = 0; i < n && rule[i].field; i++) {
		UNS_CLEANUP(uns_json_free_p) cJSON *want = cJSON_Parse(rule[i].want);

		UNS_TRY_ALLOC(want, err);
		is = field_of(d, rule[i].field);
		if (is && !cJSON_Compare(is, want, true))
			return rule_broken(d, rule[i].field, is, rule[i].want, err);
	}
	return 0;
}

/* A function is an object with its name. */
static int activation_check(const struct describing *d, struct uns_err *err)
{
	const cJSON *is = field_of(d, "activation_func");
	const char *target = uns_json_str(is, TARGET), *dot = target ? strrchr(target, '.') : NULL;

	if (dot && strcmp(dot + 1, d->family->activation) == 0)
		return 0;
	if (!is)
		return uns_fail(err, -EBADMSG, "it has no activation_func");
	return rule_broken(d, "activation_func", is, d->family->activation, err);
}

/* -- keys -- */

/* What Megatron-Core takes where a field is null. */
static cJSON *computed(const struct describing *d, const char *field)
{
	int64_t hidden, heads;

	if (strcmp(field, "num_query_groups") == 0)
		return cJSON_Duplicate(field_of(d, "num_attention_heads"), false);
	if (strcmp(field, "moe_ffn_hidden_size") == 0) {
		field = "ffn_hidden_size";
		if (field_of(d, field))
			return cJSON_Duplicate(field_of(d, field), false);
	}
	if (strcmp(field, "vocab_size") == 0 && d->tokens->n_tokens > 0)
		return cJSON_CreateNumber((double)d->tokens->n_tokens);
	if (!uns_json_int(d->fields, "hidden_size", &hidden) || hidden <= 0)
		return NULL;
	if (strcmp(field, "ffn_hidden_size") == 0)
		return cJSON_CreateNumber(4 * (double)hidden);
	if (strcmp(field, "kv_channels") == 0 && uns_json_int(d->fields, "num_attention_heads", &heads) && heads > 0) {
		const int64_t kv_channels = hidden / heads;

		return cJSON_CreateNumber((double)kv_channels);
	}
	return NULL;
}

/* The number as Python writes a float: 30.0. */
static cJSON *float_value(double v)
{
	char number[UNS_NUMBER_ROOM], text[UNS_NUMBER_ROOM + 2];

	uns_number_print(number, v, 17);
	snprintf(text, sizeof(text), "%s%s", number, strpbrk(number, ".e") ? "" : ".0");
	return cJSON_CreateRaw(text);
}

static int item_add(cJSON *object, const char *key, cJSON *value, struct uns_err *err)
{
	if (value && cJSON_AddItemToObject(object, key, value))
		return 0;
	cJSON_Delete(value);
	return uns_oom(err);
}

static int keys_add(const struct describing *d, cJSON *object, const struct key *key, size_t n, struct uns_err *err)
{
	const cJSON *field;
	cJSON *value;
	double number;
	size_t i;

	for (i = 0; i < n && key[i].to; i++) {
		field = field_of(d, key[i].from);
		value = field ? cJSON_Duplicate(field, true) : computed(d, key[i].from);
		if (!value && strcmp(key[i].from, "vocab_size") == 0)
			return uns_fail(err, -EBADMSG,
					"vocab_size is null, and no tokenizer.json beside it has the tokens to count");
		if (!value || !(cJSON_IsNumber(value) || cJSON_IsBool(value))) {
			cJSON_Delete(value);
			return uns_fail(err, -EBADMSG, "%s is no number", key[i].from);
		}
		if (key[i].is_float && cJSON_IsNumber(value)) {
			number = value->valuedouble;
			cJSON_Delete(value);
			value = float_value(number);
		}
		UNS_TRY(item_add(object, key[i].to, value, err));
	}
	return 0;
}

/* [4096, 0]: positions in front, and behind. */
static int window_add(const struct describing *d, struct uns_err *err)
{
	const cJSON *window = field_of(d, "window_size"), *before;

	if (strcmp(d->family->model_type, "mistral") != 0 && strcmp(d->family->model_type, "gemma2") != 0) {
		if (window)
			return rule_broken(d, "window_size", window, "null", err);
		return 0;
	}
	before = cJSON_IsArray(window) ? cJSON_GetArrayItem(window, 0) : NULL;
	if (window && !cJSON_IsNumber(before))
		return rule_broken(d, "window_size", window, "a list that begins with a number", err);
	return item_add(d->out, "sliding_window", before ? cJSON_Duplicate(before, false) : cJSON_CreateNull(), err);
}

static int scaling_add(const struct describing *d, struct uns_err *err)
{
	cJSON *scaling;

	if (!field_of(d, llama3_scaling[0].from))
		return 0;
	UNS_TRY_ALLOC(scaling = cJSON_AddObjectToObject(d->out, "rope_scaling"), err);
	UNS_TRY(item_add(scaling, "rope_type", cJSON_CreateString("llama3"), err));
	return keys_add(d, scaling, llama3_scaling, N(llama3_scaling), err);
}

static cJSON *number_or_null(int64_t n)
{
	return n == UNS_UNKNOWN ? cJSON_CreateNull() : cJSON_CreateNumber((double)n);
}

static int config_fill(const struct describing *d, const char *dtype, struct uns_err *err)
{
	const struct family *f = d->family;
	cJSON *architectures;

	UNS_TRY_ALLOC(architectures = cJSON_AddArrayToObject(d->out, "architectures"), err);
	UNS_TRY_ALLOC(cJSON_AddItemToArray(architectures, cJSON_CreateString(f->architecture)), err);
	UNS_TRY(item_add(d->out, "model_type", cJSON_CreateString(f->model_type), err));
	UNS_TRY(item_add(d->out, "dtype", cJSON_CreateString(dtype), err));
	UNS_TRY(keys_add(d, d->out, all_keys, N(all_keys), err));
	UNS_TRY(keys_add(d, d->out, f->key, MAX_KEYS, err));
	if (f->has_experts && strcmp(f->model_type, "qwen3_moe") == 0)
		UNS_TRY(item_add(d->out, "norm_topk_prob", cJSON_CreateTrue(), err));
	UNS_TRY(window_add(d, err));
	UNS_TRY(scaling_add(d, err));
	/* The defaults of transformers are another tokenizer's. */
	UNS_TRY(item_add(d->out, "bos_token_id", number_or_null(d->tokens->bos), err));
	return item_add(d->out, "eos_token_id", number_or_null(d->tokens->eos), err);
}

int uns_megatron_describe(const cJSON *fields, const struct uns_tokenizer *tokens, const char *dtype,
			  struct uns_arena *arena, const char **model_type, struct uns_span *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *made = cJSON_CreateObject();
	struct describing d = { .fields = fields, .tokens = tokens, .out = made };
	UNS_CLEANUP(uns_free_p) char *text = NULL;
	const char *kept;

	UNS_TRY_ALLOC(made, err);
	UNS_TRY(family_find(&d, err));
	*model_type = d.family->model_type;
	UNS_TRY(rules_check(&d, all_rules, N(all_rules), err));
	UNS_TRY(rules_check(&d, d.family->rule, MAX_RULES, err));
	if (d.family->has_experts)
		UNS_TRY(rules_check(&d, expert_rules, N(expert_rules), err));
	UNS_TRY(activation_check(&d, err));
	UNS_TRY(config_fill(&d, dtype, err));
	UNS_TRY_ALLOC(text = cJSON_Print(made), err);
	UNS_TRY_ALLOC(kept = uns_arena_printf(arena, "%s\n", text), err);
	*out = uns_span_of(kept, strlen(kept));
	return 0;
}

/* See megatron/args.h. Owns the table of arguments that are compared. */
#include "megatron/args.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "megatron/common_file.h"
#include "names/config.h"
#include "wire/json.h"
#include "wire/value_new.h"

#define GROUPED    "group_query_attention"
#define LATENT     "multi_latent_attention"
#define MINUS_ONE  "apply_layernorm_1p"
#define POSITIONS  "position_embedding_type"
#define ROPE_THETA "rope_theta"

enum { MAX_KEYS = 3 };

/* Numbers that config.json has under one of these keys, or that follow from it as `size`. An argument that has no
 * meaning unless another one is switched on (`only_with`) or off (`not_with`) is compared only then. */
static const struct {
	const char *arg, *only_with, *not_with;
	enum uns_megatron_size size; /* UNS_MG_NONE = it is at `key` */
	const char *key[MAX_KEYS];
} compared[] = {
	{ "num_attention_heads", NULL, NULL, UNS_MG_HEADS, { "num_attention_heads" } },
	{ "num_query_groups", GROUPED, LATENT, UNS_MG_GROUPS, { "num_key_value_heads" } },
	{ "kv_channels", NULL, LATENT, UNS_MG_HEAD, { "head_dim" } },
	{ "qk_head_dim", LATENT, NULL, UNS_MG_NOPE, { "qk_nope_head_dim" } },
	{ "qk_pos_emb_head_dim", LATENT, NULL, UNS_MG_ROPE, { "qk_rope_head_dim" } },
	{ "v_head_dim", LATENT, NULL, UNS_MG_VALUE, { "v_head_dim" } },
	{ "moe_router_topk", "num_experts", NULL, UNS_MG_NONE, { "num_experts_per_tok" } },
	{ "norm_epsilon", NULL, NULL, UNS_MG_NONE, { "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon" } },
	{ "rotary_base", NULL, NULL, UNS_MG_NONE, { ROPE_THETA } },
};

enum { N_COMPARED = sizeof(compared) / sizeof(compared[0]) };

static int args_add_one(struct uns_catalog *cat, uint32_t file, const struct uns_value *args, const char *name,
			struct uns_err *err)
{
	const struct uns_value *v = uns_value_field(args, name);
	struct uns_named_value named = { .name = name, .root = UNS_MEGATRON_COMMON, .file = file };

	if (!v || !(v->kind == UNS_VALUE_INT || v->kind == UNS_VALUE_FLOAT || v->kind == UNS_VALUE_STR ||
		    (v->kind == UNS_VALUE_BOOL && v->b)))
		return 0;
	named.value = uns_value_copy(&cat->arena, v);
	return named.value ? uns_catalog_add_value(cat, &named, err) : uns_oom(err);
}

int uns_megatron_args_add(struct uns_catalog *cat, uint32_t file, const struct uns_value *args, struct uns_err *err)
{
	static const char *const others[] = { UNS_MEGATRON_QK_DECAY, GROUPED,           LATENT, MINUS_ONE, POSITIONS,
					      "num_experts",         UNS_MEGATRON_MODEL };
	size_t i;

	for (i = 0; args && i < sizeof(others) / sizeof(others[0]); i++)
		UNS_TRY(args_add_one(cat, file, args, others[i], err));
	for (i = 0; args && i < N_COMPARED; i++)
		UNS_TRY(args_add_one(cat, file, args, compared[i].arg, err));
	return 0;
}

int uns_megatron_lightning_add(struct uns_catalog *cat, uint32_t file, const struct uns_value *root,
			       struct uns_err *err)
{
	struct uns_named_value named = { .name = UNS_MEGATRON_LIGHTNING, .root = UNS_MEGATRON_COMMON, .file = file };
	const struct uns_value *version = uns_value_get(root, UNS_MEGATRON_LIGHTNING);

	if (!version)
		return 0;
	UNS_TRY_ALLOC(named.value = uns_value_copy(&cat->arena, version), err);
	UNS_TRY(uns_catalog_add_value(cat, &named, err));
	return uns_megatron_iteration_add(cat, file, uns_value_get(root, UNS_MEGATRON_LIGHTNING_STEPS), err);
}

int uns_megatron_iteration_add(struct uns_catalog *cat, uint32_t file, const struct uns_value *v, struct uns_err *err)
{
	struct uns_named_value named = { .name = UNS_MEGATRON_ITERATION, .root = UNS_MEGATRON_COMMON, .file = file };

	if (!v || v->kind != UNS_VALUE_INT)
		return 0;
	UNS_TRY_ALLOC(named.value = uns_value_copy(&cat->arena, v), err);
	return uns_catalog_add_value(cat, &named, err);
}

static const struct uns_value *arg_of(const struct uns_catalog *cat, const char *name)
{
	return uns_catalog_value(cat, UNS_MEGATRON_COMMON, name);
}

/* Does the model turn queries and keys by their positions, so that rotary_base means something? */
static bool turns(const struct uns_catalog *cat)
{
	const struct uns_value *v = arg_of(cat, POSITIONS);

	return !v || v->kind != UNS_VALUE_STR || strcmp(v->bytes, "rope") == 0;
}

/* Of config.json: *key becomes the key that was found. transformers 5 keeps rope_theta in an object of its own. */
static bool config_number(const cJSON *text, const char *const keys[MAX_KEYS], const char **key, double *out)
{
	const cJSON *object = text, *number = NULL;
	size_t i;

	for (i = 0; i < MAX_KEYS && keys[i] && !number; i++) {
		*key = keys[i];
		number = cJSON_GetObjectItemCaseSensitive(object, *key);
		if (!number && strcmp(*key, ROPE_THETA) == 0)
			number = cJSON_GetObjectItemCaseSensitive(
				cJSON_GetObjectItemCaseSensitive(object, "rope_parameters"), *key);
	}
	if (!number || !cJSON_IsNumber(number))
		return false;
	*out = number->valuedouble;
	return true;
}

/* Equal but for what writing a float as a text may cost. */
static bool equal(double a, double b)
{
	return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* Without the training's arguments nothing is known, and nothing is refused. */
static int norms_check(const struct uns_catalog *cat, bool adds_one, struct uns_err *err)
{
	if (!adds_one && arg_of(cat, MINUS_ONE))
		return uns_fail(err, -ENOTSUP,
				"the training kept the weights of its norms minus one (" MINUS_ONE
				" in its arguments), which unshard does not undo");
	if (adds_one && arg_of(cat, compared[0].arg) && !arg_of(cat, MINUS_ONE))
		return uns_fail(
			err, -ENOTSUP,
			"the training did not keep the weights of its norms minus one (its arguments have no " MINUS_ONE
			"), and models of this type do");
	return 0;
}

int uns_megatron_args_check(const struct uns_catalog *cat, struct uns_span config,
			    const struct uns_megatron_sizes *sizes, bool adds_one, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *root = NULL;
	const char *key;
	char text[2][UNS_NUMBER_ROOM];
	double trained, said;
	size_t i;

	UNS_TRY(norms_check(cat, adds_one, err));
	if (uns_json_parse(config, &root, err) < 0)
		return uns_fail_in(err, "config.json");
	for (i = 0; i < N_COMPARED; i++) {
		key = compared[i].key[0];
		if ((compared[i].only_with && !arg_of(cat, compared[i].only_with)) ||
		    (compared[i].not_with && arg_of(cat, compared[i].not_with)) ||
		    (strcmp(key, ROPE_THETA) == 0 && !turns(cat)) ||
		    !uns_value_float(arg_of(cat, compared[i].arg), &trained))
			continue;
		if (compared[i].size != UNS_MG_NONE) {
			said = (double)sizes->v[compared[i].size];
			if (said == 0)
				continue;
		} else if (!config_number(uns_config_text(root), compared[i].key, &key, &said)) {
			continue;
		}
		if (!equal(trained, said))
			return uns_fail(err, -EBADMSG,
					"config.json: %s is %s, but the model was trained with %s (%s in "
					"its arguments): it is another model's config.json",
					key, uns_number_print(text[0], said, 12),
					uns_number_print(text[1], trained, 12), compared[i].arg);
	}
	return 0;
}

/* The known facts besides TrainerState's, which files/trainer_state.c has. Facts under other keys are kept as they are
 * given, because a later version may use them. */
#include "facts/fact_keys.h"

#include <string.h>

#include "base/cleanup.h"
#include "files/trainer_state.h"
#include "wire/json.h"

enum type {
	COUNT, /* an integer, 0 or more; or -1, if that means "not set" */
	TEXT,
	ABOVE_0, /* a number */
	BOOLEAN,
	OBJECT,
	DIRECTORY, /* an absolute path */
	LIKE,      /* takes the values of another key, a key of TrainerState */
};

static const struct known {
	const char *key;
	enum type type;
	bool may_be_null;
	const char *like;
} known[] = {
	/* TrainingArguments */
	{ "eval_strategy", TEXT, true, NULL },
	{ "gradient_accumulation_steps", COUNT, false, NULL },
	{ "logging_strategy", TEXT, true, NULL },
	{ "output_dir", TEXT, true, NULL },
	{ "per_device_eval_batch_size", COUNT, false, NULL },
	{ "per_device_train_batch_size", LIKE, false, "train_batch_size" },
	{ "save_strategy", TEXT, true, NULL },
	{ "seed", COUNT, false, NULL },
	/* PEFT's LoraConfig (files/adapter_config.h) */
	{ "alpha_pattern", OBJECT, false, NULL },
	{ "base_model_name_or_path", TEXT, false, NULL },
	{ "lora_alpha", ABOVE_0, false, NULL },
	{ "use_rslora", BOOLEAN, false, NULL },
	/* unshard's own */
	{ "components", TEXT, false, NULL },
	{ "model", DIRECTORY, false, NULL },
	{ "world_size", COUNT, false, NULL },
};
enum { N_KNOWN = sizeof(known) / sizeof(*known) };

static const char *const wanted[] = {
	[COUNT] = "an integer",      [TEXT] = "a string",    [ABOVE_0] = "a number above 0",
	[BOOLEAN] = "true or false", [OBJECT] = "an object", [DIRECTORY] = "the absolute path of a directory",
};

static bool value_fits(const cJSON *v, const struct known *k)
{
	if (cJSON_IsNull(v))
		return k->may_be_null;
	if (k->type == COUNT)
		return cJSON_IsNumber(v) && v->valuedouble >= -1 && v->valuedouble < 9007199254740992.0 &&
		       v->valuedouble == (double)(long long)v->valuedouble;
	if (k->type == ABOVE_0)
		return cJSON_IsNumber(v) && v->valuedouble > 0;
	if (k->type == BOOLEAN)
		return cJSON_IsBool(v);
	if (k->type == OBJECT)
		return cJSON_IsObject(v);
	return cJSON_IsString(v) && (k->type != DIRECTORY || v->valuestring[0] == '/');
}

static const struct known *known_find(const char *key)
{
	size_t i;

	for (i = 0; i < N_KNOWN; i++)
		if (strcmp(known[i].key, key) == 0)
			return &known[i];
	return NULL;
}

bool fact_key_known(const char *key)
{
	return uns_trainer_state_takes(key, NULL) || known_find(key);
}

const char *fact_key_at(size_t i)
{
	return i < N_KNOWN ? known[i].key : uns_trainer_state_key(i - N_KNOWN);
}

int fact_key_check(const char *key, const char *json, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *value = NULL;
	const struct known *k = known_find(key);
	const char *as = k && k->type == LIKE ? k->like : key, *takes;
	bool nullable;

	if (!*key || key[strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_.-")])
		return uns_fail(err, -EINVAL, "'%.60s' is not a key: a key consists of a-z, 0-9, '_', '.' and '-'",
				key);
	takes = uns_trainer_state_takes(as, &nullable);
	if (takes) {
		/* Otherwise a value of the wrong type would be stored and listed, and every mount would ignore it. */
		if (uns_trainer_state_check_fact(as, json, NULL) == 0)
			return 0;
	} else {
		if (!k)
			return 0;
		UNS_TRY(uns_json_parse(uns_span_of(json, strlen(json)), &value, err));
		if (value_fits(value, k))
			return 0;
		takes = wanted[k->type];
		nullable = k->may_be_null;
	}
	return uns_fail(err, -EINVAL, "%s takes %s%s", key, takes, nullable ? ", or null" : "");
}

/* The table of known facts. Others are kept as they are given: they may be read by a later version. */
#include "session/meta_keys.h"

#include <string.h>

#include "wire/json.h"

enum type {
	COUNT,    /* an integer, 0 or more; -1 where it stands for "not set" */
	NUMBER,
	TEXT,
	FLAG,
	LIST,
	DICT,
	ANY,
	DIRECTORY, /* an absolute path */
};

static const struct {
	const char *key;
	enum type type;
	bool may_be_null;
} known[] = {
	/* TrainerState */
	{ "best_global_step", COUNT, true },
	{ "best_metric", NUMBER, true },
	{ "best_model_checkpoint", TEXT, true },
	{ "epoch", NUMBER, true },
	{ "eval_steps", NUMBER, true },
	{ "global_step", COUNT, false },
	{ "is_hyper_param_search", FLAG, false },
	{ "is_local_process_zero", FLAG, false },
	{ "is_world_process_zero", FLAG, false },
	{ "log_history", LIST, true },
	{ "logging_steps", NUMBER, false },
	{ "max_steps", COUNT, false },
	{ "num_input_tokens_seen", COUNT, false },
	{ "num_train_epochs", NUMBER, false },
	{ "save_steps", NUMBER, false },
	{ "stateful_callbacks", DICT, true },
	{ "total_flos", NUMBER, false },
	{ "train_batch_size", COUNT, true },
	{ "trial_name", TEXT, true },
	{ "trial_params", ANY, true },
	/* TrainingArguments */
	{ "eval_strategy", TEXT, true },
	{ "gradient_accumulation_steps", COUNT, false },
	{ "logging_strategy", TEXT, true },
	{ "output_dir", TEXT, true },
	{ "per_device_eval_batch_size", COUNT, false },
	{ "per_device_train_batch_size", COUNT, false },
	{ "save_strategy", TEXT, true },
	{ "seed", COUNT, false },
	/* unshard's own */
	{ "model", DIRECTORY, false },
	{ "world_size", COUNT, false },
};
enum { N_KNOWN = sizeof(known) / sizeof(*known) };

static const char *const wanted[] = {
	[COUNT] = "an integer",	   [NUMBER] = "a number", [TEXT] = "a text",
	[FLAG] = "true or false",  [LIST] = "a list",	  [DICT] = "an object",
	[ANY] = "any value",	   [DIRECTORY] = "the absolute path of a directory",
};

static bool is_count(const cJSON *v)
{
	return cJSON_IsNumber(v) && v->valuedouble >= -1 && v->valuedouble < 9007199254740992.0 &&
	       v->valuedouble == (double)(long long)v->valuedouble;
}

static bool fits(const cJSON *v, enum type type)
{
	switch (type) {
	case COUNT:
		return is_count(v);
	case NUMBER:
		return cJSON_IsNumber(v);
	case TEXT:
		return cJSON_IsString(v);
	case FLAG:
		return cJSON_IsBool(v);
	case LIST:
		return cJSON_IsArray(v);
	case DICT:
		return cJSON_IsObject(v);
	case DIRECTORY:
		return cJSON_IsString(v) && v->valuestring[0] == '/';
	case ANY:
		break;
	}
	return true;
}

static size_t find(const char *key)
{
	size_t i = 0;

	while (i < N_KNOWN && strcmp(known[i].key, key) != 0)
		i++;
	return i;
}

bool meta_key_known(const char *key)
{
	return find(key) < N_KNOWN;
}

int meta_key_check(const char *key, const cJSON *value, struct uns_err *err)
{
	size_t i = find(key);

	if (!*key || key[strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_.-")])
		return uns_fail(err, -EINVAL,
				"'%.60s' is not a key: keys are made of a-z, 0-9, '_', '.' and '-'",
				key);
	if (i == N_KNOWN || fits(value, known[i].type) ||
	    (cJSON_IsNull(value) && known[i].may_be_null))
		return 0;
	return uns_fail(err, -EINVAL, "%s takes %s%s", key, wanted[known[i].type],
			known[i].may_be_null ? ", or null" : "");
}

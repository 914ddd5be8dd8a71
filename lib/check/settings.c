/* See settings.h. Values are taken as loosely as the frameworks take them: true, "true" and 1. */
#include "check/settings.h"

#include <string.h>

#include "base/path.h"
#include "wire/json.h"

/* -- values -- */

static const cJSON *json_item(const cJSON *object, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool json_has(const cJSON *object, const char *key)
{
	return json_item(object, key) != NULL;
}

static enum uns_said said(const cJSON *object, const char *key)
{
	const cJSON *v = json_item(object, key);
	const char *s = cJSON_GetStringValue(v);

	if (cJSON_IsBool(v))
		return cJSON_IsTrue(v) ? UNS_SAID_YES : UNS_SAID_NO;
	if (cJSON_IsNumber(v))
		return v->valuedouble != 0 ? UNS_SAID_YES : UNS_SAID_NO;
	if (s && (strcasecmp(s, "true") == 0 || strcmp(s, "1") == 0))
		return UNS_SAID_YES;
	if (s && (strcasecmp(s, "false") == 0 || strcmp(s, "0") == 0))
		return UNS_SAID_NO;
	return UNS_NOT_SAID; /* absent, null, "auto" */
}

static bool said_yes(const cJSON *object, const char *key)
{
	return said(object, key) == UNS_SAID_YES;
}

/* A later setting overrides an earlier one. */
static void said_override(enum uns_said *to, enum uns_said what)
{
	if (what != UNS_NOT_SAID)
		*to = what;
}

static int64_t json_number(const cJSON *object, const char *key)
{
	const char *s = uns_json_str(object, key);
	unsigned long long n;
	int64_t value;

	if (uns_json_int(object, key, &value))
		return value;
	return s && uns_str_number(s, "", "", &n) && n < INT32_MAX ? (int64_t)n : 0;
}

static int keep_string(const char **to, const cJSON *object, const char *key, struct uns_arena *arena,
		       struct uns_err *err)
{
	const char *s = uns_json_str(object, key);

	if (!s || !*s)
		return 0;
	*to = uns_arena_str(arena, s);
	return *to ? 0 : uns_oom(err);
}

/* "", [], {}, false and null turn a setting off, as for Python. */
static bool is_on(const cJSON *v)
{
	const char *s = cJSON_GetStringValue(v);

	if (s)
		return *s && strcasecmp(s, "false") != 0 && strcasecmp(s, "none") != 0;
	if (cJSON_IsArray(v) || cJSON_IsObject(v))
		return v->child != NULL;
	return cJSON_IsTrue(v);
}

static bool class_is(const cJSON *v, const char *name)
{
	const char *path = cJSON_IsString(v) ? v->valuestring : uns_json_str(v, "class_path");
	const char *dot = path ? strrchr(path, '.') : NULL;

	return path && strcmp(dot ? dot + 1 : path, name) == 0;
}

/* -- FSDP -- */

static enum uns_state_dict state_dict_of(const cJSON *config, const char *key)
{
	const cJSON *v = json_item(config, key);
	const char *s = cJSON_GetStringValue(v);
	int64_t n = json_number(config, key); /* torch's StateDictType: 1, 2, 3 */

	if (n == UNS_FULL || (s && strcasestr(s, "FULL_STATE_DICT")))
		return UNS_FULL;
	if (n == UNS_SHARDED || (s && strcasestr(s, "SHARDED_STATE_DICT")))
		return UNS_SHARDED;
	if (n == UNS_LOCAL || (s && strcasestr(s, "LOCAL_STATE_DICT")))
		return UNS_LOCAL;
	return UNS_STATE_DICT_NOT_SAID;
}

/* Trainer takes every key with and without "fsdp_" in front. */
void uns_settings_add_fsdp(struct uns_settings *s, const cJSON *config)
{
	static const char *const types[] = { "state_dict_type", "fsdp_state_dict_type" };
	static const char *const versions[] = { "version", "fsdp_version" };
	size_t i;

	for (i = 0; i < 2; i++) {
		if (state_dict_of(config, types[i]) != UNS_STATE_DICT_NOT_SAID)
			s->state_dict = state_dict_of(config, types[i]);
		if (json_number(config, versions[i]) > 0)
			s->fsdp_version = json_number(config, versions[i]);
	}
}

bool uns_settings_sharded(const struct uns_settings *s)
{
	if (!s->fsdp)
		return false;
	/* Source: accelerate 1.6-1.15, FullyShardedDataParallelPlugin.set_state_dict_type. */
	if (s->state_dict == UNS_STATE_DICT_NOT_SAID)
		return s->accelerate && s->fsdp_version == 2;
	return s->state_dict == UNS_SHARDED;
}

int64_t uns_settings_fsdp_version(const struct uns_settings *s)
{
	if (s->fsdp_version || s->accelerate)
		return s->fsdp_version ? s->fsdp_version : 1;
	/* Source: TrainingArguments of transformers 5.9.0 (default 1) and 5.10.1 (default 2). */
	if (!s->version[UNS_TRANSFORMERS].known)
		return 0;
	return uns_version_before(&s->version[UNS_TRANSFORMERS], 5, 10, 0) ? 1 : 2;
}

/* -- DeepSpeed -- */

static void add_deepspeed(struct uns_settings *s, const cJSON *json)
{
	const cJSON *zero = json_item(json, "zero_optimization"), *checkpoint = json_item(json, "checkpoint");

	s->deepspeed = true;
	if (json_number(zero, "stage") > 0)
		s->zero_stage = json_number(zero, "stage");
	said_override(&s->gather_16bit, said(zero, "stage3_gather_fp16_weights_on_model_save"));
	said_override(&s->gather_16bit, said(zero, "stage3_gather_16bit_weights_on_model_save"));
	said_override(&s->load_universal, said(checkpoint, "load_universal"));
	s->round_robin |= said_yes(zero, "round_robin_gradients");
	s->universal_key |= said_yes(json, "universal_checkpoint") || said_yes(json, "load_universal") ||
			    said_yes(json, "load_universal_checkpoint");
	s->exclude_frozen |=
		said_yes(json, "exclude_frozen_parameters") || said_yes(checkpoint, "exclude_frozen_parameters");
}

/* -- one file each -- */

static int add_training_arguments(struct uns_settings *s, const cJSON *json, struct uns_arena *arena,
				  struct uns_err *err)
{
	const cJSON *fsdp = json_item(json, "fsdp"), *config = json_item(json, "fsdp_config"),
		    *deepspeed = json_item(json, "deepspeed");

	s->trainer = true;
	s->save_only_model |= said_yes(json, "save_only_model");
	s->load_best_model_at_end |= said_yes(json, "load_best_model_at_end");
	s->exclude_frozen |= said_yes(json, "exclude_frozen_parameters");
	if (cJSON_IsNumber(json_item(json, "weight_decay")))
		s->weight_decay = json_item(json, "weight_decay")->valuedouble;
	UNS_TRY(keep_string(&s->output_dir, json, "output_dir", arena, err));
	if (fsdp ? is_on(fsdp) : is_on(config)) {
		s->fsdp = true;
		uns_settings_add_fsdp(s, config);
		UNS_TRY(keep_string(&s->fsdp_file, json, "fsdp_config", arena, err));
	}
	if (cJSON_IsObject(deepspeed) && is_on(deepspeed))
		add_deepspeed(s, deepspeed);
	return keep_string(&s->deepspeed_file, json, "deepspeed", arena, err);
}

static int add_accelerate(struct uns_settings *s, const cJSON *json, struct uns_arena *arena, struct uns_err *err)
{
	const cJSON *fsdp = json_item(json, "fsdp_config"), *deepspeed = json_item(json, "deepspeed_config");
	const char *type = uns_json_str(json, "distributed_type");

	s->accelerate = true;
	if (type ? strcmp(type, "FSDP") == 0 : is_on(fsdp)) {
		s->fsdp = true;
		uns_settings_add_fsdp(s, fsdp);
	}
	if (type ? strcmp(type, "DEEPSPEED") != 0 : !is_on(deepspeed))
		return 0;
	s->deepspeed = true;
	if (json_number(deepspeed, "zero_stage") > 0)
		s->zero_stage = json_number(deepspeed, "zero_stage");
	said_override(&s->gather_16bit, said(deepspeed, "zero3_save_16bit_model"));
	return keep_string(&s->deepspeed_file, deepspeed, "deepspeed_config_file", arena, err);
}

static int add_lightning_strategy(struct uns_settings *s, const cJSON *strategy, struct uns_arena *arena,
				  struct uns_err *err)
{
	const cJSON *init = json_item(strategy, "init_args");

	if (class_is(strategy, "FSDPStrategy")) {
		const char *type = uns_json_str(init, "state_dict_type");

		s->lightning_sharded = type && strcmp(type, "sharded") == 0;
	}
	if (!class_is(strategy, "DeepSpeedStrategy"))
		return 0;
	s->deepspeed = true;
	s->exclude_frozen |= said_yes(init, "exclude_frozen_parameters");
	if (json_number(init, "stage") > 0)
		s->zero_stage = json_number(init, "stage");
	if (cJSON_IsObject(json_item(init, "config")))
		add_deepspeed(s, json_item(init, "config"));
	return keep_string(&s->deepspeed_file, init, "config", arena, err);
}

static int add_lightning(struct uns_settings *s, const cJSON *json, struct uns_arena *arena, struct uns_err *err)
{
	const cJSON *trainer = json_item(json, "trainer"), *callbacks, *callback;

	s->lightning = true;
	callbacks = json_item(trainer, "callbacks");
	cJSON_ArrayForEach (callback, callbacks)
		s->lightning_weights_only |= class_is(callback, "ModelCheckpoint") &&
					     said_yes(json_item(callback, "init_args"), "save_weights_only");
	UNS_TRY(keep_string(&s->output_dir, trainer, "default_root_dir", arena, err));
	return add_lightning_strategy(s, json_item(trainer, "strategy"), arena, err);
}

int uns_settings_add(struct uns_settings *s, enum uns_config_kind kind, const cJSON *json, struct uns_arena *arena,
		     struct uns_err *err)
{
	switch (kind) {
	case UNS_CONFIG_TRAINING_ARGUMENTS:
		return add_training_arguments(s, json, arena, err);
	case UNS_CONFIG_ACCELERATE:
		return add_accelerate(s, json, arena, err);
	case UNS_CONFIG_LIGHTNING:
		return add_lightning(s, json, arena, err);
	case UNS_CONFIG_DEEPSPEED:
		add_deepspeed(s, json);
		return 0;
	default:
		return 0;
	}
}

/* -- which file is it -- */

static bool has_any(const cJSON *json, const char *const *keys)
{
	for (; *keys; keys++)
		if (json_has(json, *keys))
			return true;
	return false;
}

enum uns_config_kind uns_config_kind_of(const cJSON *json)
{
	static const char *const accelerate[] = { "compute_environment", "distributed_type", "deepspeed_config", NULL };
	static const char *const arguments[] = { "output_dir",
						 "per_device_train_batch_size",
						 "save_strategy",
						 "save_steps",
						 "save_only_model",
						 "load_best_model_at_end",
						 "fsdp",
						 "deepspeed",
						 "learning_rate",
						 "num_train_epochs",
						 NULL };
	static const char *const deepspeed[] = { "zero_optimization",
						 "train_micro_batch_size_per_gpu",
						 "steps_per_print",
						 "gradient_clipping",
						 "zero_allow_untested_optimizer",
						 "checkpoint",
						 "universal_checkpoint",
						 "load_universal_checkpoint",
						 "exclude_frozen_parameters",
						 NULL };

	if (!cJSON_IsObject(json))
		return UNS_CONFIG_UNKNOWN;
	if (has_any(json, accelerate) && !json_has(json, "output_dir"))
		return UNS_CONFIG_ACCELERATE;
	if (cJSON_IsObject(json_item(json, "trainer")))
		return UNS_CONFIG_LIGHTNING;
	if (has_any(json, arguments))
		return UNS_CONFIG_TRAINING_ARGUMENTS;
	if (has_any(json, deepspeed))
		return UNS_CONFIG_DEEPSPEED;
	return is_on(json_item(json, "fsdp_config")) ? UNS_CONFIG_ACCELERATE : UNS_CONFIG_UNKNOWN;
}

const char *uns_config_kind_text(enum uns_config_kind kind)
{
	static const char *const text[] = { "unknown", "TrainingArguments", "Accelerate config", "DeepSpeed config",
					    "LightningCLI config" };

	return text[kind];
}

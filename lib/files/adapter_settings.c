/* Source: peft 0.21.2, tuners/lora/config.py, tuners/lora/model.py (_create_and_replace) and utils/other.py
 * (get_pattern_key).
 *
 *   scale = alpha / r, or alpha / sqrt(r) with use_rslora; r and alpha are those of the first pattern that the end of
 *   the module's name fits from a dot or the beginning on, else the config's own */
#include "files/adapter_settings.h"

#include <math.h>
#include <string.h>

#include "base/path.h"

/* Keys that add nothing to what the tensors and the keys that are read here decide. */
static const char *const harmless[] = {
	"peft_type",         "r",
	"lora_alpha",        "use_rslora",
	"rank_pattern",      "alpha_pattern",
	"fan_in_fan_out",    "bias",
	"lora_bias",         "modules_to_save",
	"target_modules",    "target_parameters",
	"exclude_modules",   "feedforward_modules",
	"lora_dropout",      "layers_to_transform",
	"layers_pattern",    "base_model_name_or_path",
	"task_type",         "inference_mode",
	"auto_mapping",      "init_lora_weights",
	"init_ia3_weights",  "peft_version",
	"megatron_core",     "revision",
	"qalora_group_size", "runtime_config",
	"use_dora",          NULL,
};

static const char *const methods[] = {
	[UNS_METHOD_LORA] = "LORA",
	[UNS_METHOD_IA3] = "IA3",
	[UNS_METHOD_LN_TUNING] = "LN_TUNING",
};

static bool is_among(const char *const *names, const char *name)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names != NULL;
}

/* As in Python. */
static bool is_set(const cJSON *value)
{
	if (cJSON_IsArray(value) || cJSON_IsObject(value))
		return cJSON_GetArraySize(value) > 0;
	if (cJSON_IsString(value))
		return value->valuestring[0] != '\0';
	return cJSON_IsTrue(value) || (cJSON_IsNumber(value) && value->valuedouble != 0);
}

/* Some ways to begin a training change the base model's weights, too, when the adapter is loaded. */
static int init_check(const cJSON *json, struct uns_err *err)
{
	static const char *const known[] = { "gaussian", "orthogonal", NULL };
	const cJSON *init = cJSON_GetObjectItemCaseSensitive(json, "init_lora_weights");

	if (!init || cJSON_IsNull(init) || cJSON_IsBool(init) ||
	    (cJSON_IsString(init) && is_among(known, init->valuestring)))
		return 0;
	return uns_fail(err, -ENOTSUP,
			"adapter_config.json has init_lora_weights = %s, which may change the base model's weights",
			cJSON_IsString(init) ? init->valuestring : "an unknown value");
}

static int method_read(const cJSON *json, enum uns_adapter_method *out, struct uns_err *err)
{
	const char *type = uns_json_str(json, "peft_type");
	size_t i;

	for (i = 0; type && i < sizeof(methods) / sizeof(*methods); i++)
		if (strcmp(type, methods[i]) == 0) {
			*out = (enum uns_adapter_method)i;
			return 0;
		}
	return uns_fail(err, -ENOTSUP, "the adapter's peft_type is %s, and unshard merges LORA, IA3 and LN_TUNING only",
			type ? type : "not recorded");
}

static int keys_check(const cJSON *json, struct uns_err *err)
{
	const cJSON *item;

	UNS_TRY(init_check(json, err));
	cJSON_ArrayForEach (item, json)
		if (is_set(item) && !is_among(harmless, item->string))
			return uns_fail(err, -ENOTSUP,
					"adapter_config.json sets %s, with which unshard cannot merge an adapter",
					item->string);
	return 0;
}

/* "0.18.1" -> 18 */
static int minor_of(const char *version)
{
	int minor = 0;

	if (!version || !uns_str_starts(version, "0.") || !strchr("0123456789", version[2]) || !version[2])
		return -1;
	for (version += 2; *version >= '0' && *version <= '9' && minor < 1000; version++)
		minor = 10 * minor + (*version - '0');
	return minor;
}

static int lora_read(struct uns_adapter_settings *out, struct uns_err *err)
{
	const cJSON *alpha = cJSON_GetObjectItemCaseSensitive(out->json, "lora_alpha");

	if (!uns_json_int(out->json, "r", &out->r) || out->r <= 0 || !cJSON_IsNumber(alpha))
		return uns_fail(err, -ENOTSUP, "adapter_config.json has no r or no lora_alpha");
	out->alpha = alpha->valuedouble;
	uns_json_bool(out->json, "use_rslora", &out->rslora);
	uns_json_bool(out->json, "use_dora", &out->dora);
	out->parameters = cJSON_GetObjectItemCaseSensitive(out->json, "target_parameters");
	out->peft_minor = minor_of(uns_json_str(out->json, "peft_version"));
	out->ranks = cJSON_GetObjectItemCaseSensitive(out->json, "rank_pattern");
	out->alphas = cJSON_GetObjectItemCaseSensitive(out->json, "alpha_pattern");
	return 0;
}

int uns_adapter_settings_read(struct uns_span adapter_config, struct uns_adapter_settings *out, struct uns_err *err)
{
	*out = (struct uns_adapter_settings){ 0 };
	UNS_TRY(uns_json_parse(adapter_config, &out->json, err));
	if (!cJSON_IsObject(out->json))
		return uns_fail(err, -EBADMSG, "adapter_config.json is not an object");
	UNS_TRY(method_read(out->json, &out->method, err));
	UNS_TRY(keys_check(out->json, err));
	uns_json_bool(out->json, "fan_in_fan_out", &out->fan_in_fan_out);
	return out->method == UNS_METHOD_LORA ? lora_read(out, err) : 0;
}

void uns_adapter_settings_fini(struct uns_adapter_settings *settings)
{
	uns_json_free_p(&settings->json);
}

/* Does the pattern, which is names joined by dots, fit all of `name`? A dot is any one character, as in a regular
 * expression; an escaped one is a dot. */
static bool fits(const char *pattern, const char *name)
{
	for (; *pattern && *name; pattern++, name++) {
		if (*pattern == '\\' && pattern[1] == '.') {
			pattern++;
			if (*name != '.')
				return false;
		} else if (*pattern != '.' && *pattern != *name) {
			return false;
		}
	}
	return !*pattern && !*name;
}

static bool is_plain(const char *pattern)
{
	for (; *pattern; pattern++) {
		if (*pattern == '\\' && pattern[1] == '.')
			pattern++;
		else if (strchr("\\^$*+?{}[]|()", *pattern))
			return false;
	}
	return true;
}

/* 1 = the pattern fits the module, 0 = it does not. */
static int pattern_fits(const char *pattern, const char *module, struct uns_err *err)
{
	const bool whole = *pattern == '^';
	const char *at = module;

	pattern += whole;
	if (!is_plain(pattern))
		return uns_fail(err, -ENOTSUP,
				"adapter_config.json has the pattern %s, a regular expression that unshard does not "
				"read",
				pattern - whole);
	while (at && !fits(pattern, at)) {
		at = whole ? NULL : strchr(at, '.');
		at = at ? at + 1 : NULL;
	}
	return at != NULL;
}

/* *value stays if no pattern fits. */
static int pattern_find(const cJSON *patterns, const char *module, double *value, struct uns_err *err)
{
	const cJSON *item;
	int found;

	cJSON_ArrayForEach (item, patterns) {
		UNS_TRY(found = pattern_fits(item->string, module, err));
		if (!found)
			continue;
		if (!cJSON_IsNumber(item))
			return uns_fail(err, -ENOTSUP, "adapter_config.json has no number for the pattern %s",
					item->string);
		*value = item->valuedouble;
		return 0;
	}
	return 0;
}

int uns_adapter_settings_numbers(const struct uns_adapter_settings *settings, const char *module, double *rank,
				 double *alpha, struct uns_err *err)
{
	*rank = (double)settings->r;
	*alpha = settings->alpha;
	UNS_TRY(pattern_find(settings->ranks, module, rank, err));
	return pattern_find(settings->alphas, module, alpha, err);
}

int uns_adapter_settings_scale(const struct uns_adapter_settings *settings, const char *module, uint64_t r,
			       double *scale, struct uns_err *err)
{
	double rank, alpha;

	UNS_TRY(uns_adapter_settings_numbers(settings, module, &rank, &alpha, err));
	if (rank != (double)r)
		return uns_fail(err, -ENOTSUP,
				"module %s has rank %llu, and adapter_config.json has another one for it", module,
				(unsigned long long)r);
	*scale = alpha / (settings->rslora ? sqrt(rank) : rank);
	return 0;
}

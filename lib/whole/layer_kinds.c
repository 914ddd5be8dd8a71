/* Hashes, for each layer, all that config.json records of it. A key that is taken for one about layers, and is none,
 * splits a kind into two: what is found within each kind stays true, and less is found. */
#include "whole/layer_kinds.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/hash.h"

struct kinds {
	uint64_t *v;
	uint32_t n;
};

static bool has_word(const char *key, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(key, *words))
			return true;
	return false;
}

static void kind_add(struct kinds *k, uint32_t layer, uint64_t what)
{
	k->v[layer] = uns_hash_u64(k->v[layer], what);
}

/* An entry for each layer, of whatever type. */
static int entries_add(struct kinds *k, const cJSON *list)
{
	const cJSON *item;
	uint32_t i = 0;

	cJSON_ArrayForEach (item, list) {
		UNS_CLEANUP(uns_free_p) char *text = cJSON_PrintUnformatted(item);

		if (!text)
			return -ENOMEM;
		kind_add(k, i++, uns_hash_str(UNS_HASH_INIT, text));
	}
	return 0;
}

/* A list of layers; -1 is the last one. Numbers of layers that this model does not have are a larger one's. */
static void members_add(struct kinds *k, const cJSON *list)
{
	const cJSON *item;
	double at;

	cJSON_ArrayForEach (item, list) {
		at = item->valuedouble < 0 ? item->valuedouble + k->n : item->valuedouble;
		if (cJSON_IsNumber(item) && at >= 0 && at < k->n)
			kind_add(k, (uint32_t)at, 1);
	}
}

/* A list of names that is shorter than the model is repeated (recurrent_gemma's block_types). */
static bool is_of_names(const cJSON *list)
{
	const cJSON *item;

	cJSON_ArrayForEach (item, list)
		if (!cJSON_IsString(item))
			return false;
	return true;
}

static int list_add(struct kinds *k, const cJSON *list)
{
	const int n = cJSON_GetArraySize(list);
	uint32_t i;

	if ((uint32_t)n == k->n)
		return entries_add(k, list);
	if (!is_of_names(list))
		members_add(k, list);
	else if (n > 1)
		for (i = 0; i < k->n; i++)
			kind_add(k, i, i % (uint32_t)n);
	return 0;
}

/* hybrid_override_pattern "M*M-": a letter for each layer. */
static void letters_add(struct kinds *k, const char *key, const char *text)
{
	static const char *const keys[] = { "pattern", NULL };
	uint32_t i;

	if (has_word(key, keys) && strlen(text) == k->n)
		for (i = 0; i < k->n; i++)
			kind_add(k, i, (uint64_t)(unsigned char)text[i]);
}

static void number_add(struct kinds *k, const char *key, uint32_t n)
{
	static const char *const begins[] = { "first_k",       "dense_layers", "start", "end_index",
					      "window_layers", "skip",         NULL };
	static const char *const ends[] = { "kv_shared", "shared_layers", NULL };
	static const char *const periods[] = { "period", "step", "interval", "freq", "every", "pattern", NULL };
	static const char *const others[] = { "token", "time_step", NULL }; /* decoder_start_token_id, time_step_rank */
	uint32_t i;

	if (has_word(key, others))
		return;
	for (i = 0; i < k->n && has_word(key, begins); i++)
		kind_add(k, i, i < n);
	for (i = 0; i < k->n && has_word(key, ends); i++)
		kind_add(k, i, i < k->n - n);
	for (i = 0; i < k->n && n > 1 && has_word(key, periods); i++)
		kind_add(k, i, i % n);
}

bool uns_layer_kinds_add(const cJSON *config, uint64_t *kind, uint32_t n)
{
	struct kinds k = { kind, n };
	const cJSON *item;

	cJSON_ArrayForEach (item, config) {
		if (!item->string)
			continue;
		if (cJSON_IsArray(item) && list_add(&k, item) < 0)
			return false;
		if (cJSON_IsString(item))
			letters_add(&k, item->string, item->valuestring);
		if (cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < n)
			number_add(&k, item->string, (uint32_t)item->valuedouble);
	}
	return true;
}

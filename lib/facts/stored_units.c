/* Unit maps on their way from the store to the formats. */
#include "facts/stored_units.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "facts/fact_files.h"
#include "wire/json.h"

enum { GENERATION_TEXT = 17 };

static void generation_text(uint64_t generation, char out[GENERATION_TEXT])
{
	snprintf(out, GENERATION_TEXT, "%016llx", (unsigned long long)generation);
}

const char *stored_units_find(const struct uns_store_fact *v, size_t n, uint64_t own_generation, bool *stale)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	char now[GENERATION_TEXT];
	const char *then = NULL;
	size_t i = 0;

	*stale = false;
	while (i < n && strcmp(v[i].key, UNITS_FACT) != 0)
		i++;
	if (i == n)
		return NULL;
	/* An invalid map belongs to any files; the format that reads it reports what is wrong. */
	if (uns_json_parse(uns_span_of(v[i].json, strlen(v[i].json)), &json, NULL) == 0)
		then = uns_json_str(json, "generation");
	generation_text(own_generation, now);
	*stale = then && strcmp(then, now) != 0;
	return *stale ? NULL : v[i].json;
}

int stored_units_bind(struct uns_store_fact *fact, uint64_t own_generation, struct uns_arena *arena,
		      struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	UNS_CLEANUP(uns_free_p) char *text = NULL;
	char generation[GENERATION_TEXT];

	generation_text(own_generation, generation);
	UNS_TRY(uns_json_parse(uns_span_of(fact->json, strlen(fact->json)), &json, err));
	UNS_TRY_ALLOC(cJSON_AddStringToObject(json, "generation", generation), err);
	text = cJSON_PrintUnformatted(json);
	fact->json = text ? uns_arena_str(arena, text) : NULL;
	return fact->json ? 0 : uns_oom(err);
}

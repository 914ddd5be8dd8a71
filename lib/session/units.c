/* Layouts of flat units between the store and the formats. What one must look like: ranks/units.h;
 * what users write it with: README.md. */
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/json.h"

int units_assume(struct unshard *u, const char *what, struct uns_err *err)
{
	if (what && strcmp(what, "fsdp-units") != 0)
		return uns_fail(err, -EINVAL, "assume=%.40s: fsdp-units is expected", what);
	u->format_options.assume_fsdp_units = what != NULL;
	return 0;
}

static const char *generation_text(const struct place *place, struct uns_arena *arena)
{
	return uns_arena_printf(arena, "%016llx", (unsigned long long)place->own_generation);
}

static const struct uns_store_fact *find_fact(const struct uns_store_fact *v, size_t n)
{
	size_t i = 0;

	while (i < n && strcmp(v[i].key, UNITS_FACT) != 0)
		i++;
	return i < n ? &v[i] : NULL;
}

/* A layout without a generation is a run's: it is compared with sizes and shapes alone. */
static bool is_stale(const char *layout, const struct place *place, struct uns_arena *arena)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *now = generation_text(place, arena), *then;

	if (uns_json_parse(uns_span_of(layout, strlen(layout)), &json, NULL) < 0)
		return false; /* whoever reads it says what is wrong */
	then = uns_json_str(json, "generation");
	return then && now && strcmp(then, now) != 0;
}

struct uns_format_options units_options(struct unshard *u, const struct place *place,
					struct uns_arena *arena)
{
	struct uns_format_options options = u->format_options;
	const struct uns_store_fact *fact;
	struct uns_store_fact *v = NULL;
	size_t n = 0;

	if (!place->format->wants_units || meta_facts(u, place->path, arena, &v, &n, NULL) < 0)
		return options;
	fact = find_fact(v, n);
	if (fact && is_stale(fact->json, place, arena))
		options.fsdp_units_stale = true;
	else if (fact)
		options.fsdp_units = fact->json;
	return options;
}

/* -- import -- */

static int add_generation(const struct place *place, struct uns_arena *arena,
			  struct uns_store_fact *fact, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	UNS_CLEANUP(uns_free_p) char *text = NULL;
	const char *generation = generation_text(place, arena);

	UNS_TRY(uns_json_parse(uns_span_of(fact->json, strlen(fact->json)), &json, err));
	if (!generation || !cJSON_AddStringToObject(json, "generation", generation))
		return uns_oom(err);
	text = cJSON_PrintUnformatted(json);
	fact->json = text ? uns_arena_str(arena, text) : NULL;
	return fact->json ? 0 : uns_oom(err);
}

/* Whether the checkpoint's optimizer is one that this layout names. */
static int try_layout(struct unshard *u, const struct place *place, const char *layout,
		      struct uns_err *err)
{
	struct uns_format_options options = u->format_options;
	struct uns_catalog *cat = NULL;
	size_t i;
	int code;

	options.fsdp_units = layout;
	UNS_TRY(uns_catalog_new(place->path, &cat, err));
	code = snapshot_open_catalog(u, place, &options, cat, err);
	for (i = 0; code == 0 && i < cat->n_findings; i++)
		if (cat->findings[i].scope == UNS_SCOPE_OPTIMIZER)
			code = uns_fail_with(err, &cat->findings[i]);
	if (code == 0 && !cat->facts.units)
		code = uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_NO_FLAT_UNITS,
						      .scope = UNS_SCOPE_OPTIMIZER,
						      .checkpoint = place->path));
	uns_catalog_free(cat);
	return code;
}

int units_bind(struct unshard *u, const char *path, struct uns_arena *arena,
	       struct uns_store_fact *fact, struct uns_err *err)
{
	struct place *place;
	int code;

	UNS_TRY(place_get(u, path, &place, err));
	code = place->format && !place->format->wants_units
		       ? uns_fail(err, -ENOTSUP, "%s is no checkpoint of per-rank files", path)
		       : 0;
	if (code == 0 && place->format)
		code = try_layout(u, place, fact->json, err);
	if (code == 0 && place->format)
		code = add_generation(place, arena, fact, err);
	place_put(u, place);
	return code;
}

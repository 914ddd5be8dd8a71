/* Finds a checkpoint's companions in the listing of its directory. Must not know what the files are. */
#include "files/beside.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "wire/json.h"

enum { MAX_RANK = 1 << 20, MAX_STATE_BYTES = 64 << 20 };

static const char STATE[] = "trainer_state.json";

static int known_names(const struct uns_catalog *cat, struct uns_map *out, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		if (!uns_map_put(out, cat->companions[i].name, &cat->companions[i], NULL))
			return uns_oom(err);
	return 0;
}

static int add_one(struct uns_catalog *cat, const struct uns_root *root, const char *path,
		   const char *name, struct uns_err *err)
{
	uint32_t file;

	UNS_TRY(uns_catalog_add_file(cat, root, path, &file, err));
	if (cat->files[file].missing || cat->files[file].stat.kind != UNS_KIND_FILE)
		return 0;
	return uns_catalog_add_companion(cat, name, file, false, err);
}

int uns_beside_add(struct uns_catalog *cat, const struct uns_root *root, const char *path,
		   const char *prefix, const struct uns_listing *list, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map known = UNS_MAP_INIT;
	const struct uns_entry *e = list->v, *end = e + list->n;
	char *full, *name;

	UNS_TRY(known_names(cat, &known, err));
	for (; e < end; e++) {
		if (e->kind != UNS_KIND_FILE && e->kind != UNS_KIND_LINK)
			continue;
		full = uns_path_join(&scratch, path, e->name);
		name = uns_path_join(&scratch, prefix, e->name);
		if (!full || !name)
			return uns_oom(err);
		if (!uns_map_get(&known, name))
			UNS_TRY(add_one(cat, root, full, name, err));
	}
	return 0;
}

int uns_beside_step(const struct uns_root *root, const char *path, const struct uns_listing *list,
		    int64_t *step, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const struct uns_entry *e = uns_listing_find(list, STATE);
	const char *file = uns_path_join(&scratch, path, STATE);
	struct uns_err why = { 0 };
	struct uns_span text;
	int64_t n;
	int code;

	if (!file)
		return uns_oom(err);
	if (!e || e->kind == UNS_KIND_DIR)
		return 0;
	code = uns_root_read_file(root, file, MAX_STATE_BYTES, &scratch, &text, NULL, &why);
	if (code == 0)
		code = uns_json_parse(text, &json, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	if (uns_json_int(json, "global_step", &n) && n >= 0)
		*step = n;
	return 0;
}

int64_t uns_beside_ranks(const struct uns_listing *list, const char *prefix, const char *suffix,
			 size_t *n)
{
	unsigned long long rank;
	int64_t end = 0;
	size_t i;

	if (n)
		*n = 0;
	for (i = 0; i < list->n; i++) {
		if (!uns_str_number(list->v[i].name, prefix, suffix, &rank) || rank >= MAX_RANK)
			continue;
		if ((int64_t)rank >= end)
			end = (int64_t)rank + 1;
		if (n)
			++*n;
	}
	return end;
}

int64_t uns_beside_distcp_ranks(const struct uns_listing *list)
{
	int64_t end = 0;
	size_t i;
	int rank;

	for (i = 0; i < list->n; i++)
		if (uns_str_ends(list->v[i].name, ".distcp") &&
		    sscanf(list->v[i].name, "__%7d_", &rank) == 1 && rank >= end &&
		    rank < MAX_RANK)
			end = rank + 1;
	return end;
}

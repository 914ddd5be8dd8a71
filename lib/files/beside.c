/* Finds a checkpoint's companions in the listing of its directory. Must not know what the files are. */
#include "files/beside.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "base/path.h"
#include "wire/json.h"

enum { MAX_RANK = 1 << 20, MAX_STATE_BYTES = 64 << 20 };

static const char STATE[] = "trainer_state.json";

int uns_beside_add(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
		   const struct uns_listing *list, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_map_fini) struct uns_map known = UNS_MAP_INIT;
	const struct uns_entry *e = list->v, *end = e + list->n;
	const char *full, *name;
	uint32_t file;
	size_t i;

	for (i = 0; i < cat->n_companions; i++)
		UNS_TRY_ALLOC(uns_map_put(&known, cat->companions[i].name, cat, NULL), err);
	for (; e < end; e++) {
		if (e->kind != UNS_KIND_FILE && e->kind != UNS_KIND_LINK)
			continue;
		UNS_TRY_ALLOC(full = uns_path_join(&scratch, path, e->name), err);
		UNS_TRY_ALLOC(name = uns_path_join(&scratch, prefix, e->name), err);
		if (uns_map_get(&known, name))
			continue;
		UNS_TRY(uns_catalog_add_file(cat, root, full, &file, err));
		if (!cat->files[file].missing && cat->files[file].stat.kind == UNS_KIND_FILE)
			UNS_TRY(uns_catalog_add_companion(cat, name, file, false, err));
	}
	return 0;
}

static bool is_saved_model(const struct uns_listing *list)
{
	static const char *const globs[] = { "diffusion_pytorch_model*", "model*.safetensors", "pytorch_model*.bin",
					     NULL };
	size_t i = 0;

	while (globs[i] && !uns_listing_has_glob(list, globs[i]))
		i++;
	return globs[i] && uns_listing_has_file(list, "config.json");
}

int uns_beside_add_models(struct uns_catalog *cat, const struct uns_directory *dir, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	const struct uns_entry *e = dir->list->v, *end = e + dir->list->n;
	struct uns_err why = { 0 };
	struct uns_listing list;
	const char *path;
	size_t i;
	int code;

	for (; e < end; e++) {
		if (e->kind != UNS_KIND_DIR)
			continue;
		UNS_TRY_ALLOC(path = uns_path_join(&scratch, dir->path, e->name), err);
		code = uns_list_seen(dir->root, dir->capture, path, &scratch, &list, &why);
		UNS_TRY(uns_fail_if_passing(err, code, &why));
		if (code < 0 || !is_saved_model(&list))
			continue;
		i = cat->n_companions;
		UNS_TRY(uns_beside_add(cat, dir->root, path, e->name, &list, err));
		for (; i < cat->n_companions; i++)
			cat->companions[i].of_model = true;
	}
	return 0;
}

int uns_beside_add_shard(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
			 const char *name, uint32_t *file, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	char *full = uns_path_join(&scratch, path, name), *shown = uns_path_join(&scratch, prefix, name);

	UNS_TRY_ALLOC(full && shown, err);
	UNS_TRY(uns_catalog_add_file(cat, root, full, file, err));
	return uns_catalog_add_companion(cat, shown, *file, true, err);
}

int64_t uns_beside_named_step(const struct uns_root *root, const char *path, const char *prefix)
{
	unsigned long long n;

	return uns_str_number(uns_root_name(root, path), prefix, "", &n) && n <= INT64_MAX ? (int64_t)n : UNS_UNKNOWN;
}

int64_t uns_beside_iteration(const struct uns_root *root, const char *path)
{
	static const char prefix[] = "iter_";
	const char *name = uns_root_name(root, path);
	unsigned long long n;

	if (!uns_str_starts(name, prefix))
		return UNS_UNKNOWN;
	name += strlen(prefix);
	name += strspn(name, "0");
	return uns_str_number(*name ? name : "0", "", "", &n) && n <= INT64_MAX ? (int64_t)n : UNS_UNKNOWN;
}

int uns_beside_step(const struct uns_root *root, const char *path, const struct uns_listing *list, int64_t *step,
		    struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *file = uns_path_join(&scratch, path, STATE);
	int64_t n = uns_beside_named_step(root, path, "checkpoint-");
	struct uns_err why = { 0 };
	struct uns_span text;
	int code;

	UNS_TRY_ALLOC(file, err);
	if (n == UNS_UNKNOWN && uns_listing_has_file(list, STATE)) {
		code = uns_root_read_file(root, file, MAX_STATE_BYTES, &scratch, &text, NULL, &why);
		if (code == 0)
			code = uns_json_parse(text, &json, &why);
		if (code < 0)
			return uns_fail_if_passing(err, code, &why);
		if (!uns_json_int(json, "global_step", &n))
			n = UNS_UNKNOWN;
	}
	if (n >= 0)
		*step = n;
	return 0;
}

int64_t uns_beside_ranks(const struct uns_listing *list, const char *prefix, const char *suffix, size_t *n)
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
		if (uns_str_ends(list->v[i].name, ".distcp") && sscanf(list->v[i].name, "__%7d_", &rank) == 1 &&
		    rank >= end && rank < MAX_RANK)
			end = rank + 1;
	return end;
}

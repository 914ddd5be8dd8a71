/* veRL and EasyR1 save one set of files for each world size, and never delete those of another one
 * that were there: which one is current is said by fsdp_config.json, or by being the only one that
 * is whole. The names are those of formats/ranks.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "repair/repair.h"
#include "wire/json.h"

enum { MAX_WORLDS = 16, MAX_JSON = 1 << 20, MAX_WORLD = 1 << 16 };

struct world {
	int64_t size;
	size_t n_model, n_optim; /* ranks' files */
};

struct worlds {
	struct world v[MAX_WORLDS];
	size_t n;
	bool too_many;
};

/* "model_world_size_4_rank_2.pt" */
static int64_t world_of(const char *name, bool *model, bool *optim)
{
	long long world, rank;
	int end = 0;

	*model = sscanf(name, "model_world_size_%lld_rank_%lld.pt%n", &world, &rank, &end) == 2 &&
		 end && !name[end];
	*optim = !*model &&
		 sscanf(name, "optim_world_size_%lld_rank_%lld.pt%n", &world, &rank, &end) == 2 &&
		 end && !name[end];
	if (!*model && !*optim &&
	    (sscanf(name, "extra_state_world_size_%lld_rank_%lld.pt%n", &world, &rank, &end) != 2 ||
	     !end || name[end]))
		return 0;
	return world > 0 && world <= MAX_WORLD && rank >= 0 && rank < world ? world : 0;
}

static struct world *world_get(struct worlds *w, int64_t size)
{
	size_t i;

	for (i = 0; i < w->n; i++)
		if (w->v[i].size == size)
			return &w->v[i];
	if (w->n == MAX_WORLDS) {
		w->too_many = true;
		return NULL;
	}
	w->v[w->n] = (struct world){ .size = size };
	return &w->v[w->n++];
}

static void count(const struct uns_listing *list, struct worlds *out)
{
	struct world *world;
	bool model, optim;
	int64_t size;
	size_t i;

	for (i = 0; i < list->n; i++) {
		size = list->v[i].kind == UNS_KIND_DIR ? 0
						       : world_of(list->v[i].name, &model, &optim);
		world = size ? world_get(out, size) : NULL;
		if (!world)
			continue;
		world->n_model += model;
		world->n_optim += optim;
	}
}

static bool is_whole(const struct world *w)
{
	return w->n_model == (size_t)w->size && (!w->n_optim || w->n_optim == (size_t)w->size);
}

/* The world size that fsdp_config.json says; 0 = there is none that does. */
static int find_configured(struct repair *r, const char *dir, int64_t *world, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *path = uns_path_join(&r->arena, dir, "fsdp_config.json");
	struct uns_err why = { 0 };
	struct uns_span text;
	int code;

	*world = 0;
	if (!path)
		return uns_oom(err);
	code = uns_root_read_file(r->u->root, path, MAX_JSON, &r->arena, &text, NULL, &why);
	if (code == 0)
		code = uns_json_parse(text, &json, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	if (!uns_json_int(json, "world_size", world))
		*world = 0;
	return 0;
}

/* The one that is current; NULL = nothing says so. */
static const struct world *choose(const struct worlds *w, int64_t said, const char **why)
{
	const struct world *whole = NULL;
	size_t i, n = 0;

	for (i = 0; i < w->n; i++) {
		if (said == w->v[i].size && is_whole(&w->v[i])) {
			*why = "fsdp_config.json says so";
			return &w->v[i];
		}
		if (is_whole(&w->v[i])) {
			whole = &w->v[i];
			n++;
		}
	}
	*why = "no other is whole";
	return said || n != 1 ? NULL : whole;
}

static int drop_others(struct repair *r, struct repair_place *place, const struct uns_listing *list,
		       const struct world *kept, const char *why)
{
	struct repair_file file = { .drop = true };
	bool model, optim;
	int64_t size;
	size_t i;

	for (i = 0; i < list->n; i++) {
		size = list->v[i].kind == UNS_KIND_DIR ? 0
						       : world_of(list->v[i].name, &model, &optim);
		if (!size || size == kept->size)
			continue;
		file.path = uns_path_join(&r->arena, place->path, list->v[i].name);
		if (!file.path)
			return -ENOMEM;
		UNS_TRY(repair_plan_file(r, &file));
		UNS_TRY(repair_change(r, file.path, UNSHARD_CHANGE_STALE,
				      "left out: it is of world size %" PRId64
				      ", and world size %" PRId64 " is current (%s)",
				      size, kept->size, why));
	}
	place->changed = true;
	return 0;
}

int repair_worlds(struct repair *r, struct repair_place *place, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct world *kept;
	struct worlds worlds = { 0 };
	struct uns_listing list;
	int64_t configured;
	const char *why;
	int code = 0;

	if (place->family != UNS_FAMILY_RANKS)
		return 0;
	UNS_TRY(uns_root_list(r->u->root, place->path, &arena, &list, err));
	count(&list, &worlds);
	if (worlds.n < 2)
		return 0;
	UNS_TRY(find_configured(r, place->path, &configured, err));
	kept = worlds.too_many ? NULL : choose(&worlds, configured, &why);
	if (kept)
		code = drop_others(r, place, &list, kept, why);
	else
		code = repair_refuse(
			r,
			"%s holds files of %zu world sizes, and neither "
			"fsdp_config.json nor their completeness says which are current",
			place->path, worlds.n);
	return code < 0 ? uns_fail(err, code, "out of memory") : 0;
}

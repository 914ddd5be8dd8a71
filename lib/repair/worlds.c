/* veRL and EasyR1 save one set of files for each number of ranks, and never delete those of another one that were
 * there: the current one is named by fsdp_config.json, or is the only one that is whole. */
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "ranks/names.h"
#include "repair/repairing.h"
#include "wire/json.h"

enum { MAX_WORLDS = 16, MAX_JSON = 1 << 20 };

struct world {
	int64_t size;
	size_t n[UNS_RANK_KINDS]; /* ranks' files */
};

struct worlds {
	struct world v[MAX_WORLDS];
	size_t n;
	bool too_many;
};

static bool is_rank_file(const struct uns_entry *e, struct uns_rank_name *out)
{
	return e->kind != UNS_KIND_DIR && uns_rank_name_parse(e->name, out) && out->rank < out->world;
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

static bool is_whole(const struct world *w)
{
	size_t size = (size_t)w->size, n_optim = w->n[UNS_RANK_OPTIM];

	return w->n[UNS_RANK_MODEL] == size && (!n_optim || n_optim == size);
}

/* The number of ranks in fsdp_config.json; 0 = it has none, or there is no such file. */
static int find_configured(struct repair *r, const char *dir, int64_t *world, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *path = uns_path_join(&r->arena, dir, "fsdp_config.json");
	struct uns_err why = { 0 };
	struct uns_span text;
	int code;

	*world = 0;
	UNS_TRY_ALLOC(path, err);
	code = uns_root_read_file(r->u->root, path, MAX_JSON, &r->arena, &text, NULL, &why);
	if (code == 0)
		code = uns_json_parse(text, &json, &why);
	if (code < 0)
		return uns_fail_if_passing(err, code, &why);
	if (!uns_json_int(json, "world_size", world))
		*world = 0;
	return 0;
}

/* The one that is current; NULL = not known. */
static const struct world *world_choose(const struct worlds *w, int64_t said, const char **why)
{
	const struct world *whole = NULL;
	size_t i, n = 0;

	for (i = 0; i < w->n; i++) {
		if (said == w->v[i].size && is_whole(&w->v[i])) {
			*why = "fsdp_config.json names it";
			return &w->v[i];
		}
		if (is_whole(&w->v[i])) {
			whole = &w->v[i];
			n++;
		}
	}
	*why = "no other save is complete";
	return said || n != 1 ? NULL : whole;
}

static int drop_others(struct repair *r, struct repair_checkpoint *checkpoint, const struct uns_listing *list,
		       const struct world *kept, const char *why)
{
	struct repair_file file = { .drop = true };
	struct uns_rank_name name;
	size_t i;

	for (i = 0; i < list->n; i++) {
		if (!is_rank_file(&list->v[i], &name) || name.world == kept->size)
			continue;
		file.path = uns_path_join(&r->arena, checkpoint->path, list->v[i].name);
		if (!file.path)
			return -ENOMEM;
		UNS_TRY(repair_plan_file(r, &file));
		UNS_TRY(repair_change(r, file.path, UNSHARD_CHANGE_STALE,
				      "left out: it belongs to a save on %" PRId64 " ranks, and the save on %" PRId64
				      " is current (%s)",
				      name.world, kept->size, why));
	}
	checkpoint->changed = true;
	return 0;
}

int repair_worlds(struct repair *r, struct repair_checkpoint *checkpoint, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct world *kept;
	struct worlds worlds = { 0 };
	struct uns_rank_name name;
	struct world *world;
	size_t i;
	struct uns_listing list;
	int64_t configured;
	const char *why;
	int code = 0;

	if (checkpoint->family != UNS_FAMILY_RANKS)
		return 0;
	UNS_TRY(uns_root_list(r->u->root, checkpoint->path, &arena, &list, err));
	for (i = 0; i < list.n; i++) {
		world = is_rank_file(&list.v[i], &name) ? world_get(&worlds, name.world) : NULL;
		if (world)
			world->n[name.kind]++;
	}
	if (worlds.n < 2)
		return 0;
	UNS_TRY(find_configured(r, checkpoint->path, &configured, err));
	kept = worlds.too_many ? NULL : world_choose(&worlds, configured, &why);
	if (kept)
		code = drop_others(r, checkpoint, &list, kept, why);
	else
		code = repair_refuse(r,
				     "%s holds files of saves on %zu different numbers of ranks, and neither "
				     "fsdp_config.json nor their completeness says which save is current",
				     checkpoint->path, worlds.n);
	return code < 0 ? uns_oom(err) : 0;
}

#include "diff/groups.h"

#include <string.h>

#include "names/module_path.h"

static int group_add(struct diff_groups *g, struct uns_map *map, enum unshard_group group, const char *name,
		     const struct diff_tally *t, bool different, struct uns_err *err)
{
	struct diff_group *found;

	UNS_TRY_ALLOC(name, err);
	found = uns_map_get(map, name);
	if (!found) {
		UNS_TRY_ALLOC(found = UNS_NEW(&g->arena, struct diff_group), err);
		*found = (struct diff_group){ .group = group, .name = name };
		UNS_TRY_ALLOC(uns_map_put(map, name, found, NULL), err);
	}
	found->n_tensors++;
	found->n_different += different;
	diff_tally_add(&found->tally, t);
	return 0;
}

/* A name that is only looked up stays in the arena too: a few bytes for each tensor. */
int diff_groups_add(struct diff_groups *g, const char *name, const struct diff_tally *t, bool different,
		    struct uns_err *err)
{
	const char *behind = uns_name_behind_experts(name);
	size_t len = uns_name_layer(name);

	g->all.n_tensors++;
	g->all.n_different += different;
	diff_tally_add(&g->all.tally, t);
	if (len)
		UNS_TRY(group_add(g, &g->layer, UNSHARD_GROUP_LAYER, uns_arena_strn(&g->arena, name, len), t, different,
				  err));
	if (!behind || !uns_name_is_number(behind))
		return 0;
	len = (size_t)(behind - name) + strcspn(behind, ".");
	return group_add(g, &g->expert, UNSHARD_GROUP_EXPERT, uns_arena_strn(&g->arena, name, len), t, different, err);
}

int diff_groups_add_part(struct diff_groups *g, const char *name, uint64_t expert, const struct diff_tally *t,
			 bool different, struct uns_err *err)
{
	const char *whole = uns_arena_printf(&g->arena, "%.*s%llu", (int)(uns_name_behind_experts(name) - name), name,
					     (unsigned long long)expert);

	return group_add(g, &g->expert, UNSHARD_GROUP_EXPERT, whole, t, different, err);
}

void diff_groups_fini(struct diff_groups *g)
{
	uns_map_fini(&g->layer);
	uns_map_fini(&g->expert);
	uns_arena_fini(&g->arena);
}

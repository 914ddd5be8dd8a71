/* Undoing the deal of round_robin_gradients. */
#include "shards/zero_deal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"

static int no_memory(struct uns_err *err)
{
	return uns_fail(err, -ENOMEM, "out of memory while ordering parameters");
}

/* What was dealt out to `world` ranks as it was before. */
static void undeal(const char *const *dealt, size_t n, size_t world, const char **out)
{
	size_t j, i, k = 0;

	for (j = 0; j < n && j < world; j++)
		for (i = j; i < n; i += world)
			out[i] = dealt[k++];
}

/* The first rank's names in the mapping are in the optimizer's order, whatever else is wrong in it. */
static bool agrees(const struct uns_zero_world *w, size_t g, const char *const *names, size_t n)
{
	const struct uns_zero_optim *first = w->rank[0].optim;
	const struct uns_value *map;
	const char *name;
	size_t i;

	map = first ? uns_value_get(first->dict, "param_slice_mappings") : NULL;
	map = uns_value_at(map, g);
	if (!map || map->kind != UNS_VALUE_DICT)
		return true;
	for (i = 0; i < map->dict.n; i++) {
		name = uns_value_str(map->dict.key[i]);
		if (i >= n || !name || strcmp(name, names[i]) != 0)
			return false;
	}
	return true;
}

static bool is_dealt(const struct uns_zero_world *w, const struct uns_value *config)
{
	const struct uns_value *v = uns_value_get(uns_value_get(config, "zero_optimization"),
						  "round_robin_gradients");

	/* BF16_Optimizer, which names no stage, does not know the setting. */
	return v && v->kind == UNS_VALUE_BOOL && v->b && w->any && w->any->stage != 3 &&
	       uns_value_get(w->any->dict, "zero_stage") && w->cat->n_groups == w->n_shapes;
}

static int undeal_group(struct uns_zero_world *w, size_t g, struct uns_map *position,
			struct uns_err *err)
{
	struct uns_group *group = &w->cat->groups[g];
	const char **names = UNS_NEW_N(&w->cat->arena, const char *, group->n_params);
	size_t i;

	if (!names)
		return no_memory(err);
	undeal(group->param, group->n_params, w->n_ranks, names);
	if (!agrees(w, g, names, group->n_params))
		return 0;
	group->param = names;
	for (i = 0; i < group->n_params; i++)
		if (!uns_map_put(position, names[i], (void *)((uintptr_t)i + 1), NULL))
			return no_memory(err);
	return 0;
}

int uns_zero_undeal(struct uns_zero_world *w, const struct uns_value *config, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map position = UNS_MAP_INIT;
	struct uns_tensor *t;
	uintptr_t at;
	size_t i;

	if (!is_dealt(w, config))
		return 0;
	for (i = 0; i < w->n_shapes; i++)
		UNS_TRY(undeal_group(w, i, &position, err));
	for (i = 0; i < w->cat->n_tensors; i++) {
		t = &w->cat->tensors[i];
		at = (uintptr_t)uns_map_get(&position, t->name);
		if (at && uns_role_is_optimizer(t->role))
			t->position = (int32_t)(at - 1);
	}
	return 0;
}

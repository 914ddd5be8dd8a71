/* Brings dealt groups back into the optimizer's order, and finds out whether ds_to_universal mixed a run's parameters
 * up. */
#include "zero/read/deal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "zero/read/compare.h"

static bool is_dealt(const struct uns_zero_world *w, const struct uns_value *config)
{
	/* BF16_Optimizer, which names no stage, does not know the setting. */
	return w->any && uns_value_get(w->any->dict, "zero_stage") &&
	       uns_zero_obeys_round_robin(config, uns_value_str(uns_value_get(w->any->dict, "ds_version"))) &&
	       w->cat->n_groups == w->n_shapes;
}

/* Nothing is done where the names in the first rank's mapping are in another order: these are in the optimizer's order,
 * whatever else is wrong in the mapping. */
static int undeal_group(struct uns_zero_world *w, size_t g, struct uns_map *position, struct uns_err *err)
{
	const struct uns_zero_optim *first = w->rank[0].optim;
	const struct uns_value *map =
		uns_value_at(first ? uns_value_get(first->dict, "param_slice_mappings") : NULL, g);
	struct uns_group *group = &w->cat->groups[g];
	const char **names = UNS_NEW_N(&w->cat->arena, const char *, group->n_params), *name;
	size_t *order = UNS_NEW_N(&w->scratch, size_t, group->n_params), i;

	UNS_TRY_ALLOC(names && order, err);
	uns_zero_deal(group->n_params, w->n_ranks, order);
	for (i = 0; i < group->n_params; i++)
		names[order[i]] = group->param[i];
	for (i = 0; map && map->kind == UNS_VALUE_DICT && i < map->n; i++) {
		name = uns_value_str(map->pair[i].key);
		if (i >= group->n_params || !name || strcmp(name, names[i]) != 0)
			return 0;
	}
	group->param = names;
	for (i = 0; i < group->n_params; i++)
		UNS_TRY_ALLOC(uns_map_put_index(position, names[i], (uint32_t)i), err);
	return 0;
}

int uns_zero_undeal(struct uns_zero_world *w, const struct uns_value *config, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map position = UNS_MAP_INIT;
	struct uns_tensor *t;
	uint32_t at;
	size_t i;

	if (!is_dealt(w, config))
		return 0;
	for (i = 0; i < w->n_shapes; i++)
		UNS_TRY(undeal_group(w, i, &position, err));
	for (i = 0; i < w->cat->n_tensors; i++) {
		t = &w->cat->tensors[i];
		at = uns_map_index(&position, t->name);
		if (at != UNS_MAP_NO_INDEX && uns_role_is_optimizer(t->role))
			t->position = (int32_t)at;
	}
	return 0;
}

/* -- what ds_to_universal made of it -- */

static bool is_one_piece(const struct uns_tensor *t)
{
	return t->n_pieces == 1 && t->alias_of == UNS_NONE;
}

int uns_zero_deal_check(struct uns_zero_world *w, const struct uns_zero_file *model, const struct uns_zero_names *names,
			const struct uns_value *config, struct uns_err *err)
{
	struct uns_catalog *cat = w->cat;
	bool same = true;
	size_t i, k;

	for (i = 0; is_dealt(w, config) && i < cat->n_tensors; i++) {
		const struct uns_tensor *master = &cat->tensors[i], *weight;
		uint32_t at = master->role == UNS_ROLE_MASTER ? uns_map_index(&names->weights, master->name) : UNS_NONE;
		const struct uns_piece *exact, *rounded;

		if (at == UNS_NONE || !is_one_piece(master) || !is_one_piece(&cat->tensors[at]))
			continue;
		weight = &cat->tensors[at];
		exact = &cat->pieces[master->first_piece];
		rounded = &cat->pieces[weight->first_piece];
		if (rounded->file != model->index)
			continue; /* stage 3: gathered, or none */
		UNS_TRY(uns_zero_may_be_copy_of(cat, exact, &(struct uns_zero_sample){ &model->reader, rounded },
						weight->dtype, uns_shape_elems(&weight->shape), &same, err));
		if (same)
			continue;
		/* All masters may hold other parameters' values: no view may take them for the weights' fp32 copies. */
		for (k = 0; k < cat->n_tensors; k++)
			if (cat->tensors[k].role == UNS_ROLE_MASTER)
				cat->tensors[k].role = UNS_ROLE_OPTIM_OTHER;
		return UNS_WORLD_PROBLEM(w, err, ZERO_NOT_THE_FP32_COPY, .file = cat->files[exact->file].path,
					 .tensor = master->name, .arg = { { "other_file", uns_str(w->where) } });
	}
	return 0;
}

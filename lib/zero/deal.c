/* Undoing the deal of round_robin_gradients. */
#include "zero/deal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "zero/compare.h"

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
	for (i = 0; i < map->n; i++) {
		name = uns_value_str(map->pair[i].key);
		if (i >= n || !name || strcmp(name, names[i]) != 0)
			return false;
	}
	return true;
}

static bool is_dealt(const struct uns_zero_world *w, const struct uns_value *config)
{
	/* BF16_Optimizer, which names no stage, does not know the setting. */
	return w->any && uns_value_get(w->any->dict, "zero_stage") &&
	       uns_zero_obeys_round_robin(config,
					  uns_value_str(uns_value_get(w->any->dict, "ds_version"))) &&
	       w->cat->n_groups == w->n_shapes;
}

static int undeal_group(struct uns_zero_world *w, size_t g, struct uns_map *position,
			struct uns_err *err)
{
	struct uns_group *group = &w->cat->groups[g];
	const char **names = UNS_NEW_N(&w->cat->arena, const char *, group->n_params);
	size_t *order = UNS_NEW_N(&w->scratch, size_t, group->n_params), i;

	if (!names || !order)
		return uns_oom(err);
	uns_zero_deal(group->n_params, w->n_ranks, order);
	for (i = 0; i < group->n_params; i++)
		names[order[i]] = group->param[i];
	if (!agrees(w, g, names, group->n_params))
		return 0;
	group->param = names;
	for (i = 0; i < group->n_params; i++)
		if (!uns_map_put_index(position, names[i], (uint32_t)i))
			return uns_oom(err);
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

static const struct uns_tensor *weight_of(const struct uns_zero_world *w,
					  const struct uns_zero_names *names,
					  const struct uns_tensor *master)
{
	uint32_t at = uns_map_index(&names->weights, master->name);

	return at != UNS_NONE ? &w->cat->tensors[at] : NULL;
}

static bool is_whole(const struct uns_tensor *t)
{
	return t->n_pieces == 1 && t->alias_of == UNS_NONE;
}

static int is_copy(const struct uns_zero_world *w, const struct uns_tensor *master,
		   const struct uns_tensor *weight, const struct uns_zero_file *model, bool *out,
		   struct uns_err *err)
{
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_piece *exact = &w->cat->pieces[master->first_piece],
			       *rounded = &w->cat->pieces[weight->first_piece];
	const struct uns_zero_sample a = { &file.reader, exact }, b = { &model->reader, rounded };

	*out = true;
	if (rounded->file != model->index)
		return 0; /* stage 3: gathered, or none */
	UNS_TRY(uns_zero_file_open(w->cat, exact->file, &arena, &file, err));
	return uns_zero_may_be_copy(&a, &b, weight->dtype, uns_shape_elems(&weight->shape), out,
				    err);
}

/* They hold other parameters' values than their names say: no view may take them for the weights' fp32 copies. */
static void disown_masters(struct uns_catalog *cat)
{
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].role == UNS_ROLE_MASTER)
			cat->tensors[i].role = UNS_ROLE_OPTIM_OTHER;
}

static int refuse(struct uns_zero_world *w, const struct uns_tensor *master, struct uns_err *err)
{
	const char *path = w->cat->files[w->cat->pieces[master->first_piece].file].path;

	disown_masters(w->cat);
	return uns_zero_world_problem(w,
				      UNS_FINDING(.id = UNS_FOUND_ZERO_NOT_THE_FP32_COPY, .file = path,
						  .tensor = master->name,
						  .arg = { { "other_file", uns_str(w->where) } }),
				      err);
}

int uns_zero_deal_check(struct uns_zero_world *w, const struct uns_zero_file *model,
			const struct uns_zero_names *names, const struct uns_value *config,
			struct uns_err *err)
{
	const struct uns_tensor *t, *weight;
	bool same;
	size_t i;

	for (i = 0; is_dealt(w, config) && i < w->cat->n_tensors; i++) {
		t = &w->cat->tensors[i];
		weight = t->role == UNS_ROLE_MASTER && is_whole(t) ? weight_of(w, names, t) : NULL;
		if (!weight || !is_whole(weight))
			continue;
		UNS_TRY(is_copy(w, t, weight, model, &same, err));
		if (!same)
			return refuse(w, t, err);
	}
	return 0;
}

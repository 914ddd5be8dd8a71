/* Makes the param groups: hyper-parameters are in the optimizer's own param_groups, which number its flat tensors, and
 * the parameters' names in param_shapes. Owns which flat tensor belongs to which group. */
#include "zero/read/groups.h"

#include <string.h>

#include "wire/value_new.h"

#define OPTIMIZER_ROOT "optimizer"

static size_t n_groups(const struct uns_zero_world *w)
{
	const struct uns_value *groups = w->any->param_groups;

	if (groups)
		return groups->n;
	return w->any->stage == 3 ? 0 : w->n_shapes; /* elastic_checkpoint */
}

/* -- sub-groups -- */

static uint64_t slices_of(const struct uns_zero_world *w, size_t g)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < w->shapes[g].n; i++)
		sum += uns_zero_slice(w->shapes[g].v[i].elems, w->n_ranks);
	return sum;
}

/* A sub-group that is not full is the last one of its group (zero/layout.h). A full
 * one may be the last by chance: then the counts do not match, and nothing is assigned. */
static bool assign_by_size(const struct uns_zero_world *w, uint64_t full, int32_t *out)
{
	int32_t group = 0;
	size_t g;

	for (g = 0; g < w->n_shapes; g++) {
		out[g] = group;
		group += !uns_zero_sub_group_is_full(slices_of(w, g), full) || g + 1 == w->n_shapes;
	}
	return (size_t)group == n_groups(w);
}

/* Each group's "params": the numbers of its sub-groups, which follow one another (stage3.py,
 * _set_fp32_optimizer_param_groups). false: they do not add up to the sub-groups there are. */
static bool assign_by_number(const struct uns_zero_world *w, int32_t *out)
{
	const struct uns_value *groups = w->any->param_groups, *params;
	size_t g, i, next = 0;
	uint64_t number;

	for (g = 0; groups && g < groups->n; g++) {
		params = uns_value_get(groups->item[g], "params");
		for (i = 0; uns_value_at(params, i); i++) {
			if (next == w->n_shapes || !uns_value_u64(uns_value_at(params, i), &number) || number != next)
				return false;
			out[next++] = (int32_t)g;
		}
	}
	return next == w->n_shapes;
}

void uns_zero_groups_assign(const struct uns_zero_world *w, uint64_t sub_group_size, int32_t *out)
{
	size_t n, g;

	if (!w->any || assign_by_number(w, out))
		return;
	n = n_groups(w);
	if (n == 1 || n == w->n_shapes || !assign_by_size(w, sub_group_size, out))
		for (g = 0; g < w->n_shapes; g++)
			out[g] = n == 1 ? 0 : n == w->n_shapes ? (int32_t)g : -1;
}

/* -- hyper-parameters -- */

/* Without "params" (numbers of flat tensors). A fused optimizer's step that is a plain number belongs to
 * the group as a whole and is kept there, where the optimizers that have it keep it too. */
static const struct uns_value *hyper_of(struct uns_arena *arena, const struct uns_value *group,
					const struct uns_value *step)
{
	struct uns_value *hyper = uns_value_new_dict_of(arena, group, "params", 1);

	if (!step || uns_value_get(hyper, "step"))
		return hyper;
	return uns_value_put_str(arena, hyper, "step", step) ? hyper : NULL;
}

/* -- groups -- */

static const struct uns_value *step_of(const struct uns_zero_world *w, const int32_t *group_of, size_t group)
{
	size_t g;

	for (g = 0; g < w->any->n_groups && g < w->n_shapes; g++)
		if ((size_t)group_of[g] == group && w->any->group[g].step)
			return w->any->group[g].step;
	return NULL;
}

static size_t add_names(const struct uns_zero_world *w, const int32_t *group_of, int32_t group,
			const struct uns_map *seen, const char **out)
{
	size_t g, i, n = 0;

	for (g = 0; g < w->n_shapes; g++)
		for (i = 0; group_of[g] == group && i < w->shapes[g].n; i++)
			if (!uns_map_get(seen, w->shapes[g].v[i].name))
				out[n++] = w->shapes[g].v[i].name;
	return n;
}

static int add_group(struct uns_zero_world *w, const int32_t *group_of, size_t group, const struct uns_map *seen,
		     struct uns_err *err)
{
	struct uns_catalog *cat = w->cat;
	const struct uns_group *known = group < cat->n_groups ? &cat->groups[group] : NULL;
	struct uns_group out = { .root = OPTIMIZER_ROOT, .bare = !w->any->param_groups };
	size_t n = known ? known->n_params : 0, g, n_all = n;

	for (g = 0; g < w->n_shapes; g++)
		n_all += w->shapes[g].n;
	UNS_TRY_ALLOC(out.param = UNS_NEW_N(&cat->arena, const char *, n_all), err);
	if (known)
		memcpy(out.param, known->param, n * sizeof(*out.param));
	out.n_params = n + add_names(w, group_of, (int32_t)group, seen, out.param + n);
	if (known) {
		out.hyper = known->hyper;
		cat->groups[group] = out;
		return 0;
	}
	out.hyper = hyper_of(&cat->arena, uns_value_at(w->any->param_groups, group), step_of(w, group_of, group));
	UNS_TRY_ALLOC(out.hyper, err);
	return uns_catalog_add_group(cat, &out, err);
}

int uns_zero_groups_add(struct uns_zero_world *w, const int32_t *group_of, const struct uns_map *seen,
			struct uns_err *err)
{
	size_t g, n = w->any ? n_groups(w) : 0;

	for (g = 0; g < n; g++)
		UNS_TRY(add_group(w, group_of, g, seen, err));
	if (!w->any)
		return 0;
	if (!w->any->param_groups)
		return UNS_ADD_FINDING(w->cat, err, ZERO_HYPERS_NOT_SAVED, .file = w->cat->files[w->rank[0].file].path);
	for (g = 0; g < w->n_shapes; g++)
		if (group_of[g] < 0)
			return UNS_ADD_FINDING(w->cat, err, ZERO_SUB_GROUPS_UNASSIGNED, .scope = UNS_SCOPE_OPTIMIZER,
					       .file = w->where, .expected = uns_num(n), .found = uns_num(w->n_shapes));
	return 0;
}

/* The writer of view dcp: the keys of FSDP's state dicts, and what is saved under each. It does not know which
 * framework will load them. */
#include "dcp/made.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "dcp/items.h"
#include "files/adapter.h"
#include "files/optimizer_state.h"
#include "files/masters.h"
#include "wire/value_new.h"

struct uns_dcp_made {
	const struct uns_catalog *cat;
	struct uns_arena *arena;   /* the tree's */
	struct uns_arena *scratch; /* holds values until they are pickled */
	struct uns_dcp_items *items;
};

/* -- keys -- */

/* A key as path elements: ('optimizer', 'state', NAME, 'exp_avg') has four. The number of a param group is an int. */
struct key {
	const char *root, *name, *state;
	bool in_state, in_group;
	size_t group;
};

static const struct uns_value *path_value(struct uns_arena *arena, const struct key *k)
{
	struct uns_value *path = uns_value_new_tuple(arena, 4);

	uns_value_append(path, uns_value_new_str(arena, k->root));
	if (k->in_group) {
		uns_value_append(path, uns_value_new_str(arena, "param_groups"));
		uns_value_append(path, uns_value_new_int(arena, (int64_t)k->group));
	} else if (k->in_state) {
		uns_value_append(path, uns_value_new_str(arena, "state"));
	}
	uns_value_append(path, uns_value_new_str(arena, k->name));
	if (k->in_state)
		uns_value_append(path, uns_value_new_str(arena, k->state));
	return path;
}

/* Adds an item: the tensor `leaf`, or the value v if leaf is NULL. */
static int add_item(struct uns_dcp_made *m, const struct key *k, const struct uns_torch_leaf *leaf,
		    const struct uns_value *v, struct uns_err *err)
{
	struct uns_arena *a = m->scratch;
	const char *key;

	key = k->in_group   ? uns_arena_printf(a, "%s.param_groups.%zu.%s", k->root, k->group, k->name)
	      : k->in_state ? uns_arena_printf(a, "%s.state.%s.%s", k->root, k->name, k->state)
			    : uns_arena_printf(a, "%s.%s", k->root, k->name);
	UNS_TRY(uns_arena_check(a, err));
	return uns_dcp_items_add(m->items, key, path_value(a, k), leaf, v, err);
}

/* -- the model -- */

int uns_dcp_made_add_model(struct uns_dcp_made *m, bool by_file_names, struct uns_err *err)
{
	UNS_CLEANUP(uns_map_fini) struct uns_map masters = UNS_MAP_INIT;
	const struct uns_tensor *t, *end = m->cat->tensors + m->cat->n_tensors, *master;

	UNS_TRY(uns_masters_find(m->cat, &masters, err));
	for (t = m->cat->tensors; t < end; t++) {
		struct key k = { .root = "model", .name = t->name };
		struct uns_torch_leaf leaf = { .tensor = t, .out = t->dtype, .shape = t->shape };

		if (!uns_role_is_model(t->role))
			continue;
		if (by_file_names && t->of_adapter)
			k.name = uns_adapter_name(m->scratch, t->name);
		master = t->role == UNS_ROLE_WEIGHT ? uns_map_get(&masters, t->name) : NULL;
		if (master && uns_shape_equal(&master->shape, &t->shape))
			leaf = (struct uns_torch_leaf){ .tensor = master, .out = master->dtype, .shape = t->shape };
		UNS_TRY(add_item(m, &k, &leaf, NULL, err));
	}
	return 0;
}

/* -- the optimizer -- */

/* {state: tensor or number} of one parameter. */
static int add_states(struct uns_dcp_made *m, const char *param, const struct uns_value *states,
		      const struct uns_torch_leaves *leaves, struct uns_err *err)
{
	struct key k = { .root = "optimizer", .name = param, .in_state = true };
	const struct uns_value *v;
	size_t i;

	for (i = 0; i < states->n; i++) {
		k.state = uns_value_str(states->pair[i].key);
		v = states->pair[i].value;
		UNS_TRY(add_item(m, &k, v->kind == UNS_VALUE_TENSOR ? &leaves->v[v->tensor] : NULL, v, err));
	}
	return 0;
}

static int add_group(struct uns_dcp_made *m, const struct uns_value *group, size_t index, struct uns_err *err)
{
	struct key k = { .root = "optimizer", .in_group = true, .group = index };
	size_t i;

	for (i = 0; i < group->n; i++) {
		k.name = uns_value_str(group->pair[i].key);
		if (!k.name)
			return UNS_CATALOG_FAIL(m->cat, err, SETTING_UNNAMED, .scope = UNS_SCOPE_OPTIMIZER);
		UNS_TRY(add_item(m, &k, NULL, group->pair[i].value, err));
	}
	return 0;
}

/* The state dict that torch would have saved whole, item by item. */
int uns_dcp_made_add_optimizer(struct uns_dcp_made *m, int64_t global_step, struct uns_err *err)
{
	UNS_CLEANUP(uns_torch_leaves_fini) struct uns_torch_leaves leaves = { 0 };
	struct uns_optimizer_state optimizer;
	const struct uns_value *states, *groups;
	size_t i;

	UNS_TRY(uns_optimizer_state_build(m->cat, uns_optimizer_root(m->cat), UNS_IDS_NAMES, global_step, m->arena,
					  &leaves, &optimizer, err));
	states = uns_value_get(optimizer.root, "state");
	groups = uns_value_get(optimizer.root, "param_groups");
	for (i = 0; i < states->n; i++)
		UNS_TRY(add_states(m, uns_value_str(states->pair[i].key), states->pair[i].value, &leaves, err));
	for (i = 0; i < groups->n; i++)
		UNS_TRY(add_group(m, groups->item[i], i, err));
	return 0;
}

/* -- the directory -- */

int uns_dcp_made_new(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_arena *scratch,
		     struct uns_dcp_made **out, struct uns_err *err)
{
	struct uns_dcp_made *m = UNS_NEW(scratch, struct uns_dcp_made);
	size_t most = cat->n_tensors * 2, i;

	UNS_TRY_ALLOC(m, err);
	/* Counted twice, once for the group and once for its parameters' keys. */
	for (i = 0; i < cat->n_groups; i++)
		most += 2 + (cat->groups[i].hyper ? 2 * cat->groups[i].hyper->n : 0) + 3 * cat->groups[i].n_params;
	*m = (struct uns_dcp_made){ .cat = cat, .arena = arena, .scratch = scratch };
	*out = m;
	return uns_dcp_items_new(cat, arena, scratch, most, true, &m->items, err);
}

int uns_dcp_made_finish(struct uns_dcp_made *m, const char *dir, struct uns_vtree *out, struct uns_err *err)
{
	return uns_dcp_items_finish(m->items, dir, out, err);
}

/* Makes the state dict that frameworks load from optimizer tensors and param groups. Knows torch's optimizer state
 * dict, not the file into which it is written. */
#include "files/optimizer_state.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "files/empty_group.h"
#include "model/cover.h"
#include "wire/value_new.h"

/* One parameter of the optimizer: its number, and its states as a chain. */
struct param {
	const char *name;
	size_t number, n_states;
	const struct uns_group *group;
	struct state {
		const char *name;
		const struct uns_tensor *tensor; /* NULL = a plain value */
		const struct uns_value *value;
		struct state *next;
	} *first, **tail;
};

struct table {
	const struct uns_catalog *cat;
	const char *root;
	struct uns_arena scratch;
	struct uns_map by_name;
	struct param *v; /* in order of number */
	size_t n, n_groups;
	bool counts_steps; /* true for Adam; false for Lion, which has exp_avg alone */
};

static void table_fini(struct table *t)
{
	uns_map_fini(&t->by_name);
	uns_arena_fini(&t->scratch);
}

static bool of_root(const struct uns_tensor *t, const char *root)
{
	return uns_role_is_optimizer(t->role) && strcmp(t->root, root) == 0;
}

const char *uns_optimizer_root(const struct uns_catalog *cat)
{
	size_t i;

	if (cat->n_groups)
		return cat->groups[0].root;
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_role_is_optimizer(cat->tensors[i].role))
			return cat->tensors[i].root;
	return NULL;
}

/* -- the table of parameters -- */

static int groups_add(struct table *t, struct uns_err *err)
{
	const struct uns_group *g = t->cat->groups, *end = g + t->cat->n_groups;
	struct param *p;
	size_t i, total = 0;

	for (i = 0; i < t->cat->n_groups; i++)
		total += g[i].n_params;
	UNS_TRY_ALLOC(t->v = UNS_NEW_N(&t->scratch, struct param, total), err);
	for (; g < end; g++) {
		if (strcmp(g->root, t->root) != 0)
			continue;
		t->n_groups++;
		for (i = 0; i < g->n_params; i++) {
			p = &t->v[t->n];
			*p = (struct param){ .name = g->param[i], .number = t->n++, .group = g };
			p->tail = &p->first;
			if (uns_map_get(&t->by_name, p->name))
				return UNS_CATALOG_FAIL(t->cat, err, GROUPS_SHARE_A_PARAMETER,
							.scope = UNS_SCOPE_OPTIMIZER, .tensor = p->name);
			UNS_TRY_ALLOC(uns_map_put(&t->by_name, p->name, p, NULL), err);
		}
	}
	if (!t->n_groups)
		return UNS_CATALOG_FAIL(t->cat, err, GROUPS_MISSING, .scope = UNS_SCOPE_OPTIMIZER);
	return 0;
}

static int state_add(struct table *t, struct param *p, const struct state *state, struct uns_err *err)
{
	struct state *s = UNS_NEW(&t->scratch, struct state);

	UNS_TRY_ALLOC(s, err);
	*s = *state;
	*p->tail = s;
	p->tail = &s->next;
	p->n_states++;
	return 0;
}

static int states_add(struct table *t, struct uns_err *err)
{
	const struct uns_tensor *tensor = t->cat->tensors, *end = tensor + t->cat->n_tensors;
	struct param *p;

	for (; tensor < end; tensor++) {
		if (!of_root(tensor, t->root))
			continue;
		p = uns_map_get(&t->by_name, tensor->name);
		if (!p)
			return UNS_CATALOG_FAIL(t->cat, err, OPTIMIZER_STATE_STRAY, .scope = UNS_SCOPE_OPTIMIZER,
						.tensor = tensor->key);
		t->counts_steps |= tensor->role == UNS_ROLE_STEP || tensor->role == UNS_ROLE_EXP_AVG_SQ;
		UNS_TRY(state_add(t, p, &(struct state){ .name = uns_tensor_state(tensor), .tensor = tensor }, err));
	}
	return 0;
}

/* -- states that are no tensors: Adafactor's `step` is a number, saved as an item of its own -- */

static bool is_state_value(const struct uns_named_value *v, const char *root)
{
	return strcmp(v->root, root) == 0 && strncmp(v->name, "state.", 6) == 0;
}

static int fail_no_tensor(const struct uns_catalog *cat, const struct uns_named_value *v, const char *expected,
			  struct uns_err *err)
{
	return UNS_CATALOG_FAIL(cat, err, OPTIMIZER_STATE_NO_TENSOR, .scope = UNS_SCOPE_OPTIMIZER, .tensor = v->name,
				.expected = uns_str(expected));
}

/* Adds the values that are called "state.PARAMETER.STATE". */
static int values_add(struct table *t, struct uns_err *err)
{
	const struct uns_named_value *v = t->cat->values, *end = v + t->cat->n_values;
	const char *name, *state;
	struct param *p;
	double unused;

	for (; v < end; v++) {
		if (!is_state_value(v, t->root))
			continue;
		name = v->name + strlen("state.");
		state = strrchr(name, '.');
		p = NULL;
		if (state) {
			UNS_TRY_ALLOC(name = uns_arena_strn(&t->scratch, name, (size_t)(state - name)), err);
			p = uns_map_get(&t->by_name, name);
		}
		if (!p || !v->value || (!uns_value_float(v->value, &unused) && v->value->kind != UNS_VALUE_BOOL))
			return fail_no_tensor(t->cat, v, "a tensor or a number", err);
		UNS_TRY(state_add(t, p, &(struct state){ .name = state + 1, .value = v->value }, err));
	}
	return 0;
}

int uns_optimizer_check_tensors(const struct uns_catalog *cat, const char *root, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_values; i++)
		if (is_state_value(&cat->values[i], root))
			return fail_no_tensor(cat, &cat->values[i], "a tensor", why);
	return 0;
}

static int table_build(struct table *t, const struct uns_catalog *cat, const char *root, struct uns_err *err)
{
	t->cat = cat;
	t->root = root;
	UNS_TRY(groups_add(t, err));
	UNS_TRY(states_add(t, err));
	return values_add(t, err);
}

/* -- check -- */

int uns_optimizer_check(const struct uns_catalog *cat, const char *root, struct uns_err *why)
{
	UNS_CLEANUP(table_fini) struct table t = { 0 };
	size_t i;

	UNS_TRY(uns_cover_refusal(cat, UNS_SCOPE_OPTIMIZER, why));
	if (!root)
		return 0;
	UNS_TRY(table_build(&t, cat, root, why));
	for (i = 0; i < cat->n_tensors; i++)
		if (of_root(&cat->tensors[i], root))
			UNS_TRY(uns_cover_check(cat, &cat->tensors[i], why));
	return 0;
}

int uns_optimizer_check_names(const struct uns_catalog *cat, const char *root, struct uns_err *why)
{
	size_t i;

	for (i = 0; root && i < cat->n_groups; i++)
		if (cat->groups[i].numbered && strcmp(cat->groups[i].root, root) == 0)
			return UNS_CATALOG_FAIL(cat, why, OPTIMIZER_IS_NUMBERED, .scope = UNS_SCOPE_OPTIMIZER);
	return 0;
}

int uns_optimizer_check_hyper(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_groups; i++)
		if (cat->groups[i].bare)
			return UNS_CATALOG_FAIL(cat, why, GROUPS_WITHOUT_SETTINGS, .scope = UNS_SCOPE_OPTIMIZER);
	return 0;
}

/* -- building -- */

struct builder {
	struct table *t;
	struct uns_arena *arena;
	enum uns_param_ids ids;
	int64_t global_step;
	struct uns_torch_leaves *leaves;
	struct uns_optimizer_state *out;
};

static const struct uns_value *id_of(const struct builder *b, const struct param *p)
{
	if (b->ids == UNS_IDS_NAMES)
		return uns_value_new_str(b->arena, p->name);
	return uns_value_new_int(b->arena, (int64_t)p->number);
}

/* Adam's parameters have moments and a step; the step may not have been saved. */
static bool lacks_step(const struct table *t, const struct param *p)
{
	const struct state *s;
	bool moments = false;

	for (s = p->first; s; s = s->next) {
		if (strcmp(s->name, "step") == 0)
			return false;
		moments |= s->tensor && s->tensor->role == UNS_ROLE_EXP_AVG;
	}
	return moments && t->counts_steps;
}

static int param_put(struct builder *b, struct uns_value *states, const struct param *p, struct uns_err *err)
{
	struct uns_value *dict = uns_value_new_dict(b->arena, p->n_states + 1);
	const struct state *s;
	double step;
	bool ok = true;

	if (lacks_step(b->t, p)) {
		if (uns_value_float(uns_value_get(p->group->hyper, "step"), &step)) {
			b->out->n_steps_from_group++;
		} else if (b->global_step != UNS_UNKNOWN) {
			step = (double)b->global_step;
			b->out->n_steps_assumed++;
		} else {
			return UNS_CATALOG_FAIL(b->t->cat, err, OPTIMIZER_STEP_UNKNOWN, .scope = UNS_SCOPE_OPTIMIZER,
						.tensor = p->name);
		}
		ok = uns_value_put_str(b->arena, dict, "step", uns_torch_step_add(b->leaves, b->arena, step));
	}
	for (s = p->first; s && ok; s = s->next)
		ok = uns_value_put_str(b->arena, dict, s->name,
				       s->tensor ? uns_torch_tensor_add(b->leaves, b->arena, s->tensor) : s->value);
	return ok && uns_value_put(states, id_of(b, p), dict) ? 0 : uns_oom(err);
}

int uns_optimizer_state_build(const struct uns_catalog *cat, const char *root, enum uns_param_ids ids,
			      int64_t global_step, struct uns_arena *arena, struct uns_torch_leaves *leaves,
			      struct uns_optimizer_state *out, struct uns_err *err)
{
	UNS_CLEANUP(table_fini) struct table t = { 0 };
	struct builder b = { &t, arena, ids, global_step, leaves, out };
	struct uns_value *dict, *states, *groups, *one, *params;
	const struct uns_group **group;
	size_t i, k, n;

	*out = (struct uns_optimizer_state){ 0 };
	UNS_TRY(table_build(&t, cat, root, err));
	dict = uns_value_new_dict(arena, 2);
	states = uns_value_new_dict(arena, t.n);
	for (i = 0; i < t.n; i++)
		if (t.v[i].first)
			UNS_TRY(param_put(&b, states, &t.v[i], err));
	UNS_TRY(uns_empty_group_with(cat, root, arena, &group, &n, err));
	groups = uns_value_new_list(arena, n);
	for (i = 0; i < n; i++) {
		one = uns_value_new_dict_of(arena, group[i]->hyper, NULL, 1);
		params = uns_value_new_list(arena, group[i]->n_params);
		for (k = 0; k < group[i]->n_params; k++)
			UNS_TRY_ALLOC(uns_value_append(params, id_of(&b, uns_map_get(&t.by_name, group[i]->param[k]))),
				      err);
		UNS_TRY_ALLOC(uns_value_put_str(arena, one, "params", params) && uns_value_append(groups, one), err);
	}
	UNS_TRY_ALLOC(uns_value_put_str(arena, dict, "state", states) &&
			      uns_value_put_str(arena, dict, "param_groups", groups),
		      err);
	out->root = dict;
	return 0;
}

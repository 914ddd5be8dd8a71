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

static int add_group(struct table *t, const struct uns_group *g, struct uns_err *err)
{
	struct param *p;
	size_t i;

	t->n_groups++;
	for (i = 0; i < g->n_params; i++) {
		p = &t->v[t->n];
		*p = (struct param){ .name = g->param[i], .number = t->n, .group = g };
		p->tail = &p->first;
		if (uns_map_get(&t->by_name, p->name))
			return uns_catalog_fail(
				t->cat,
				UNS_FINDING(.id = UNS_FOUND_GROUPS_SHARE_A_PARAMETER,
					    .scope = UNS_SCOPE_OPTIMIZER, .tensor = p->name),
				err);
		if (!uns_map_put(&t->by_name, p->name, p, NULL))
			return uns_oom(err);
		t->n++;
	}
	return 0;
}

static int add_groups(struct table *t, struct uns_err *err)
{
	size_t i, total = 0;

	for (i = 0; i < t->cat->n_groups; i++)
		total += t->cat->groups[i].n_params;
	t->v = UNS_NEW_N(&t->scratch, struct param, total);
	if (!t->v)
		return uns_oom(err);
	for (i = 0; i < t->cat->n_groups; i++)
		if (strcmp(t->cat->groups[i].root, t->root) == 0)
			UNS_TRY(add_group(t, &t->cat->groups[i], err));
	if (!t->n_groups)
		return uns_catalog_fail(
			t->cat,
			UNS_FINDING(.id = UNS_FOUND_GROUPS_MISSING, .scope = UNS_SCOPE_OPTIMIZER),
			err);
	return 0;
}

static int add_state(struct table *t, struct param *p, const struct state *state, struct uns_err *err)
{
	struct state *s = UNS_NEW(&t->scratch, struct state);

	if (!s)
		return uns_oom(err);
	*s = *state;
	*p->tail = s;
	p->tail = &s->next;
	p->n_states++;
	return 0;
}

static int add_states(struct table *t, struct uns_err *err)
{
	const struct uns_tensor *tensor;
	struct param *p;
	size_t i;

	for (i = 0; i < t->cat->n_tensors; i++) {
		tensor = &t->cat->tensors[i];
		if (!of_root(tensor, t->root))
			continue;
		p = uns_map_get(&t->by_name, tensor->name);
		if (!p)
			return uns_catalog_fail(t->cat,
						UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_STRAY,
							    .scope = UNS_SCOPE_OPTIMIZER,
							    .tensor = tensor->key),
						err);
		t->counts_steps |= tensor->role == UNS_ROLE_STEP || tensor->role == UNS_ROLE_EXP_AVG_SQ;
		UNS_TRY(add_state(t, p, &(struct state){ .name = uns_tensor_state(tensor), .tensor = tensor }, err));
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
	return uns_catalog_fail(cat,
				UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STATE_NO_TENSOR,
					    .scope = UNS_SCOPE_OPTIMIZER, .tensor = v->name,
					    .expected = uns_str(expected)),
				err);
}

static bool is_number(const struct uns_value *v)
{
	double number;

	return uns_value_float(v, &number) || (v && v->kind == UNS_VALUE_BOOL);
}

/* "state.PARAMETER.STATE" */
static int add_value(struct table *t, const struct uns_named_value *v, struct uns_err *err)
{
	const char *param = v->name + 6, *state = strrchr(param, '.');
	struct param *p = NULL;

	if (state) {
		param = uns_arena_strn(&t->scratch, param, (size_t)(state - param));
		if (!param)
			return uns_oom(err);
		p = uns_map_get(&t->by_name, param);
	}
	if (!p || !is_number(v->value))
		return fail_no_tensor(t->cat, v, "a tensor or a number", err);
	return add_state(t, p, &(struct state){ .name = state + 1, .value = v->value }, err);
}

static int add_values(struct table *t, struct uns_err *err)
{
	size_t i;

	for (i = 0; i < t->cat->n_values; i++)
		if (is_state_value(&t->cat->values[i], t->root))
			UNS_TRY(add_value(t, &t->cat->values[i], err));
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

static int table_build(struct table *t, const struct uns_catalog *cat, const char *root,
		       struct uns_err *err)
{
	t->cat = cat;
	t->root = root;
	UNS_TRY(add_groups(t, err));
	UNS_TRY(add_states(t, err));
	return add_values(t, err);
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
			return uns_catalog_fail(cat,
						UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_IS_NUMBERED,
							    .scope = UNS_SCOPE_OPTIMIZER),
						why);
	return 0;
}

int uns_optimizer_check_hyper(const struct uns_catalog *cat, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < cat->n_groups; i++)
		if (cat->groups[i].bare)
			return uns_catalog_fail(cat,
						UNS_FINDING(.id = UNS_FOUND_GROUPS_WITHOUT_SETTINGS,
							    .scope = UNS_SCOPE_OPTIMIZER),
						why);
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

static int missing_step(struct builder *b, const struct param *p, double *step,
			struct uns_err *err)
{
	if (uns_value_float(uns_value_get(p->group->hyper, "step"), step)) {
		b->out->n_steps_from_group++;
		return 0;
	}
	if (b->global_step == UNS_UNKNOWN)
		return uns_catalog_fail(b->t->cat,
					UNS_FINDING(.id = UNS_FOUND_OPTIMIZER_STEP_UNKNOWN,
						    .scope = UNS_SCOPE_OPTIMIZER,
						    .tensor = p->name),
					err);
	*step = (double)b->global_step;
	b->out->n_steps_assumed++;
	return 0;
}

static int put_state(struct builder *b, struct uns_value *states, const struct param *p,
		     struct uns_err *err)
{
	struct uns_value *dict = uns_value_new_dict(b->arena, p->n_states + 1);
	const struct state *s;
	double step;
	bool ok = true;

	if (lacks_step(b->t, p)) {
		UNS_TRY(missing_step(b, p, &step, err));
		ok = uns_value_put_str(b->arena, dict, "step",
				       uns_torch_step_add(b->leaves, b->arena, step));
	}
	for (s = p->first; s && ok; s = s->next)
		ok = uns_value_put_str(b->arena, dict, s->name,
				       s->tensor ? uns_torch_tensor_add(b->leaves, b->arena, s->tensor) : s->value);
	return ok && uns_value_put(states, id_of(b, p), dict) ? 0 : uns_oom(err);
}

static const struct uns_value *group_value(struct builder *b, const struct uns_group *g)
{
	struct uns_value *dict = uns_value_new_dict_of(b->arena, g->hyper, NULL, 1);
	struct uns_value *ids = uns_value_new_list(b->arena, g->n_params);
	size_t i;

	for (i = 0; i < g->n_params; i++)
		if (!uns_value_append(ids,
				      id_of(b, uns_map_get(&b->t->by_name, g->param[i]))))
			return NULL;
	return uns_value_put_str(b->arena, dict, "params", ids) ? dict : NULL;
}

static int put_groups(struct builder *b, struct uns_value *list, struct uns_err *err)
{
	const struct uns_group **group;
	size_t i, n;

	UNS_TRY(uns_empty_group_with(b->t->cat, b->t->root, b->arena, &group, &n, err));
	for (i = 0; i < n; i++)
		if (!uns_value_append(list, group_value(b, group[i])))
			return uns_oom(err);
	return 0;
}

static int build(struct builder *b, struct uns_err *err)
{
	struct uns_value *root = uns_value_new_dict(b->arena, 2);
	struct uns_value *states = uns_value_new_dict(b->arena, b->t->n);
	struct uns_value *groups = uns_value_new_list(b->arena, b->t->n_groups + 1);
	size_t i;

	for (i = 0; i < b->t->n; i++)
		if (b->t->v[i].first)
			UNS_TRY(put_state(b, states, &b->t->v[i], err));
	UNS_TRY(put_groups(b, groups, err));
	if (!uns_value_put_str(b->arena, root, "state", states) ||
	    !uns_value_put_str(b->arena, root, "param_groups", groups))
		return uns_oom(err);
	b->out->root = root;
	return 0;
}

int uns_optimizer_state_build(const struct uns_catalog *cat, const char *root,
			      enum uns_param_ids ids, int64_t global_step, struct uns_arena *arena,
			      struct uns_torch_leaves *leaves, struct uns_optimizer_state *out,
			      struct uns_err *err)
{
	UNS_CLEANUP(table_fini) struct table t = { 0 };
	struct builder b = { &t, arena, ids, global_step, leaves, out };

	*out = (struct uns_optimizer_state){ 0 };
	UNS_TRY(table_build(&t, cat, root, err));
	return build(&b, err);
}

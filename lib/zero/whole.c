/* Finds the names of numbered parameters. Reads a few elements of each, to distinguish parameters of equal shape. */
#include "zero/whole.h"

#include <string.h>

#include "base/cleanup.h"
#include "wire/value_new.h"
#include "zero/compare.h"

enum { MAX_PARAMS = 1 << 20 };

#define OPTIMIZER_ROOT "optimizer"

struct whole {
	struct uns_catalog *cat;
	const struct uns_zero_file *file;
	struct uns_zero_names *names;
	struct uns_arena scratch;
	const struct uns_value *state, *groups, *masters; /* masters: fp32_groups, or NULL */
	const struct uns_tensor **named; /* weight of each number */
	size_t n;
	size_t n_tensors; /* of the catalog, before anything was added: candidates */
	bool *used;
};

static void whole_fini(struct whole *w)
{
	uns_arena_fini(&w->scratch);
}

/* -- one number -- */

/* What has the parameter's shape: its fp32 copy, or its first moment that has any. */
static const struct uns_value *shaped(const struct whole *w, uint64_t number,
				      const struct uns_value *master)
{
	static const char *const states[] = { "exp_avg", "momentum_buffer", "exp_avg_sq", NULL };
	const struct uns_value *v;
	size_t i;

	for (i = 0; !master && states[i]; i++) {
		v = uns_value_get(uns_value_get_number(w->state, number), states[i]);
		if (uns_torch_is_tensor(v))
			return v;
	}
	return master;
}

/* -- comparing -- */

static int same_values(const struct whole *w, const struct uns_piece *master,
		       const struct uns_tensor *weight, bool *out, struct uns_err *err)
{
	const struct uns_zero_sample exact = { &w->file->reader, master };
	const struct uns_zero_sample rounded = { &w->file->reader,
						 &w->cat->pieces[weight->first_piece] };

	return uns_zero_may_be_copy(&exact, &rounded, weight->dtype,
				    uns_shape_elems(&weight->shape), out, err);
}

static bool may_be(const struct uns_tensor *weight, const struct uns_shape *shape, bool has_master)
{
	bool half = weight->dtype == UNS_BF16 || weight->dtype == UNS_F16;

	return weight->role == UNS_ROLE_WEIGHT && weight->alias_of == UNS_NONE &&
	       weight->n_pieces == 1 && uns_shape_equal(&weight->shape, shape) &&
	       (half || weight->dtype == UNS_F32) && half == has_master;
}

/* The only weight that it can be. */
static int find_weight(struct whole *w, uint64_t number, const struct uns_value *master,
		       struct uns_err *err)
{
	const struct uns_value *v = shaped(w, number, master);
	size_t i, at = 0, n = 0;
	struct uns_tensor t;
	struct uns_piece piece;
	bool same = true;

	if (!v)
		return uns_fail(err, -ENOTSUP, "no file records the shape of parameter %llu",
				(unsigned long long)number);
	UNS_TRY(uns_zero_file_tensor(w->file, v, &w->scratch, &t, &piece, err));
	if (master && t.dtype != UNS_F32)
		return uns_fail(err, -ENOTSUP, "the copy of parameter %llu is not fp32",
				(unsigned long long)number);
	for (i = 0; i < w->n_tensors; i++) {
		if (!may_be(&w->cat->tensors[i], &t.shape, master != NULL))
			continue;
		if (master)
			UNS_TRY(same_values(w, &piece, &w->cat->tensors[i], &same, err));
		if (same) {
			at = i;
			n++;
		}
	}
	if (n != 1 || w->used[at])
		return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_ZERO_NUMBER_AMBIGUOUS,
						      .file = w->file->open.name,
						      .checkpoint = w->cat->path, .found = uns_num(n),
						      .arg = { { "number", uns_num(number) } }));
	w->used[at] = true;
	w->named[number] = &w->cat->tensors[at];
	return 0;
}

/* -- all numbers -- */

static const struct uns_value *params_of(const struct whole *w, size_t g)
{
	const struct uns_value *list = uns_value_get(uns_value_at(w->groups, g), "params");

	return list && list->kind == UNS_VALUE_LIST ? list : NULL;
}

static int find_weights(struct whole *w, struct uns_err *err)
{
	const struct uns_value *list, *master;
	uint64_t number;
	size_t g, k;

	for (g = 0; g < w->groups->n; g++) {
		list = params_of(w, g);
		for (k = 0; list && k < list->n; k++) {
			master = w->masters ? uns_value_at(uns_value_at(w->masters, g), k) : NULL;
			if (!uns_value_u64(list->item[k], &number) || number >= w->n ||
			    w->named[number] || (w->masters && !master))
				return uns_fail(err, -EBADMSG,
						"param group %zu does not number the parameters", g);
			UNS_TRY(find_weight(w, number, master, err));
		}
	}
	return 0;
}

static int prepare(struct whole *w, const struct uns_value *dict, struct uns_err *err)
{
	const struct uns_value *inner = uns_value_get(dict, "optimizer_state_dict"), *list;
	size_t g;

	w->masters = inner ? uns_value_get(dict, "fp32_groups") : NULL;
	w->state = uns_value_get(inner ? inner : dict, "state");
	w->groups = uns_value_get(inner ? inner : dict, "param_groups");
	if (!w->groups || w->groups->kind != UNS_VALUE_LIST || (inner && !w->masters))
		return uns_fail(err, -ENOTSUP, "the optimizer, saved without ZeRO, has a form "
					       "that unshard does not know");
	for (g = 0; g < w->groups->n; g++) {
		list = params_of(w, g);
		w->n += list ? list->n : 0;
	}
	if (w->n > MAX_PARAMS)
		return uns_fail(err, -ENOTSUP, "the optimizer has %zu parameters, more than "
					       "unshard looks through", w->n);
	w->n_tensors = w->cat->n_tensors;
	w->named = UNS_NEW_N(&w->scratch, const struct uns_tensor *, w->n);
	w->used = UNS_NEW_N(&w->scratch, bool, w->n_tensors);
	return w->named && w->used ? 0 : uns_oom(err);
}

/* -- into the catalog -- */

struct target {
	const char *name;
	uint32_t weight;
	int32_t group, position;
};

/* state NULL: the fp32 copy; v NULL then: the weight is fp32 itself. */
static int add_tensor(struct whole *w, const struct target *p, const char *state,
		      const struct uns_value *v, uint32_t *index, struct uns_err *err)
{
	struct uns_arena *arena = &w->cat->arena;
	struct uns_tensor t = { .name = p->name,
				.key = uns_arena_printf(arena, "%s.%s", p->name,
							state ? state : "fp32"),
				.root = state ? OPTIMIZER_ROOT : "fp32",
				.state = state,
				.role = state ? uns_role_of_state(state) : UNS_ROLE_MASTER,
				.group = p->group,
				.position = p->position,
				.alias_of = UNS_NONE,
				.inferred = true };
	struct uns_piece piece;

	if (!t.key)
		return uns_oom(err);
	if (v) {
		UNS_TRY(uns_zero_file_tensor(w->file, v, arena, &t, &piece, err));
		UNS_TRY(uns_catalog_add_tensor(w->cat, &t, index, err));
		return uns_catalog_add_piece(w->cat, &piece, err);
	}
	t.dtype = w->cat->tensors[p->weight].dtype;
	t.shape = w->cat->tensors[p->weight].shape;
	t.alias_of = p->weight;
	return uns_catalog_add_tensor(w->cat, &t, index, err);
}

static int add_param(struct whole *w, const struct target *p, uint64_t number,
		     const struct uns_value *master, struct uns_err *err)
{
	const struct uns_value *state = uns_value_get_number(w->state, number);
	const char *name;
	uint32_t index;
	size_t i;

	UNS_TRY(add_tensor(w, p, NULL, master, &index, err));
	if (!uns_map_put_index(&w->names->masters, p->name, index))
		return uns_oom(err);
	for (i = 0; state && state->kind == UNS_VALUE_DICT && i < state->n; i++) {
		name = uns_value_str(state->pair[i].key);
		if (name && uns_torch_is_tensor(state->pair[i].value))
			UNS_TRY(add_tensor(w, p, name, state->pair[i].value, &index, err));
	}
	return 0;
}

static int add_group(struct whole *w, size_t g, const uint32_t *index, struct uns_err *err)
{
	const struct uns_value *list = params_of(w, g);
	struct uns_group out = { .root = OPTIMIZER_ROOT };
	struct target target = { .group = (int32_t)w->cat->n_groups };
	uint64_t number;
	size_t k;

	out.hyper = uns_value_new_dict_of(&w->cat->arena, w->groups->item[g], "params", 0);
	out.param = UNS_NEW_N(&w->cat->arena, const char *, list ? list->n : 0);
	if (!out.hyper || !out.param)
		return uns_oom(err);
	for (k = 0; list && k < list->n; k++) {
		uns_value_u64(list->item[k], &number); /* checked when it was named */
		target.weight = index[number];
		target.name = w->cat->tensors[target.weight].name;
		target.position = (int32_t)k;
		out.param[out.n_params++] = target.name;
		UNS_TRY(add_param(w, &target, number,
				  w->masters ? uns_value_at(uns_value_at(w->masters, g), k) : NULL,
				  err));
	}
	return uns_catalog_add_group(w->cat, &out, err);
}

/* The catalog's arrays move while they grow: weights are kept by index. */
static int add_all(struct whole *w, struct uns_err *err)
{
	uint32_t *index = UNS_NEW_N(&w->scratch, uint32_t, w->n);
	size_t i, g;

	if (!index)
		return uns_oom(err);
	for (i = 0; i < w->n; i++)
		index[i] = w->named[i] ? (uint32_t)(w->named[i] - w->cat->tensors) : 0;
	for (g = 0; g < w->groups->n; g++)
		UNS_TRY(add_group(w, g, index, err));
	return 0;
}

int uns_zero_whole_add(struct uns_catalog *cat, const struct uns_zero_file *file,
		       const struct uns_value *dict, struct uns_zero_names *names,
		       struct uns_err *err)
{
	UNS_CLEANUP(whole_fini) struct whole w = { .cat = cat, .file = file, .names = names };
	struct uns_err why = { .keep = &w.scratch };
	int code = prepare(&w, dict, &why);

	if (code == 0)
		code = find_weights(&w, &why);
	if (code == 0)
		code = add_all(&w, &why);
	if (code == 0)
		return 0;
	uns_fail_in_file(&why, file->open.name);
	return uns_catalog_problem_or_fail(cat, UNS_SCOPE_OPTIMIZER, &why, err);
}

/* Finds the name of each number, and adds the optimizer's tensors under these names.
 *
 * Each rank's model file has the weights by name and, if they are 16-bit, fp32 copies by number. A number's candidates
 * are the weights of its shape; of several, the one whose first elements are those of the fp32 copy rounded. Only where
 * one candidate remains the number has a name. */
#include "zero/read/whole.h"

#include <string.h>

#include "base/cleanup.h"
#include "wire/value_new.h"
#include "zero/read/compare.h"
#include "parallel/slice_pieces.h"

enum { MAX_PARAMS = 1 << 20 };

#define OPTIMIZER_ROOT "optimizer"

/* A weight as a model file holds it, which may be a slice of it. */
struct candidate {
	uint32_t weight; /* in the catalog */
	struct uns_tensor tensor;
	struct uns_piece piece;
	bool used;
	uint64_t number; /* when it is */
};

/* One tensor-parallel rank's. */
struct part {
	const struct uns_zero_file *file;
	const struct uns_value *state, *groups, *masters; /* masters: fp32_groups, or NULL */
	struct candidate *candidate;
	size_t n_candidates;
	struct candidate **of; /* of each weight of the catalog, NULL: none */
	const struct uns_value **master; /* of each number; NULL = it has none */
	struct candidate **named;        /* weight of each number */
	size_t n;
};

struct whole {
	struct uns_catalog *cat;
	const struct uns_zero_modules *modules;
	struct uns_zero_names *names;
	struct uns_arena *scratch;
	struct part *part; /* modules->slices->n_ranks */
};

/* -- one number -- */

/* What has the parameter's shape: its fp32 copy, or its first moment that has any. */
static const struct uns_value *shaped(const struct part *p, uint64_t number, const struct uns_value *master)
{
	static const char *const states[] = { "exp_avg", "momentum_buffer", "exp_avg_sq", NULL };
	const struct uns_value *v;
	size_t i;

	for (i = 0; !master && states[i]; i++) {
		v = uns_value_get(uns_value_get_number(p->state, number), states[i]);
		if (uns_torch_is_tensor(v))
			return v;
	}
	return master;
}

/* -- comparing -- */

static bool may_be(const struct candidate *c, const struct uns_shape *shape, bool has_master)
{
	const struct uns_tensor *t = &c->tensor;
	bool half = t->dtype == UNS_BF16 || t->dtype == UNS_F16;

	return uns_shape_equal(&t->shape, shape) && (half || t->dtype == UNS_F32) && half == has_master;
}

/* The only weight that the parameter can be, by its shape and the first elements of its fp32 copy. */
static int find_weight(struct whole *w, struct part *p, uint64_t number, struct uns_err *err)
{
	const struct uns_value *master = p->master[number], *v = shaped(p, number, master);
	struct candidate *c, *found = NULL;
	struct uns_tensor t;
	struct uns_piece piece;
	bool same = true;
	size_t n = 0;

	if (!v)
		return uns_fail(err, -ENOTSUP, "no file records the shape of parameter %llu",
				(unsigned long long)number);
	UNS_TRY(uns_zero_file_tensor(p->file, v, w->scratch, &t, &piece, err));
	if (master && t.dtype != UNS_F32)
		return uns_fail(err, -ENOTSUP, "the copy of parameter %llu is not fp32", (unsigned long long)number);
	for (c = p->candidate; c < p->candidate + p->n_candidates; c++) {
		const struct uns_zero_sample exact = { &p->file->reader, &piece };
		const struct uns_zero_sample rounded = { &p->file->reader, &c->piece };

		if (!may_be(c, &t.shape, master != NULL))
			continue;
		if (master)
			UNS_TRY(uns_zero_may_be_copy(&exact, &rounded, c->tensor.dtype,
						     uns_shape_elems(&c->tensor.shape), &same, err));
		if (same) {
			found = c;
			n++;
		}
	}
	if (n != 1 || found->used)
		return UNS_FAIL_WITH(err, ZERO_NUMBER_AMBIGUOUS, .file = p->file->open.name, .checkpoint = w->cat->path,
				     .found = uns_num(n), .arg = { { "number", uns_num(number) } });
	found->used = true;
	found->number = number;
	p->named[number] = found;
	return 0;
}

/* -- all numbers -- */

static const struct uns_value *params_of(const struct part *p, size_t g)
{
	const struct uns_value *list = uns_value_get(uns_value_at(p->groups, g), "params");

	return list && list->kind == UNS_VALUE_LIST ? list : NULL;
}

static int find_weights(struct whole *w, struct part *p, struct uns_err *err)
{
	const struct uns_value *list, *master;
	uint64_t number;
	size_t g, k;

	for (g = 0; g < p->groups->n; g++) {
		list = params_of(p, g);
		for (k = 0; list && k < list->n; k++) {
			master = p->masters ? uns_value_at(uns_value_at(p->masters, g), k) : NULL;
			if (!uns_value_u64(list->item[k], &number) || number >= p->n || p->named[number] ||
			    (p->masters && !master))
				return uns_fail(err, -EBADMSG, "param group %zu does not number the parameters", g);
			p->master[number] = master;
			UNS_TRY(find_weight(w, p, number, err));
		}
	}
	return 0;
}

/* Names of others' tensors are in no optimizer. */
static int list_candidates(struct whole *w, struct part *p, const struct uns_value *module, struct uns_err *err)
{
	struct candidate *c;
	uint32_t weight;
	size_t i;

	p->candidate = UNS_NEW_N(w->scratch, struct candidate, module->n);
	p->of = UNS_NEW_N(w->scratch, struct candidate *, w->cat->n_tensors);
	UNS_TRY_ALLOC(p->candidate && p->of, err);
	for (i = 0; i < module->n; i++) {
		const char *name = uns_value_str(module->pair[i].key);

		weight = name ? uns_map_index(&w->names->weights, name) : UNS_NONE;
		if (weight == UNS_NONE || w->cat->tensors[weight].role != UNS_ROLE_WEIGHT ||
		    w->cat->tensors[weight].alias_of != UNS_NONE)
			continue;
		c = &p->candidate[p->n_candidates++];
		c->weight = weight;
		p->of[weight] = c;
		UNS_TRY(uns_zero_file_tensor(p->file, module->pair[i].value, w->scratch, &c->tensor, &c->piece, err));
	}
	return 0;
}

static int name_numbers(struct whole *w, size_t rank, struct uns_err *err)
{
	struct part *p = &w->part[rank];
	const struct uns_value *module = w->modules->dict[rank], *dict, *inner, *list;
	size_t g;

	p->file = w->modules->file[rank];
	if (!module || module->kind != UNS_VALUE_DICT)
		return uns_fail(err, -ENOTSUP, "the file holds no state dict of the model");
	dict = uns_value_get(p->file->torch.root, "optimizer");
	inner = uns_value_get(dict, "optimizer_state_dict");
	p->masters = inner ? uns_value_get(dict, "fp32_groups") : NULL;
	p->state = uns_value_get(inner ? inner : dict, "state");
	p->groups = uns_value_get(inner ? inner : dict, "param_groups");
	if (!p->groups || p->groups->kind != UNS_VALUE_LIST || (inner && !p->masters))
		return uns_fail(err, -ENOTSUP,
				"the optimizer, saved without ZeRO, has a form that unshard does not know");
	for (g = 0; g < p->groups->n; g++) {
		list = params_of(p, g);
		p->n += list ? list->n : 0;
	}
	if (p->n > MAX_PARAMS)
		return uns_fail(err, -ENOTSUP, "the optimizer has %zu parameters, more than unshard looks through",
				p->n);
	p->named = UNS_NEW_N(w->scratch, struct candidate *, p->n);
	p->master = UNS_NEW_N(w->scratch, const struct uns_value *, p->n);
	UNS_TRY_ALLOC(p->named && p->master, err);
	UNS_TRY(list_candidates(w, p, module, err));
	return find_weights(w, p, err);
}

/* -- into the catalog -- */

struct target {
	const char *name;
	uint32_t weight;
	int32_t group, position;
	const struct uns_zero_cut_up *cut; /* NULL: every rank holds all of it */
};

/* What the rank holds of the weight: a state, or its fp32 copy (state NULL). NULL = nothing. */
static const struct uns_value *value_held(const struct part *p, uint32_t weight, const char *state)
{
	const struct candidate *c = p->of[weight];

	if (!c || !c->used)
		return NULL;
	return state ? uns_value_get(uns_value_get_number(p->state, c->number), state) : p->master[c->number];
}

/* A state that has not its parameter's shape is one value, the same on all ranks: the first's is taken. */
static int add_slices(struct whole *w, const struct target *p, const char *state, const struct uns_tensor *t,
		      const struct uns_piece *first, struct uns_err *err)
{
	struct uns_tensor found;
	struct uns_piece piece;
	size_t k;

	if (!p->cut || t->shape.n == 0)
		return uns_catalog_add_piece(w->cat, first, err);
	for (k = 0; k < w->modules->slices->n_ranks; k++) {
		const struct part *part = &w->part[k];
		const struct uns_zero_slice *slice = &p->cut->slice[k];
		const struct uns_value *v = value_held(part, p->weight, state);

		if (!v && !uns_shape_elems(&slice->shape))
			continue;
		if (!uns_torch_is_tensor(v))
			return uns_zero_slice_absent(part->file->open.name, p->name, (int32_t)k, err);
		UNS_TRY(uns_zero_file_tensor(part->file, v, &w->cat->arena, &found, &piece, err));
		UNS_TRY(uns_zero_slice_check(slice, &found.shape, part->file->open.name, p->name, (int32_t)k, err));
		UNS_TRY(uns_zero_slice_add(w->cat, slice, &piece, t->dtype, err));
	}
	return 0;
}

/* state NULL: the fp32 copy; v NULL then: the weight is fp32 itself. */
static int add_tensor(struct whole *w, const struct target *p, const char *state, const struct uns_value *v,
		      uint32_t *index, struct uns_err *err)
{
	struct uns_arena *arena = &w->cat->arena;
	struct uns_tensor t = { .name = p->name,
				.key = uns_arena_printf(arena, "%s.%s", p->name, state ? state : "fp32"),
				.root = state ? OPTIMIZER_ROOT : "fp32",
				.state = state,
				.role = state ? uns_role_of_state(state) : UNS_ROLE_MASTER,
				.group = p->group,
				.position = p->position,
				.alias_of = UNS_NONE,
				.inferred = true };
	struct uns_piece piece;

	UNS_TRY_ALLOC(t.key, err);
	if (v) {
		UNS_TRY(uns_zero_file_tensor(w->part[0].file, v, arena, &t, &piece, err));
		if (p->cut && t.shape.n)
			t.shape = p->cut->whole;
		UNS_TRY(uns_catalog_add_tensor(w->cat, &t, index, err));
		return add_slices(w, p, state, &t, &piece, err);
	}
	t.dtype = w->cat->tensors[p->weight].dtype;
	t.shape = w->cat->tensors[p->weight].shape;
	t.alias_of = p->weight;
	return uns_catalog_add_tensor(w->cat, &t, index, err);
}

static int add_param(struct whole *w, const struct target *p, uint64_t number, struct uns_err *err)
{
	const struct uns_value *state = uns_value_get_number(w->part[0].state, number);
	const char *name;
	uint32_t index;
	size_t i;

	UNS_TRY(add_tensor(w, p, NULL, w->part[0].master[number], &index, err));
	UNS_TRY_ALLOC(uns_map_put_index(&w->names->masters, p->name, index), err);
	for (i = 0; state && state->kind == UNS_VALUE_DICT && i < state->n; i++) {
		name = uns_value_str(state->pair[i].key);
		if (name && uns_torch_is_tensor(state->pair[i].value))
			UNS_TRY(add_tensor(w, p, name, state->pair[i].value, &index, err));
	}
	return 0;
}

static int add_group(struct whole *w, size_t g, struct uns_err *err)
{
	const struct part *first = &w->part[0];
	const struct uns_value *list = params_of(first, g);
	struct uns_group out = { .root = OPTIMIZER_ROOT };
	struct target target = { .group = (int32_t)w->cat->n_groups };
	uint64_t number;
	size_t k;

	out.hyper = uns_value_new_dict_of(&w->cat->arena, first->groups->item[g], "params", 0);
	out.param = UNS_NEW_N(&w->cat->arena, const char *, list ? list->n : 0);
	UNS_TRY_ALLOC(out.hyper && out.param, err);
	for (k = 0; list && k < list->n; k++) {
		uns_value_u64(list->item[k], &number); /* checked when it was named */
		target.weight = first->named[number]->weight;
		target.name = w->cat->tensors[target.weight].name;
		target.position = (int32_t)k;
		target.cut = uns_zero_cut_find(w->modules->slices, target.name);
		out.param[out.n_params++] = target.name;
		UNS_TRY(add_param(w, &target, number, err));
	}
	return uns_catalog_add_group(w->cat, &out, err);
}

int uns_zero_whole_add(struct uns_catalog *cat, const struct uns_zero_modules *modules, struct uns_zero_names *names,
		       struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena scratch = UNS_ARENA_INIT;
	struct whole w = { .cat = cat, .modules = modules, .names = names, .scratch = &scratch };
	struct uns_err why = { .keep = &scratch };
	const size_t n = modules->slices->n_ranks;
	size_t k, g;
	int code = 0;

	UNS_TRY_ALLOC(w.part = UNS_NEW_N(&scratch, struct part, n), err);
	for (k = 0; k < n && code == 0; k++) {
		code = name_numbers(&w, k, &why);
		if (code < 0)
			uns_fail_in_file(&why, modules->file[k]->open.name);
	}
	for (g = 0; code == 0 && g < w.part[0].groups->n; g++)
		code = add_group(&w, g, &why);
	return code < 0 ? uns_catalog_problem_or_fail(cat, UNS_SCOPE_OPTIMIZER, &why, err) : 0;
}

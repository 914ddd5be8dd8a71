/* Stretches of flattened parameters, put in order and counted. Knows the two things that FSDP1
 * saves as plain one-dimensional tensors: pieces of parameters (use_orig_params=True) and of flat
 * units, which join several parameters in an order that no file records. */
#include "ranks/optim.h"

#include <stdio.h>
#include <string.h>

#include "ranks/unit_states.h"

void uns_rank_optim_init(struct uns_rank_optim *o, struct uns_catalog *cat,
			 const struct uns_rank_params *params, size_t n_files)
{
	*o = (struct uns_rank_optim){ .cat = cat, .params = params, .n_files = n_files };
	o->tail = &o->first;
}

void uns_rank_optim_fini(struct uns_rank_optim *o)
{
	uns_map_fini(&o->by_key);
	uns_arena_fini(&o->scratch);
}

static struct uns_stretched *stretched_new(struct uns_rank_optim *o, size_t id, const char *state,
					   enum uns_role role, const char *key)
{
	struct uns_stretched *s = UNS_NEW(&o->scratch, struct uns_stretched);

	if (!s)
		return NULL;
	s->id = id;
	s->key = key;
	s->role = role;
	s->state = uns_arena_str(&o->cat->arena, state);
	s->by_file = UNS_NEW_N(&o->scratch, struct uns_stretch, o->n_files);
	if (!s->state || !s->by_file || !uns_map_put(&o->by_key, key, s, NULL))
		return NULL;
	*o->tail = s;
	o->tail = &s->next;
	return s;
}

int uns_rank_optim_add(struct uns_rank_optim *o, const struct uns_rank_source *source, size_t id,
		       const char *state, enum uns_role role, const struct uns_value *v,
		       struct uns_err *err)
{
	char *key = uns_arena_printf(&o->cat->arena, "state.%zu.%s", id, state);
	struct uns_stretched *s = key ? uns_map_get(&o->by_key, key) : NULL;
	struct uns_torch_tensor t;

	UNS_TRY(uns_torch_tensor(source->torch, v, &t, err));
	if (!t.contiguous || t.n_dims != 1)
		return uns_fail(err, -ENOTSUP, "%s is not a dense tensor of one dimension", key);
	if (key && !s)
		s = stretched_new(o, id, state, role, key);
	if (!s)
		return uns_oom(err);
	s->by_file[source->index] = (struct uns_stretch){
		.path = source->path,
		.dtype = t.dtype,
		.elems = t.dims[0],
		.offset_bytes = t.data_bytes + t.first_elem * uns_dtype_size(t.dtype),
		.file = source->file,
		.rank = source->rank,
	};
	return 0;
}

/* -- what is wrong, whichever of the two forms it is -- */

/* It came from one of the files. */
static const struct uns_stretch *first_of(const struct uns_stretched *s)
{
	const struct uns_stretch *first = s->by_file;

	while (!first->path)
		first++;
	return first;
}

/* What findings about one rank's stretch begin with. */
#define OF_STRETCH(o, what, s)                                                                     \
	.id = (what), .scope = UNS_SCOPE_OPTIMIZER, .checkpoint = (o)->cat->path,                  \
	.file = (s)->path, .rank = uns_rank((s)->rank)

static int check_types(struct uns_rank_optim *o, const struct uns_stretched *s, struct uns_err *why)
{
	const struct uns_stretch *a = first_of(s), *b;
	size_t i;

	for (i = 0; i < o->n_files; i++) {
		b = &s->by_file[i];
		if (b->path && b->dtype != a->dtype)
			return uns_fail_with(
				why,
				UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_TYPES_DIFFER, b),
					    .tensor = s->key,
					    .found = uns_str(uns_dtype_info(b->dtype)->torch),
					    .expected = uns_str(uns_dtype_info(a->dtype)->torch),
					    .arg = { { "other_file", uns_str(a->path) } }));
	}
	return 0;
}

/* All states of a parameter are as long, on every rank. */
static int check_against(struct uns_rank_optim *o, const struct uns_stretched *a,
			 const struct uns_stretched *b, struct uns_err *why)
{
	size_t i;

	for (i = 0; i < o->n_files; i++) {
		const struct uns_stretch *x = &a->by_file[i], *y = &b->by_file[i];

		if (x->path && y->path && x->elems != y->elems)
			return uns_fail_with(
				why,
				UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_STATES_DIFFER_IN_LENGTH, x),
					    .tensor = a->key, .found = uns_num(x->elems),
					    .expected = uns_num(y->elems),
					    .arg = { { "other_tensor", uns_str(b->key) } }));
		if (!x->path != !y->path)
			return uns_fail_with(
				why,
				UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_STATE_ABSENT,
						       x->path ? x : y),
					    .tensor = x->path ? b->key : a->key,
					    .arg = { { "other_tensor",
						       uns_str(x->path ? a->key : b->key) } }));
	}
	return 0;
}

static int check_all(struct uns_rank_optim *o, struct uns_err *why)
{
	const struct uns_stretched *s, *before = NULL;

	for (s = o->first; s; before = s, s = s->next) {
		UNS_TRY(check_types(o, s, why));
		if (before && before->id == s->id)
			UNS_TRY(check_against(o, before, s, why));
	}
	return 0;
}

/* -- which of the two -- */

static bool is_even(const struct uns_rank_optim *o, const struct uns_stretched *s)
{
	size_t i;

	for (i = 0; i < o->n_files; i++)
		if (!s->by_file[i].path || s->by_file[i].elems != s->by_file[0].elems)
			return false;
	return true;
}

/* Flat units are padded to the same length on every rank. Pieces of parameters that all happen to have equal
 * lengths look the same as units of one parameter each, whose order differs; both are refused. */
static bool are_units(const struct uns_rank_optim *o)
{
	const struct uns_stretched *s;

	if (o->has_shapes)
		return false;
	for (s = o->first; s; s = s->next)
		if (!is_even(o, s))
			return false;
	return true;
}

static uint64_t elems_of(const struct uns_stretched *s, size_t from, size_t n)
{
	uint64_t sum = 0;
	size_t i;

	for (i = from; i < from + n; i++)
		sum += s->by_file[i].elems; /* each lies in a file: no overflow */
	return sum;
}

/* Fewer states than parameters, and most of the same length on all ranks: units, some of them damaged. Parts of parameters are nearly all uneven. */
static bool are_harmed_units(const struct uns_rank_optim *o)
{
	const struct uns_stretched *s;
	size_t n = 0, n_even = 0;

	for (s = o->first; s; s = s->next, n++)
		n_even += is_even(o, s);
	return !o->has_shapes && o->n_ids < o->params->n - o->params->n_twins && n_even * 2 > n;
}

static int tell_harmed_unit(const struct uns_rank_optim *o, struct uns_err *why)
{
	const struct uns_stretched *s = o->first;
	const struct uns_stretch *a, *b;

	while (is_even(o, s))
		s = s->next;
	a = first_of(s);
	for (b = s->by_file; b->path && b->elems == a->elems;)
		b++;
	if (!b->path)
		return uns_fail_with(
			why, UNS_FINDING(.id = UNS_FOUND_RANK_UNIT_ABSENT,
					 .scope = UNS_SCOPE_OPTIMIZER, .checkpoint = o->cat->path,
					 .file = a->path, .rank = uns_num((size_t)(b - s->by_file)),
					 .tensor = s->key));
	return uns_fail_with(why, UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_UNIT_LENGTH, b),
					      .tensor = s->key, .found = uns_num(b->elems),
					      .expected = uns_num(a->elems),
					      .arg = { { "other_file", uns_str(a->path) } }));
}

/* What n ranks hold of all units. Those of the first state of each. */
static uint64_t elems_of_units(const struct uns_rank_optim *o, size_t n)
{
	const struct uns_stretched *s;
	uint64_t sum = 0;

	for (s = o->first; s; s = s->next)
		if (s->role == o->first->role)
			sum += elems_of(s, 0, n);
	return sum;
}

static size_t count_units(const struct uns_rank_optim *o)
{
	const struct uns_stretched *s;
	size_t n = 0;

	for (s = o->first; s; s = s->next)
		n += s->role == o->first->role;
	return n;
}

/* A unit is its parameters and less than one element of padding for each rank. Frozen units have no
 * state: then there is no least size. With HSDP n ranks hold everything. */
static int check_units(const struct uns_rank_optim *o, struct uns_err *why)
{
	size_t n, i, n_units = count_units(o);
	uint64_t most = 0, least = 0, elems, found;
	char expected[64];

	for (i = 0; i < o->params->n; i++) {
		elems = uns_shape_elems(&o->params->v[i].shape);
		most += elems; /* all lie in files: no overflow */
		least += n_units < o->n_ids || o->params->v[i].twin ? 0 : elems;
	}
	for (n = o->n_files; n > 0; n--) {
		found = elems_of_units(o, n);
		if (o->n_files % n == 0 && found >= least && found <= most + n_units * (n - 1))
			return 0;
	}
	snprintf(expected, sizeof(expected), "%llu to %llu", (unsigned long long)least,
		 (unsigned long long)(most + n_units * (o->n_files - 1)));
	return uns_fail_with(why,
			     UNS_FINDING(.id = UNS_FOUND_RANK_UNITS_SIZE, .scope = UNS_SCOPE_OPTIMIZER,
					 .checkpoint = o->cat->path, .expected = uns_str(expected),
					 .found = uns_num(elems_of_units(o, o->n_files)),
					 .arg = { { "n", uns_num(n_units) } }));
}

/* The ranks [from, from + n) hold s->id's parameter once. */
static bool is_whole(const struct uns_rank_optim *o, const struct uns_stretched *s, size_t from,
		     size_t n)
{
	return elems_of(s, from, n) == uns_shape_elems(&o->params->v[s->id].shape);
}

/* With HSDP, (ddp, fsdp) in that order, every n ranks hold everything once more. 0 = no n fits. */
static size_t shard_ranks(const struct uns_rank_optim *o)
{
	const struct uns_stretched *s;
	size_t n, from;
	bool fits;

	for (n = 1; n <= o->n_files; n++) {
		fits = o->n_files % n == 0;
		for (from = 0; fits && from < o->n_files; from += n)
			for (s = o->first; s && fits; s = s->next)
				fits = is_whole(o, s, from, n);
		if (fits)
			return n;
	}
	return 0;
}

static int misfit(const struct uns_rank_optim *o, struct uns_err *why)
{
	const struct uns_stretched *s;
	const struct uns_rank_param *p;

	for (s = o->first; s && is_whole(o, s, 0, o->n_files); s = s->next)
		;
	if (!s)
		s = o->first;
	p = &o->params->v[s->id];
	return uns_fail_with(why,
			     UNS_FINDING(.id = UNS_FOUND_RANK_STATE_SIZE, .scope = UNS_SCOPE_OPTIMIZER,
					 .checkpoint = o->cat->path, .tensor = s->key,
					 .expected = uns_num(uns_shape_elems(&p->shape)),
					 .found = uns_num(elems_of(s, 0, o->n_files)),
					 .arg = { { "parameter", uns_str(p->name) },
						  { "number", uns_num(s->id) } }));
}

/* -- into the catalog -- */

static int emit_one(struct uns_rank_optim *o, const struct uns_stretched *s, size_t n,
		    struct uns_err *err)
{
	const struct uns_rank_param *p = &o->params->v[s->id];
	struct uns_tensor t = { .name = p->name,
				.key = s->key,
				.root = "optimizer",
				.state = s->state,
				.role = s->role,
				.dtype = first_of(s)->dtype,
				.shape = p->shape, UNS_TENSOR_ALONE,
				.inferred = true };
	uint64_t first = 0;
	uint32_t unused;
	size_t i;

	UNS_TRY(uns_catalog_add_tensor(o->cat, &t, &unused, err));
	for (i = 0; i < o->n_files; i++) {
		const struct uns_stretch *x = &s->by_file[i];
		const struct uns_piece piece = {
			.kind = UNS_PIECE_RANGE,
			.range = { i % n ? first : 0, x->elems },
			.file = x->file,
			.rank = x->rank,
			.container = UNS_RAW,
			.offset_bytes = x->offset_bytes,
			.length_bytes = x->elems * uns_dtype_size(x->dtype),
		};

		first = piece.range.first + x->elems;
		if (x->elems)
			UNS_TRY(uns_catalog_add_piece(o->cat, &piece, err));
	}
	return 0;
}

static int find_form(struct uns_rank_optim *o, size_t *n, struct uns_err *why)
{
	UNS_TRY(check_all(o, why));
	if (are_harmed_units(o) && !are_units(o))
		return tell_harmed_unit(o, why);
	if (are_units(o))
		UNS_TRY(check_units(o, why));
	if (are_units(o))
		return uns_rank_unit_states_find(o, why);
	if (o->n_ids != o->params->n)
		return uns_fail_with(why, UNS_FINDING(.id = UNS_FOUND_RANK_NUMBERS_UNLIKE_MODEL,
						      .scope = UNS_SCOPE_OPTIMIZER,
						      .checkpoint = o->cat->path,
						      .expected = uns_num(o->params->n),
						      .found = uns_num(o->n_ids)));
	if (o->params->n_renamed)
		return uns_fail_with(why, UNS_FINDING(.id = UNS_FOUND_RANK_ORDER_UNKNOWN,
						      .scope = UNS_SCOPE_OPTIMIZER,
						      .checkpoint = o->cat->path));
	*n = shard_ranks(o);
	return *n ? 0 : misfit(o, why);
}

int uns_rank_optim_emit(struct uns_rank_optim *o, struct uns_err *err)
{
	const struct uns_stretched *s;
	struct uns_err why = { .keep = &o->scratch };
	size_t n = 1;

	if (!o->first)
		return 0;
	o->is_refused = find_form(o, &n, &why) < 0;
	if (o->is_refused)
		return uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_OPTIMIZER, &why, err);
	if (o->units.v)
		return uns_rank_unit_states_emit(o, err);
	for (s = o->first; s; s = s->next)
		UNS_TRY(emit_one(o, s, n, err));
	return 0;
}

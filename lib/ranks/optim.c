/* Collects the one-dimensional tensors of ranks' optimizer files, which FSDP1 saves in two forms: pieces of parameters
 * (use_orig_params=True), and flat units, which join several parameters in an order that no file records. Owns the
 * decision which of the two they are, the findings about them, and the catalog's tensors of the first form. */
#include "ranks/optim.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "ranks/names.h"
#include "ranks/unit_states.h"

void uns_rank_optim_init(struct uns_rank_optim *o, struct uns_catalog *cat, const struct uns_rank_params *params,
			 size_t n_files)
{
	*o = (struct uns_rank_optim){ .cat = cat, .params = params, .n_files = n_files };
	o->tail = &o->first;
}

void uns_rank_optim_fini(struct uns_rank_optim *o)
{
	uns_map_fini(&o->by_key);
	uns_arena_fini(&o->scratch);
}

/* A stretch does not record its rank. torch calls the records of a file after the file that it saves, so the records
 * have the rank: a file that was exchanged with another rank's is refused. Records with another name prove nothing. */
static int check_saved_name(const struct uns_rank_source *source, struct uns_err *err)
{
	const char *prefix = source->torch->zip.prefix; /* "optim_world_size_2_rank_0/" */
	struct uns_rank_name is, was;
	char saved[128];
	size_t n = strlen(prefix);

	if (n < 2 || n > sizeof(saved) - sizeof(".pt"))
		return 0;
	snprintf(saved, sizeof(saved), "%.*s.pt", (int)n - 1, prefix);
	if (!uns_rank_name_parse(uns_path_name(source->path), &is) || !uns_rank_name_parse(saved, &was) ||
	    (is.kind == was.kind && is.world == was.world && is.rank == was.rank))
		return 0;
	return uns_fail(err, -EBADMSG, "the file was saved as %s: it was renamed, or is another rank's", saved);
}

int uns_rank_optim_add(struct uns_rank_optim *o, const struct uns_rank_source *source, size_t id, const char *state,
		       enum uns_role role, const struct uns_value *v, struct uns_err *err)
{
	char *key = uns_arena_printf(&o->cat->arena, "state.%zu.%s", id, state);
	struct uns_stretched *s = uns_map_get(&o->by_key, key);
	struct uns_torch_tensor t;

	if (check_saved_name(source, err) < 0) {
		o->is_refused = true;
		return -EBADMSG;
	}
	UNS_TRY(uns_torch_tensor(source->torch, v, &t, err));
	if (!t.contiguous || t.n_dims != 1)
		return uns_fail(err, -ENOTSUP, "%s is not a dense tensor of one dimension", key);
	if (!s) {
		UNS_TRY_ALLOC(s = UNS_NEW(&o->scratch, struct uns_stretched), err);
		*s = (struct uns_stretched){ .id = id, .key = key, .role = role };
		s->state = uns_arena_str(&o->cat->arena, state);
		UNS_TRY_ALLOC(s->by_file = UNS_NEW_N(&o->scratch, struct uns_stretch, o->n_files), err);
		UNS_TRY_ALLOC(uns_map_put(&o->by_key, key, s, NULL), err);
		*o->tail = s;
		o->tail = &s->next;
	}
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

/* -- findings about both forms -- */

/* It came from one of the files. */
static const struct uns_stretch *first_of(const struct uns_stretched *s)
{
	const struct uns_stretch *first = s->by_file;

	while (!first->path)
		first++;
	return first;
}

/* What findings about one rank's stretch begin with. */
#define OF_STRETCH(o, what, s)                                                                       \
	.id = (what), .scope = UNS_SCOPE_OPTIMIZER, .checkpoint = (o)->cat->path, .file = (s)->path, \
	.rank = uns_rank((s)->rank)

/* On every rank, a state has the same dtype, and all states of a parameter are as long: `a` and `b` are two of one
 * parameter, b NULL = there is no other. */
static int check_state(struct uns_rank_optim *o, const struct uns_stretched *a, const struct uns_stretched *b,
		       struct uns_err *why)
{
	const struct uns_stretch *first = first_of(a), *x, *y;
	size_t i;

	for (i = 0; i < o->n_files; i++) {
		x = &a->by_file[i];
		if (x->path && x->dtype != first->dtype)
			return uns_fail_with(why, UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_TYPES_DIFFER, x),
							      .tensor = a->key,
							      .found = uns_str(uns_dtype_info(x->dtype)->torch),
							      .expected = uns_str(uns_dtype_info(first->dtype)->torch),
							      .arg = { { "other_file", uns_str(first->path) } }));
	}
	for (i = 0; b && i < o->n_files; i++) {
		x = &b->by_file[i];
		y = &a->by_file[i];
		if (x->path && y->path && x->elems != y->elems)
			return uns_fail_with(why, UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_STATES_DIFFER_IN_LENGTH, x),
							      .tensor = b->key, .found = uns_num(x->elems),
							      .expected = uns_num(y->elems),
							      .arg = { { "other_tensor", uns_str(a->key) } }));
		if (!x->path != !y->path)
			return uns_fail_with(
				why, UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_STATE_ABSENT, x->path ? x : y),
						 .tensor = x->path ? a->key : b->key,
						 .arg = { { "other_tensor", uns_str(x->path ? b->key : a->key) } }));
	}
	return 0;
}

/* -- flat units -- */

static bool is_even(const struct uns_rank_optim *o, const struct uns_stretched *s)
{
	size_t i;

	for (i = 0; i < o->n_files; i++)
		if (!s->by_file[i].path || s->by_file[i].elems != s->by_file[0].elems)
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

/* The first state that is not of the same length on every rank: a damaged unit. */
static int fail_damaged_unit(const struct uns_rank_optim *o, struct uns_err *why)
{
	const struct uns_stretched *s = o->first;
	const struct uns_stretch *a, *b;

	while (is_even(o, s))
		s = s->next;
	a = first_of(s);
	for (b = s->by_file; b->path && b->elems == a->elems;)
		b++;
	if (!b->path)
		return UNS_FAIL_WITH(why, RANK_UNIT_ABSENT, .scope = UNS_SCOPE_OPTIMIZER, .checkpoint = o->cat->path,
				     .file = a->path, .rank = uns_num((size_t)(b - s->by_file)), .tensor = s->key);
	return uns_fail_with(why, UNS_FINDING(OF_STRETCH(o, UNS_FOUND_RANK_UNIT_LENGTH, b), .tensor = s->key,
					      .found = uns_num(b->elems), .expected = uns_num(a->elems),
					      .arg = { { "other_file", uns_str(a->path) } }));
}

/* Elements that the first n ranks hold of all units, counting one state of each. */
static uint64_t elems_of_units(const struct uns_rank_optim *o, size_t n, size_t *n_units)
{
	const struct uns_stretched *s;
	uint64_t sum = 0;

	for (*n_units = 0, s = o->first; s; s = s->next)
		if (s->role == o->first->role) {
			sum += elems_of(s, 0, n);
			++*n_units;
		}
	return sum;
}

/* A unit is its parameters and less than one element of padding for each rank. Frozen units have no
 * state: then there is no least size. With HSDP n ranks hold everything. */
static int check_units(const struct uns_rank_optim *o, struct uns_err *why)
{
	size_t n, i, n_units;
	uint64_t most = 0, least = 0, elems, found, all = elems_of_units(o, o->n_files, &n_units);
	char expected[64];

	for (i = 0; i < o->params->n; i++) {
		elems = uns_shape_elems(&o->params->v[i].shape);
		most += elems; /* all lie in files: no overflow */
		least += n_units < o->n_ids || o->params->v[i].twin ? 0 : elems;
	}
	for (n = o->n_files; n > 0; n--) {
		found = elems_of_units(o, n, &n_units);
		if (o->n_files % n == 0 && found >= least && found <= most + n_units * (n - 1))
			return 0;
	}
	snprintf(expected, sizeof(expected), "%llu to %llu", (unsigned long long)least,
		 (unsigned long long)(most + n_units * (o->n_files - 1)));
	return UNS_FAIL_WITH(why, RANK_UNITS_SIZE, .scope = UNS_SCOPE_OPTIMIZER, .checkpoint = o->cat->path,
			     .expected = uns_str(expected), .found = uns_num(all),
			     .arg = { { "n", uns_num(n_units) } });
}

/* The first state of which some n ranks in a row do not hold its parameter once; NULL if there is none. */
static const struct uns_stretched *state_not_whole(const struct uns_rank_optim *o, size_t n)
{
	const struct uns_stretched *s;
	size_t from;

	for (from = 0; from < o->n_files; from += n)
		for (s = o->first; s; s = s->next)
			if (elems_of(s, from, n) != uns_shape_elems(&o->params->v[s->id].shape))
				return s;
	return NULL;
}

/* Finds how many ranks hold every parameter once. With HSDP, (ddp, fsdp) in that order, every *out ranks hold
 * everything once more. */
static int find_shard_ranks(const struct uns_rank_optim *o, size_t *out, struct uns_err *why)
{
	const struct uns_stretched *odd;
	size_t n = 1;

	while ((odd = state_not_whole(o, n))) {
		if (n >= o->n_files)
			return UNS_FAIL_WITH(why, RANK_STATE_SIZE, .scope = UNS_SCOPE_OPTIMIZER,
					     .checkpoint = o->cat->path, .tensor = odd->key,
					     .expected = uns_num(uns_shape_elems(&o->params->v[odd->id].shape)),
					     .found = uns_num(elems_of(odd, 0, o->n_files)),
					     .arg = { { "parameter", uns_str(o->params->v[odd->id].name) },
						      { "number", uns_num(odd->id) } });
		do
			n++;
		while (o->n_files % n);
	}
	*out = n;
	return 0;
}

/* -- into the catalog -- */

static int emit_state(struct uns_rank_optim *o, const struct uns_stretched *s, size_t n, struct uns_err *err)
{
	const struct uns_rank_param *p = &o->params->v[s->id];
	struct uns_tensor t = { .name = p->name,
				.key = s->key,
				.root = "optimizer",
				.state = s->state,
				.role = s->role,
				.dtype = first_of(s)->dtype,
				.shape = p->shape,
				UNS_TENSOR_ALONE,
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

/* Decides which form the states have. Flat units are padded to the same length on every rank. Pieces of parameters that
 * all happen to have equal lengths look the same as units of one parameter each, whose order differs; both are refused.
 * If there are fewer states than parameters, and most have the same length on all ranks, they are units of which some
 * are damaged: pieces of parameters are nearly all uneven. */
static int find_form(struct uns_rank_optim *o, size_t *n_ranks, struct uns_err *why)
{
	const struct uns_stretched *s, *before = NULL;
	size_t n = 0, n_even = 0;

	for (s = o->first; s; before = s, s = s->next, n++) {
		UNS_TRY(check_state(o, s, before && before->id == s->id ? before : NULL, why));
		n_even += is_even(o, s);
	}
	if (!o->has_shapes && n_even == n) {
		UNS_TRY(check_units(o, why));
		return uns_rank_unit_states_find(o, why);
	}
	if (!o->has_shapes && o->n_ids < o->params->n - o->params->n_twins && n_even * 2 > n)
		return fail_damaged_unit(o, why);
	if (o->n_ids != o->params->n)
		return UNS_FAIL_WITH(why, RANK_NUMBERS_UNLIKE_MODEL, .scope = UNS_SCOPE_OPTIMIZER,
				     .checkpoint = o->cat->path, .expected = uns_num(o->params->n),
				     .found = uns_num(o->n_ids));
	if (o->params->n_renamed)
		return UNS_FAIL_WITH(why, RANK_ORDER_UNKNOWN, .scope = UNS_SCOPE_OPTIMIZER, .checkpoint = o->cat->path);
	return find_shard_ranks(o, n_ranks, why);
}

int uns_rank_optim_emit(struct uns_rank_optim *o, struct uns_err *err)
{
	const struct uns_stretched *s;
	struct uns_err why = { .keep = &o->scratch };
	size_t n = 1;

	if (!o->first || o->is_refused)
		return 0;
	o->is_refused = find_form(o, &n, &why) < 0;
	if (o->is_refused)
		return uns_catalog_problem_or_fail(o->cat, UNS_SCOPE_OPTIMIZER, &why, err);
	if (o->units.v)
		return uns_rank_unit_states_emit(o, err);
	for (s = o->first; s; s = s->next)
		UNS_TRY(emit_state(o, s, n, err));
	return 0;
}

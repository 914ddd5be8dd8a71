/* The optimizer's flat tensors as tensors of parameters.
 *
 * ZeRO lays the parameters of a group one behind the other into one flat tensor and cuts that over the ranks. A rank's
 * file holds its part of the fp32 copies, and as long a part of each state (exp_avg, ..). It does not record where in
 * it a parameter begins: that follows from the parameters' order and shapes (param_shapes, in the model file).
 *
 *   param_shapes               a [6]            b [2, 4]
 *   flat tensor, 2 ranks       a a a a a a b b | b b b b b b . .      . = padding
 *   pieces                     a: rank 0 [0, 6)      b: rank 0 [6, 8), rank 1 [0, 6)
 *
 * At stage 3 each parameter is cut over the ranks by itself; zero/layout.h has the arithmetic of both.
 *
 * A boundary that is computed wrongly would mix parameters, and no reader would notice. So before a group's pieces are
 * made, all that its files record is compared with what was computed: the length of each part, of its padding and of
 * all parts together, the types, which states there are, the number of steps. What does not fit is a problem, and the
 * group, or its states, are left out.
 *
 * Of one group there may be several flat tensors, each with ranks of its own: one for each tensor-parallel rank, which
 * holds a slice of each parameter (parallel/slices.h), and one for each share of the experts (parallel/experts.h). */
#include <string.h>

#include "base/checked.h"
#include "base/map.h"
#include "base/number.h"
#include "base/path.h"
#include "parallel/slice_pieces.h"
#include "zero/read/world.h"

/* One flat tensor: a group (at stage 3 a sub-group) of one world, or of those of its ranks that have one share. */
struct group {
	struct uns_zero_world *w;
	size_t g;        /* which of the world's groups */
	struct uns_zero_cursor params; /* what the ranks list, and the parameter at hand */
	struct uns_zero_layout layout; /* world: how many ranks it is cut over */
	uint64_t first, stride;        /* these are the world's ranks first, first + stride, .. */
	uint64_t *at;                  /* of each parameter, where it starts in the flat tensor */
	uint64_t end;                  /* of the last one, padding between parameters included */
	bool stateless;                /* its states cannot be used, which has been reported */
	int32_t number;                /* of its param group in the catalog; -1 = not known */
};

/* The same group of all ranks that have slices of its parameters. */
struct groups {
	struct group *v; /* n, one for each of these ranks */
	size_t n;
	const struct uns_zero_slices *slices;
	size_t next; /* the first rank's parameter that comes next */
	bool unfit;  /* it cannot be used, which has been reported */
};

/* What the group's rank `rank` holds of it; NULL = its file is missing or damaged. */
static const struct uns_zero_rank_group *held_by(const struct group *s, uint64_t rank)
{
	const struct uns_zero_optim *o = s->w->rank[s->first + rank * s->stride].optim;

	return o ? &o->group[s->g] : NULL;
}

static uint32_t file_of(const struct group *s, uint64_t rank)
{
	return s->w->rank[s->first + rank * s->stride].file;
}

/* The lowest rank that could be read. */
static uint64_t lowest_rank(const struct uns_zero_world *w)
{
	uint64_t rank = 0;

	while (w->rank[rank].optim != w->any)
		rank++;
	return rank;
}

static const struct uns_zero_state *state_named(const struct uns_zero_rank_group *h, const char *name)
{
	size_t i;

	for (i = 0; h && i < h->n_states; i++)
		if (strcmp(h->state[i].name, name) == 0)
			return &h->state[i];
	return NULL;
}

/* -- one flat tensor: is it what was computed? -- */

/* Fails with a finding about the file of one of the group's ranks; ..: its other fields. */
#define FAIL_AT(s, r, err, KIND, ...)                                                                             \
	UNS_FAIL_WITH(err, KIND, .file = (s)->w->cat->files[file_of(s, r)].path, .checkpoint = (s)->w->cat->path, \
		      .rank = uns_num((s)->first + (r) * (s)->stride), __VA_ARGS__)

static int fail_too_large(const struct group *s, const char *what, struct uns_err *err)
{
	return UNS_FAIL_WITH(err, ZERO_GROUP_TOO_LARGE, .checkpoint = s->w->cat->path, .file = s->w->where,
			     .arg = { { "what", uns_str(what) }, { "group", uns_num(s->g) } });
}

/* Where each parameter starts. */
static int find_starts(struct group *s, struct uns_err *err)
{
	const struct uns_value *paddings = uns_value_get(s->w->any->dict, "param_alignment_paddings");
	const struct uns_zero_shapes *shapes = s->params.shapes;
	uint64_t padding;
	size_t i;

	UNS_TRY_ALLOC(s->at = UNS_NEW_N(&s->w->scratch, uint64_t, shapes->n), err);
	for (i = 0; i < shapes->n; i++) {
		s->at[i] = s->end;
		if (!uns_zero_alignment(paddings, s->g, i, &padding))
			return uns_fail(err, -EBADMSG,
					"param_alignment_paddings has no count for parameter %zu of group %zu", i,
					s->g);
		if (!uns_u64_add(s->end, uns_zero_advance(&s->layout, shapes->v[i].elems) + padding, &s->end) ||
		    s->end > INT64_MAX / 8)
			return fail_too_large(s, "parameters", err);
	}
	return 0;
}

/* The largest part that a rank holds: a full one, unless all of it elems_fit into the first; where no rank's file could
 * be read, the one that DeepSpeed takes. */
static uint64_t largest_part(const struct group *s)
{
	const struct uns_zero_rank_group *h;
	uint64_t most = 0, r;
	size_t i;

	for (r = 0; r < s->layout.world; r++) {
		h = held_by(s, r);
		if (!h)
			continue;
		most = uns_u64_max(most, h->fp32.elems);
		for (i = 0; i < h->n_states; i++)
			if (!h->state[i].scalar)
				most = uns_u64_max(most, h->state[i].part.elems);
	}
	return most || !s->layout.world ? most : uns_zero_part(s->end, s->layout.world);
}

/* As many elements as the rank holds of the group; a full part may have padding behind them. */
static bool elems_fit(const struct group *s, uint64_t rank, uint64_t elems)
{
	uint64_t real = uns_zero_held(&s->layout, s->end, rank);

	return s->layout.sliced ? elems == real : elems >= real && elems <= s->layout.part_elems;
}

static int fail_size(const struct group *s, uint64_t rank, const char *part, uint64_t found, struct uns_err *err)
{
	return FAIL_AT(s, rank, err, ZERO_PARTITION_SIZE, .found = uns_num(found),
		       .expected = uns_num(uns_zero_held(&s->layout, s->end, rank)),
		       .arg = { { "part", uns_str(part) },
				{ "group", uns_num(s->g) },
				{ "total", uns_num(s->end) },
				{ "n", uns_num(s->layout.world) },
				{ "other_file", uns_str(s->w->where) } });
}

static int check_dtype(const struct group *s, uint64_t rank, const char *what, const struct uns_zero_part *part,
		       const struct uns_zero_part *first, struct uns_err *err)
{
	if (part->dtype == first->dtype)
		return 0;
	return FAIL_AT(s, rank, err, ZERO_PARTITION_TYPE, .expected = uns_str(uns_dtype_info(first->dtype)->torch),
		       .found = uns_str(uns_dtype_info(part->dtype)->torch),
		       .arg = { { "part", uns_str(what) }, { "group", uns_num(s->g) } });
}

/* The rank's part of the fp32 copies, and the padding that its file records. */
static int check_rank(const struct group *s, uint64_t rank, struct uns_err *err)
{
	const struct uns_zero_rank_group *h = held_by(s, rank);
	uint64_t want;

	if (!h)
		return 0;
	UNS_TRY(check_dtype(s, rank, "the fp32 partition", &h->fp32, &s->w->any->group[s->g].fp32, err));
	if (!elems_fit(s, rank, h->fp32.elems))
		return fail_size(s, rank, "the fp32 partition", h->fp32.elems, err);
	if (s->layout.sliced || !h->has_padding || s->layout.part_elems != uns_zero_part(s->end, s->layout.world))
		return 0;
	/* DeepSpeed records the whole group's padding in the last rank's file and 0 in the others; each rank's own
	 * padding is accepted too. A file that was renamed to another rank's name fails here. */
	want = uns_zero_padding(&s->layout, s->end, rank, true);
	if (h->padding == want || h->padding == uns_zero_padding(&s->layout, s->end, rank, false))
		return 0;
	return FAIL_AT(s, rank, err, ZERO_PARTITION_PADDING, .expected = uns_num(want), .found = uns_num(h->padding),
		       .arg = { { "group", uns_num(s->g) }, { "n", uns_num(s->layout.world) } });
}

/* Flat groups are padded to a multiple of 2 W elements. If no part is missing, their sum must round to that. If one
 * is missing, the size of the parts must be the one that DeepSpeed takes, because the start of the next rank's part
 * follows from it. */
static int check_sum(const struct group *s, struct uns_err *err)
{
	uint64_t sum = 0, world = s->layout.world, r, total;
	bool all = true;

	if (s->layout.sliced)
		return 0;
	if (!uns_u64_mul(s->layout.part_elems, world, &total) || total > INT64_MAX / 8)
		return fail_too_large(s, "partitions", err);
	for (r = 0; r < world; r++) {
		all = all && held_by(s, r);
		sum += held_by(s, r) ? held_by(s, r)->fp32.elems : 0;
	}
	if (!all)
		sum = total;
	if ((all ? uns_zero_part(sum, world) : s->layout.part_elems) == uns_zero_part(s->end, world))
		return 0;
	return UNS_FAIL_WITH(err, ZERO_PARTITIONS_SUM, .checkpoint = s->w->cat->path, .file = s->w->where,
			     .expected = uns_num(s->end), .found = uns_num(sum),
			     .arg = { { "group", uns_num(s->g) }, { "n", uns_num(world) } });
}

static int check_group(struct group *s, struct uns_err *err)
{
	uint64_t r;

	UNS_TRY(find_starts(s, err));
	s->layout.part_elems = largest_part(s);
	UNS_TRY(check_sum(s, err));
	for (r = 0; r < s->layout.world; r++)
		UNS_TRY(check_rank(s, r, err));
	return 0;
}

/* -- states -- */

static int check_state(const struct group *s, uint64_t rank, const struct uns_zero_state *want, struct uns_err *err)
{
	const struct uns_zero_state *found = state_named(held_by(s, rank), want->name);

	if (!found)
		return FAIL_AT(s, rank, err, ZERO_PARTITION_STATE_ABSENT,
			       .arg = { { "part", uns_str(want->name) }, { "group", uns_num(s->g) } });
	UNS_TRY(check_dtype(s, rank, want->name, &found->part, &want->part, err));
	if (found->scalar != want->scalar || (!found->scalar && !elems_fit(s, rank, found->part.elems)))
		return fail_size(s, rank, want->name, found->part.elems, err);
	return 0;
}

/* Every rank holds the same states, in the same types, as the one that holds the most: a state that a file lacks is
 * missing there. */
static int check_states(const struct group *s, struct uns_err *err)
{
	const struct uns_zero_rank_group *most = &s->w->any->group[s->g], *h;
	uint64_t r;
	size_t i;

	for (r = 0; r < s->layout.world; r++) {
		h = held_by(s, r);
		if (h && h->n_states > most->n_states)
			most = h;
	}
	for (r = 0; r < s->layout.world; r++)
		for (i = 0; held_by(s, r) && i < most->n_states; i++)
			UNS_TRY(check_state(s, r, &most->state[i], err));
	return 0;
}

/* Every tensor-parallel rank holds the same states as the first, in the same types. */
static int check_alike(const struct groups *all, struct uns_err *err)
{
	const struct uns_zero_rank_group *first = &all->v[0].w->any->group[all->v[0].g];
	uint64_t rank;
	size_t k, i;

	for (k = 1; k < all->n; k++) {
		const struct group *s = &all->v[k];

		for (rank = 0; rank < s->layout.world && !held_by(s, rank);)
			rank++;
		if (rank == s->layout.world)
			continue; /* that the files are missing or damaged has been reported */
		UNS_TRY(check_dtype(s, rank, "the fp32 partition", &held_by(s, rank)->fp32, &first->fp32, err));
		for (i = 0; i < first->n_states; i++)
			UNS_TRY(check_state(s, rank, &first->state[i], err));
	}
	return 0;
}

/* The optimizer's step of a rank's group, a tensor or a plain number; false = it has none that can be read. */
static bool step_of(const struct uns_zero_rank_group *h, double *out)
{
	const struct uns_zero_state *state = state_named(h, "step");

	if (!state)
		return h && h->step && uns_value_float(h->step, out);
	return state->scalar && uns_dtype_number(state->part.dtype, state->value, out);
}

/* All ranks step at once: one that took another number of steps is of another save. 1 = so it is, and that of another
 * group was reported. */
static int check_steps(const struct groups *all, struct uns_err *err)
{
	struct uns_zero_world *w = all->v[0].w;
	char expected[UNS_NUMBER_ROOM], found[UNS_NUMBER_ROOM];
	double want, have;
	uint64_t r;
	size_t k;

	if (!step_of(&w->any->group[all->v[0].g], &want))
		return 0;
	for (k = 0; k < all->n; k++)
		for (r = 0; r < all->v[k].layout.world; r++) {
			if (!step_of(held_by(&all->v[k], r), &have) || have == want)
				continue;
			if (w->steps_differ)
				return 1;
			w->steps_differ = true;
			uns_number_print(expected, want, 15);
			uns_number_print(found, have, 15);
			return FAIL_AT(
				&all->v[k], r, err, ZERO_STEPS_DIFFER, .expected = uns_str(expected),
				.found = uns_str(found),
				.arg = { { "group", uns_num(all->v[k].g) },
					 { "other_file", uns_str(w->cat->files[w->rank[lowest_rank(w)].file].path) } });
		}
	return 0;
}

/* Sets all->unfit or the first group's `stateless` if something does not fit. */
static int check_groups(struct groups *all, struct uns_err *err)
{
	struct group *s = &all->v[0];
	struct uns_err why = { .keep = &s->w->scratch };
	size_t k;
	int code = 0;

	for (k = 0; k < all->n && code == 0; k++)
		code = check_group(&all->v[k], &why);
	if (code == 0)
		code = check_steps(all, &why);
	all->unfit = code != 0;
	if (all->unfit)
		return code < 0 ? uns_zero_world_problem_or_fail(s->w, &why, err) : 0;
	/* Unfit states leave the fp32 copies usable. */
	for (k = 0; k < all->n && code == 0; k++)
		code = check_states(&all->v[k], &why);
	if (code == 0)
		code = check_alike(all, &why);
	s->stateless = code < 0;
	return s->stateless ? uns_catalog_problem_or_fail(s->w->cat, UNS_SCOPE_OPTIMIZER, &why, err) : 0;
}

/* -- tensors -- */

/* A tensor of parameter i; state NULL = the fp32 copy. */
static struct uns_tensor tensor_of(const struct group *s, size_t i, const char *state, int32_t position)
{
	const struct uns_zero_param *p = &s->params.shapes->v[i];

	return (struct uns_tensor){ .name = p->name,
				    .key = uns_arena_printf(&s->w->cat->arena, "%s.%s", p->name,
							    state ? state : "fp32"),
				    .root = state ? "optimizer" : "fp32",
				    .state = state,
				    .role = state ? uns_role_of_state(state) : UNS_ROLE_MASTER,
				    .shape = p->shape,
				    .group = s->number,
				    .position = position,
				    .alias_of = UNS_NONE };
}

/* A stretch of the flat tensor, which lies in one rank's part, becomes a piece of the catalog's last tensor. */
static int add_stretch(const struct group *s, const struct uns_zero_stretch *stretch,
		       const struct uns_zero_slice *slice, const char *state, enum uns_dtype dtype, struct uns_err *err)
{
	const struct uns_zero_rank_group *h = held_by(s, stretch->rank);
	const struct uns_zero_state *found = state ? state_named(h, state) : NULL;
	const uint32_t file = file_of(s, stretch->rank);
	uint64_t size = uns_dtype_size(dtype), offset = 0;

	if (found || (h && !state))
		offset = found ? found->part.offset_bytes : h->fp32.offset_bytes;
	else if (!s->w->cat->files[file].missing)
		return 0; /* nothing is known of the part: a hole, which the proof of cover names */
	/* If the rank's file is missing, the piece is in it all the same, so that findings can name the file. */
	return uns_zero_slice_add(s->w->cat, slice,
				  &(struct uns_piece){ .kind = UNS_PIECE_RANGE,
						       .range = { stretch->first, stretch->count },
						       .file = file,
						       .rank = (int32_t)(s->first + stretch->rank * s->stride),
						       .container = UNS_RAW,
						       .offset_bytes = offset + stretch->local * size,
						       .length_bytes = stretch->count * size },
				  dtype, err);
}

/* The fp32 copy (state NULL) or a state of the parameter at hand: all that all ranks hold of it. */
static int add_tensor(const struct groups *all, size_t i, const struct uns_zero_cut_up *cut, int32_t position,
		      const char *state, uint32_t *index, struct uns_err *err)
{
	const struct group *first = &all->v[0], *s;
	const struct uns_zero_rank_group *any = &first->w->any->group[first->g];
	struct uns_tensor t = tensor_of(first, i, state, position);
	const struct uns_zero_param *p;
	size_t k;

	t.dtype = state ? state_named(any, state)->part.dtype : any->fp32.dtype; /* the same in all files */
	if (cut)
		t.shape = cut->whole;
	UNS_TRY(uns_catalog_add_tensor(first->w->cat, &t, index, err));
	for (s = first, k = 0; k < all->n; s++, k++) {
		struct uns_zero_stretch stretch = { 0 };

		for (p = s->params.now;
		     p && uns_zero_stretch_next(&s->layout, s->at[p - s->params.shapes->v], p->elems, &stretch);
		     stretch.rank++)
			UNS_TRY(add_stretch(s, &stretch, cut ? &cut->slice[k] : NULL, state, t.dtype, err));
	}
	return 0;
}

/* A number that differs from rank to rank is about each rank's own part, not about any parameter (Adafactor's RMS). */
static bool is_of_ranks(const struct group *s, const struct uns_zero_state *state)
{
	const struct uns_zero_state *other;
	uint64_t r;

	for (r = 0; r < s->layout.world && uns_role_of_state(state->name) != UNS_ROLE_STEP; r++) {
		other = state_named(held_by(s, r), state->name);
		if (other && memcmp(other->value, state->value, sizeof(state->value)) != 0)
			return true;
	}
	return false;
}

/* Every rank holds the same value, for the whole group: the lowest rank's is taken. */
static int add_scalar(const struct group *s, size_t i, int32_t position, const struct uns_zero_state *state,
		      struct uns_err *err)
{
	struct uns_tensor t = tensor_of(s, i, state->name, position);
	static const struct uns_box whole = { .n = 0 };
	const struct uns_piece piece = { .kind = UNS_PIECE_BOX,
					 .box = &whole,
					 .file = state->part.file,
					 .rank = (int32_t)lowest_rank(s->w),
					 .container = UNS_RAW,
					 .offset_bytes = state->part.offset_bytes,
					 .length_bytes = uns_dtype_size(state->part.dtype) };

	t.dtype = state->part.dtype;
	t.shape = (struct uns_shape){ .n = 0 };
	UNS_TRY(uns_catalog_add_tensor(s->w->cat, &t, NULL, err));
	return uns_catalog_add_piece(s->w->cat, &piece, err);
}

static int add_states(const struct groups *all, size_t i, const struct uns_zero_cut_up *cut, int32_t position,
		      struct uns_err *err)
{
	const struct group *s = &all->v[0];
	const struct uns_zero_rank_group *any = &s->w->any->group[s->g];
	const struct uns_zero_state *state;

	for (state = any->state; !s->stateless && state < any->state + any->n_states; state++) {
		if (!state->scalar)
			UNS_TRY(add_tensor(all, i, cut, position, state->name, NULL, err));
		else if (!is_of_ranks(s, state))
			UNS_TRY(add_scalar(s, i, position, state, err));
		else if (i == 0)
			UNS_TRY(UNS_ADD_FINDING(
				s->w->cat, err, ZERO_STATE_OF_RANKS,
				.arg = { { "state", uns_str(state->name) }, { "group", uns_num(s->g) } }));
	}
	return 0;
}

/* *cut: how tensor parallelism or AutoEP cut the parameter at hand; NULL = not at all. Each rank lists the parameter
 * with its slice's shape; where the slice is empty it may leave it out. */
static int find_cut(const struct groups *all, const char *name, const struct uns_zero_cut_up **cut, struct uns_err *err)
{
	size_t k;

	*cut = NULL;
	if (all->n == 1)
		return 0;
	UNS_TRY(uns_zero_cut_get(all->slices, name, all->v[0].w->where, all->v[0].w->mp, cut, err));
	for (k = 0; k < all->n; k++) {
		const struct uns_zero_slice *slice = &(*cut)->slice[k];
		const struct group *s = &all->v[k];

		if (s->params.now)
			UNS_TRY(uns_zero_slice_check(slice, &s->params.now->shape, s->w->where, name, (int32_t)k, err));
		else if (uns_shape_elems(&slice->shape))
			return uns_zero_slice_absent(s->w->where, name, (int32_t)k, err);
	}
	return 0;
}

/* Parameter i of the first rank. */
static int add_param(const struct groups *all, size_t i, int32_t *position, struct uns_map *seen, struct uns_err *err)
{
	const struct group *s = &all->v[0];
	const char *name = s->params.shapes->v[i].name;
	const struct uns_zero_cut_up *cut;
	struct uns_err why = { .keep = &s->w->scratch };
	uint32_t index = UNS_NONE;

	if (uns_map_get(seen, name)) {
		/* A tied layer of a pipeline is in the optimizer of every stage that has it; they are kept equal. */
		if (uns_str_starts(name, "tied_modules."))
			return 0;
		return UNS_WORLD_PROBLEM(s->w, err, ZERO_PARAMETER_TWICE, .file = s->w->where, .tensor = name);
	}
	if (find_cut(all, name, &cut, &why) < 0)
		return uns_zero_world_problem_or_fail(s->w, &why, err);
	UNS_TRY(add_tensor(all, i, cut, s->number < 0 ? -1 : *position, NULL, &index, err));
	UNS_TRY_ALLOC(uns_map_put_index(seen, name, index), err);
	return add_states(all, i, cut, s->number < 0 ? -1 : (*position)++, err);
}

/* -- groups -- */

int32_t uns_zero_next_position(const struct uns_catalog *cat, int32_t group)
{
	int32_t next = 0;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].group == group && cat->tensors[i].position >= next)
			next = cat->tensors[i].position + 1;
	return next;
}

/* *out: a group as each share of its experts has it (one, where ranks share out no experts of it), and as each
 * tensor-parallel rank has that. Where the shares are slices of the same parameters, one list of all of them. */
static int list_shares(struct uns_zero_world *const *w, const struct uns_zero_slices *slices, size_t g, int32_t number,
		       struct groups **out, struct uns_err *err)
{
	const struct uns_zero_slices *experts = w[0]->spread[g].slices;
	const size_t n = w[0]->spread[g].n;
	struct group *s = UNS_NEW_N(&w[0]->scratch, struct group, n * slices->n_ranks);
	size_t e, k;

	*out = UNS_NEW_N(&w[0]->scratch, struct groups, n);
	UNS_TRY_ALLOC(s && *out, err);
	for (e = 0; e < n; e++) {
		(*out)[e] = (struct groups){ .v = s, .n = slices->n_ranks, .slices = slices };
		for (k = 0; k < slices->n_ranks; k++, s++) {
			*s = (struct group){ .w = w[k],
					     .g = g,
					     .params.shapes = &w[k]->spread[g].share[e],
					     .layout = { .sliced = w[k]->any->stage == 3, .world = w[k]->n_ranks / n },
					     .number = number };
			uns_zero_experts_ranks(w[k]->config, w[k]->n_ranks, n, e, &s->first, &s->stride);
		}
	}
	if (experts) /* tensor parallelism as well, which would make several of each, is not read together with AutoEP
		      */
		(*out)[0] = (struct groups){ .v = s - n, .n = n, .slices = experts };
	return 0;
}

static int add_group(struct uns_zero_world *const *w, const struct uns_zero_slices *slices, size_t g, int32_t number,
		     struct uns_map *seen, struct uns_err *err)
{
	const struct uns_zero_spread *spread = &w[0]->spread[g];
	int32_t position = number < 0 ? 0 : uns_zero_next_position(w[0]->cat, number);
	struct groups *share, *all;
	size_t i, k;

	UNS_TRY(list_shares(w, slices, g, number, &share, err));
	for (k = 0; k < (spread->slices ? 1 : spread->n); k++)
		UNS_TRY(check_groups(&share[k], err));
	for (i = 0; i < spread->whole.n; i++) {
		all = &share[spread->owner ? spread->owner[i] : 0];
		if (all->unfit)
			continue;
		for (k = 0; k < all->n; k++)
			uns_zero_cursor_go(&all->v[k].params, all->v[0].params.shapes->v[all->next].name);
		UNS_TRY(add_param(all, all->next++, &position, seen, err));
	}
	return 0;
}

int uns_zero_states_add(struct uns_zero_world *const *w, const struct uns_zero_slices *slices, const int32_t *group_of,
			struct uns_map *seen, struct uns_err *err)
{
	size_t g, k;

	for (k = 0; k < slices->n_ranks; k++) {
		if (!w[k]->any || !w[k]->n_ranks)
			return 0;
		if (w[k]->any->n_groups != w[0]->n_shapes || w[k]->n_shapes != w[0]->n_shapes)
			return UNS_WORLD_PROBLEM(w[k], err, ZERO_GROUPS_DIFFER, .file = w[k]->where,
						 .expected = uns_num(w[0]->n_shapes),
						 .found = uns_num(w[k]->any->n_groups));
	}
	for (g = 0; g < w[0]->n_shapes; g++)
		UNS_TRY(add_group(w, slices, g, group_of[g], seen, err));
	return 0;
}

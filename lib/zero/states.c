/* An optimizer's parts into tensors with pieces. Owns the checks that a group's partitions fit its
 * parameters: a wrong boundary would mix parameters silently. */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/map.h"
#include "zero/world.h"
#include "parallel/slice_pieces.h"

#define MASTER_ROOT "fp32"
#define OPTIMIZER_ROOT "optimizer"

/* One group (or sub-group) of one world. */
struct group {
	struct uns_zero_world *w;
	size_t g;
	const struct uns_zero_shapes *shapes;
	struct uns_zero_layout layout; /* world: of these ranks */
	uint64_t first, stride; /* the ranks that it is cut over: first, first + stride, .. */
	uint64_t *at; /* where each parameter starts */
	uint64_t end; /* of the last one, interior padding included */
	bool stateless; /* its states cannot be used, which has been reported */
	int32_t number;
	size_t now, next; /* of the parameters: the one at hand, shapes->n if the rank has nothing of it; behind it */
};

/* Of all ranks of the world, the one that is the group's `rank`. */
static const struct uns_zero_rank *rank_of(const struct group *s, uint64_t rank)
{
	return &s->w->rank[s->first + rank * s->stride];
}

static const struct uns_zero_rank_group *held(const struct group *s, uint64_t rank)
{
	const struct uns_zero_optim *o = rank_of(s, rank)->optim;

	return o ? &o->group[s->g] : NULL;
}

/* The lowest rank that could be read. */
static uint64_t any_rank(const struct uns_zero_world *w)
{
	uint64_t rank = 0;

	while (w->rank[rank].optim != w->any)
		rank++;
	return rank;
}

static const char *path_of(const struct group *s, uint64_t rank)
{
	return s->w->cat->files[rank_of(s, rank)->file].path;
}

static const struct uns_zero_state *state_named(const struct uns_zero_rank_group *h,
						const char *name)
{
	size_t i;

	for (i = 0; h && i < h->n_states; i++)
		if (strcmp(h->state[i].name, name) == 0)
			return &h->state[i];
	return NULL;
}

/* -- boundaries -- */

static int too_large(const struct group *s, const char *what, struct uns_err *err)
{
	return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_ZERO_GROUP_TOO_LARGE,
					      .checkpoint = s->w->cat->path, .file = s->w->where,
					      .arg = { { "what", uns_str(what) },
						       { "group", uns_num(s->g) } }));
}

static int find_starts(struct group *s, struct uns_err *err)
{
	const struct uns_value *paddings =
		uns_value_get(s->w->any->dict, "param_alignment_paddings");
	uint64_t padding;
	size_t i;

	s->at = UNS_NEW_N(&s->w->scratch, uint64_t, s->shapes->n);
	if (!s->at)
		return uns_oom(err);
	for (i = 0; i < s->shapes->n; i++) {
		s->at[i] = s->end;
		if (!uns_zero_alignment(paddings, s->g, i, &padding))
			return uns_fail(err, -EBADMSG,
					"param_alignment_paddings has no count for parameter %zu of "
					"group %zu",
					i, s->g);
		if (!uns_u64_add(s->end, uns_zero_advance(&s->layout, s->shapes->v[i].elems) + padding,
				 &s->end) ||
		    s->end > INT64_MAX / 8)
			return too_large(s, "parameters", err);
	}
	return 0;
}

/* The largest part that a rank holds: a full one, unless all of it fits into the first; where no rank's file could be read,
 * the one that DeepSpeed takes. */
static uint64_t largest_part(const struct group *s)
{
	const struct uns_zero_rank_group *h;
	uint64_t most = 0, r;
	size_t i;

	for (r = 0; r < s->layout.world; r++) {
		h = held(s, r);
		if (!h)
			continue;
		most = uns_u64_max(most, h->fp32.elems);
		for (i = 0; i < h->n_states; i++)
			if (!h->state[i].scalar)
				most = uns_u64_max(most, h->state[i].part.elems);
	}
	return most || !s->layout.world ? most : uns_zero_part(s->end, s->layout.world);
}

/* What findings about one rank's file begin with. */
#define OF_RANK(s, what, r)                                                                        \
	.id = (what), .file = path_of((s), (r)), .checkpoint = (s)->w->cat->path, .rank = uns_num((s)->first + (r) * (s)->stride)

static int mismatch(const struct group *s, uint64_t rank, const char *what, uint64_t found,
		    struct uns_err *err)
{
	return uns_fail_with(err, UNS_FINDING(OF_RANK(s, UNS_FOUND_ZERO_PARTITION_SIZE, rank),
					      .expected = uns_num(uns_zero_held(&s->layout, s->end, rank)),
					      .found = uns_num(found),
					      .arg = { { "part", uns_str(what) },
						       { "group", uns_num(s->g) },
						       { "total", uns_num(s->end) },
						       { "n", uns_num(s->layout.world) },
						       { "other_file", uns_str(s->w->where) } }));
}

static bool fits(const struct group *s, uint64_t rank, uint64_t elems)
{
	uint64_t real = uns_zero_held(&s->layout, s->end, rank);

	return s->layout.sliced ? elems == real : elems >= real && elems <= s->layout.part_elems;
}

/* DeepSpeed records the whole group's padding in the last rank's file and 0 in the others; each rank's own padding is
 * accepted too. A file that was renamed to another rank's name fails here. */
static int check_padding(const struct group *s, uint64_t rank, const struct uns_zero_rank_group *h,
			 struct uns_err *err)
{
	uint64_t want;

	if (s->layout.sliced || !h->has_padding ||
	    s->layout.part_elems != uns_zero_part(s->end, s->layout.world))
		return 0;
	want = uns_zero_padding(&s->layout, s->end, rank, true);
	if (h->padding == want || h->padding == uns_zero_padding(&s->layout, s->end, rank, false))
		return 0;
	return uns_fail_with(err, UNS_FINDING(OF_RANK(s, UNS_FOUND_ZERO_PARTITION_PADDING, rank),
					      .expected = uns_num(want), .found = uns_num(h->padding),
					      .arg = { { "group", uns_num(s->g) },
						       { "n", uns_num(s->layout.world) } }));
}

static const char *dtype_text(enum uns_dtype dtype)
{
	return uns_dtype_info(dtype)->torch;
}

static int check_dtype(const struct group *s, uint64_t rank, const char *what,
		       const struct uns_zero_part *part, const struct uns_zero_part *first,
		       struct uns_err *err)
{
	if (part->dtype == first->dtype)
		return 0;
	return uns_fail_with(err, UNS_FINDING(OF_RANK(s, UNS_FOUND_ZERO_PARTITION_TYPE, rank),
					      .expected = uns_str(dtype_text(first->dtype)),
					      .found = uns_str(dtype_text(part->dtype)),
					      .arg = { { "part", uns_str(what) },
						       { "group", uns_num(s->g) } }));
}

/* The rank's group with the most states: a state that another rank's file lacks is missing there. */
static const struct uns_zero_rank_group *richest(const struct group *s)
{
	const struct uns_zero_rank_group *most = &s->w->any->group[s->g], *h;
	uint64_t r;

	for (r = 0; r < s->layout.world; r++) {
		h = held(s, r);
		if (h && h->n_states > most->n_states)
			most = h;
	}
	return most;
}

static int check_state(const struct group *s, uint64_t rank, const struct uns_zero_state *want,
		       struct uns_err *err)
{
	const struct uns_zero_state *found = state_named(held(s, rank), want->name);

	if (!found)
		return uns_fail_with(
			err, UNS_FINDING(OF_RANK(s, UNS_FOUND_ZERO_PARTITION_STATE_ABSENT, rank),
					 .arg = { { "part", uns_str(want->name) },
						  { "group", uns_num(s->g) } }));
	UNS_TRY(check_dtype(s, rank, want->name, &found->part, &want->part, err));
	if (found->scalar != want->scalar ||
	    (!found->scalar && !fits(s, rank, found->part.elems)))
		return mismatch(s, rank, want->name, found->part.elems, err);
	return 0;
}

static bool number_of(const struct uns_zero_state *state, double *out)
{
	float single;

	switch (state->part.dtype) {
	case UNS_F32:
		memcpy(&single, state->value, sizeof(single));
		*out = (double)single;
		return true;
	case UNS_F64:
		memcpy(out, state->value, sizeof(*out));
		return true;
	case UNS_I64:
		*out = (double)(int64_t)uns_le(state->value, sizeof(int64_t));
		return true;
	default:
		return false;
	}
}

/* The optimizer's step of a rank's group, a tensor or a plain number; false = it has none that can be read. */
static bool step_of(const struct uns_zero_rank_group *h, double *out)
{
	const struct uns_zero_state *state = state_named(h, "step");

	if (state)
		return state->scalar && number_of(state, out);
	return h && h->step && uns_value_float(h->step, out);
}

/* Every rank holds the same states, in the same types. */
static int check_states(const struct group *s, struct uns_err *err)
{
	const struct uns_zero_rank_group *all = richest(s);
	uint64_t r;
	size_t i;

	for (r = 0; r < s->layout.world; r++)
		for (i = 0; held(s, r) && i < all->n_states; i++)
			UNS_TRY(check_state(s, r, &all->state[i], err));
	return 0;
}

static int check_rank(const struct group *s, uint64_t rank, struct uns_err *err)
{
	const struct uns_zero_rank_group *h = held(s, rank);

	if (!h)
		return 0;
	UNS_TRY(check_dtype(s, rank, "the fp32 partition", &h->fp32, &s->w->any->group[s->g].fp32,
			    err));
	if (!fits(s, rank, h->fp32.elems))
		return mismatch(s, rank, "the fp32 partition", h->fp32.elems, err);
	return check_padding(s, rank, h, err);
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
	if (!uns_u64_mul(s->layout.part_elems, s->layout.world, &total) || total > INT64_MAX / 8)
		return too_large(s, "partitions", err);
	for (r = 0; r < s->layout.world; r++) {
		all = all && held(s, r);
		sum += held(s, r) ? held(s, r)->fp32.elems : 0;
	}
	if (!all)
		sum = total;
	if ((all ? uns_zero_part(sum, world) : s->layout.part_elems) == uns_zero_part(s->end, world))
		return 0;
	return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_ZERO_PARTITIONS_SUM,
					      .checkpoint = s->w->cat->path, .file = s->w->where,
					      .expected = uns_num(s->end), .found = uns_num(sum),
					      .arg = { { "group", uns_num(s->g) },
						       { "n", uns_num(s->layout.world) } }));
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

/* -- the same group of all ranks that have slices of its parameters -- */

struct groups {
	struct group *v; /* of each rank */
	size_t n;
	const struct uns_zero_slices *slices;
	size_t next; /* of the first rank's parameters */
	bool unfit;  /* it cannot be used, which has been reported */
};

/* Go on to parameter i of the first rank. Ranks list them in the same order, but for those of which they have nothing. */
static void go_to(struct groups *all, size_t i)
{
	const char *name = all->v[0].shapes->v[i].name;
	size_t k;

	for (k = 0; k < all->n; k++) {
		struct group *s = &all->v[k];
		bool has = s->next < s->shapes->n && strcmp(s->shapes->v[s->next].name, name) == 0;

		s->now = has ? s->next++ : s->shapes->n;
	}
}

/* The rank lists the parameter with its slice's shape; where the slice is empty it may be left out. */
static int check_slice(const struct group *s, const char *name, const struct uns_zero_slice *slice, size_t rank,
		       struct uns_err *err)
{
	const struct uns_zero_shapes *shapes = s->shapes;

	if (s->now < shapes->n)
		return uns_zero_slice_check(slice, &shapes->v[s->now].shape, s->w->where, name, (int32_t)rank, err);
	return uns_shape_elems(&slice->shape) ? uns_zero_slice_absent(s->w->where, name, (int32_t)rank, err) : 0;
}

/* *cut: how parameter i of the first rank's group is cut; NULL = not at all. */
static int find_cut(const struct groups *all, size_t i, const struct uns_zero_cut_up **cut, struct uns_err *err)
{
	const char *name = all->v[0].shapes->v[i].name;
	size_t k;

	*cut = NULL;
	if (all->n == 1)
		return 0;
	UNS_TRY(uns_zero_cut_get(all->slices, name, all->v[0].w->where, all->v[0].w->mp, cut, err));
	for (k = 0; k < all->n; k++)
		UNS_TRY(check_slice(&all->v[k], name, &(*cut)->slice[k], k, err));
	return 0;
}

/* All ranks step at once: one that took another number of steps is of another save. */
static int check_step(const struct group *first, const struct group *s, uint64_t rank, struct uns_err *err)
{
	const struct uns_zero_world *w = first->w;
	char expected[32], found[32];
	double a, b;

	if (!step_of(&w->any->group[first->g], &a) || !step_of(held(s, rank), &b) || a == b)
		return 0;
	snprintf(expected, sizeof(expected), "%.15g", a);
	snprintf(found, sizeof(found), "%.15g", b);
	return uns_fail_with(err, UNS_FINDING(OF_RANK(s, UNS_FOUND_ZERO_STEPS_DIFFER, rank),
					      .expected = uns_str(expected), .found = uns_str(found),
					      .arg = { { "group", uns_num(s->g) },
						       { "other_file", uns_str(w->cat->files[w->rank[any_rank(w)].file].path) } }));
}

static int check_steps(const struct groups *all, struct uns_err *err)
{
	uint64_t r;
	size_t k;

	for (k = 0; k < all->n; k++)
		for (r = 0; r < all->v[k].layout.world; r++)
			UNS_TRY(check_step(&all->v[0], &all->v[k], r, err));
	return 0;
}

/* The lowest rank of the group whose file could be read. */
static uint64_t first_held(const struct group *s)
{
	uint64_t rank = 0;

	while (rank < s->layout.world && !held(s, rank))
		rank++;
	return rank;
}

/* Every rank holds the same states as the first, in the same types. */
static int check_alike(const struct groups *all, struct uns_err *err)
{
	const struct uns_zero_rank_group *first = &all->v[0].w->any->group[all->v[0].g];
	size_t k, i;

	for (k = 1; k < all->n; k++) {
		const struct group *s = &all->v[k];
		uint64_t rank = first_held(s);

		if (rank == s->layout.world)
			continue; /* that the files are missing or damaged has been reported */
		UNS_TRY(check_dtype(s, rank, "the fp32 partition", &held(s, rank)->fp32, &first->fp32, err));
		for (i = 0; i < first->n_states; i++)
			UNS_TRY(check_state(s, rank, &first->state[i], err));
	}
	return 0;
}

/* -- tensors -- */

/* A part of the rank. If the rank's file is missing, the part has the place that it would have in it, so that the
 * finding can name the file. If the file could not be read, nothing is known of the part. */
static struct uns_zero_part part_of(const struct group *s, uint64_t rank, const char *state)
{
	const struct uns_zero_rank_group *h = held(s, rank);
	const struct uns_zero_state *found = state ? state_named(h, state) : NULL;

	if (h && !state)
		return h->fp32;
	if (found)
		return found->part;
	return (struct uns_zero_part){ .there = s->w->cat->files[rank_of(s, rank)->file].missing,
				       .file = rank_of(s, rank)->file };
}

static int add_stretch(const struct group *s, const struct uns_zero_stretch *stretch,
		       const struct uns_zero_slice *slice, const char *state, enum uns_dtype dtype,
		       struct uns_err *err)
{
	struct uns_zero_part part = part_of(s, stretch->rank, state);
	uint64_t size = uns_dtype_size(dtype);
	struct uns_piece piece = { .kind = UNS_PIECE_RANGE,
				   .range = { stretch->first, stretch->count },
				   .file = part.file,
				   .rank = (int32_t)(s->first + stretch->rank * s->stride),
				   .container = UNS_RAW,
				   .offset_bytes = part.offset_bytes + stretch->local * size,
				   .length_bytes = stretch->count * size };

	if (!part.there)
		return 0; /* a hole, which the proof of cover names */
	return uns_zero_slice_add(s->w->cat, slice, &piece, dtype, err);
}

/* The same in all files: checked. */
static enum uns_dtype dtype_of(const struct group *s, const char *state)
{
	const struct uns_zero_rank_group *any = &s->w->any->group[s->g];

	return state ? state_named(any, state)->part.dtype : any->fp32.dtype;
}

static struct uns_tensor tensor_of(const struct group *s, size_t i, const char *state)
{
	return (struct uns_tensor){ .name = s->shapes->v[i].name,
				    .key = uns_arena_printf(&s->w->cat->arena, "%s.%s",
							    s->shapes->v[i].name,
							    state ? state : "fp32"),
				    .root = state ? OPTIMIZER_ROOT : MASTER_ROOT,
				    .state = state,
				    .role = UNS_ROLE_MASTER,
				    .shape = s->shapes->v[i].shape,
				    .group = s->number,
				    .position = -1,
				    .alias_of = UNS_NONE };
}

/* What one rank holds of the parameter at hand, which is all of it, or the slice. */
static int add_held(const struct group *s, const struct uns_zero_slice *slice, const char *state,
		    enum uns_dtype dtype, struct uns_err *err)
{
	struct uns_zero_stretch stretch = { 0 };

	for (; s->now < s->shapes->n &&
	       uns_zero_stretch_next(&s->layout, s->at[s->now], s->shapes->v[s->now].elems, &stretch);
	     stretch.rank++)
		UNS_TRY(add_stretch(s, &stretch, slice, state, dtype, err));
	return 0;
}

/* state NULL = the fp32 copy. */
static int add_cut(const struct groups *all, size_t i, const struct uns_zero_cut_up *cut, int32_t position,
		   const char *state, uint32_t *index, struct uns_err *err)
{
	struct uns_tensor t = tensor_of(&all->v[0], i, state);
	size_t k;

	if (!t.key)
		return uns_oom(err);
	t.position = position;
	if (state)
		t.role = uns_role_of_state(state);
	t.dtype = dtype_of(&all->v[0], state);
	if (cut)
		t.shape = cut->whole;
	UNS_TRY(uns_catalog_add_tensor(all->v[0].w->cat, &t, index, err));
	for (k = 0; k < all->n; k++)
		UNS_TRY(add_held(&all->v[k], cut ? &cut->slice[k] : NULL, state, t.dtype, err));
	return 0;
}

/* A number that differs from rank to rank is about each rank's own part, not about any parameter (Adafactor's RMS). */
static bool is_of_ranks(const struct group *s, const struct uns_zero_state *state)
{
	const struct uns_zero_state *other;
	uint64_t r;

	for (r = 0; r < s->layout.world && uns_role_of_state(state->name) != UNS_ROLE_STEP; r++) {
		other = state_named(held(s, r), state->name);
		if (other && memcmp(other->value, state->value, sizeof(state->value)) != 0)
			return true;
	}
	return false;
}

static int note_of_ranks(const struct group *s, const struct uns_zero_state *state, struct uns_err *err)
{
	return uns_catalog_add_finding(s->w->cat,
				       UNS_FINDING(.id = UNS_FOUND_ZERO_STATE_OF_RANKS,
						   .arg = { { "state", uns_str(state->name) },
							    { "group", uns_num(s->g) } }),
				       err);
}

/* Every rank holds the same value, for the whole group: the first that is there is taken. */
static int add_scalar(const struct group *s, size_t i, int32_t position,
		      const struct uns_zero_state *state, int32_t rank, struct uns_err *err)
{
	struct uns_tensor t = tensor_of(s, i, state->name);
	static const struct uns_box whole = { .n = 0 };
	struct uns_piece piece = { .kind = UNS_PIECE_BOX,
				   .box = &whole,
				   .file = state->part.file,
				   .rank = rank,
				   .container = UNS_RAW,
				   .offset_bytes = state->part.offset_bytes,
				   .length_bytes = uns_dtype_size(state->part.dtype) };

	if (!t.key)
		return uns_oom(err);
	t.position = position;
	t.role = uns_role_of_state(state->name);
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
	size_t k;

	if (s->stateless)
		return 0;
	for (k = 0; k < any->n_states; k++) {
		if (any->state[k].scalar && is_of_ranks(s, &any->state[k])) {
			if (i == 0)
				UNS_TRY(note_of_ranks(s, &any->state[k], err));
		} else if (any->state[k].scalar) {
			UNS_TRY(add_scalar(s, i, position, &any->state[k], (int32_t)any_rank(s->w), err));
		} else {
			UNS_TRY(add_cut(all, i, cut, position, any->state[k].name, NULL, err));
		}
	}
	return 0;
}

/* A tied layer of a pipeline is in the optimizer of every stage that has it; they are kept equal. */
static int add_again(const struct group *s, const char *name, struct uns_err *err)
{
	if (strncmp(name, "tied_modules.", 13) == 0)
		return 0;
	return uns_zero_world_problem(s->w,
				      UNS_FINDING(.id = UNS_FOUND_ZERO_PARAMETER_TWICE,
						  .file = s->w->where, .tensor = name),
				      err);
}

static int add_param(const struct groups *all, size_t i, int32_t *position, struct uns_map *seen,
		     struct uns_err *err)
{
	const struct group *s = &all->v[0];
	const char *name = s->shapes->v[i].name;
	const struct uns_zero_cut_up *cut;
	struct uns_err why = { .keep = &s->w->scratch };
	uint32_t index = UNS_NONE;

	if (uns_map_get(seen, name))
		return add_again(s, name, err);
	if (find_cut(all, i, &cut, &why) < 0)
		return uns_zero_world_problem_or_fail(s->w, &why, err);
	UNS_TRY(add_cut(all, i, cut, s->number < 0 ? -1 : *position, NULL, &index, err));
	if (index == UNS_NONE)
		return 0;
	if (!uns_map_put_index(seen, name, index))
		return uns_oom(err);
	return add_states(all, i, cut, s->number < 0 ? -1 : (*position)++, err);
}

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
	all->unfit = code < 0;
	if (all->unfit)
		return uns_zero_world_problem_or_fail(s->w, &why, err);
	/* Unfit states leave the fp32 copies usable. */
	for (k = 0; k < all->n && code == 0; k++)
		code = check_states(&all->v[k], &why);
	if (code == 0)
		code = check_alike(all, &why);
	s->stateless = code < 0;
	return s->stateless ? uns_catalog_problem_or_fail(s->w->cat, UNS_SCOPE_OPTIMIZER, &why, err) : 0;
}

/* The same group of all shares of its experts, which is one share where nothing is shared out. */
static int add_shares(struct groups *share, const struct uns_zero_spread *spread, struct uns_map *seen,
		      struct uns_err *err)
{
	const struct group *s = &share[0].v[0];
	int32_t position = s->number < 0 ? 0 : uns_zero_next_position(s->w->cat, s->number);
	size_t i, e;

	for (e = 0; e < (spread->slices ? 1 : spread->n); e++)
		UNS_TRY(check_groups(&share[e], err));
	for (i = 0; i < spread->whole.n; i++) {
		struct groups *all = &share[spread->owner ? spread->owner[i] : 0];

		if (all->unfit)
			continue;
		go_to(all, all->next);
		UNS_TRY(add_param(all, all->next++, &position, seen, err));
	}
	return 0;
}

int32_t uns_zero_next_position(const struct uns_catalog *cat, int32_t group)
{
	int32_t next = 0;
	size_t i;

	for (i = 0; i < cat->n_tensors; i++)
		if (cat->tensors[i].group == group && cat->tensors[i].position >= next)
			next = cat->tensors[i].position + 1;
	return next;
}

/* Share e of n of one world's group. */
static struct group share_of(struct uns_zero_world *w, size_t g, size_t e, size_t n, int32_t number)
{
	struct group s = { .w = w,
			   .g = g,
			   .shapes = &w->spread[g].share[e],
			   .layout = { .sliced = w->any->stage == 3, .world = w->n_ranks / n },
			   .number = number };

	uns_zero_experts_ranks(w->config, w->n_ranks, n, e, &s.first, &s.stride);
	return s;
}

/* *out: of each share, or of all where shares are slices, the groups of all ranks that have slices. */
static int list_shares(struct uns_zero_world *const *w, const struct uns_zero_slices *slices, size_t g,
		       int32_t number, struct groups **out, struct uns_err *err)
{
	const struct uns_zero_slices *experts = w[0]->spread[g].slices;
	const size_t n = w[0]->spread[g].n;
	struct group *v = UNS_NEW_N(&w[0]->scratch, struct group, n * slices->n_ranks);
	size_t e, k;

	*out = UNS_NEW_N(&w[0]->scratch, struct groups, n);
	if (!v || !*out)
		return uns_oom(err);
	for (e = 0; e < n; e++) {
		(*out)[e] = (struct groups){ .v = v, .n = slices->n_ranks, .slices = slices };
		for (k = 0; k < slices->n_ranks; k++)
			*v++ = share_of(w[k], g, e, n, number);
	}
	if (experts) /* tensor parallelism, with which each of these would be several, is not read together with AutoEP */
		(*out)[0] = (struct groups){ .v = v - n, .n = n, .slices = experts };
	return 0;
}

int uns_zero_states_add(struct uns_zero_world *const *w, const struct uns_zero_slices *slices,
			const int32_t *group_of, struct uns_map *seen, struct uns_err *err)
{
	size_t g, k;

	for (k = 0; k < slices->n_ranks; k++) {
		if (!w[k]->any || !w[k]->n_ranks)
			return 0;
		if (w[k]->any->n_groups != w[0]->n_shapes || w[k]->n_shapes != w[0]->n_shapes)
			return uns_zero_world_problem(w[k],
						      UNS_FINDING(.id = UNS_FOUND_ZERO_GROUPS_DIFFER,
								  .file = w[k]->where,
								  .expected = uns_num(w[0]->n_shapes),
								  .found = uns_num(w[k]->any->n_groups)),
						      err);
	}
	for (g = 0; g < w[0]->n_shapes; g++) {
		struct groups *share;

		UNS_TRY(list_shares(w, slices, g, group_of[g], &share, err));
		UNS_TRY(add_shares(share, &w[0]->spread[g], seen, err));
	}
	return 0;
}

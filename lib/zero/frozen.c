/* Frozen parameters of stage 3: no optimizer holds them, so each rank's model file has its slice. */
#include <string.h>

#include "base/cleanup.h"
#include "zero/layout.h"
#include "zero/model.h"
#include "parallel/slice_pieces.h"

/* One rank's slice of one parameter. */
struct slice {
	bool there;
	enum uns_dtype dtype;
	uint64_t offset_bytes, elems;
};

/* What one tensor-parallel rank's files hold. */
struct frozen {
	struct uns_catalog *cat;
	const struct uns_zero_shapes *shapes;
	const uint32_t *files;
	size_t n;
	struct slice *slice; /* of rank r's parameter i: [r * shapes->n + i] */
	bool *read;          /* rank r's file was */
	size_t now, next; /* of the parameters: the one at hand, shapes->n if there is nothing of it; behind it */
	struct uns_arena scratch;
};

struct all {
	struct frozen *v; /* of each tensor-parallel rank */
	size_t n;
	const struct uns_zero_slices *slices;
	struct uns_arena scratch;
};

static void all_fini(struct all *all)
{
	size_t k;

	for (k = 0; all->v && k < all->n; k++)
		uns_arena_fini(&all->v[k].scratch);
	uns_arena_fini(&all->scratch);
}

/* -- reading -- */

static int read_slice(const struct uns_zero_file *file, const struct uns_value *fragments,
		      const char *name, struct uns_arena *arena, struct slice *out,
		      struct uns_err *err)
{
	const struct uns_value *v = uns_value_get(fragments, name);
	struct uns_tensor t;
	struct uns_piece piece;

	if (!v)
		return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_ZERO_FROZEN_SLICE_ABSENT,
						      .file = file->open.name, .tensor = name));
	if (uns_zero_file_tensor(file, v, arena, &t, &piece, err) < 0) {
		uns_fail_in(err, "%s", name);
		return uns_fail_in_file(err, file->open.name);
	}
	if (piece.stride_elems)
		return uns_fail_with(err, UNS_FINDING(.id = UNS_FOUND_ZERO_FROZEN_SLICE_STRIDED,
						      .file = file->open.name, .tensor = name));
	*out = (struct slice){ .there = true,
			       .dtype = t.dtype,
			       .offset_bytes = piece.offset_bytes,
			       .elems = uns_shape_elems(&t.shape) };
	return 0;
}

static int read_rank(struct frozen *f, size_t rank, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	const struct uns_value *fragments;
	size_t i;

	UNS_TRY(uns_zero_file_open(f->cat, f->files[rank], &arena, &file, err));
	fragments = uns_value_get(file.torch.root, "frozen_param_fragments");
	for (i = 0; i < f->shapes->n; i++)
		UNS_TRY(read_slice(&file, fragments, f->shapes->v[i].name, &arena,
				   &f->slice[rank * f->shapes->n + i], err));
	f->read[rank] = true;
	return 0;
}

static int read_all(struct frozen *f, struct uns_err *err)
{
	struct uns_err why;
	size_t rank;

	for (rank = 0; rank < f->n; rank++) {
		if (f->cat->files[f->files[rank]].missing)
			continue; /* the proof of cover names it */
		why = (struct uns_err){ .keep = &f->scratch };
		if (read_rank(f, rank, &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(f->cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	return 0;
}

/* -- tensors -- */

static enum uns_dtype dtype_of(const struct frozen *f, size_t i)
{
	enum uns_dtype dtype = UNS_DTYPE_NONE;
	const struct slice *s;
	size_t rank;

	for (rank = 0; rank < f->n; rank++) {
		s = &f->slice[rank * f->shapes->n + i];
		if (s->there && dtype == UNS_DTYPE_NONE)
			dtype = s->dtype;
		if (s->there && dtype != s->dtype)
			return UNS_DTYPE_NONE;
	}
	return dtype;
}

static int add_piece(struct frozen *f, size_t i, const struct uns_zero_stretch *stretch,
		     const struct uns_zero_slice *slice, enum uns_dtype dtype, struct uns_err *err)
{
	const struct slice *s = &f->slice[stretch->rank * f->shapes->n + i];
	const char *path = f->cat->files[f->files[stretch->rank]].path;
	struct uns_piece piece = { .kind = UNS_PIECE_RANGE,
				   .range = { stretch->first, stretch->count },
				   .file = f->files[stretch->rank],
				   .rank = (int32_t)stretch->rank,
				   .offset_bytes = s->offset_bytes,
				   .length_bytes = stretch->count * uns_dtype_size(dtype) };

	if (s->there && s->elems < stretch->count)
		return uns_catalog_add_finding(
			f->cat,
			UNS_FINDING(.id = UNS_FOUND_ZERO_FROZEN_SLICE_SIZE,
				    .scope = UNS_SCOPE_WEIGHTS, .file = path,
				    .rank = uns_num(stretch->rank), .tensor = f->shapes->v[i].name,
				    .expected = uns_num(stretch->count), .found = uns_num(s->elems),
				    .arg = { { "n", uns_num(f->n) } }),
			err);
	if (f->read[stretch->rank] || f->cat->files[f->files[stretch->rank]].missing)
		return uns_zero_slice_add(f->cat, slice, &piece, dtype, err);
	return 0;
}

/* Go on to parameter i of the first rank. Ranks list them in the same order, but for those of which they have nothing. */
static void go_to(struct all *all, size_t i)
{
	const char *name = all->v[0].shapes->v[i].name;
	size_t k;

	for (k = 0; k < all->n; k++) {
		struct frozen *f = &all->v[k];
		bool has = f->next < f->shapes->n && strcmp(f->shapes->v[f->next].name, name) == 0;

		f->now = has ? f->next++ : f->shapes->n;
	}
}

static int add_held(struct frozen *f, const struct uns_zero_slice *slice, enum uns_dtype dtype,
		    struct uns_err *err)
{
	const struct uns_zero_layout layout = { .sliced = true, .world = f->n };
	struct uns_zero_stretch stretch = { 0 };

	for (; f->now < f->shapes->n &&
	       uns_zero_stretch_next(&layout, 0, f->shapes->v[f->now].elems, &stretch);
	     stretch.rank++)
		UNS_TRY(add_piece(f, f->now, &stretch, slice, dtype, err));
	return 0;
}

static int add_param(struct all *all, size_t i, struct uns_zero_names *names, struct uns_err *err)
{
	struct frozen *f = &all->v[0];
	const struct uns_zero_param *p = &f->shapes->v[i];
	const struct uns_zero_cut_up *cut = NULL;
	struct uns_tensor t = { .name = p->name,
				.key = p->name,
				.root = "model",
				.role = UNS_ROLE_WEIGHT,
				.shape = p->shape,
				.dtype = dtype_of(f, i), UNS_TENSOR_ALONE };
	uint32_t index;
	size_t k;

	if (t.dtype == UNS_DTYPE_NONE)
		return uns_catalog_add_finding(f->cat,
					       UNS_FINDING(.id = UNS_FOUND_ZERO_FROZEN_TYPES_DIFFER,
							   .scope = UNS_SCOPE_WEIGHTS,
							   .tensor = p->name),
					       err);
	if (all->n > 1) {
		UNS_TRY(uns_zero_cut_get(all->slices, p->name, f->cat->files[f->files[0]].path, 0, &cut, err));
		t.shape = cut->whole;
	}
	UNS_TRY(uns_catalog_add_tensor(f->cat, &t, &index, err));
	for (k = 0; k < all->n; k++)
		UNS_TRY(add_held(&all->v[k], cut ? &cut->slice[k] : NULL, t.dtype, err));
	return uns_map_put_index(&names->weights, p->name, index) ? 0 : uns_oom(err);
}

static int read_files(struct uns_catalog *cat, const struct uns_zero_frozen *of, struct frozen *f,
		      struct uns_err *err)
{
	*f = (struct frozen){ .cat = cat, .shapes = of->shapes, .files = of->file, .n = of->n };
	f->slice = UNS_NEW_N(&f->scratch, struct slice, f->n * f->shapes->n);
	f->read = UNS_NEW_N(&f->scratch, bool, f->n);
	if (!f->slice || !f->read)
		return uns_oom(err);
	return read_all(f, err);
}

int uns_zero_frozen_add(struct uns_catalog *cat, const struct uns_zero_frozen *of,
			const struct uns_zero_slices *slices, struct uns_zero_names *names,
			struct uns_err *err)
{
	UNS_CLEANUP(all_fini) struct all all = { .n = slices->n_ranks, .slices = slices };
	size_t i, k;

	if (!of[0].shapes->n || !of[0].n)
		return 0;
	all.v = UNS_NEW_N(&all.scratch, struct frozen, all.n);
	if (!all.v)
		return uns_oom(err);
	for (k = 0; k < all.n; k++)
		UNS_TRY(read_files(cat, &of[k], &all.v[k], err));
	for (i = 0; i < of[0].shapes->n; i++) {
		go_to(&all, i);
		if (!uns_map_get(&names->weights, of[0].shapes->v[i].name))
			UNS_TRY(add_param(&all, i, names, err));
	}
	return 0;
}

/* Frozen parameters of stage 3. No optimizer holds them: each data-parallel rank's model file has its slice of each as
 * a tensor of its own, and those of all ranks become the pieces of one weight. With tensor parallelism each of its
 * ranks has such files, whose slices are together one slice of the parameter. */
#include <string.h>

#include "base/cleanup.h"
#include "zero/layout.h"
#include "zero/read/model.h"
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
	struct uns_zero_cursor params;
	const uint32_t *files; /* n, of its data-parallel ranks */
	size_t n;
	struct slice *slice; /* of rank r's parameter i: [r * params.shapes->n + i] */
	bool *read;          /* rank r's file was */
};

/* -- reading -- */

static int read_slice(const struct uns_zero_file *file, const struct uns_value *fragments, const char *name,
		      struct uns_arena *arena, struct slice *out, struct uns_err *err)
{
	const struct uns_value *v = uns_value_get(fragments, name);
	struct uns_tensor t;
	struct uns_piece piece;

	if (!v)
		return UNS_FAIL_WITH(err, ZERO_FROZEN_SLICE_ABSENT, .file = file->open.name, .tensor = name);
	if (uns_zero_file_tensor(file, v, arena, &t, &piece, err) < 0) {
		uns_fail_in(err, "%s", name);
		return uns_fail_in_file(err, file->open.name);
	}
	if (piece.stride_elems)
		return UNS_FAIL_WITH(err, ZERO_FROZEN_SLICE_STRIDED, .file = file->open.name, .tensor = name);
	*out = (struct slice){
		.there = true, .dtype = t.dtype, .offset_bytes = piece.offset_bytes, .elems = uns_shape_elems(&t.shape)
	};
	return 0;
}

static int read_rank(struct frozen *f, size_t rank, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_zero_file_close) struct uns_zero_file file = UNS_ZERO_FILE_INIT;
	const struct uns_zero_shapes *shapes = f->params.shapes;
	const struct uns_value *fragments;
	size_t i;

	UNS_TRY(uns_zero_file_open(f->cat, f->files[rank], &arena, &file, err));
	fragments = uns_value_get(file.torch.root, "frozen_param_fragments");
	for (i = 0; i < shapes->n; i++)
		UNS_TRY(read_slice(&file, fragments, shapes->v[i].name, &arena, &f->slice[rank * shapes->n + i], err));
	f->read[rank] = true;
	return 0;
}

static int read_ranks(struct frozen *f, struct uns_arena *arena, struct uns_err *err)
{
	struct uns_err why;
	size_t rank;

	f->slice = UNS_NEW_N(arena, struct slice, f->n * f->params.shapes->n);
	f->read = UNS_NEW_N(arena, bool, f->n);
	UNS_TRY_ALLOC(f->slice && f->read, err);
	for (rank = 0; rank < f->n; rank++) {
		if (f->cat->files[f->files[rank]].missing)
			continue; /* the proof of cover names it */
		why = (struct uns_err){ .keep = arena };
		if (read_rank(f, rank, &why) < 0)
			UNS_TRY(uns_catalog_problem_or_fail(f->cat, UNS_SCOPE_WEIGHTS, &why, err));
	}
	return 0;
}

/* -- tensors -- */

/* The type that all of the parameter's slices have; UNS_DTYPE_NONE = they differ, or none could be read. */
static enum uns_dtype dtype_of(const struct frozen *f, size_t i)
{
	enum uns_dtype dtype = UNS_DTYPE_NONE;
	const struct slice *s;
	size_t rank;

	for (rank = 0; rank < f->n; rank++) {
		s = &f->slice[rank * f->params.shapes->n + i];
		if (s->there && dtype == UNS_DTYPE_NONE)
			dtype = s->dtype;
		if (s->there && dtype != s->dtype)
			return UNS_DTYPE_NONE;
	}
	return dtype;
}

/* What one data-parallel rank has of the parameter at hand becomes a piece of the catalog's last tensor. */
static int add_piece(struct frozen *f, const struct uns_zero_stretch *stretch, const struct uns_zero_slice *slice,
		     enum uns_dtype dtype, struct uns_err *err)
{
	const struct uns_zero_shapes *shapes = f->params.shapes;
	const struct slice *s = &f->slice[stretch->rank * shapes->n + (size_t)(f->params.now - shapes->v)];
	const struct uns_file *file = &f->cat->files[f->files[stretch->rank]];
	struct uns_piece piece = { .kind = UNS_PIECE_RANGE,
				   .range = { stretch->first, stretch->count },
				   .file = f->files[stretch->rank],
				   .rank = (int32_t)stretch->rank,
				   .offset_bytes = s->offset_bytes,
				   .length_bytes = stretch->count * uns_dtype_size(dtype) };

	if (s->there && s->elems < stretch->count)
		return UNS_ADD_FINDING(f->cat, err, ZERO_FROZEN_SLICE_SIZE, .scope = UNS_SCOPE_WEIGHTS,
				       .file = file->path, .rank = uns_num(stretch->rank),
				       .tensor = f->params.now->name, .expected = uns_num(stretch->count),
				       .found = uns_num(s->elems), .arg = { { "n", uns_num(f->n) } });
	return f->read[stretch->rank] || file->missing ? uns_zero_slice_add(f->cat, slice, &piece, dtype, err) : 0;
}

/* Adds the parameter at hand. v: of each tensor-parallel rank. */
static int add_param(struct frozen *v, const struct uns_zero_slices *slices, struct uns_zero_names *names,
		     struct uns_err *err)
{
	const struct uns_zero_param *p = v->params.now;
	const struct uns_zero_cut_up *cut = NULL;
	struct uns_tensor t = { .name = p->name,
				.key = p->name,
				.root = "model",
				.role = UNS_ROLE_WEIGHT,
				.shape = p->shape,
				.dtype = dtype_of(v, (size_t)(p - v->params.shapes->v)),
				UNS_TENSOR_ALONE };
	uint32_t index;
	size_t k;

	if (t.dtype == UNS_DTYPE_NONE)
		return UNS_ADD_FINDING(v->cat, err, ZERO_FROZEN_TYPES_DIFFER, .scope = UNS_SCOPE_WEIGHTS,
				       .tensor = p->name);
	if (slices->n_ranks > 1) {
		UNS_TRY(uns_zero_cut_get(slices, p->name, v->cat->files[v->files[0]].path, 0, &cut, err));
		t.shape = cut->whole;
	}
	UNS_TRY(uns_catalog_add_tensor(v->cat, &t, &index, err));
	for (k = 0; k < slices->n_ranks; k++) {
		const struct uns_zero_layout layout = { .sliced = true, .world = v[k].n };
		struct uns_zero_stretch stretch = { 0 };

		for (p = v[k].params.now; p && uns_zero_stretch_next(&layout, 0, p->elems, &stretch); stretch.rank++)
			UNS_TRY(add_piece(&v[k], &stretch, cut ? &cut->slice[k] : NULL, t.dtype, err));
	}
	return uns_zero_name_put(&names->weights, t.name, index, err);
}

int uns_zero_frozen_add(struct uns_catalog *cat, const struct uns_zero_frozen *of, const struct uns_zero_slices *slices,
			struct uns_zero_names *names, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct uns_zero_shapes *shapes = of[0].shapes;
	struct frozen *v;
	size_t i, k;

	if (!shapes->n || !of[0].n)
		return 0;
	UNS_TRY_ALLOC(v = UNS_NEW_N(&arena, struct frozen, slices->n_ranks), err);
	for (k = 0; k < slices->n_ranks; k++) {
		v[k] = (struct frozen){ .cat = cat, .params.shapes = of[k].shapes, .files = of[k].file, .n = of[k].n };
		UNS_TRY(read_ranks(&v[k], &arena, err));
	}
	for (i = 0; i < shapes->n; i++) {
		for (k = 0; k < slices->n_ranks; k++)
			uns_zero_cursor_go(&v[k].params, shapes->v[i].name);
		if (!uns_map_get(&names->weights, shapes->v[i].name))
			UNS_TRY(add_param(v, slices, names, err));
	}
	return 0;
}

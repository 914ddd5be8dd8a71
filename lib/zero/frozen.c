/* Frozen parameters of stage 3: no optimizer holds them, so each rank's model file has its slice. */
#include <string.h>

#include "base/cleanup.h"
#include "zero/layout.h"
#include "zero/model.h"

/* One rank's slice of one parameter. */
struct slice {
	bool there;
	enum uns_dtype dtype;
	uint64_t offset_bytes, elems;
};

struct frozen {
	struct uns_catalog *cat;
	const struct uns_zero_shapes *shapes;
	const uint32_t *files;
	size_t n;
	struct slice *slice; /* of rank r's parameter i: [r * shapes->n + i] */
	bool *read;          /* rank r's file was */
	struct uns_arena scratch;
};

static void frozen_fini(struct frozen *f)
{
	uns_arena_fini(&f->scratch);
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
		     enum uns_dtype dtype, struct uns_err *err)
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
		return uns_catalog_add_piece(f->cat, &piece, err);
	return 0;
}

static int add_param(struct frozen *f, size_t i, struct uns_zero_names *names, struct uns_err *err)
{
	const struct uns_zero_layout layout = { .sliced = true, .world = f->n };
	const struct uns_zero_param *p = &f->shapes->v[i];
	struct uns_tensor t = { .name = p->name,
				.key = p->name,
				.root = "model",
				.role = UNS_ROLE_WEIGHT,
				.shape = p->shape,
				.dtype = dtype_of(f, i), UNS_TENSOR_ALONE };
	struct uns_zero_stretch stretch = { 0 };
	uint32_t index;

	if (t.dtype == UNS_DTYPE_NONE)
		return uns_catalog_add_finding(f->cat,
					       UNS_FINDING(.id = UNS_FOUND_ZERO_FROZEN_TYPES_DIFFER,
							   .scope = UNS_SCOPE_WEIGHTS,
							   .tensor = p->name),
					       err);
	UNS_TRY(uns_catalog_add_tensor(f->cat, &t, &index, err));
	for (; uns_zero_stretch_next(&layout, 0, p->elems, &stretch); stretch.rank++)
		UNS_TRY(add_piece(f, i, &stretch, t.dtype, err));
	return uns_map_put_index(&names->weights, p->name, index) ? 0 : uns_oom(err);
}

int uns_zero_frozen_add(struct uns_catalog *cat, const struct uns_zero_model *model,
			const uint32_t *files, size_t n, struct uns_zero_names *names,
			struct uns_err *err)
{
	UNS_CLEANUP(frozen_fini) struct frozen f = { .cat = cat, .shapes = &model->frozen,
						     .files = files, .n = n };
	size_t i;

	if (!f.shapes->n || !n)
		return 0;
	f.slice = UNS_NEW_N(&f.scratch, struct slice, n * f.shapes->n);
	f.read = UNS_NEW_N(&f.scratch, bool, n);
	if (!f.slice || !f.read)
		return uns_oom(err);
	UNS_TRY(read_all(&f, err));
	for (i = 0; i < f.shapes->n; i++)
		if (!uns_map_get(&names->weights, f.shapes->v[i].name))
			UNS_TRY(add_param(&f, i, names, err));
	return 0;
}

/* Opening shards. Knows torch files and the catalog's files, not what is in them. */
#include "zero/file.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "zero/names.h"

static int open_same(const struct uns_file *f, int *fd, struct uns_err *err)
{
	struct uns_stat now;

	if (f->missing)
		return UNS_FAIL_WITH(err, ZERO_FILE_MISSING, .file = f->path);
	if (uns_root_open_file(f->root, f->path, fd, &now, err) < 0)
		return uns_fail_in_file(err, f->path);
	if (!uns_identity_equal(&now.id, &f->stat.id))
		return uns_fail(err, -ESTALE, "%s: the file changed while it was being read", f->path);
	return 0;
}

/* torch calls the records after the file that it saves ("zero_pp_rank_1_..._states/data.pkl"). Other
 * writers, the mount's own files among them, name no rank there. */
static int check_name(const struct uns_file *f, const char *prefix, struct uns_err *err)
{
	struct uns_zero_name is, was;
	char saved[128];
	size_t n = strlen(prefix);

	if (n < 2 || n > sizeof(saved) - sizeof(".pt") || prefix[n - 1] != '/')
		return 0;
	snprintf(saved, sizeof(saved), "%.*s.pt", (int)n - 1, prefix);
	if (!uns_zero_name_parse(uns_path_name(f->path), &is) || !uns_zero_name_parse(saved, &was) ||
	    (is.kind == was.kind && is.dp == was.dp && is.mp == was.mp && is.layer == was.layer &&
	     is.expert == was.expert))
		return 0;
	return UNS_FAIL_WITH(err, ZERO_FILE_RENAMED, .file = f->path, .rank = uns_rank(is.dp), .found = uns_str(saved));
}

int uns_zero_file_open(const struct uns_catalog *cat, uint32_t index, struct uns_arena *arena,
		       struct uns_zero_file *out, struct uns_err *err)
{
	const struct uns_file *f = &cat->files[index];

	*out = (struct uns_zero_file){ .index = index, .fd = -1 };
	UNS_TRY(open_same(f, &out->fd, err));
	out->open = (struct uns_open_file){ .fd = out->fd, .name = f->path };
	out->reader = uns_reader_of_file(&out->open, f->stat.id.size);
	if (uns_torchfile_open(&out->reader, arena, &out->torch, err) < 0)
		return uns_fail_in_file(err, f->path);
	return check_name(f, out->torch.zip.prefix, err);
}

void uns_zero_file_close(struct uns_zero_file *file)
{
	uns_close_p(&file->fd);
	file->fd = -1;
}

/* Bytes from the first element to behind the last; inside the storage (checked by the parser). */
static uint64_t reach_bytes(const struct uns_torch_tensor *t)
{
	uint64_t elems = 1;
	size_t i;

	for (i = 0; i < t->n_dims; i++) {
		if (!t->dims[i])
			return 0;
		elems += (t->dims[i] - 1) * t->stride_elems[i];
	}
	return elems * uns_dtype_size(t->dtype);
}

int uns_zero_file_tensor(const struct uns_zero_file *file, const struct uns_value *v, struct uns_arena *arena,
			 struct uns_tensor *out, struct uns_piece *piece, struct uns_err *err)
{
	struct uns_torch_tensor t;
	struct uns_box *box = UNS_NEW(arena, struct uns_box);
	uint64_t *strides;

	UNS_TRY_ALLOC(box, err);
	UNS_TRY(uns_torch_tensor(&file->torch, v, &t, err));
	out->dtype = t.dtype;
	out->shape.n = (uint32_t)t.n_dims;
	memcpy(out->shape.dim, t.dims, sizeof(t.dims));
	UNS_TRY(uns_shape_check(&out->shape, t.dtype, err));
	*piece = (struct uns_piece){ .kind = UNS_PIECE_BOX,
				     .box = box,
				     .file = file->index,
				     .rank = -1,
				     .container = UNS_RAW,
				     .offset_bytes = t.data_bytes + t.first_elem * uns_dtype_size(t.dtype),
				     .length_bytes = reach_bytes(&t) };
	box->n = (uint32_t)t.n_dims;
	memcpy(box->len, t.dims, sizeof(t.dims));
	if (t.contiguous)
		return 0;
	UNS_TRY_ALLOC(strides = UNS_NEW_N(arena, uint64_t, t.n_dims), err);
	memcpy(strides, t.stride_elems, t.n_dims * sizeof(*strides));
	piece->stride_elems = strides;
	return 0;
}

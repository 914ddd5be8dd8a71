/* Makes one rank's view of a tensor. Owns the way from a local tensor to boxes and strides; does not know other ranks.
 */
#include "ranks/view.h"

#include <string.h>

#include "ranks/dtensor.h"

/* Where views are put. */
struct viewing {
	struct uns_catalog *cat;
	struct uns_arena *scratch;
	const struct uns_rank_source *source;
};

static struct uns_shape shape_of(const uint64_t *dims, size_t n)
{
	struct uns_shape shape = { .n = (uint32_t)n };

	memcpy(shape.dim, dims, n * sizeof(*dims));
	return shape;
}

static bool has_elements(const uint64_t *len, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (len[i] == 0)
			return false;
	return true;
}

/* Bytes from the first element of a box to behind its last; inside the storage, hence no overflow.
 */
static uint64_t reach_bytes(const struct uns_torch_tensor *local, const uint64_t *len)
{
	uint64_t elems = 1;
	size_t i;

	for (i = 0; i < local->n_dims; i++)
		elems += (len[i] - 1) * local->stride_elems[i];
	return elems * uns_dtype_size(local->dtype);
}

/* Add the box [lo, lo + len) of the full tensor, which starts `skip` elements into dimension `dim`
 * of the local tensor. */
static int add_box(const struct viewing *at, const struct uns_torch_tensor *local, const uint64_t *lo,
		   const uint64_t *len, size_t dim, uint64_t skip, struct uns_rank_view *out, struct uns_err *err)
{
	struct uns_rank_part *part = UNS_NEW(at->scratch, struct uns_rank_part);
	struct uns_box *box = UNS_NEW(at->scratch, struct uns_box);
	uint64_t *strides, first = local->first_elem;

	UNS_TRY_ALLOC(part && box, err);
	if (skip)
		first += skip * local->stride_elems[dim];
	part->piece = (struct uns_piece){
		.kind = UNS_PIECE_BOX,
		.box = box,
		.file = at->source->file,
		.rank = at->source->rank,
		.container = UNS_RAW,
		.offset_bytes = local->data_bytes + first * uns_dtype_size(local->dtype),
		.length_bytes = reach_bytes(local, len),
	};
	box->n = (uint32_t)local->n_dims;
	if (local->n_dims) {
		memcpy(box->lo, lo, local->n_dims * sizeof(*lo));
		memcpy(box->len, len, local->n_dims * sizeof(*len));
	}
	if (!uns_strides_are_c_order(local->stride_elems, len, local->n_dims)) {
		UNS_TRY_ALLOC(strides = UNS_NEW_N(&at->cat->arena, uint64_t, local->n_dims), err);
		memcpy(strides, local->stride_elems, local->n_dims * sizeof(*strides));
		part->piece.stride_elems = strides;
	}
	if (!part->piece.stride_elems && part->piece.offset_bytes == local->data_bytes &&
	    part->piece.length_bytes == local->storage_bytes)
		part->piece.crc32 = local->crc32; /* of the whole record, which it is */
	*out->tail = part;
	out->tail = &part->next;
	return 0;
}

static int check_local(const struct uns_local_shard *shard, const struct uns_torch_tensor *local,
		       const struct uns_sharded_tensor *whole, struct uns_err *err)
{
	struct uns_shape want = shape_of(shard->len[0], whole->n_dims), found = shape_of(local->dims, local->n_dims);
	char a[128], b[128];
	size_t k;

	for (k = 1; k < shard->n_boxes; k++)
		want.dim[shard->split_dim] += shard->len[k][shard->split_dim];
	if (local->dtype != whole->dtype)
		return UNS_FAIL_WITH(err, RANK_TENSOR_MISTYPED, .found = uns_str(uns_dtype_info(local->dtype)->torch),
				     .expected = uns_str(uns_dtype_info(whole->dtype)->torch));
	if (uns_shape_equal(&want, &found) || (!has_elements(want.dim, want.n) && !has_elements(found.dim, found.n)))
		return 0;
	return UNS_FAIL_WITH(err, RANK_PART_SHAPE, .found = uns_str(uns_shape_text(&found, a, sizeof(a))),
			     .expected = uns_str(uns_shape_text(&want, b, sizeof(b))));
}

static int view_sharded(const struct viewing *at, const struct uns_value *v, struct uns_rank_view *out,
			struct uns_err *err)
{
	struct uns_sharded_tensor whole;
	const struct uns_local_shard *shard;
	struct uns_torch_tensor local;
	uint64_t skip;
	size_t i, k;

	UNS_TRY(uns_dtensor_parse(at->source->torch, v, at->source->rank, at->scratch, &whole, err));
	out->sharded = true;
	out->tensor.dtype = whole.dtype;
	out->tensor.shape = shape_of(whole.dims, whole.n_dims);
	out->rank = whole.rank;
	out->n_mesh = whole.n_mesh;
	memcpy(out->mesh, whole.mesh, sizeof(out->mesh));
	UNS_TRY(uns_shape_check(&out->tensor.shape, whole.dtype, err));
	for (i = 0; i < whole.n_shards; i++) {
		shard = &whole.shard[i];
		UNS_TRY(uns_torch_tensor(at->source->torch, shard->tensor, &local, err));
		UNS_TRY(check_local(shard, &local, &whole, err));
		for (skip = 0, k = 0; k < shard->n_boxes; k++) {
			if (has_elements(shard->len[k], whole.n_dims))
				UNS_TRY(add_box(at, &local, shard->lo[k], shard->len[k], shard->split_dim, skip, out,
						err));
			skip += shard->len[k][shard->split_dim];
		}
	}
	return 0;
}

/* A counter of optimizer steps, mostly. */
static int read_number(const struct viewing *at, const struct uns_torch_tensor *local, struct uns_rank_view *out,
		       struct uns_err *err)
{
	unsigned size = uns_dtype_size(local->dtype);
	uint8_t bytes[16];
	float f;

	if (local->n_dims || (local->dtype != UNS_F32 && local->dtype != UNS_I64))
		return 0;
	UNS_TRY(uns_reader_pread(at->source->torch->r, bytes, size, local->data_bytes + local->first_elem * size, err));
	memcpy(&f, bytes, sizeof(f));
	out->value = local->dtype == UNS_F32 ? (double)f : (double)(int64_t)uns_le(bytes, size);
	out->has_value = true;
	return 0;
}

static int view_plain(const struct viewing *at, const struct uns_value *v, struct uns_rank_view *out,
		      struct uns_err *err)
{
	static const uint64_t zeros[UNS_MAX_DIMS];
	struct uns_torch_tensor local;

	UNS_TRY(uns_torch_tensor(at->source->torch, v, &local, err));
	out->tensor.dtype = local.dtype;
	out->tensor.shape = shape_of(local.dims, local.n_dims);
	UNS_TRY(uns_shape_check(&out->tensor.shape, local.dtype, err));
	if (!has_elements(local.dims, local.n_dims))
		return 0;
	if (local.contiguous && reach_bytes(&local, local.dims) == local.storage_bytes)
		out->crc = local.crc32;
	UNS_TRY(read_number(at, &local, out, err));
	return add_box(at, &local, zeros, local.dims, 0, 0, out, err);
}

int uns_rank_view_open(struct uns_catalog *cat, struct uns_arena *scratch, const struct uns_rank_source *source,
		       const struct uns_value *v, struct uns_rank_view *out, struct uns_err *err)
{
	const struct viewing at = { cat, scratch, source };
	const struct uns_rank_part *part;

	out->tail = &out->first;
	out->rank = -1;
	if (uns_dtensor_is(v))
		UNS_TRY(view_sharded(&at, v, out, err));
	else
		UNS_TRY(view_plain(&at, v, out, err));
	for (part = out->first; part; part = part->next)
		UNS_TRY(uns_piece_check(&out->tensor.shape, out->tensor.dtype, &part->piece, err));
	return 0;
}

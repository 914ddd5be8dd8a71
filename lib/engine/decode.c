/* Makes cache entries out of pieces. Three kinds: a piece with strides is copied into C order; a
 * compressed raw piece is decompressed; a compressed item is decompressed to a whole torch.save
 * file, which the entry keeps, with its content starting where the tensor does. If the decompressed
 * piece turns out to have strides, too, it is made again with room for a dense copy behind it. */
#include "engine/decode.h"

#include "base/cleanup.h"
#include "engine/edges.h"
#include "engine/engine.h"
#include "engine/source_read.h"
#include "engine/strided.h"

/* What a torch.save file of one tensor has around the tensor; 3 KiB in practice, more where data is
 * aligned to larger blocks. */
enum { ITEM_OVERHEAD_BYTES = 128 << 10 };

/* Internal: decompressed, and found to need room for a dense copy. */
enum { NEEDS_DENSE_COPY = -EAGAIN };

struct job {
	struct uns_backing *b;
	const struct uns_tensor *tensor;
	const struct uns_piece *piece;
	uint64_t dense_bytes;
	uint64_t stored_bytes; /* room for the decompressed item; 0 = not compressed */
	bool dense_copy;       /* behind it, room for dense_bytes */
};

/* -- strides -- */

static struct uns_strided strided_of_raw(const struct job *j)
{
	const struct uns_piece *piece = j->piece;
	struct uns_strided s = { .n = piece->box->n, .elem_bytes = uns_dtype_size(j->tensor->dtype) };
	uint32_t d;

	for (d = 0; d < s.n; d++) {
		s.len[d] = piece->box->len[d];
		s.stride_elems[d] = piece->stride_elems[d];
	}
	return s;
}

static struct uns_strided strided_of_item(const struct uns_torch_tensor *t)
{
	struct uns_strided s = { .n = (uint32_t)t->n_dims, .elem_bytes = uns_dtype_size(t->dtype) };
	uint32_t d;

	for (d = 0; d < s.n; d++) {
		s.len[d] = t->dims[d];
		s.stride_elems[d] = t->stride_elems[d];
	}
	s.first_bytes = t->data_bytes + t->first_elem * s.elem_bytes;
	return s;
}

/* dst_off: where in the entry's room the dense copy goes. */
static int copy_strided(const struct uns_strided *s, const struct uns_reader *r, struct uns_cached *e, uint64_t dst_off,
			uint64_t dense_bytes, struct uns_err *err)
{
	uint8_t *room;

	UNS_TRY(uns_cached_map(e, &room, err));
	UNS_TRY(uns_strided_copy(s, r, room + dst_off, err));
	uns_cached_settle(e, dst_off, dst_off + dense_bytes);
	return 0;
}

static int fill_strided(const struct job *j, struct uns_cached *e, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_source_file source = { j->b, j->piece->file, NULL };
	struct uns_reader r = uns_reader_of_source(&source);
	struct uns_torch_tensor t;
	struct uns_strided s;

	if (j->piece->container == UNS_RAW) {
		s = strided_of_raw(j);
		s.first_bytes = j->piece->offset_bytes;
	} else {
		UNS_TRY(uns_item_tensor_at(j->b, j->tensor, j->piece, &arena, &t, err));
		s = strided_of_item(&t);
	}
	return copy_strided(&s, &r, e, 0, j->dense_bytes, err);
}

/* -- zstd -- */

static int write_entry(void *ctx, const void *bytes, size_t len, uint64_t off, struct uns_err *err)
{
	return uns_cached_write(ctx, bytes, len, off, err);
}

static int finish_raw(const struct job *j, struct uns_cached *e, uint64_t made_bytes, struct uns_err *err)
{
	const struct uns_file *f = &j->b->cat->files[j->piece->file];
	struct uns_reader r = uns_reader_of_cached(e, made_bytes);
	struct uns_strided s;

	if (j->dense_copy) {
		s = strided_of_raw(j);
		return copy_strided(&s, &r, e, j->stored_bytes, j->dense_bytes, err);
	}
	if (made_bytes != j->dense_bytes)
		return uns_fail(err, -EBADMSG, "%s/%s: tensor %s: %llu bytes decompressed, expected %llu",
				uns_root_path(f->root), f->path, j->tensor->key, (unsigned long long)made_bytes,
				(unsigned long long)j->dense_bytes);
	uns_cached_settle(e, 0, made_bytes);
	return 0;
}

static int finish_item(const struct job *j, struct uns_cached *e, uint64_t made_bytes, struct uns_err *err)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_reader whole = uns_reader_of_cached(e, made_bytes), r;
	struct uns_torch_tensor t;
	struct uns_edges edges;
	struct uns_strided s;

	r = uns_reader_of_edges(&edges, &whole);
	UNS_TRY(uns_item_tensor(j->b, j->tensor, j->piece, &r, &arena, &t, err));
	s = strided_of_item(&t);
	uns_location_keep(j->b, j->piece,
			  &(struct uns_location){ .dense = t.contiguous,
						  .crc32 = uns_item_crc(j->tensor, j->piece, &t),
						  .data_bytes = s.first_bytes });
	if (t.contiguous)
		uns_cached_settle(e, s.first_bytes, s.first_bytes + j->dense_bytes);
	else if (j->dense_copy)
		return copy_strided(&s, &whole, e, j->stored_bytes, j->dense_bytes, err);
	return t.contiguous ? 0 : NEEDS_DENSE_COPY;
}

/* -- */

static int decoded_fill(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	const struct job *j = ctx;
	const struct uns_zstd_part part = { .file = j->piece->file,
					    .offset_bytes = j->piece->offset_bytes,
					    .length_bytes = j->piece->length_bytes,
					    .max_bytes = j->stored_bytes,
					    .name = j->tensor->key };
	uint64_t made;

	if (!j->stored_bytes) {
		UNS_TRY(fill_strided(j, e, err));
	} else {
		UNS_TRY(uns_zstd_read(j->b, &part, write_entry, e, &made, err));
		UNS_TRY(j->piece->container == UNS_RAW ? finish_raw(j, e, made, err) : finish_item(j, e, made, err));
	}
	uns_count(&j->b->engine->count.decoded_pieces, 1);
	uns_count(&j->b->engine->count.decoded_bytes, j->dense_bytes);
	return 0;
}

static int get_entry(struct job *j, struct uns_cached **out, struct uns_err *err)
{
	const struct uns_cache_id id = { { (uint64_t)(j->piece - j->b->cat->pieces) } };
	uint64_t size = j->stored_bytes + (j->dense_copy ? j->dense_bytes : 0);

	return uns_cache_get(j->b->engine->cache, j->b, id, size, decoded_fill, j, out, err);
}

int uns_decode(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
	       struct uns_cached **out, struct uns_err *err)
{
	struct job j = { b, tensor, piece, .dense_bytes = uns_piece_elems(piece) * uns_dtype_size(tensor->dtype) };
	struct uns_location where;
	int code;

	if (piece->codec != UNS_CODEC_NONE)
		j.stored_bytes = j.dense_bytes + (piece->container == UNS_RAW ? 0 : ITEM_OVERHEAD_BYTES);
	j.dense_copy = !j.stored_bytes || (piece->container == UNS_RAW && piece->stride_elems) ||
		       (uns_location_known(b, piece, &where) && !where.dense);
	UNS_TRY(uns_backing_check(b, piece->file, err));
	code = get_entry(&j, out, err);
	if (code == NEEDS_DENSE_COPY) {
		j.dense_copy = true;
		code = get_entry(&j, out, err);
	}
	return code;
}

/* A block is made as a whole when it is first touched: reading any of its lines alone would touch all of its source.
 *
 * While an entry is made it has room in the cache, and must not wait for more (cache.c). If a source has to be decoded,
 * which takes room too, the block's elements are read into memory of their own first. */
#include "engine/reordered.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/strided.h"

struct job {
	const struct uns_block *block;
	const struct uns_block_reader *reader;
	struct uns_backing *b;
	const uint8_t *elems; /* all that the sources have; NULL = it is read */
	uint64_t bytes;
	size_t elem_bytes;
};

static int block_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct job *j = self;

	if (!j->elems)
		return j->reader->read(j->reader->ctx, false, buf, len, off, err);
	memcpy(buf, j->elems + off, len);
	return 0;
}

/* The wanted dimensions, with their steps in the source. */
static struct uns_strided order_of(const struct job *j)
{
	const uint64_t *len = j->block->len;
	struct uns_strided s = { .n = 3,
				 .len = { len[0], len[1], len[2] },
				 .stride_elems = { len[1] * len[2], len[2], 1 },
				 .elem_bytes = j->elem_bytes };

	if (j->block->reversed)
		s = (struct uns_strided){ .n = 3,
					  .len = { len[2], len[1], len[0] },
					  .stride_elems = { 1, len[2], len[1] * len[2] },
					  .elem_bytes = j->elem_bytes };
	return s;
}

static int block_fill(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	struct job *j = ctx;
	const struct uns_strided order = order_of(j);
	const struct uns_reader r = { block_pread, j, j->bytes };
	uint8_t *room;

	UNS_TRY(uns_cached_map(e, &room, err));
	UNS_TRY(uns_strided_copy(&order, &r, room, err));
	uns_cached_settle(e, 0, j->bytes);
	uns_cached_once(e);
	uns_count(&j->b->engine->count.decoded_pieces, 1);
	uns_count(&j->b->engine->count.decoded_bytes, j->bytes);
	return 0;
}

/* The same elements have one id in all views, and none that a piece has. */
static struct uns_cache_id id_of(const struct uns_backing *b, const struct uns_block *block)
{
	const uint64_t is_block = UINT64_C(1) << 63, reversed = (uint64_t)block->reversed << 62;
	const struct uns_block_source *s = block->source;
	struct uns_cache_id id = { { is_block | reversed | (uint64_t)(s[0].tensor - b->cat->tensors), s[0].first_elem,
				     block->len[0], block->len[1], block->len[2] } };

	if (block->n_sources > 1) {
		id.v[5] = (uint64_t)(s[1].tensor - b->cat->tensors) + 1;
		id.v[6] = s[1].first_elem;
	}
	return id;
}

int uns_block_get(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
		  const struct uns_block_reader *reader, struct uns_cached **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *elems = NULL;
	const size_t size = uns_dtype_size(tensor->dtype);
	struct job j = { .block = piece->block,
			 .reader = reader,
			 .b = b,
			 .elem_bytes = size,
			 .bytes = uns_piece_elems(piece) * size };
	const struct uns_cache_id id = id_of(b, piece->block);
	int code = uns_cache_get(b->engine->cache, b, id, j.bytes, block_fill, &j, out, err);

	if (code != UNS_MUST_DECODE)
		return code;
	j.elems = elems = malloc(j.bytes);
	UNS_TRY_ALLOC(elems, err);
	UNS_TRY(reader->read(reader->ctx, true, elems, j.bytes, 0, err));
	return uns_cache_get(b->engine->cache, b, id, j.bytes, block_fill, &j, out, err);
}

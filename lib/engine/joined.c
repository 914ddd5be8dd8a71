/* A plane is made as an entry of the cache, as a block is (reordered.c): while it is made it has room there, and must
 * not wait for more. So if a source has to be decoded or computed, the plane's elements are read into memory of their
 * own first. */
#include "engine/joined.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/engine.h"
#include "engine/reordered.h"
#include "engine/strided.h"

struct job {
	struct uns_backing *b;
	const struct uns_joined *joined;
	const struct uns_joined_reader *reader;
	uint64_t plane;
	size_t elem_bytes;
	const uint8_t *elems; /* of the source, the plane's; NULL = they are read */
};

static uint64_t source_bytes(const struct job *j)
{
	return j->joined->order.plane_elems * j->elem_bytes;
}

static int source_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct job *j = self;

	if (!j->elems)
		return j->reader->read(j->reader->ctx, false, &j->joined->source, buf, len,
				       j->plane * source_bytes(j) + off, err);
	memcpy(buf, j->elems + off, len);
	return 0;
}

static int plane_fill(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	struct job *j = ctx;
	const struct uns_joined_order *o = &j->joined->order;
	const struct uns_reader r = { source_pread, j, source_bytes(j) };
	const uint64_t bytes = uns_joined_plane(j->joined) * j->elem_bytes;
	struct uns_strided s = { .n = UNS_JOINED_LOOPS,
				 .elem_bytes = j->elem_bytes,
				 .first_bytes = o->first_elem * j->elem_bytes };
	uint8_t *room;
	unsigned i;

	for (i = 0; i < UNS_JOINED_LOOPS; i++) {
		s.len[i] = o->loop[i].n;
		s.stride_elems[i] = o->loop[i].step_elems;
	}
	UNS_TRY(uns_cached_map(e, &room, err));
	UNS_TRY(uns_strided_copy(&s, &r, room, err));
	uns_cached_settle(e, 0, bytes);
	uns_cached_once(e);
	uns_count(&j->b->engine->count.decoded_pieces, 1);
	uns_count(&j->b->engine->count.decoded_bytes, bytes);
	return 0;
}

/* The same elements have one id in all views, and none that a piece, a block or a scale has. */
static struct uns_cache_id id_of(const struct job *j)
{
	const uint64_t is_joined = UINT64_C(1) << 60;

	return (struct uns_cache_id){ { is_joined, j->joined->id[0], j->joined->id[1], j->plane, j->elem_bytes } };
}

/* The plane as an entry of the cache. Its bytes may have been read earlier: so its sources' files are checked now. */
static int plane_get(struct job *j, struct uns_cached **out, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *elems = NULL;
	const uint64_t from = j->plane * source_bytes(j), bytes = uns_joined_plane(j->joined) * j->elem_bytes;
	int code;

	j->elems = NULL;
	UNS_TRY(j->reader->check(j->reader->ctx, &j->joined->source, from, from + source_bytes(j), err));
	code = uns_cache_get(j->b->engine->cache, j->b, id_of(j), bytes, plane_fill, j, out, err);
	if (code != UNS_MUST_DECODE)
		return code;
	j->elems = elems = malloc(source_bytes(j));
	UNS_TRY_ALLOC(elems, err);
	UNS_TRY(j->reader->read(j->reader->ctx, true, &j->joined->source, elems, source_bytes(j), from, err));
	return uns_cache_get(j->b->engine->cache, j->b, id_of(j), bytes, plane_fill, j, out, err);
}

int uns_joined_bytes(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_joined_reader *reader,
		     uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	struct job j = {
		.b = b, .joined = tensor->joined, .reader = reader, .elem_bytes = uns_dtype_size(tensor->dtype)
	};
	const uint64_t each = uns_joined_plane(j.joined) * j.elem_bytes;
	struct uns_cached *e;
	size_t done, n;
	uint64_t in;
	int code;

	for (done = 0; done < len; done += n) {
		j.plane = (at + done) / each;
		in = (at + done) % each;
		n = (size_t)uns_u64_min(len - done, each - in);
		UNS_TRY(plane_get(&j, &e, err));
		code = uns_cached_read(e, dst + done, n, in, err);
		uns_cache_put(b->engine->cache, e);
		UNS_TRY(code);
	}
	return 0;
}

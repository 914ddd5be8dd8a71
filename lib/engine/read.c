/* uns_read: finds the segments of the layout that hold the wanted bytes, and fills the caller's
 * buffer from each: a literal, zeros, a CRC, or elements of a tensor (gather.c), converted to the
 * segment's dtype if that is another one. */
#include "engine/engine.h"

#include <limits.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/cast.h"
#include "engine/elements.h"
#include "engine/gather.h"
#include "engine/scaled.h"
#include "engine/source_read.h"

/* Elements of a tensor, converted. */
struct converted {
	const struct uns_gather *g;
	const struct uns_segment *segment;
	uint8_t *scratch; /* as many elements as are made at a time, as they lie */
};

static int convert(void *ctx, uint64_t first, size_t n, uint8_t *out, struct uns_err *err)
{
	const struct converted *c = ctx;
	const enum uns_dtype from = c->g->tensor->dtype;
	const size_t in = uns_dtype_size(from);

	UNS_TRY(uns_gather_bytes(c->g, c->scratch, (c->segment->first_elem + first) * in, n * in, err));
	uns_cast(from, c->scratch, c->segment->out, out, n);
	return 0;
}

static int read_cast(const struct uns_gather *g, const struct uns_segment *s, uint8_t *dst, size_t len, uint64_t off,
		     struct uns_err *err)
{
	const size_t in = uns_dtype_size(g->tensor->dtype), out = uns_dtype_size(s->out);
	UNS_CLEANUP(uns_free_p) uint8_t *scratch = NULL;
	struct converted c = { .g = g, .segment = s };
	struct uns_elements all = { .make = convert, .ctx = &c, .elem_bytes = out };

	if (!uns_cast_exists(g->tensor->dtype, s->out))
		return uns_fail(err, -ENOTSUP, "tensor %s: %s cannot be converted to %s", g->tensor->key,
				uns_dtype_info(g->tensor->dtype)->torch, uns_dtype_info(s->out)->torch);
	all.most = (size_t)uns_u64_min(UNS_SCRATCH_BYTES / in, len / out + 1);
	UNS_TRY_ALLOC(c.scratch = scratch = malloc(all.most * in), err);
	return uns_elements_read(&all, dst, len, off, err);
}

struct of_matrix {
	enum uns_way way;
	struct uns_backing *b;
};

static int read_of_matrix(void *ctx, const struct uns_layout *matrix, uint8_t *dst, uint64_t at, size_t len,
			  struct uns_err *err)
{
	const struct of_matrix *of = ctx;
	const ssize_t n = uns_read_by(of->way, of->b, matrix, dst, len, at, err);

	return n < 0 ? (int)n : 0;
}

/* A request for bytes of one layout. */
struct request {
	struct uns_backing *b;
	const struct uns_layout *layout;
	enum uns_way way;
	struct uns_unchecked unchecked;
};

static int read_scaled(const struct request *r, const struct uns_segment *s, uint8_t *dst, size_t len, uint64_t off,
		       struct uns_err *err)
{
	struct of_matrix of = { r->way, r->b };
	const struct uns_scaled_reader reader = { read_of_matrix, &of };

	return uns_scaled_bytes(r->b, s->tensor, &reader, dst, s->first_elem * uns_dtype_size(s->out) + off, len, err);
}

/* Bytes [off, off+len) of one segment. */
static int read_segment(struct request *r, size_t segment, uint8_t *dst, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_segment *s = &r->layout->segment[segment];
	struct uns_gather g;
	uint32_t crc;
	size_t i;

	switch (s->from) {
	case UNS_FROM_LITERAL:
		memcpy(dst, s->literal + off, len);
		return 0;
	case UNS_FROM_ZEROS:
		memset(dst, 0, len);
		return 0;
	case UNS_FROM_PIECES:
		if (s->tensor->scaled)
			return read_scaled(r, s, dst, len, off, err);
		g = uns_gather_of_segment(r->b, r->layout, segment);
		g.way = r->way;
		g.unchecked = &r->unchecked;
		if (s->out != g.tensor->dtype)
			return read_cast(&g, s, dst, len, off, err);
		return uns_gather_bytes(&g, dst, s->first_elem * uns_dtype_size(s->out) + off, len, err);
	case UNS_FROM_CRC32:
		UNS_TRY(uns_backing_crc(r->b, s->tensor, s->out, &crc, err));
		for (i = 0; i < len; i++)
			dst[i] = (uint8_t)(crc >> (8 * (off + i)));
		return 0;
	}
	return uns_fail(err, -EINVAL, "a segment of unknown kind");
}

static int read_segments(struct request *r, uint8_t *dst, size_t len, uint64_t off, struct uns_err *err)
{
	size_t i, done = 0, n;

	for (i = uns_layout_find(r->layout, off); done < len; i++, done += n) {
		const struct uns_segment *s = &r->layout->segment[i];
		uint64_t in_segment = off + done - s->at_bytes;

		n = (size_t)uns_u64_min(len - done, s->len_bytes - in_segment);
		UNS_TRY(read_segment(r, i, dst + done, n, in_segment, err));
	}
	return 0;
}

ssize_t uns_read_by(enum uns_way way, struct uns_backing *b, const struct uns_layout *layout, void *buf, size_t len,
		    uint64_t off, struct uns_err *err)
{
	struct request r = { .b = b, .layout = layout, .way = way };
	int code;

	if (off >= layout->size_bytes)
		return 0;
	len = (size_t)uns_u64_min(uns_u64_min(len, SSIZE_MAX), layout->size_bytes - off);
	uns_unchecked_init(&r.unchecked);
	code = read_segments(&r, buf, len, off, err);
	if (code == 0)
		code = uns_source_check_read(b, &r.unchecked, err);
	uns_unchecked_fini(&r.unchecked);
	return code < 0 ? code : (ssize_t)len;
}

ssize_t uns_read(struct uns_backing *b, const struct uns_layout *layout, void *buf, size_t len, uint64_t off,
		 struct uns_err *err)
{
	return uns_read_by(UNS_WAY_CACHE, b, layout, buf, len, off, err);
}

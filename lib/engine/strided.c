/* Reads the source in the order in which it lies and writes each element where it belongs: reading
 * in order matters more, because storage is slower than memory. */
#include "engine/strided.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/cleanup.h"

enum { WINDOW_BYTES = 1 << 20 };

/* A dimension with its steps on both sides. */
struct axis {
	uint64_t len, src_bytes, dst_bytes;
};

struct window {
	const struct uns_reader *r;
	uint8_t *buf;
	uint64_t off;
	size_t len;
	uint64_t end; /* end of the source's bytes */
};

static int window_at(struct window *w, uint64_t off, size_t len, const uint8_t **out,
		     struct uns_err *err)
{
	if (off < w->off || !uns_inside(off - w->off, len, w->len)) {
		w->off = off;
		w->len = (size_t)uns_u64_min(WINDOW_BYTES, w->end - off);
		UNS_TRY(uns_reader_pread(w->r, w->buf, w->len, off, err));
	}
	*out = w->buf + (off - w->off);
	return 0;
}

static int by_source_step(const void *a, const void *b)
{
	const struct axis *x = a, *y = b;

	if (x->src_bytes != y->src_bytes)
		return x->src_bytes > y->src_bytes ? -1 : 1;
	return x->dst_bytes > y->dst_bytes ? -1 : x->dst_bytes < y->dst_bytes;
}

/* The dimensions that matter, the source's slowest first; returns the end of the source's bytes, or
 * 0 when there is no element. */
static uint64_t axes_of(const struct uns_strided *s, struct axis *axis, uint32_t *n)
{
	uint64_t step = s->elem_bytes, end = s->first_bytes + s->elem_bytes;
	uint32_t d;

	*n = 0;
	for (d = s->n; d-- > 0;) {
		if (s->len[d] == 0)
			return 0;
		if (s->len[d] > 1)
			axis[(*n)++] = (struct axis){ s->len[d],
						      s->stride_elems[d] * s->elem_bytes, step };
		end += (s->len[d] - 1) * s->stride_elems[d] * s->elem_bytes;
		step *= s->len[d];
	}
	if (*n == 0)
		axis[(*n)++] = (struct axis){ 1, s->elem_bytes, s->elem_bytes };
	qsort(axis, *n, sizeof(*axis), by_source_step);
	return end;
}

/* All elements of the innermost dimension, from src on. */
static int copy_line(struct window *w, const struct axis *a, size_t elem_bytes, uint64_t src,
		     uint8_t *dst, struct uns_err *err)
{
	const uint8_t *p;
	uint64_t i, stretch = 1;

	for (i = 0; i < a->len; i += stretch) {
		if (a->src_bytes == elem_bytes && a->dst_bytes == elem_bytes)
			stretch = uns_u64_min(a->len - i, WINDOW_BYTES / 2 / elem_bytes);
		UNS_TRY(window_at(w, src, (size_t)stretch * elem_bytes, &p, err));
		memcpy(dst, p, (size_t)stretch * elem_bytes);
		src += stretch * a->src_bytes;
		dst += stretch * a->dst_bytes;
	}
	return 0;
}

/* Count up the outer dimensions; false after the last. */
static bool step(const struct axis *axis, uint32_t n_outer, uint64_t *at, uint64_t *src,
		 uint64_t *dst)
{
	uint32_t d;

	for (d = n_outer; d-- > 0;) {
		*src += axis[d].src_bytes;
		*dst += axis[d].dst_bytes;
		if (++at[d] < axis[d].len)
			return true;
		*src -= at[d] * axis[d].src_bytes;
		*dst -= at[d] * axis[d].dst_bytes;
		at[d] = 0;
	}
	return false;
}

int uns_strided_copy(const struct uns_strided *s, const struct uns_reader *r, uint8_t *dst,
		     struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(WINDOW_BYTES);
	uint64_t at[UNS_MAX_DIMS] = { 0 }, src = s->first_bytes, dst_off = 0;
	struct window w = { .r = r, .buf = buf };
	struct axis axis[UNS_MAX_DIMS];
	uint32_t n;

	if (!buf)
		return uns_oom(err);
	w.end = axes_of(s, axis, &n);
	if (w.end == 0)
		return 0;
	do
		UNS_TRY(copy_line(&w, &axis[n - 1], (size_t)s->elem_bytes, src, dst + dst_off, err));
	while (step(axis, n - 1, at, &src, &dst_off));
	return 0;
}

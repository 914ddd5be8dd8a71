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

static int window_at(struct window *w, uint64_t off, size_t len, const uint8_t **out, struct uns_err *err)
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
			axis[(*n)++] = (struct axis){ s->len[d], s->stride_elems[d] * s->elem_bytes, step };
		end += (s->len[d] - 1) * s->stride_elems[d] * s->elem_bytes;
		step *= s->len[d];
	}
	if (*n == 0)
		axis[(*n)++] = (struct axis){ 1, s->elem_bytes, s->elem_bytes };
	qsort(axis, *n, sizeof(*axis), by_source_step);
	return end;
}

/* All elements of the innermost dimension, from src on. */
static int copy_line(struct window *w, const struct axis *a, size_t elem_bytes, uint64_t src, uint8_t *dst,
		     struct uns_err *err)
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

/* -- two dimensions at once: lines of the source that become columns -- */

/* `n` lines of the source, from src on: their elements' dimension is the fast one, and the lines' the slow one. Writes
 * along the dimension whose elements are closer together. */
static inline void turn_elems(const struct axis *slow, uint64_t n, const struct axis *fast, const uint8_t *src,
			      uint8_t *dst, size_t elem_bytes)
{
	uint64_t i, k;

	for (k = 0; k < fast->len; k++)
		for (i = 0; i < n; i++)
			memcpy(dst + k * fast->dst_bytes + i * slow->dst_bytes,
			       src + k * fast->src_bytes + i * slow->src_bytes, elem_bytes);
}

/* With a constant, the compiler makes each copy one instruction. */
static void turn_lines(const struct axis *slow, uint64_t n, const struct axis *fast, const uint8_t *src, uint8_t *dst,
		       size_t elem_bytes)
{
	switch (elem_bytes) {
	case 1:
		turn_elems(slow, n, fast, src, dst, 1);
		break;
	case 2:
		turn_elems(slow, n, fast, src, dst, 2);
		break;
	case 4:
		turn_elems(slow, n, fast, src, dst, 4);
		break;
	default:
		turn_elems(slow, n, fast, src, dst, elem_bytes);
	}
}

/* From the line's first element to the end of its last. */
static uint64_t line_bytes(const struct axis *fast, size_t elem_bytes)
{
	return (fast->len - 1) * fast->src_bytes + elem_bytes;
}

/* Is a plane of these two dimensions a matrix whose lines become columns, and a few lines fit into a window? */
static bool is_turned(const struct axis *slow, const struct axis *fast, size_t elem_bytes)
{
	enum { LINES = 8 };

	return slow->dst_bytes < fast->dst_bytes && slow->src_bytes <= WINDOW_BYTES / LINES &&
	       line_bytes(fast, elem_bytes) <= slow->src_bytes;
}

static int copy_turned(struct window *w, const struct axis *slow, const struct axis *fast, size_t elem_bytes,
		       uint64_t src, uint8_t *dst, struct uns_err *err)
{
	const uint64_t most = WINDOW_BYTES / slow->src_bytes;
	const uint8_t *p;
	uint64_t i, n;

	for (i = 0; i < slow->len; i += n) {
		n = uns_u64_min(slow->len - i, most);
		UNS_TRY(window_at(w, src + i * slow->src_bytes,
				  (size_t)((n - 1) * slow->src_bytes + line_bytes(fast, elem_bytes)), &p, err));
		turn_lines(slow, n, fast, p, dst + i * slow->dst_bytes, elem_bytes);
	}
	return 0;
}

/* -- */

/* Count up the outer dimensions; false after the last. */
static bool outer_next(const struct axis *axis, uint32_t n_outer, uint64_t *at, uint64_t *src, uint64_t *dst)
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

int uns_strided_copy(const struct uns_strided *s, const struct uns_reader *r, uint8_t *dst, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) uint8_t *buf = malloc(WINDOW_BYTES);
	uint64_t at[UNS_MAX_DIMS] = { 0 }, src = s->first_bytes, dst_off = 0;
	struct window w = { .r = r, .buf = buf };
	struct axis axis[UNS_MAX_DIMS];
	const size_t size = (size_t)s->elem_bytes;
	uint32_t n, outer;

	UNS_TRY_ALLOC(buf, err);
	w.end = axes_of(s, axis, &n);
	if (w.end == 0)
		return 0;
	outer = n > 1 && is_turned(&axis[n - 2], &axis[n - 1], size) ? n - 2 : n - 1;
	do
		UNS_TRY(outer + 2 == n ? copy_turned(&w, &axis[n - 2], &axis[n - 1], size, src, dst + dst_off, err)
				       : copy_line(&w, &axis[n - 1], size, src, dst + dst_off, err));
	while (outer_next(axis, outer, at, &src, &dst_off));
	return 0;
}

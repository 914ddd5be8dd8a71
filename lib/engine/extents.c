/* Walks a layout's segments and, of tensors that can be read as they lie, their pieces' stretches. */
#include "engine/extents.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/decode.h"
#include "engine/gather.h"
#include "model/cover.h"

/* Of one tensor: with more, its bytes count as computed. */
enum { MOST_STRETCHES = 4096 };

/* The extent that may still grow. */
struct walk {
	int (*visit)(void *ctx, const struct uns_extent *extent);
	void *ctx;
	struct uns_extent open;
};

static bool continues(const struct uns_extent *a, const struct uns_extent *b)
{
	return a->from == b->from && (a->from != UNS_EXTENT_FILE ||
				      (a->file == b->file && a->offset_bytes + a->len_bytes == b->offset_bytes));
}

static int walk_add(struct walk *w, const struct uns_extent *e)
{
	int answer = 0;

	if (w->open.len_bytes && continues(&w->open, e)) {
		w->open.len_bytes += e->len_bytes;
		return 0;
	}
	if (w->open.len_bytes)
		answer = w->visit(w->ctx, &w->open);
	w->open = *e;
	return answer;
}

/* -- a tensor's stretches -- */

struct list {
	struct uns_extent *v;
	size_t n;
};

static void list_fini(struct list *l)
{
	free(l->v);
}

static int by_place(const void *a, const void *b)
{
	const struct uns_extent *x = a, *y = b;

	return (x->at_bytes > y->at_bytes) - (x->at_bytes < y->at_bytes);
}

/* What one piece has of bytes [from, to) of its tensor; offsets are the tensor's. False = too many. */
static bool piece_extents(const struct uns_gather *g, const struct uns_piece *piece, uint64_t data_bytes, uint64_t from,
			  uint64_t to, struct list *out)
{
	const uint64_t elem = uns_dtype_size(g->tensor->dtype);
	const struct uns_stretches s = uns_stretches_of_piece(&g->tensor->shape, piece);
	uint64_t k, at, start, end;

	for (k = uns_stretches_find(&s, from / elem); k < s.n; k++) {
		at = uns_stretches_at(&s, k) * elem;
		start = uns_u64_max(at, from);
		end = uns_u64_min(at + s.stretch_elems * elem, to);
		if (at >= to)
			break;
		if (out->n == MOST_STRETCHES)
			return false;
		out->v[out->n++] =
			(struct uns_extent){ .at_bytes = start,
					     .len_bytes = end - start,
					     .from = UNS_EXTENT_FILE,
					     .file = piece->file,
					     .offset_bytes = data_bytes + k * s.stretch_elems * elem + (start - at) };
	}
	return true;
}

/* 1 = `out` has the extents, in any order; 0 = the tensor does not lie in files as it is wanted. */
static int tensor_extents(const struct uns_gather *g, uint64_t from, uint64_t to, struct list *out, struct uns_err *err)
{
	struct uns_location where;
	const struct uns_piece *piece;
	size_t i;

	for (i = 0; i < g->n_pieces; i++) {
		piece = &g->piece[i];
		if (i && uns_same_elements(piece - 1, piece))
			continue; /* a replica */
		if (piece->container == UNS_BLOCK || piece->codec != UNS_CODEC_NONE || uns_piece_is_strided(piece))
			return 0;
		UNS_TRY(uns_locate(g->b, g->tensor, piece, &g->reading, &where, err));
		if (!uns_reads_in_place(piece, &where) || !piece_extents(g, piece, where.data_bytes, from, to, out))
			return 0;
	}
	return 1;
}

/* Sorted, without what two pieces both have. False = they leave a gap. */
static bool put_in_order(struct list *l, uint64_t from, uint64_t to)
{
	uint64_t at = from, twice;
	size_t i, n = 0;

	qsort(l->v, l->n, sizeof(*l->v), by_place);
	for (i = 0; i < l->n; i++) {
		struct uns_extent e = l->v[i];

		if (e.at_bytes > at)
			return false;
		twice = uns_u64_min(at - e.at_bytes, e.len_bytes);
		e.at_bytes += twice;
		e.offset_bytes += twice;
		e.len_bytes -= twice;
		at += e.len_bytes;
		if (e.len_bytes)
			l->v[n++] = e;
	}
	l->n = n;
	return at == to;
}

static int walk_pieces(struct walk *w, struct uns_backing *b, const struct uns_layout *layout, size_t segment,
		       struct uns_err *err)
{
	const struct uns_segment *s = &layout->segment[segment];
	const struct uns_extent computed = { s->at_bytes, s->len_bytes, UNS_EXTENT_COMPUTED, 0, 0 };
	const struct uns_gather g = uns_gather_of_segment(b, layout, segment);
	const uint64_t from = s->first_elem * uns_dtype_size(g.tensor->dtype);
	UNS_CLEANUP(list_fini) struct list l = { 0 };
	int known = 0, answer = 0;
	size_t i;

	if (s->out != g.tensor->dtype)
		return walk_add(w, &computed);
	UNS_TRY_ALLOC(l.v = calloc(MOST_STRETCHES, sizeof(*l.v)), err);
	UNS_TRY(known = tensor_extents(&g, from, from + s->len_bytes, &l, err));
	if (!known || !put_in_order(&l, from, from + s->len_bytes))
		return walk_add(w, &computed);
	for (i = 0; i < l.n && !answer; i++) {
		l.v[i].at_bytes = l.v[i].at_bytes - from + s->at_bytes;
		answer = walk_add(w, &l.v[i]);
	}
	return answer;
}

int uns_layout_extents(struct uns_backing *b, const struct uns_layout *layout,
		       int (*visit)(void *ctx, const struct uns_extent *extent), void *ctx, struct uns_err *err)
{
	struct walk w = { .visit = visit, .ctx = ctx };
	const struct uns_segment *s;
	int answer = 0;
	size_t i;

	for (i = 0; i < layout->n && !answer; i++) {
		s = &layout->segment[i];
		if (s->from == UNS_FROM_PIECES)
			answer = walk_pieces(&w, b, layout, i, err);
		else
			answer = walk_add(&w, &(struct uns_extent){ s->at_bytes, s->len_bytes,
								    s->from == UNS_FROM_ZEROS ? UNS_EXTENT_ZEROS
											      : UNS_EXTENT_COMPUTED,
								    0, 0 });
	}
	return !answer && w.open.len_bytes ? visit(ctx, &w.open) : answer;
}

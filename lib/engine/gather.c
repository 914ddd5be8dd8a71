/* Bytes of a tensor, put together from the pieces that hold them.
 *
 * A tensor lies in pieces, each in a file: a box of its elements, or a range of them. The pieces are sorted
 * by position. In C order the elements of a box are a sequence of stretches, which are contiguous both
 * in the tensor and in the piece (a quarter of a matrix' columns has one stretch a row). A wanted range of the
 * tensor is copied piece by piece, stretch by stretch:
 *
 *   which pieces   A binary search finds the first that may hold the stretch, where the pieces' ends
 *                  ascend (else all are looked at). Of replicas the first serves.
 *   which stretches  A binary search finds the first; a cursor counts on from there.
 *   how            A long stretch is read directly to where it is wanted. Short stretches, which follow each other
 *                  without gaps in the piece, are read as one batch into scratch memory and then copied
 *                  apart. Pieces in memory need neither. A block is made of what other tensors hold, which
 *                  is gathered in the same way.
 *
 * Pieces are first read one after the other, as long as nothing has to be waited for (the kernel has the
 * pages). From the first piece that would wait on, all of the rest are read at once on the pool. */
#include "engine/gather.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/search.h"
#include "engine/reordered.h"
#include "engine/decode.h"
#include "engine/engine.h"
#include "engine/joined.h"
#include "engine/source_read.h"
#include "engine/sum.h"
#include "model/cover.h"
#include "model/scaled_tensor.h"

/* Stretches of at least this are read directly: one more pread costs less than the copy. */
enum { LONG_RUN_BYTES = 256 << 10 };

struct uns_gather uns_gather_of(struct uns_backing *b, const struct uns_tensor *tensor)
{
	tensor = uns_tensor_with_bytes(b->cat, tensor);
	return (struct uns_gather){
		.b = b, .tensor = tensor, .piece = uns_tensor_pieces(b->cat, tensor), .n_pieces = tensor->n_pieces
	};
}

struct uns_gather uns_gather_of_segment(struct uns_backing *b, const struct uns_layout *layout, size_t segment)
{
	const struct uns_segment *s = &layout->segment[segment];
	struct uns_gather g = uns_gather_of(b, s->tensor);

	if (!s->tensor->own)
		g.reading = (struct uns_reading_segment){ layout, segment };
	return g;
}

/* -- stretches of one piece, in bytes -- */

struct cursor {
	struct uns_stretches stretches;
	uint64_t k, at_elem; /* stretch k starts at element at_elem of the tensor */
	uint64_t index[UNS_MAX_DIMS];
	uint64_t stretch_bytes, elem_bytes;
};

/* At the first stretch that ends behind byte `at` of the tensor. */
static struct cursor cursor_at(const struct uns_gather *g, const struct uns_piece *piece, uint64_t at)
{
	struct cursor c = { .stretches = uns_stretches_of_piece(&g->tensor->shape, piece),
			    .elem_bytes = uns_dtype_size(g->tensor->dtype) };
	uint64_t k;
	uint32_t d;

	c.stretch_bytes = c.stretches.stretch_elems * c.elem_bytes;
	c.k = k = uns_stretches_find(&c.stretches, at / c.elem_bytes);
	if (k >= c.stretches.n)
		return c;
	c.at_elem = uns_stretches_at(&c.stretches, k);
	for (d = c.stretches.outer; d-- > 0; k /= c.stretches.len[d])
		c.index[d] = k % c.stretches.len[d];
	return c;
}

/* uns_stretches_at for the next k without its divisions: stretches may be as short as one element. */
static void cursor_next(struct cursor *c)
{
	uint32_t d;

	c->k++;
	for (d = c->stretches.outer; d-- > 0;) {
		c->at_elem += c->stretches.stride[d];
		if (++c->index[d] < c->stretches.len[d])
			return;
		c->at_elem -= c->index[d] * c->stretches.stride[d];
		c->index[d] = 0;
	}
}

/* A stretch, as far as it is wanted. */
struct stretch {
	uint64_t at;       /* in the tensor */
	uint64_t in_piece; /* in the piece */
	uint64_t bytes;
};

/* The current stretch cut to [at, end) of the tensor; false when it starts behind that. */
static bool cursor_cut(const struct cursor *c, uint64_t at, uint64_t end, struct stretch *out)
{
	uint64_t start = c->at_elem * c->elem_bytes;

	if (c->k >= c->stretches.n || start >= end)
		return false;
	out->at = uns_u64_max(start, at);
	out->bytes = uns_u64_min(start + c->stretch_bytes, end) - out->at;
	out->in_piece = c->k * c->stretch_bytes + (out->at - start);
	return true;
}

/* -- a piece, opened for reading its dense bytes -- */

static int block_open(const struct uns_gather *g, const struct uns_piece *piece, struct uns_cached **out,
		      struct uns_err *err);

struct opened {
	struct uns_backing *b;
	uint32_t file;
	uint64_t data_bytes;
	struct uns_cached *cached; /* NULL: in the file at data_bytes */
	struct uns_how how;
};

static int piece_open(const struct uns_gather *g, const struct uns_piece *piece, bool may_wait, struct opened *out,
		      struct uns_err *err)
{
	struct uns_location where = { 0 };

	*out = (struct opened){ .b = g->b, .file = piece->file, .how = { g->way, may_wait, g->unchecked } };
	if (piece->container == UNS_BLOCK)
		return g->never_decode ? UNS_MUST_DECODE : block_open(g, piece, &out->cached, err);
	if (piece->codec == UNS_CODEC_NONE)
		UNS_TRY(uns_locate(g->b, g->tensor, piece, &g->reading, &where, err));
	if (!uns_reads_in_place(piece, &where))
		return g->never_decode ? UNS_MUST_DECODE : uns_decode(g->b, g->tensor, piece, &out->cached, err);
	out->data_bytes = where.data_bytes;
	return 0;
}

static void piece_close(struct opened *o)
{
	if (o->cached)
		uns_cache_put(o->b->engine->cache, o->cached);
}

static int piece_read(const struct opened *o, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	if (o->cached)
		return uns_cached_read(o->cached, buf, len, off, err);
	return uns_source_pread_how(o->b, o->file, o->how, buf, len, o->data_bytes + off, err);
}

/* Bytes [at, at+len) of a tensor, wanted at dst. */
struct wanted {
	const struct uns_gather *g;
	uint8_t *dst;
	uint64_t at;
	size_t len;
	_Atomic uint64_t copied;
};

/* Copies what one piece has of the wanted bytes. Fails with -EAGAIN, without a sentence, if storage would have to be
 * waited for and may_wait is false. */
static int piece_copy(struct wanted *want, const struct uns_piece *piece, bool may_wait, struct uns_err *err)
{
	const uint64_t at = want->at, end = want->at + want->len;
	UNS_CLEANUP(piece_close) struct opened from = { 0 };
	UNS_CLEANUP(uns_free_p) uint8_t *scratch = NULL;
	struct cursor cursor = cursor_at(want->g, piece, at), again;
	uint64_t copied = 0, batch_at;
	size_t batch, done;
	struct stretch s;
	bool last, in_memory;

	if (!cursor_cut(&cursor, at, end, &s))
		return 0;
	UNS_TRY(piece_open(want->g, piece, may_wait, &from, err));
	in_memory = from.cached && uns_cached_bytes(from.cached);
	for (; cursor_cut(&cursor, at, end, &s); copied += batch) {
		last = cursor.k + 1 >= cursor.stretches.n || s.at + s.bytes >= end;
		batch = (size_t)s.bytes;
		if (in_memory || last || s.bytes >= LONG_RUN_BYTES) {
			UNS_TRY(piece_read(&from, want->dst + (s.at - at), batch, s.in_piece, err));
			cursor_next(&cursor);
			continue;
		}
		if (!scratch)
			UNS_TRY_ALLOC(scratch = malloc((size_t)uns_u64_min(want->len, UNS_SCRATCH_BYTES)), err);
		again = cursor;
		batch_at = s.in_piece;
		for (batch = 0; cursor_cut(&cursor, at, end, &s) && batch + s.bytes <= UNS_SCRATCH_BYTES;
		     cursor_next(&cursor))
			batch += (size_t)s.bytes;
		UNS_TRY(piece_read(&from, scratch, batch, batch_at, err));
		for (done = 0; done < batch; done += (size_t)s.bytes, cursor_next(&again)) {
			cursor_cut(&again, at, end, &s);
			memcpy(want->dst + (s.at - at), scratch + done, (size_t)s.bytes);
		}
	}
	atomic_fetch_add_explicit(&want->copied, copied, memory_order_relaxed);
	return 0;
}

/* -- which pieces -- */

/* Bytes of the tensor between a piece's first and last element, other pieces' included. */
static void piece_span(const struct uns_gather *g, const struct uns_piece *piece, uint64_t *start, uint64_t *end)
{
	struct uns_stretches stretches = uns_stretches_of_piece(&g->tensor->shape, piece);
	uint64_t size = uns_dtype_size(g->tensor->dtype);

	*start = *end = stretches.base * size;
	if (stretches.n)
		*end = (uns_stretches_at(&stretches, stretches.n - 1) + stretches.stretch_elems) * size;
}

enum { ORDER_UNKNOWN, ORDER_ENDS_ASCEND, ORDER_MIXED };

static unsigned char order_compute(const struct uns_gather *g)
{
	uint64_t start, end, last = 0;
	size_t i;

	for (i = 0; i < g->n_pieces; i++) {
		piece_span(g, &g->piece[i], &start, &end);
		if (end < last)
			return ORDER_MIXED;
		last = end;
	}
	return ORDER_ENDS_ASCEND;
}

/* Found out once for each tensor of the catalog; two threads that do so at once find the same. */
static bool ends_ascend(const struct uns_gather *g)
{
	const struct uns_catalog *cat = g->b->cat;
	_Atomic unsigned char *known;
	unsigned char order;

	if (g->tensor < cat->tensors || g->tensor >= cat->tensors + cat->n_tensors)
		return order_compute(g) == ORDER_ENDS_ASCEND;
	known = &g->b->piece_order[g->tensor - cat->tensors];
	order = atomic_load_explicit(known, memory_order_relaxed);
	if (order == ORDER_UNKNOWN) {
		order = order_compute(g);
		atomic_store_explicit(known, order, memory_order_relaxed);
	}
	return order == ORDER_ENDS_ASCEND;
}

/* The first piece that may hold byte `at`: all before it end there or earlier. */
static size_t first_piece(const struct uns_gather *g, uint64_t at)
{
	uint64_t start, end;
	size_t i;

	if (g->n_pieces < 2 || !ends_ascend(g))
		return 0;
	UNS_SEARCH(i, g->n_pieces, (piece_span(g, &g->piece[i], &start, &end), end <= at));
	return i;
}

/* The first piece from `i` on that holds something wanted and is not a replica of the one before;
 * n_pieces when there is none. No piece before `first` holds anything wanted. */
static size_t next_piece(const struct wanted *want, size_t first, size_t i)
{
	const struct uns_gather *g = want->g;
	uint64_t start, end;

	for (; i < g->n_pieces; i++) {
		piece_span(g, &g->piece[i], &start, &end);
		if (start >= want->at + want->len)
			break;
		if (end > want->at && (i == first || !uns_same_elements(&g->piece[i - 1], &g->piece[i])))
			return i;
	}
	return g->n_pieces;
}

/* -- blocks -- */

/* Of a block's elements: what its i-th source has, from byte `at` of the source's tensor on. */
struct share {
	struct uns_gather g;
	uint64_t at, bytes;
};

static struct share share_of(struct uns_backing *b, const struct uns_block *block, unsigned i)
{
	struct share s = { .g = uns_gather_of(b, block->source[i].tensor) };
	const uint64_t elem_bytes = uns_dtype_size(s.g.tensor->dtype);

	s.at = block->source[i].first_elem * elem_bytes;
	s.bytes = block->len[0] * block->len[1] * block->len[2] / block->n_sources * elem_bytes;
	return s;
}

struct of_block {
	struct uns_backing *b;
	const struct uns_block *block;
};

static int read_of_block(void *ctx, bool may_decode, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct of_block *of = ctx;
	uint64_t begin = 0, from, end;
	uint8_t *dst = buf;
	struct share s;
	unsigned i;

	for (i = 0; i < of->block->n_sources; i++, begin += s.bytes) {
		s = share_of(of->b, of->block, i);
		s.g.never_decode = !may_decode;
		from = uns_u64_max(off, begin);
		end = uns_u64_min(off + len, begin + s.bytes);
		if (from < end)
			UNS_TRY(uns_gather_bytes(&s.g, dst + (from - off), s.at + (from - begin), (size_t)(end - from),
						 err));
	}
	return 0;
}

/* The block as an entry of the cache. Its bytes may have been read earlier: so its sources' files are checked now. */
static int block_open(const struct uns_gather *g, const struct uns_piece *piece, struct uns_cached **out,
		      struct uns_err *err)
{
	struct of_block of = { g->b, piece->block };
	const struct uns_block_reader reader = { read_of_block, &of };
	size_t first, k;
	unsigned i;

	for (i = 0; i < piece->block->n_sources; i++) {
		const struct share s = share_of(g->b, piece->block, i);
		const struct wanted want = { .g = &s.g, .at = s.at, .len = (size_t)s.bytes };

		first = first_piece(&s.g, want.at);
		for (k = next_piece(&want, first, first); k < s.g.n_pieces; k = next_piece(&want, first, k + 1))
			UNS_TRY(uns_backing_check(s.g.b, s.g.piece[k].file, err));
	}
	return uns_block_get(g->b, g->tensor, piece, &reader, out, err);
}

/* -- what is going to be read -- */

/* How many elements of the piece lie before element `elem` of the tensor. */
static uint64_t elems_before(const struct uns_stretches *stretches, uint64_t elem)
{
	uint64_t k = uns_stretches_find(stretches, elem), start;

	if (k >= stretches->n)
		return stretches->n * stretches->stretch_elems;
	start = uns_stretches_at(stretches, k);
	return k * stretches->stretch_elems + (elem > start ? elem - start : 0);
}

static void visit_pieces(const struct uns_gather *g, uint64_t at, size_t len, uns_extent_visit *visit, void *ctx);

/* Of a sum, the terms that have the same elements. Factors of products are small, and kept. */
static void visit_terms(const struct uns_gather *g, uint64_t first_elem, uint64_t end_elem, uns_extent_visit *visit,
			void *ctx)
{
	const struct uns_sum *sum = g->tensor->sum;
	size_t i;

	for (i = 0; i < sum->n; i++) {
		const struct uns_gather of = uns_gather_of(g->b, sum->term[i].left.tensor);
		const uint64_t size = uns_dtype_size(of.tensor->dtype);

		if (!sum->term[i].right.tensor)
			visit_pieces(&of, first_elem * size, (size_t)((end_elem - first_elem) * size), visit, ctx);
	}
}

/* What elements [first, end) of a joined tensor are made of. A plane that is put in order is read as a whole when it is
 * first touched, as a block is. */
static void visit_joined(const struct uns_gather *g, uint64_t first, uint64_t end, uns_extent_visit *visit, void *ctx)
{
	const struct uns_joined *j = g->tensor->joined;
	const uint64_t size = uns_dtype_size(g->tensor->dtype), each = uns_joined_plane(j);
	const uint64_t plane = j->order.plane_elems * size;

	if (j->in_order)
		uns_pieces_extents(g->b, &j->source, first * size, end * size, visit, ctx);
	else
		uns_pieces_extents(g->b, &j->source, (first + each - 1) / each * plane, (end + each - 1) / each * plane,
				   visit, ctx);
}

/* What each piece has of bytes [at, at+len) of the tensor. A block is read as a whole when it is first touched: then
 * its sources' pieces are visited instead of it. */
static void visit_pieces(const struct uns_gather *g, uint64_t at, size_t len, uns_extent_visit *visit, void *ctx)
{
	const struct wanted want = { .g = g, .at = at, .len = len };
	const uint64_t size = uns_dtype_size(g->tensor->dtype);
	size_t first = first_piece(g, at), i;
	unsigned k;

	if (g->tensor->sum)
		visit_terms(g, at / size, (at + len + size - 1) / size, visit, ctx);
	if (g->tensor->joined)
		visit_joined(g, at / size, (at + len + size - 1) / size, visit, ctx);
	for (i = next_piece(&want, first, first); i < g->n_pieces; i = next_piece(&want, first, i + 1)) {
		const struct uns_piece *piece = &g->piece[i];
		struct uns_stretches stretches = uns_stretches_of_piece(&g->tensor->shape, piece);
		uint64_t begin = elems_before(&stretches, at / size), end = elems_before(&stretches, (at + len) / size);

		if (begin < end && piece->container != UNS_BLOCK)
			visit(ctx, piece, begin * size, end * size);
		if (begin > 0 || end == 0 || piece->container != UNS_BLOCK)
			continue;
		for (k = 0; k < piece->block->n_sources; k++) {
			const struct share s = share_of(g->b, piece->block, k);

			visit_pieces(&s.g, s.at, (size_t)s.bytes, visit, ctx);
		}
	}
}

/* What elements [first, end) of a scaled tensor are made of. */
static void visit_matrix(struct uns_backing *b, const struct uns_scaled *s, uint64_t first, uint64_t end,
			 uns_extent_visit *visit, void *ctx)
{
	const uint64_t size = uns_dtype_size(s->dtype);

	uns_scaled_needs(s, &first, &end);
	uns_pieces_extents(b, &s->source, first * size, end * size, visit, ctx);
}

void uns_segment_extents(struct uns_backing *b, const struct uns_layout *layout, size_t segment, uint64_t from,
			 uint64_t to, uns_extent_visit *visit, void *ctx)
{
	const struct uns_segment *s = &layout->segment[segment];
	const struct uns_gather g = uns_gather_of_segment(b, layout, segment);
	const uint64_t out = uns_dtype_size(s->out), size = uns_dtype_size(g.tensor->dtype);
	const uint64_t first_elem = s->first_elem + from / out, end_elem = s->first_elem + (to + out - 1) / out;

	if (g.tensor->scaled)
		visit_matrix(b, g.tensor->scaled, first_elem, end_elem, visit, ctx);
	else
		visit_pieces(&g, first_elem * size, (size_t)((end_elem - first_elem) * size), visit, ctx);
}

void uns_pieces_extents(struct uns_backing *b, const struct uns_layout *layout, uint64_t from, uint64_t to,
			uns_extent_visit *visit, void *ctx)
{
	uint64_t end;
	size_t i;

	for (i = uns_layout_find(layout, from); i < layout->n && from < to; i++, from = end) {
		const struct uns_segment *s = &layout->segment[i];

		end = uns_u64_min(s->at_bytes + s->len_bytes, to);
		if (s->from == UNS_FROM_PIECES)
			uns_segment_extents(b, layout, i, from - s->at_bytes, end - s->at_bytes, visit, ctx);
	}
}

struct check {
	struct uns_backing *b;
	struct uns_err *err;
	int code;
};

static void check_piece(void *ctx, const struct uns_piece *piece, uint64_t first, uint64_t end)
{
	struct check *c = ctx;

	(void)first;
	(void)end;
	if (c->code == 0)
		c->code = uns_backing_check(c->b, piece->file, c->err);
}

int uns_pieces_check(struct uns_backing *b, const struct uns_layout *layout, uint64_t from, uint64_t to,
		     struct uns_err *err)
{
	struct check c = { b, err, 0 };

	uns_pieces_extents(b, layout, from, to, check_piece, &c);
	return c.code;
}

/* -- where storage must be waited for: all pieces at once -- */

enum { PIECES_AT_ONCE = 64 };

struct at_once {
	struct wanted *want;
	const struct uns_piece *piece[PIECES_AT_ONCE];
	size_t n;
};

static int copy_one_at_once(void *ctx, size_t i, struct uns_err *err)
{
	const struct at_once *work = ctx;

	return piece_copy(work->want, work->piece[i], true, err);
}

/* Piece i and all behind it, on the pool. */
static int copy_at_once(struct wanted *want, size_t first, size_t i, struct uns_err *err)
{
	struct uns_gather g = *want->g;
	struct wanted rest = { .g = &g, .dst = want->dst, .at = want->at, .len = want->len };
	struct at_once work = { .want = &rest };

	g.reading = (struct uns_reading_segment){ 0 }; /* every item would look ahead to the same segments */
	while (i < g.n_pieces) {
		for (work.n = 0; i < g.n_pieces && work.n < PIECES_AT_ONCE; i = next_piece(&rest, first, i + 1))
			work.piece[work.n++] = &g.piece[i];
		UNS_TRY(uns_pool_each(g.b->engine->pool, work.n, copy_one_at_once, &work, err));
	}
	want->copied += rest.copied;
	return 0;
}

/* -- a sum -- */

static int read_of_term(void *ctx, const struct uns_tensor *tensor, uint8_t *dst, uint64_t at, size_t len,
			struct uns_err *err)
{
	const struct uns_gather *whole = ctx;
	struct uns_gather g = uns_gather_of(whole->b, tensor);

	g.way = whole->way;
	return uns_gather_bytes(&g, dst, at, len, err);
}

static int check_term(void *ctx, const struct uns_tensor *tensor, uint64_t at, size_t len, struct uns_err *err)
{
	const struct uns_gather *whole = ctx;
	const struct uns_gather g = uns_gather_of(whole->b, tensor);
	struct check c = { whole->b, err, 0 };

	visit_pieces(&g, at, len, check_piece, &c);
	return c.code;
}

static int sum_read(const struct uns_gather *g, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	const struct uns_sum_reader reader = { read_of_term, check_term, (void *)g, g->b };

	if (g->never_decode) /* a factor may be an entry of the cache, and two must not be held at once */
		return UNS_MUST_DECODE;
	return uns_sum_bytes(g->b->cat, g->tensor, &reader, dst, at, len, err);
}

/* -- a joined tensor -- */

static int read_of_source(void *ctx, bool may_decode, const struct uns_layout *source, void *buf, size_t len,
			  uint64_t off, struct uns_err *err)
{
	const struct uns_gather *whole = ctx;
	uint8_t *dst = buf;
	size_t i, done, n;

	for (i = uns_layout_find(source, off), done = 0; done < len; i++, done += n) {
		const struct uns_segment *s = &source->segment[i];
		struct uns_gather g = uns_gather_of_segment(whole->b, source, i);
		const uint64_t in = off + done - s->at_bytes;

		g.way = whole->way;
		if (whole->tensor->joined->in_order) /* else the bytes may be kept for other requests */
			g.unchecked = whole->unchecked;
		g.never_decode = whole->never_decode || !may_decode;
		n = (size_t)uns_u64_min(len - done, s->len_bytes - in);
		UNS_TRY(uns_gather_bytes(&g, dst + done, s->first_elem * uns_dtype_size(s->out) + in, n, err));
	}
	return 0;
}

static int check_source(void *ctx, const struct uns_layout *source, uint64_t from, uint64_t end, struct uns_err *err)
{
	const struct uns_gather *g = ctx;

	return uns_pieces_check(g->b, source, from, end, err);
}

static int joined_read(const struct uns_gather *g, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	const struct uns_joined_reader reader = { read_of_source, check_source, (void *)g };

	if (g->tensor->joined->in_order)
		return read_of_source((void *)g, true, &g->tensor->joined->source, dst, len, at, err);
	if (g->never_decode) /* a plane is an entry of the cache, and two must not be held at once */
		return UNS_MUST_DECODE;
	return uns_joined_bytes(g->b, g->tensor, &reader, dst, at, len, err);
}

/* Pieces are copied one after the other, until one would have to wait. The last may wait: there is nothing beside it
 * to do. */
int uns_gather_bytes(const struct uns_gather *g, uint8_t *dst, uint64_t at, size_t len, struct uns_err *err)
{
	struct wanted want = { .g = g, .dst = dst, .at = at, .len = len };
	const size_t first = first_piece(g, at);
	size_t i, next;
	int code;

	if (g->tensor->sum)
		return sum_read(g, dst, at, len, err);
	if (g->tensor->joined)
		return joined_read(g, dst, at, len, err);
	for (i = next_piece(&want, first, first); i < g->n_pieces; i = next) {
		next = next_piece(&want, first, i + 1);
		code = piece_copy(&want, &g->piece[i], next == g->n_pieces, err);
		if (code == -EAGAIN) {
			next = g->n_pieces;
			code = copy_at_once(&want, first, i, err);
		}
		UNS_TRY(code);
	}
	if (want.copied != len) /* cannot happen: views prove that pieces cover the tensor (model/cover.h) */
		return uns_fail(err, -EBADMSG, "%s: tensor %s: its shards hold %llu of the %zu bytes from %llu on",
				g->b->cat->path, g->tensor->key, (unsigned long long)want.copied, len,
				(unsigned long long)at);
	return 0;
}

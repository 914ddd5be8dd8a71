/* Which pieces hold a stretch of a tensor, and copying their runs. Pieces are sorted by position, the
 * first of several replicas serves. */
#include "engine/gather.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/decode.h"

/* Runs of at least this are read straight into place: one more pread costs less than the copy. */
enum { LONG_RUN_BYTES = 256 << 10 };

struct uns_gather uns_gather_of(struct uns_backing *b, const struct uns_tensor *tensor)
{
	if (tensor->n_pieces == 0 && tensor->alias_of != UNS_NONE)
		tensor = &b->cat->tensors[tensor->alias_of];
	return (struct uns_gather){ .b = b,
				    .tensor = tensor,
				    .piece = b->cat->pieces + tensor->first_piece,
				    .n_pieces = tensor->n_pieces };
}

struct uns_gather uns_gather_of_segment(struct uns_backing *b, const struct uns_layout *layout,
					size_t segment)
{
	const struct uns_segment *s = &layout->segment[segment];
	struct uns_gather g;

	if (s->piece)
		return (struct uns_gather){
			.b = b, .tensor = s->tensor, .piece = s->piece, .n_pieces = 1
		};
	g = uns_gather_of(b, s->tensor);
	g.ahead = (struct uns_ahead){ layout, segment };
	return g;
}

/* -- runs of one piece, in bytes -- */

struct walk {
	struct uns_runs runs;
	uint64_t k, at_elem; /* run k starts at element at_elem of the tensor */
	uint64_t index[UNS_MAX_DIMS];
	uint64_t run_bytes, elem_bytes;
};

static struct uns_runs runs_of(const struct uns_gather *g, const struct uns_piece *piece)
{
	if (piece->kind == UNS_PIECE_BOX)
		return uns_runs_of_box(&piece->box, &g->tensor->shape);
	return (struct uns_runs){ .n = piece->range.count > 0,
				  .run_elems = piece->range.count,
				  .base = piece->range.first };
}

static void walk_start(struct walk *w, uint64_t elem)
{
	uint64_t k;
	uint32_t d;

	w->k = k = uns_runs_find(&w->runs, elem);
	if (k >= w->runs.n)
		return;
	w->at_elem = uns_runs_at(&w->runs, k);
	for (d = w->runs.outer; d-- > 0; k /= w->runs.len[d])
		w->index[d] = k % w->runs.len[d];
}

/* uns_runs_at for the next k without its divisions: runs may be as short as one element. */
static void walk_next(struct walk *w)
{
	uint32_t d;

	w->k++;
	for (d = w->runs.outer; d-- > 0;) {
		w->at_elem += w->runs.stride[d];
		if (++w->index[d] < w->runs.len[d])
			return;
		w->at_elem -= w->index[d] * w->runs.stride[d];
		w->index[d] = 0;
	}
}

/* A run, or the part of it that is wanted. */
struct part {
	uint64_t at;    /* in the tensor */
	uint64_t src;   /* in the piece */
	uint64_t bytes;
};

/* The current run cut to [at, end) of the tensor; false when it lies behind. */
static bool walk_part(const struct walk *w, uint64_t at, uint64_t end, struct part *out)
{
	uint64_t start = w->at_elem * w->elem_bytes;

	if (w->k >= w->runs.n || start >= end)
		return false;
	out->at = uns_u64_max(start, at);
	out->bytes = uns_u64_min(start + w->run_bytes, end) - out->at;
	out->src = w->k * w->run_bytes + (out->at - start);
	return true;
}

/* -- where a piece's dense bytes are -- */

struct origin {
	struct uns_backing *b;
	uint32_t file;
	uint64_t data_bytes;
	struct uns_cached *cached; /* NULL: in the file at data_bytes */
	bool may_wait;             /* else -EAGAIN where storage would be waited for */
};

static int origin_open(const struct uns_gather *g, const struct uns_piece *piece, bool may_wait,
		       struct origin *out, struct uns_err *err)
{
	struct uns_spot spot = { 0 };

	*out = (struct origin){ .b = g->b, .file = piece->file, .may_wait = may_wait };
	if (piece->codec == UNS_CODEC_NONE)
		UNS_TRY(uns_spot_find(g->b, g->tensor, piece, &g->ahead, &spot, err));
	if (!uns_reads_in_place(piece, &spot))
		return uns_decode(g->b, g->tensor, piece, &out->cached, err);
	out->data_bytes = spot.data_bytes;
	return 0;
}

static void origin_close(struct origin *o)
{
	if (o->cached)
		uns_cache_put(o->b->engine->cache, o->cached);
	o->cached = NULL;
}

static int origin_read(const struct origin *o, void *buf, size_t len, uint64_t off,
		       struct uns_err *err)
{
	if (o->cached)
		return uns_cached_read(o->cached, buf, len, off, err);
	return (o->may_wait ? uns_source_pread : uns_source_pread_now)(
		o->b, o->file, buf, len, o->data_bytes + off, err);
}

/* -- copying -- */

struct copy {
	const struct origin *from;
	uint8_t *dst;     /* receives [at, end) */
	uint64_t at, end;
	uint8_t *scratch; /* allocated when needed */
	uint64_t copied;
};

/* Short runs follow each other without gaps in the piece: read a stretch of them at once, then put
 * each where it belongs. */
static int copy_batch(struct copy *c, struct walk *w, struct uns_err *err)
{
	struct walk again = *w;
	struct part first, p;
	size_t len = 0, done = 0;

	if (!c->scratch &&
	    !(c->scratch = malloc((size_t)uns_u64_min(c->end - c->at, UNS_SCRATCH_BYTES))))
		return uns_oom(err);
	walk_part(w, c->at, c->end, &first);
	for (; walk_part(w, c->at, c->end, &p) && len + p.bytes <= UNS_SCRATCH_BYTES; walk_next(w))
		len += (size_t)p.bytes;
	UNS_TRY(origin_read(c->from, c->scratch, len, first.src, err));
	for (; done < len; walk_next(&again)) {
		walk_part(&again, c->at, c->end, &p);
		memcpy(c->dst + (p.at - c->at), c->scratch + done, (size_t)p.bytes);
		done += (size_t)p.bytes;
	}
	c->copied += len;
	return 0;
}

static int copy_run(struct copy *c, struct walk *w, const struct part *p, struct uns_err *err)
{
	UNS_TRY(origin_read(c->from, c->dst + (p->at - c->at), (size_t)p->bytes, p->src, err));
	c->copied += p->bytes;
	walk_next(w);
	return 0;
}

static bool is_single(const struct walk *w, const struct copy *c, const struct part *p)
{
	return w->k + 1 >= w->runs.n || p->at + p->bytes >= c->end;
}

static int copy_runs(struct copy *c, struct walk *w, struct uns_err *err)
{
	bool in_memory = c->from->cached && uns_cached_bytes(c->from->cached);
	struct part p;

	while (walk_part(w, c->at, c->end, &p)) {
		if (in_memory || p.bytes >= LONG_RUN_BYTES || is_single(w, c, &p))
			UNS_TRY(copy_run(c, w, &p, err));
		else
			UNS_TRY(copy_batch(c, w, err));
	}
	return 0;
}

/* Bytes [at, at+len) of a tensor, wanted at dst. */
struct wanted {
	const struct uns_gather *g;
	uint8_t *dst;
	uint64_t at;
	size_t len;
	_Atomic uint64_t copied;
};

/* What one piece has of it. */
static int copy_piece(struct wanted *want, const struct uns_piece *piece, bool may_wait,
		      struct uns_err *err)
{
	const struct uns_gather *g = want->g;
	UNS_CLEANUP(origin_close) struct origin from = { 0 };
	UNS_CLEANUP(uns_free_p) uint8_t *scratch = NULL;
	struct copy c = { .from = &from, .dst = want->dst, .at = want->at,
			  .end = want->at + want->len };
	struct walk w = { .runs = runs_of(g, piece),
			  .elem_bytes = uns_dtype_size(g->tensor->dtype) };
	struct part p;
	int code;

	w.run_bytes = w.runs.run_elems * w.elem_bytes;
	walk_start(&w, want->at / w.elem_bytes);
	if (!walk_part(&w, c.at, c.end, &p))
		return 0;
	UNS_TRY(origin_open(g, piece, may_wait, &from, err));
	code = copy_runs(&c, &w, err);
	scratch = c.scratch;
	if (code >= 0)
		atomic_fetch_add_explicit(&want->copied, c.copied, memory_order_relaxed);
	return code;
}

/* -- which pieces -- */

/* Bytes of the tensor between a piece's first and last element, other pieces' included. */
static void piece_span(const struct uns_gather *g, const struct uns_piece *piece, uint64_t *start,
		       uint64_t *end)
{
	struct uns_runs runs = runs_of(g, piece);
	uint64_t size = uns_dtype_size(g->tensor->dtype);

	*start = *end = runs.base * size;
	if (runs.n)
		*end = (uns_runs_at(&runs, runs.n - 1) + runs.run_elems) * size;
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

/* Found out once per tensor of the catalog; two threads that both do find the same. */
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
	size_t lo = 0, hi = g->n_pieces;
	uint64_t start, end;

	if (g->n_pieces < 2 || !ends_ascend(g))
		return 0;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		piece_span(g, &g->piece[mid], &start, &end);
		if (end <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool uns_same_elements(const struct uns_piece *a, const struct uns_piece *b)
{
	uint32_t d;

	if (a->kind != b->kind)
		return false;
	if (a->kind == UNS_PIECE_RANGE)
		return a->range.first == b->range.first && a->range.count == b->range.count;
	for (d = 0; d < a->box.n; d++)
		if (a->box.lo[d] != b->box.lo[d] || a->box.len[d] != b->box.len[d])
			return false;
	return true;
}

/* The first piece from `i` on that lies in what is wanted and repeats none before it; n_pieces when
 * there is none. No piece before `first` does. */
static size_t next_piece(const struct wanted *want, size_t first, size_t i)
{
	const struct uns_gather *g = want->g;
	uint64_t start, end;

	for (; i < g->n_pieces; i++) {
		piece_span(g, &g->piece[i], &start, &end);
		if (start >= want->at + want->len)
			break;
		if (end > want->at &&
		    (i == first || !uns_same_elements(&g->piece[i - 1], &g->piece[i])))
			return i;
	}
	return g->n_pieces;
}

/* -- storage that makes one wait: all pieces at once -- */

enum { PIECES_AT_ONCE = 64 };

struct at_once {
	struct wanted *want;
	const struct uns_piece *piece[PIECES_AT_ONCE];
	size_t n;
};

static int copy_one(void *ctx, size_t i, struct uns_err *err)
{
	const struct at_once *work = ctx;

	return copy_piece(work->want, work->piece[i], true, err);
}

static int copy_at_once(const struct wanted *want, size_t first, size_t i, uint64_t *copied,
			struct uns_err *err)
{
	struct uns_gather g = *want->g;
	struct wanted rest = { .g = &g, .dst = want->dst, .at = want->at, .len = want->len };
	struct at_once work = { .want = &rest };

	g.ahead = (struct uns_ahead){ 0 }; /* looking ahead uses the pool, which work on it may not */
	while (i < g.n_pieces) {
		for (work.n = 0; i < g.n_pieces && work.n < PIECES_AT_ONCE;
		     i = next_piece(&rest, first, i + 1))
			work.piece[work.n++] = &g.piece[i];
		UNS_TRY(uns_pool_each(g.b->engine->pool, work.n, copy_one, &work, err));
	}
	*copied = rest.copied;
	return 0;
}

/* One after the other as long as nothing has to be waited for. */
static int copy_pieces(struct wanted *want, struct uns_err *err)
{
	size_t first = first_piece(want->g, want->at), next, i;
	uint64_t copied;
	int code;

	for (i = next_piece(want, first, first); i < want->g->n_pieces; i = next) {
		next = next_piece(want, first, i + 1);
		code = copy_piece(want, &want->g->piece[i], next == want->g->n_pieces, err);
		if (code == -EAGAIN) {
			UNS_TRY(copy_at_once(want, first, i, &copied, err));
			want->copied += copied;
			return 0;
		}
		if (code < 0)
			return code;
	}
	return 0;
}

int uns_gather_bytes(const struct uns_gather *g, uint8_t *dst, uint64_t at, size_t len,
		     struct uns_err *err)
{
	struct wanted want = { .g = g, .dst = dst, .at = at, .len = len };

	UNS_TRY(copy_pieces(&want, err));
	if (want.copied != len) /* views prove cover first, so this is a net, not the proof */
		return uns_fail(err, -EBADMSG,
				"%s: tensor %s: its shards hold %llu of the %zu bytes from %llu on",
				g->b->cat->path, g->tensor->key, (unsigned long long)want.copied,
				len, (unsigned long long)at);
	return 0;
}

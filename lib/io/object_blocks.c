/* One lock for all; it is not held while bytes are fetched or copied. What a thread works with, it has pinned. */
#include "io/object_blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "base/checked.h"
#include "base/thread.h"

enum {
	PIECES = UNS_BLOCK_BYTES / UNS_BLOCK_PIECE_BYTES, /* a block's, as the bits of a number */
	MOST_QUEUED = 256,
	PAGES = 64, /* a piece's, as the bits of a number */
	PAGE_BYTES = UNS_BLOCK_PIECE_BYTES / PAGES,
	LARGE_PIECES = PIECES / 4,
	END_SECONDS = 1,
};
_Static_assert(PIECES == 32, "pieces are the bits of an uint32_t");

struct block {
	TAILQ_ENTRY(block) use, passing;
	struct uns_block_object *of;
	size_t index;
	uint8_t *piece[PIECES]; /* of those that it has or that are coming */
	uint32_t have, coming;
	uint32_t foreseen; /* wished for by uns_blocks_will_read */
	uint32_t wanted;   /* to be fetched ahead of readers */
	uint32_t passed; /* of those that it has: readers have had all their pages */
	uint64_t had[PIECES]; /* pages of those that it has, which a reader has had to their ends */
	unsigned n_reading[PIECES]; /* reads under way, of each piece */
	uint32_t failed; /* of the last failure, whose sentence the object has */
	unsigned n_failures;
	unsigned pins;
	bool is_queued;
	pthread_cond_t came; /* or failed to */
};

struct uns_block_object {
	LIST_ENTRY(uns_block_object) next;
	struct uns_blocks *blocks;
	char *key, *etag;
	uint64_t size;
	size_t n_open, n_blocks; /* neither: it is freed */
	size_t n_pieces; /* that are here, or coming */
	bool stale;
	struct uns_err failure;
	struct block **block;
};

struct uns_blocks {
	struct uns_block_store store;
	struct uns_processors processors;
	pthread_mutex_t lock; /* what follows, and all objects and blocks */
	LIST_HEAD(, uns_block_object) objects;
	TAILQ_HEAD(, block) used; /* the latest use last */
	TAILQ_HEAD(, block) passing; /* those of which readers have passed pieces, in that order */
	uint64_t bytes; /* of pieces that are here, or coming */
	size_t n_large; /* objects of which more is here than a few headers */
	struct uns_piece_memory memory;

	struct block *queue[MOST_QUEUED]; /* to be fetched ahead, pinned; the oldest first */
	size_t n_queued;
	pthread_cond_t queued, thread_ended;
	pthread_t thread[UNS_BLOCKS_THREADS];
	unsigned n_threads, n_idle, n_ended;
	bool ending;
	bool left; /* uns_blocks_free has gone: the last thread frees this */
};

/* -- objects and blocks; lock held -- */

static void object_free(struct uns_block_object *o)
{
	free(o->key);
	free(o->etag);
	free(o->block);
	free(o);
}

static void free_if_unused(struct uns_block_object *o)
{
	if (o->n_open || o->n_blocks)
		return;
	LIST_REMOVE(o, next);
	object_free(o);
}

static void count_piece(struct uns_block_object *o, bool more)
{
	struct uns_blocks *c = o->blocks;

	c->bytes += more ? UNS_BLOCK_PIECE_BYTES : -(uint64_t)UNS_BLOCK_PIECE_BYTES;
	if (more)
		c->n_large += ++o->n_pieces == LARGE_PIECES;
	else
		c->n_large -= o->n_pieces-- == LARGE_PIECES;
}

/* Those of the pieces that have any. */
static void free_pieces(struct block *b, uint32_t which)
{
	struct uns_blocks *c = b->of->blocks;
	size_t i;

	for (i = 0; i < PIECES; i++) {
		if (!(which >> i & 1) || !b->piece[i])
			continue;
		uns_piece_give(&c->memory, b->piece[i]);
		b->piece[i] = NULL;
		count_piece(b->of, false);
	}
}

static bool take_pieces(struct block *b, uint32_t which)
{
	struct uns_blocks *c = b->of->blocks;
	size_t i;

	for (i = 0; i < PIECES; i++) {
		if (!(which >> i & 1))
			continue;
		b->piece[i] = uns_piece_take(&c->memory);
		if (!b->piece[i])
			return false;
		count_piece(b->of, true);
	}
	return true;
}

static void set_passed(struct block *b, uint32_t passed)
{
	struct uns_blocks *c = b->of->blocks;

	if (passed && !b->passed)
		TAILQ_INSERT_TAIL(&c->passing, b, passing);
	if (!passed && b->passed)
		TAILQ_REMOVE(&c->passing, b, passing);
	b->passed = passed;
}

/* Pieces that it has. */
static void drop_pieces(struct block *b, uint32_t which)
{
	free_pieces(b, which);
	b->have &= ~which;
	b->foreseen &= ~which;
	set_passed(b, b->passed & ~which);
	for (; which; which &= which - 1)
		b->had[__builtin_ctz(which)] = 0;
}

static void remove_block(struct block *b)
{
	struct uns_block_object *o = b->of;
	struct uns_blocks *c = o->blocks;

	drop_pieces(b, b->have);
	TAILQ_REMOVE(&c->used, b, use);
	o->block[b->index] = NULL;
	o->n_blocks--;
	pthread_cond_destroy(&b->came);
	free(b);
	free_if_unused(o);
}

/* NULL = there is no memory. */
static struct block *add_block(struct uns_block_object *o, size_t index)
{
	struct uns_blocks *c = o->blocks;
	struct block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->of = o;
	b->index = index;
	pthread_cond_init(&b->came, NULL);
	TAILQ_INSERT_TAIL(&c->used, b, use);
	o->block[index] = b;
	o->n_blocks++;
	return b;
}

static struct block *pin(struct uns_block_object *o, size_t index)
{
	struct block *b = o->block[index];

	if (!b)
		b = add_block(o, index);
	if (!b)
		return NULL;
	b->pins++;
	TAILQ_REMOVE(&o->blocks->used, b, use);
	TAILQ_INSERT_TAIL(&o->blocks->used, b, use);
	return b;
}

static void unpin(struct block *b)
{
	if (--b->pins == 0 && (!b->have || b->of->stale))
		remove_block(b);
}

static bool has_room(const struct uns_blocks *c, uint64_t bytes, uint64_t most)
{
	return c->bytes + bytes <= most;
}

static uint32_t being_read(const struct block *b)
{
	uint32_t which = 0;
	size_t i;

	for (i = 0; i < PIECES; i++)
		which |= (uint32_t)(b->n_reading[i] > 0) << i;
	return which;
}

/* Piece by piece, the oldest first: others of the same block may be still to be read. */
static void drop_passed(struct uns_blocks *c, uint64_t bytes, uint64_t most)
{
	struct block *b, *next;
	uint32_t which;

	for (b = TAILQ_FIRST(&c->passing); b && !has_room(c, bytes, most); b = next) {
		next = TAILQ_NEXT(b, passing);
		for (which = b->passed & ~being_read(b); which && !has_room(c, bytes, most); which &= which - 1)
			drop_pieces(b, which & -which);
		if (!b->have && !b->pins)
			remove_block(b);
	}
}

static void drop_unused(struct uns_blocks *c, uint64_t bytes, uint64_t most)
{
	struct block *b, *next;

	for (b = TAILQ_FIRST(&c->used); b && !has_room(c, bytes, most); b = next) {
		next = TAILQ_NEXT(b, use);
		if (!b->pins)
			remove_block(b);
	}
}

/* What readers have passed goes first: what was fetched ahead for a slow reader may have waited longer. It goes before
 * all memory is taken: the kernel would have to clear that, and a processor's cache has what was used lately. */
static bool make_room(struct uns_blocks *c, uint64_t bytes)
{
	drop_passed(c, bytes, UNS_BLOCKS_READ_BYTES);
	drop_unused(c, bytes, UNS_BLOCKS_BYTES);
	return has_room(c, bytes, UNS_BLOCKS_BYTES);
}

/* The object is another now. While it is open, its readers ask the store. */
static void forget_blocks(struct uns_block_object *o)
{
	struct block *b, *next;

	o->stale = true;
	for (b = TAILQ_FIRST(&o->blocks->used); b; b = next) {
		next = TAILQ_NEXT(b, use);
		if (b->of == o && !b->pins)
			remove_block(b);
	}
}

/* -- pieces; lock held -- */

/* Pieces [first, end) of a block. */
static uint32_t bits(size_t first, size_t end)
{
	return (uint32_t)((UINT64_C(1) << end) - (UINT64_C(1) << first));
}

/* Pages [first, end) of a piece. */
static uint64_t pages(size_t first, size_t end)
{
	return (end < PAGES ? UINT64_C(1) << end : 0) - (UINT64_C(1) << first);
}

static uint64_t bytes_in(const struct uns_block_object *o, size_t index)
{
	return uns_u64_min(UNS_BLOCK_BYTES, o->size - (uint64_t)index * UNS_BLOCK_BYTES);
}

static size_t piece_bytes(const struct block *b, size_t i)
{
	return (size_t)uns_u64_min(UNS_BLOCK_PIECE_BYTES, bytes_in(b->of, b->index) - i * UNS_BLOCK_PIECE_BYTES);
}

static uint32_t all_pieces(const struct uns_block_object *o, size_t index)
{
	return bits(0, (bytes_in(o, index) + UNS_BLOCK_PIECE_BYTES - 1) / UNS_BLOCK_PIECE_BYTES);
}

/* Neither here nor being fetched. */
static uint32_t absent(const struct uns_block_object *o, size_t index)
{
	const struct block *b = o->block[index];

	return all_pieces(o, index) & ~(b ? b->have | b->coming : 0);
}

static bool has_piece(const struct uns_block_object *o, size_t piece)
{
	return !(absent(o, piece / PIECES) >> piece % PIECES & 1);
}

static bool is_foreseen(const struct uns_block_object *o, size_t piece)
{
	const struct block *b = o->block[piece / PIECES];

	return b && b->foreseen >> piece % PIECES & 1;
}

/* Two pieces before it: the end of one item and the beginning of the next, which are read for their headers, are
 * often one before the other. */
static bool is_in_sequence(const struct uns_block_object *o, size_t piece)
{
	return piece && has_piece(o, piece - 1) && (piece == 1 || has_piece(o, piece - 2));
}

/* What may be fetched of each object by a guess. */
static uint64_t share(const struct uns_blocks *c)
{
	return UNS_BLOCKS_BYTES / 2 / (c->n_large ? c->n_large : 1);
}

/* Absent pieces from the first of `want` on, that one request fetches. Some of `want` are absent. */
static uint32_t choose_run(const struct block *b, uint32_t want)
{
	const uint32_t free_ones = absent(b->of, b->index);
	const size_t first = (size_t)__builtin_ctz(want & free_ones);
	uint64_t most = 0;
	size_t end;

	if (!is_foreseen(b->of, b->index * PIECES + first) && is_in_sequence(b->of, b->index * PIECES + first))
		most = share(b->of->blocks) / UNS_BLOCK_PIECE_BYTES;
	for (end = first; end < PIECES && free_ones >> end & 1; end++)
		if (!((want | b->wanted) >> end & 1) && end - first >= most)
			break;
	return bits(first, end);
}

/* -- fetching -- */

static void note_failure(struct block *b, uint32_t run, const struct uns_err *why)
{
	struct uns_block_object *o = b->of;

	b->failed = run;
	b->n_failures++;
	o->failure = (struct uns_err){ 0 };
	uns_fail(&o->failure, why->code, "%s", why->text);
	if (why->code == -ESTALE)
		forget_blocks(o);
}

/* Where the pieces of a run go; returns how many they are. */
static size_t memory_of(const struct block *b, uint32_t run, struct iovec into[PIECES])
{
	size_t i, n = 0;

	for (i = 0; i < PIECES; i++)
		if (run >> i & 1)
			into[n++] = (struct iovec){ b->piece[i], piece_bytes(b, i) };
	return n;
}

/* Pieces of a run, none of them here or coming; the block is pinned. Lock held, and dropped meanwhile. */
static int fetch_run(struct block *b, uint32_t run, struct uns_err *err)
{
	struct uns_block_object *o = b->of;
	struct uns_blocks *c = o->blocks;
	const uint64_t first = (uint64_t)__builtin_ctz(run) * UNS_BLOCK_PIECE_BYTES;
	struct iovec into[PIECES];
	struct uns_err why = { 0 };
	size_t n;
	int code;

	if (!take_pieces(b, run)) {
		free_pieces(b, run);
		return uns_oom(err);
	}
	b->coming |= run;
	b->wanted &= ~run;
	n = memory_of(b, run, into);
	pthread_mutex_unlock(&c->lock);
	code = c->store.fetch(c->store.ctx, o->key, o->etag, into, n, (uint64_t)b->index * UNS_BLOCK_BYTES + first,
			      &why);
	pthread_mutex_lock(&c->lock);
	b->coming &= ~run;
	if (code == 0) {
		b->have |= run;
	} else {
		free_pieces(b, run);
		note_failure(b, run, &why);
	}
	pthread_cond_broadcast(&b->came);
	return code == 0 ? 0 : uns_fail_as(err, &why);
}

/* Until some other thread has fetched what is wanted of those, or failed to. Lock held. */
static int wait_for(struct block *b, uint32_t want, struct uns_err *err)
{
	const unsigned before = b->n_failures;

	pthread_cond_wait(&b->came, &b->of->blocks->lock);
	return b->n_failures != before && b->failed & want ? uns_fail_as(err, &b->of->failure) : 0;
}

/* The block is pinned. Lock held, and dropped meanwhile. */
static int bring(struct block *b, uint32_t want, struct uns_err *err)
{
	struct uns_blocks *c = b->of->blocks;
	uint32_t lacks, run;

	while ((lacks = want & ~b->have)) {
		if (!(lacks & ~b->coming)) {
			UNS_TRY(wait_for(b, lacks, err));
			continue;
		}
		run = choose_run(b, lacks);
		if (!make_room(c, (uint64_t)__builtin_popcount(run) * UNS_BLOCK_PIECE_BYTES))
			run &= want;
		UNS_TRY(fetch_run(b, run, err));
	}
	return 0;
}

/* -- ahead of readers -- */

/* A failure is reported to the reader alone that wants the bytes. Lock held, and dropped meanwhile. */
static void fetch_ahead(struct uns_blocks *c, struct block *b)
{
	uint32_t lacks, run;
	int code = 0;

	while (code == 0 && !c->ending && !b->of->stale && (lacks = absent(b->of, b->index) & b->wanted)) {
		run = lacks & ~(lacks + (lacks & -lacks)); /* those side by side from the first on */
		if (!make_room(c, (uint64_t)__builtin_popcount(run) * UNS_BLOCK_PIECE_BYTES))
			break;
		code = fetch_run(b, run, NULL);
	}
	b->wanted = 0;
}

static struct block *take_queued(struct uns_blocks *c)
{
	struct block *b = c->queue[0];

	memmove(c->queue, c->queue + 1, --c->n_queued * sizeof(*c->queue));
	b->is_queued = false;
	return b;
}

static void blocks_destroy(struct uns_blocks *c)
{
	struct block *b;

	while ((b = TAILQ_FIRST(&c->used)))
		remove_block(b);
	uns_piece_memory_fini(&c->memory);
	c->store.release(c->store.ctx);
	pthread_cond_destroy(&c->queued);
	pthread_cond_destroy(&c->thread_ended);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void *thread_run(void *ctx)
{
	struct uns_blocks *c = ctx;
	struct block *b;
	bool last;

	pthread_mutex_lock(&c->lock);
	while (!c->ending) {
		if (c->n_queued) {
			b = take_queued(c);
			fetch_ahead(c, b);
			unpin(b);
			continue;
		}
		c->n_idle++;
		pthread_cond_wait(&c->queued, &c->lock);
		c->n_idle--;
	}
	last = ++c->n_ended == c->n_threads && c->left;
	pthread_cond_signal(&c->thread_ended);
	pthread_mutex_unlock(&c->lock);
	if (last)
		blocks_destroy(c);
	return NULL;
}

/* These pieces of a block will be read. Lock held. */
static void queue_pieces(struct uns_block_object *o, size_t index, uint32_t pieces)
{
	struct uns_blocks *c = o->blocks;
	struct block *b = o->block[index];

	pieces &= absent(o, index);
	if (b && b->is_queued)
		b->wanted |= pieces;
	if (!pieces || (b && b->is_queued) || c->n_queued == MOST_QUEUED)
		return;
	if (c->n_idle <= c->n_queued && c->n_threads < UNS_BLOCKS_THREADS &&
	    uns_thread_begin(&c->thread[c->n_threads], &c->processors, thread_run, c) == 0)
		c->n_threads++;
	b = c->n_threads ? pin(o, index) : NULL;
	if (!b)
		return; /* the reader fetches it */
	b->wanted |= pieces;
	b->is_queued = true;
	c->queue[c->n_queued++] = b;
	pthread_cond_signal(&c->queued);
}

/* Blocks that a read has as a whole, but for its first. Where an object is read in sequence, also as many behind it as
 * were read before it. Lock held. */
static void look_ahead(struct uns_block_object *o, uint64_t off, uint64_t end)
{
	const uint64_t most = uns_u64_min(share(o->blocks) / UNS_BLOCK_BYTES, UNS_BLOCKS_AHEAD);
	const size_t first = off / UNS_BLOCK_BYTES, n = (o->size + UNS_BLOCK_BYTES - 1) / UNS_BLOCK_BYTES;
	size_t i, last = end / UNS_BLOCK_BYTES, before;

	if (is_in_sequence(o, off / UNS_BLOCK_PIECE_BYTES)) {
		for (before = 0; before < most && before < first && !absent(o, first - before - 1); before++)
			;
		last = (end - 1) / UNS_BLOCK_BYTES + 2 + before;
	}
	for (i = first + 1; i < n && i < last && i <= first + most; i++)
		queue_pieces(o, i, all_pieces(o, i));
}

/* A reader of bytes [at, end) of a block has yet to come. */
static void expect(struct block *b, size_t at, size_t end)
{
	size_t in, n;

	for (; at < end; at += n) {
		const size_t i = at / UNS_BLOCK_PIECE_BYTES;

		in = at % UNS_BLOCK_PIECE_BYTES;
		n = (size_t)uns_u64_min(end - at, UNS_BLOCK_PIECE_BYTES - in);
		b->had[i] &= ~pages(in / PAGE_BYTES, (in + n - 1) / PAGE_BYTES + 1);
		set_passed(b, b->passed & ~bits(i, i + 1));
	}
}

static void foresee(struct uns_block_object *o, size_t index, size_t at, size_t end)
{
	const uint32_t pieces = bits(at / UNS_BLOCK_PIECE_BYTES, (end - 1) / UNS_BLOCK_PIECE_BYTES + 1);
	struct block *b;

	queue_pieces(o, index, pieces);
	b = o->block[index];
	if (b) {
		b->foreseen |= pieces;
		expect(b, at, end);
	}
}

void uns_blocks_will_read(struct uns_block_object *o, uint64_t at, uint64_t end)
{
	size_t in, n;

	end = uns_u64_min(end, o->size);
	pthread_mutex_lock(&o->blocks->lock);
	for (; at < end && !o->stale; at += n) {
		in = at % UNS_BLOCK_BYTES;
		n = (size_t)uns_u64_min(end - at, UNS_BLOCK_BYTES - in);
		foresee(o, at / UNS_BLOCK_BYTES, in, in + n);
	}
	pthread_mutex_unlock(&o->blocks->lock);
}

/* -- reading -- */

static void copy_out(const struct block *b, uint8_t *to, size_t len, size_t at)
{
	size_t in, n;

	for (; len; to += n, at += n, len -= n) {
		in = at % UNS_BLOCK_PIECE_BYTES;
		n = (size_t)uns_u64_min(len, UNS_BLOCK_PIECE_BYTES - in);
		memcpy(to, b->piece[at / UNS_BLOCK_PIECE_BYTES] + in, n);
	}
}

/* Pieces that are read stay. */
static void count_reading(struct block *b, size_t first, size_t last, int by)
{
	size_t i;

	for (i = first; i <= last; i++)
		b->n_reading[i] += (unsigned)by;
}

/* Whether readers have had all of it. Between tensors are headers, which are not read again: a page before one that was
 * read may be without its last bytes, but not the first one: those may be all that a tensor has of the piece. */
static bool has_had_all(const struct block *b, size_t i)
{
	const uint64_t all = pages(0, (piece_bytes(b, i) - 1) / PAGE_BYTES + 1);

	return ((b->had[i] | (b->had[i] >> 1 & ~UINT64_C(1))) & all) == all;
}

/* Bytes [at, at + len) of the block were read. Of a page that the read ends in, another may want the rest. */
static void note_read(struct block *b, size_t at, size_t len)
{
	const size_t end = at + len;
	size_t n;

	for (; at < end; at += n) {
		const size_t i = at / UNS_BLOCK_PIECE_BYTES, in = at % UNS_BLOCK_PIECE_BYTES;

		n = (size_t)uns_u64_min(end - at, piece_bytes(b, i) - in);
		b->had[i] |= pages(in / PAGE_BYTES, in + n == piece_bytes(b, i) ? PAGES : (in + n) / PAGE_BYTES);
		if (has_had_all(b, i))
			set_passed(b, b->passed | bits(i, i + 1));
	}
}

/* Bytes of one block. Lock held, and dropped meanwhile. */
static int read_block(struct uns_block_object *o, size_t index, uint8_t *to, size_t len, size_t at, struct uns_err *err)
{
	const size_t first = at / UNS_BLOCK_PIECE_BYTES, last = (at + len - 1) / UNS_BLOCK_PIECE_BYTES;
	struct uns_blocks *c = o->blocks;
	struct block *b = o->stale ? NULL : pin(o, index);
	int code;

	if (!b) {
		pthread_mutex_unlock(&c->lock);
		code = c->store.fetch(c->store.ctx, o->key, o->etag, &(struct iovec){ to, len }, 1,
				      (uint64_t)index * UNS_BLOCK_BYTES + at, err);
		pthread_mutex_lock(&c->lock);
		if (code == -ESTALE)
			forget_blocks(o);
		return code;
	}
	count_reading(b, first, last, 1);
	code = bring(b, bits(first, last + 1), err);
	if (code == 0) {
		pthread_mutex_unlock(&c->lock);
		copy_out(b, to, len, at);
		pthread_mutex_lock(&c->lock);
		note_read(b, at, len);
	}
	count_reading(b, first, last, -1);
	unpin(b);
	return code;
}

int uns_blocks_read(struct uns_block_object *o, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const uint64_t end = off + len;
	uint8_t *to = buf;
	size_t at, n;
	int code = 0;

	if (!len)
		return 0;
	pthread_mutex_lock(&o->blocks->lock);
	if (!o->stale && !is_foreseen(o, off / UNS_BLOCK_PIECE_BYTES))
		look_ahead(o, off, end);
	for (; off < end && code == 0; off += n, to += n) {
		at = off % UNS_BLOCK_BYTES;
		n = (size_t)uns_u64_min(end - off, UNS_BLOCK_BYTES - at);
		code = read_block(o, off / UNS_BLOCK_BYTES, to, n, at, err);
	}
	pthread_mutex_unlock(&o->blocks->lock);
	return code;
}

/* -- life -- */

static int object_new(struct uns_blocks *c, const char *key, const char *etag, uint64_t size,
		      struct uns_block_object **out, struct uns_err *err)
{
	struct uns_block_object *o = calloc(1, sizeof(*o));

	UNS_TRY_ALLOC(o, err);
	o->blocks = c;
	o->size = size;
	o->key = strdup(key);
	o->etag = strdup(etag);
	o->block = calloc(size / UNS_BLOCK_BYTES + 1, sizeof(struct block *));
	if (!o->key || !o->etag || !o->block) {
		object_free(o);
		return uns_oom(err);
	}
	*out = o;
	return 0;
}

int uns_blocks_open(struct uns_blocks *c, const char *key, const char *etag, uint64_t size,
		    struct uns_block_object **out, struct uns_err *err)
{
	struct uns_block_object *o;
	int code = 0;

	pthread_mutex_lock(&c->lock);
	LIST_FOREACH(o, &c->objects, next)
	if (!o->stale && o->size == size && strcmp(o->key, key) == 0 && strcmp(o->etag, etag) == 0)
		break;
	if (!o) {
		code = object_new(c, key, etag, size, &o, err);
		if (code == 0)
			LIST_INSERT_HEAD(&c->objects, o, next);
	}
	if (code == 0) {
		o->n_open++;
		*out = o;
	}
	pthread_mutex_unlock(&c->lock);
	return code;
}

void uns_blocks_close(struct uns_block_object *o)
{
	struct uns_blocks *c;

	if (!o)
		return;
	c = o->blocks;
	pthread_mutex_lock(&c->lock);
	o->n_open--;
	free_if_unused(o);
	pthread_mutex_unlock(&c->lock);
}

int uns_blocks_new(const struct uns_block_store *store, struct uns_blocks **out, struct uns_err *err)
{
	struct uns_blocks *c = calloc(1, sizeof(*c));

	if (!c) {
		store->release(store->ctx);
		return uns_oom(err);
	}
	c->store = *store;
	c->memory.most_bytes = UNS_BLOCKS_BYTES;
	uns_processors_take(&c->processors);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->queued, NULL);
	pthread_cond_init(&c->thread_ended, NULL);
	LIST_INIT(&c->objects);
	TAILQ_INIT(&c->used);
	TAILQ_INIT(&c->passing);
	*out = c;
	return 0;
}

void uns_blocks_rest(struct uns_blocks *c)
{
	struct block *b, *next;

	pthread_mutex_lock(&c->lock);
	for (b = TAILQ_FIRST(&c->used); b; b = next) {
		next = TAILQ_NEXT(b, use);
		if (!b->pins)
			remove_block(b);
	}
	uns_piece_memory_rest(&c->memory);
	pthread_mutex_unlock(&c->lock);
}

/* Waits a while for threads to end; false = some have not. Lock held. */
static bool end_threads(struct uns_blocks *c)
{
	struct timespec until;
	int code = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += END_SECONDS;
	c->ending = true;
	while (c->n_queued)
		unpin(take_queued(c));
	pthread_cond_broadcast(&c->queued);
	while (c->n_ended < c->n_threads && !code)
		code = pthread_cond_clockwait(&c->thread_ended, &c->lock, CLOCK_MONOTONIC, &until);
	return c->n_ended == c->n_threads;
}

void uns_blocks_free(struct uns_blocks *c)
{
	bool ended;
	unsigned i;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	ended = end_threads(c);
	for (i = 0; i < c->n_threads && !ended; i++)
		pthread_detach(c->thread[i]);
	c->left = !ended;
	pthread_mutex_unlock(&c->lock);
	for (i = 0; ended && i < c->n_threads; i++)
		pthread_join(c->thread[i], NULL);
	if (ended)
		blocks_destroy(c);
}

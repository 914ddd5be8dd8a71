/* Which reads belong together, how far ahead storage is asked, and which bytes of which shards that is. */
#include "engine/streams.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/clock.h"
#include "engine/backing.h"
#include "engine/edges.h"
#include "engine/gather.h"
#include "engine/source_read.h"
#include "io/direct.h"
#include "io/memory_left.h"
#include "io/mounts.h"
#include "io/pages.h"
#include "io/source.h"

static const uint64_t KiB = UINT64_C(1) << 10, MiB = UINT64_C(1) << 20;

/* A read belongs to a reader that is at most this far away: the kernel sends several requests of one reader at
 * once, in any order. */
#define NEAR_BYTES (8 * MiB)
/* What a header or a single touch of a mapped page takes is less: up to 4 MiB are read around it. */
#define BEGIN_BYTES        (6 * MiB)
#define FIRST_WINDOW_BYTES (4 * MiB)
#define STEP_BYTES         MiB /* less is not asked for by itself; nor more of a shard at one go */
/* Of an object store: what comes in the time of a request's way there and back. A request fetches up to 8 MiB. All
 * readers' windows have room in memory at once (io/object_blocks.h). */
#define FIRST_OBJECT_WINDOW_BYTES (32 * MiB)
#define MOST_OBJECT_WINDOW_BYTES  (128 * MiB)
#define OBJECT_WINDOWS_BYTES      (192 * MiB)
#define OBJECT_STEP_BYTES         (8 * MiB)
/* Of a smaller file, no way of reading is found out. */
#define LARGE_BYTES (512 * MiB)
/* The kernel reads no more for one call than its own read-ahead for that device: this much if it was not changed
 * it. Larger calls are better: storage at the other end of a network gets them as they are. */
#define CALL_BYTES (128 * KiB)
/* Pieces so near to each other in a shard are asked for at one go: between them are headers, and one request less is
 * worth more than the bytes. */
#define GAP_BYTES (16 * KiB)
/* Until so long after memory was looked at. */
#define LOOK_AGAIN_NS INT64_C(100000000)

static void window_give_back(struct uns_stream *s, struct uns_engine *engine)
{
	if (s->of_object)
		atomic_fetch_sub(&engine->object_streams, s->window ? 1 : 0);
	else
		atomic_fetch_sub(&engine->ahead_bytes, s->window);
	s->window = 0;
}

/* The reader has gone, or reads elsewhere. */
static void stream_leave(struct uns_stream *s, struct uns_engine *engine)
{
	window_give_back(s, engine);
	if (s->asked)
		uns_ahead_forget(engine->ahead, s);
}

void uns_streams_init(struct uns_streams *streams)
{
	*streams = (struct uns_streams){ 0 };
	pthread_mutex_init(&streams->lock, NULL);
}

void uns_streams_fini(struct uns_streams *streams, struct uns_engine *engine)
{
	size_t i;

	for (i = 0; i < UNS_STREAMS; i++)
		stream_leave(&streams->stream[i], engine);
	pthread_mutex_destroy(&streams->lock);
}

/* -- the reader -- */

/* The reader that reads at `at`; a new one in the place of the one used longest ago, if it is none of them.
 * Lock held. */
static struct uns_stream *stream_at(struct uns_streams *streams, struct uns_engine *engine, uint64_t at)
{
	struct uns_stream *s, *oldest = streams->stream;

	for (s = streams->stream; s < streams->stream + UNS_STREAMS; s++) {
		if (s->taken && at + NEAR_BYTES >= s->next && at <= s->next + NEAR_BYTES)
			return s;
		if (s->used_at < oldest->used_at)
			oldest = s;
	}
	stream_leave(oldest, engine);
	*oldest = (struct uns_stream){ .next = at };
	return oldest;
}

/* Readers of objects share a memory of their own. */
static void window_widen_of_object(struct uns_stream *s, struct uns_engine *engine)
{
	if (!s->window && engine->most_ahead_bytes) {
		s->of_object = true;
		atomic_fetch_add(&engine->object_streams, 1);
		s->window = FIRST_OBJECT_WINDOW_BYTES;
	} else {
		s->window = uns_u64_min(2 * s->window, MOST_OBJECT_WINDOW_BYTES);
	}
}

/* What was asked for must stay until it is read, beside what was read last and the mount's own pages: it takes a
 * quarter of the memory that is left. */
static void limit_by_memory(struct uns_engine *engine)
{
	const int64_t now_ns = uns_now_ns();
	int64_t looked_ns = atomic_load_explicit(&engine->looked_ns, memory_order_relaxed);

	if (looked_ns && now_ns - looked_ns < LOOK_AGAIN_NS)
		return;
	if (atomic_compare_exchange_strong(&engine->looked_ns, &looked_ns, now_ns))
		atomic_store(&engine->ahead_limit_bytes,
			     uns_u64_min(engine->most_ahead_bytes, uns_memory_left("") / 4));
}

/* Twice the window, if the budget has that much left. */
static void window_widen(struct uns_stream *s, struct uns_engine *engine)
{
	uint64_t more = s->window ? s->window : FIRST_WINDOW_BYTES;

	if (atomic_fetch_add(&engine->ahead_bytes, more) + more <= engine->most_ahead_bytes)
		s->window += more;
	else
		atomic_fetch_sub(&engine->ahead_bytes, more);
}

/* What of its window a reader may use now: of the memory that readers of objects share, none has more than the next. If
 * memory has become short, each reader gives up the same part. */
static uint64_t window_now(const struct uns_stream *s, const struct uns_backing *b)
{
	const unsigned readers = atomic_load_explicit(&b->engine->object_streams, memory_order_relaxed);
	const uint64_t all = atomic_load_explicit(&b->engine->ahead_bytes, memory_order_relaxed);
	const uint64_t limit = atomic_load_explicit(&b->engine->ahead_limit_bytes, memory_order_relaxed);

	if (b->of_objects)
		return readers ? uns_u64_min(s->window, OBJECT_WINDOWS_BYTES / readers) : s->window;
	return all > limit ? s->window / KiB * limit / (all / KiB) : s->window;
}

/* What is asked for at once is in many shards, a little in each: the more of it, the fewer requests. The reader needs
 * the rest of its window for the time that they take. A disk answers small ones as well. */
static uint64_t step_of(const struct uns_backing *b, uint64_t window)
{
	if (b->of_objects)
		return uns_u64_min(OBJECT_STEP_BYTES, window / 4);
	return b->is_far ? uns_u64_max(STEP_BYTES, window / 4) : STEP_BYTES;
}

/* By these, storage is asked for what comes next. */
static bool asks_ahead(enum uns_way way)
{
	return way == UNS_WAY_CACHE || way == UNS_WAY_THREADS;
}

/* By which way the reader reads at `at`. Reads here and there, or of a header, go through the page cache, and show
 * nothing about ways. What was asked for comes through it too. Returns whether to ask for more. Lock held. */
static bool try_way(const struct uns_backing *b, const struct uns_stream *s, uint64_t size, uint64_t at, size_t len,
		    struct uns_trial *out)
{
	enum uns_way trying;

	*out = (struct uns_trial){ .way = b->finds_way ? UNS_WAY_CACHE : b->engine->way };
	if (!b->finds_way || s->taken < BEGIN_BYTES)
		return true;
	if (uns_ways_chosen(&b->engine->ways, b->dev, &trying) == UNS_WAY_CACHE && (size < LARGE_BYTES || !s->window))
		return true;
	if (asks_ahead(trying) || at >= s->asked)
		*out = uns_ways_begin(&b->engine->ways, b->dev, len, uns_now_ns());
	return asks_ahead(trying) && !out->waits;
}

/* The stretch to ask for, [*from, *to); false where there is none. */
static bool stream_advance(struct uns_streams *streams, const struct uns_backing *b, uint64_t size, uint64_t at,
			   size_t len, const struct uns_stream **reader, struct uns_trial *trial, uint64_t *from,
			   uint64_t *to)
{
	struct uns_engine *engine = b->engine;
	struct uns_stream *s;
	uint64_t window, end;
	bool any;

	pthread_mutex_lock(&streams->lock);
	s = stream_at(streams, engine, at);
	*reader = s;
	s->used_at = ++streams->clock;
	s->next = uns_u64_max(s->next, at + len);
	s->taken += len;
	any = try_way(b, s, size, at, len, trial);
	if (any && s->taken >= BEGIN_BYTES + s->window && s->asked < size)
		b->of_objects ? window_widen_of_object(s, engine) : window_widen(s, engine);
	window = window_now(s, b);
	*from = uns_u64_max(s->asked, s->next);
	end = trial->counts ? uns_u64_min(s->next + trial->left_bytes, size) : size;
	*to = uns_u64_min(s->next + window, end);
	any = any && window && *from < *to && (*to - *from >= step_of(b, window) || *to == end);
	if (any)
		s->asked = *to;
	if (s->asked == size)
		window_give_back(s, engine);
	pthread_mutex_unlock(&streams->lock);
	return any;
}

/* -- the shards -- */

/* What one call may ask for on the device that holds a file; looked up once for a checkpoint's first. */
static uint64_t call_bytes(struct uns_backing *b, const struct uns_file *file)
{
	uint64_t dev = file->stat.id.dev, bytes = atomic_load_explicit(&b->call_bytes, memory_order_relaxed);
	char path[96], text[32] = "";
	int fd;

	if (bytes)
		return bytes;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
		bytes = strtoull(text, NULL, 10) * KiB;
	if (fd >= 0)
		close(fd);
	bytes = uns_u64_min(uns_u64_max(bytes, CALL_BYTES), STEP_BYTES);
	atomic_store_explicit(&b->call_bytes, bytes, memory_order_relaxed);
	return bytes;
}

struct stretch {
	uint32_t file;
	uint64_t at, end;
	size_t turn; /* when the reader wants its first byte */
};

/* What storage is asked for at once, and the reader that will want it. */
struct wish {
	struct uns_backing *b;
	const struct uns_stream *reader;
	unsigned most_threads; /* that ask for it */
	struct stretch *v;
	size_t n, cap;
	uint64_t asked_bytes, cached_bytes; /* cached: they were in memory already */
};

/* On no block device, as the file systems of networks and of FUSE, to ask may mean to wait: then a thread asks. */
static void ask_file(struct wish *wish, const struct stretch *s)
{
	struct uns_backing *b = wish->b;
	const struct uns_file *f = &b->cat->files[s->file];
	struct uns_ahead_ask ask = { .file = f, .reader = wish->reader, .most_threads = wish->most_threads };
	struct uns_fd_slot *slot = &b->slot[s->file];
	uint64_t at = s->at, end = uns_u64_min(s->end, f->stat.id.size), step;

	if (at >= end || uns_fds_pin(&b->engine->fds, slot, f, NULL) < 0)
		return;
	ask.fd = slot->fd;
	ask.call_bytes = call_bytes(b, f) * (slot->as_asked ? 2 : 1);
	if (uns_fd_will_read(slot->fd, at, end))
		at = end;
	for (; at < end && !slot->no_pages; at += step) {
		step = uns_u64_min(end - at, STEP_BYTES);
		wish->asked_bytes += step;
		if (uns_fd_has(slot->fd, (size_t)step, at)) {
			wish->cached_bytes += step;
			continue;
		}
		ask.at = at;
		ask.end = at + step;
		if (major(f->stat.id.dev) == 0 && uns_ahead_ask(b->engine->ahead, &ask))
			continue;
		step = uns_u64_min(step, ask.call_bytes);
		posix_fadvise(slot->fd, (off_t)at, (off_t)step, POSIX_FADV_WILLNEED);
	}
	uns_fds_unpin(&b->engine->fds, slot);
}

/* As if it were asked for. A look by reading (uns_fd_has) would bring pages of what is to be read past the page cache.
 */
static void count_cached(struct wish *wish, const struct stretch *s)
{
	struct uns_backing *b = wish->b;
	struct uns_fd_slot *slot = &b->slot[s->file];
	const struct uns_file *f = &b->cat->files[s->file];
	const uint64_t end = uns_u64_min(s->end, f->stat.id.size);
	uint64_t pages;

	if (s->at >= end || uns_fds_pin(&b->engine->fds, slot, f, NULL) < 0)
		return;
	wish->asked_bytes += end - s->at;
	if (uns_pages_cached(slot->fd, s->at, end - s->at, &pages))
		wish->cached_bytes += uns_u64_min(pages * (uint64_t)sysconf(_SC_PAGESIZE), end - s->at);
	uns_fds_unpin(&b->engine->fds, slot);
}

static void wish_add(struct wish *wish, uint32_t file, uint64_t at, uint64_t end)
{
	if (!UNS_HEAP_ROOM(wish->v, wish->n, wish->cap))
		return;
	wish->v[wish->n] = (struct stretch){ file, at, end, wish->n };
	wish->n++;
}

static int by_place(const void *a, const void *b)
{
	const struct stretch *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static int by_turn(const void *a, const void *b)
{
	const struct stretch *x = a, *y = b;

	return (x->turn > y->turn) - (x->turn < y->turn);
}

/* Shards hold their pieces in another order than a view does: short ones that are near to each other there become one
 * stretch. */
static void join_near(struct wish *wish)
{
	struct stretch *v = wish->v, *last = v;
	size_t i;

	qsort(v, wish->n, sizeof(*v), by_place);
	for (i = 1; i < wish->n; i++) {
		if (v[i].file == last->file && v[i].at <= last->end + GAP_BYTES && v[i].end <= last->at + STEP_BYTES) {
			last->end = uns_u64_max(last->end, v[i].end);
			last->turn = last->turn < v[i].turn ? last->turn : v[i].turn;
		} else {
			*++last = v[i];
		}
	}
	wish->n = (size_t)(last - v) + 1;
	qsort(v, wish->n, sizeof(*v), by_turn);
}

/* Files of a wish that are opened at once: fewer than descriptors that may be open. */
enum { OPENED_AT_ONCE = 32 };

struct to_open {
	struct uns_backing *b;
	uint32_t file[OPENED_AT_ONCE];
	size_t n;
};

/* A file that cannot be opened is left for the reader to find. */
static int open_quietly(void *ctx, size_t i, struct uns_err *err)
{
	const struct to_open *of = ctx;
	const uint32_t file = of->file[i];
	struct uns_fds *fds = &of->b->engine->fds;

	(void)err;
	if (uns_fds_pin(fds, &of->b->slot[file], &of->b->cat->files[file], NULL) == 0)
		uns_fds_unpin(fds, &of->b->slot[file]);
	return 0;
}

/* Where storage is far, to open a file is to wait: for the next ones together. */
static void open_next(const struct wish *wish, size_t first)
{
	const size_t end = uns_u64_min(wish->n, first + OPENED_AT_ONCE);
	struct to_open of = { .b = wish->b };
	size_t i;

	for (i = first; wish->b->is_far && i < end; i++)
		if (!uns_fds_is_open(&wish->b->engine->fds, &wish->b->slot[wish->v[i].file]))
			of.file[of.n++] = wish->v[i].file;
	if (of.n)
		uns_pool_each(wish->b->engine->pool, of.n, open_quietly, &of, NULL);
}

static void ask_all(struct wish *wish)
{
	size_t i;

	if (wish->n)
		join_near(wish);
	for (i = 0; i < wish->n; i++) {
		if (i % OPENED_AT_ONCE == 0)
			open_next(wish, i);
		ask_file(wish, &wish->v[i]);
	}
}

/* Bytes [first, end) of a piece's elements. */
static void add_piece(void *ctx, const struct uns_piece *piece, uint64_t first, uint64_t end)
{
	struct wish *wish = ctx;
	struct uns_location where;
	uint64_t base = piece->offset_bytes, to;

	if (piece->codec != UNS_CODEC_NONE || uns_piece_is_strided(piece)) { /* read as a whole, when first touched */
		if (first == 0)
			wish_add(wish, piece->file, base, base + piece->length_bytes);
		return;
	}
	if (uns_location_known(wish->b, piece, &where))
		base = where.data_bytes;
	to = base + end;
	if (base == piece->offset_bytes && piece->container == UNS_TORCH_ITEM) /* headers around them are read, too */
		to = uns_u64_min(to + UNS_EDGE_BYTES, base + piece->length_bytes);
	wish_add(wish, piece->file, base + first, to);
}

/* Before their first read: the kernel need not guess what is read next. */
static void foresee_all(struct uns_backing *b)
{
	size_t i;

	if (atomic_load_explicit(&b->foreseen, memory_order_relaxed) || !b->engine->most_ahead_bytes)
		return;
	atomic_store(&b->foreseen, true);
	for (i = 0; i < b->cat->n_files; i++)
		atomic_store(&b->slot[i].foreseen, true);
}

/* Before the first large file is read. */
static void learn(struct uns_backing *b)
{
	const struct uns_ways_memory *memory = &b->engine->memory;
	struct uns_ways_kind kind = { .is_far = b->is_far, .keeps_pages = b->engine->keeps_pages };
	enum uns_way way;
	bool known;

	if (uns_ways_knows(&b->engine->ways, b->dev))
		return;
	kind.in_memory = uns_mount_in_memory(major(b->dev), minor(b->dev));
	known = !kind.in_memory && memory->recall && memory->recall(memory->ctx, b->dev, &way);
	uns_ways_learn(&b->engine->ways, b->dev, kind, known ? &way : NULL);
}

/* The bytes of a stretch, before it is read: are most of them in the page cache? */
static bool is_in_memory(struct uns_backing *b, const struct uns_layout *layout, uint64_t from)
{
	struct wish wish = { .b = b };
	size_t i;

	uns_pieces_extents(b, layout, from, uns_u64_min(from + UNS_WAYS_TRIAL_BYTES, layout->size_bytes), add_piece,
			   &wish);
	for (i = 0; i < wish.n; i++)
		count_cached(&wish, &wish.v[i]);
	free(wish.v);
	return 2 * wish.cached_bytes > wish.asked_bytes;
}

struct uns_reading uns_streams_read(struct uns_streams *streams, struct uns_backing *b, const struct uns_layout *layout,
				    uint64_t at, size_t len)
{
	struct wish wish = { .b = b };
	struct uns_trial trial;
	enum uns_way way;
	uint64_t from, to;

	if (b->finds_way && layout->size_bytes >= LARGE_BYTES)
		learn(b);
	way = uns_source_way(b);
	if (way == UNS_WAY_TURNS ||
	    (!asks_ahead(way) && !b->finds_way)) /* all reads, not a sequential reader's alone */
		return (struct uns_reading){ .way = way };
	foresee_all(b);
	if (!b->of_objects && layout->size_bytes > BEGIN_BYTES) /* else nothing is ever asked for */
		limit_by_memory(b->engine);
	if (stream_advance(streams, b, layout->size_bytes, at, len, &wish.reader, &trial, &from, &to)) {
		wish.most_threads = trial.way == UNS_WAY_THREADS ? UNS_AHEAD_THREADS : 1;
		uns_pieces_extents(b, layout, from, to, add_piece, &wish);
		ask_all(&wish);
		free(wish.v);
	}
	if (trial.counts)
		uns_ways_note(&b->engine->ways, b->dev, wish.asked_bytes, wish.cached_bytes);
	if (trial.counts && trial.way == UNS_WAY_CACHE)
		uns_ways_note_waits(&b->engine->ways, b->dev, uns_ahead_waits(b->engine->ahead, b->dev));
	if (trial.counts && trial.first && !asks_ahead(trial.way) && is_in_memory(b, layout, at))
		uns_ways_restart(&b->engine->ways, b->dev);
	return (struct uns_reading){ trial.way, trial.counts, trial.stretch };
}

static unsigned long long mb(double bytes)
{
	return (unsigned long long)(bytes / 1e6);
}

void uns_streams_read_end(struct uns_backing *b, const struct uns_reading *reading, size_t len)
{
	const struct uns_ways_memory *memory = &b->engine->memory;
	struct uns_ways_found found;
	const double *rate = found.bytes_per_s;
	bool last;

	if (!reading->counts)
		return;
	last = uns_ways_end(&b->engine->ways, b->dev, reading->stretch, len, uns_now_ns(), &found);
	if (reading->way == UNS_WAY_TURNS) /* the others that are being read need not wait any more, if it is over */
		uns_turns_look(&b->turns);
	if (!last)
		return;
	uns_log(b->engine->log, UNS_LOG_INFO,
		"device %u:%u is read with reads=%s: cached %llu MB/s, threads %llu, ordered %llu, direct %llu (0: not tried)",
		major(found.dev), minor(found.dev), uns_way_name(found.way), mb(rate[UNS_WAY_CACHE]),
		mb(rate[UNS_WAY_THREADS]), mb(rate[UNS_WAY_TURNS]), mb(rate[UNS_WAY_LONG]));
	if (memory->keep)
		memory->keep(memory->ctx, found.dev, found.way);
}

/* Life of an engine and of what it keeps for each catalog; the counters. */
#include "engine/engine.h"

#include <stdlib.h>
#include <sys/sysmacros.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/backing.h"
#include "io/numbers.h"
#include "io/source.h"

enum {
	LEAST_WINDOW_BYTES = 8 << 20, /* RFC 8878 asks every decoder for that; zstd's levels up to 19 need it */
};

static void engine_free_p(struct uns_engine **engine)
{
	uns_engine_free(*engine);
}

/* Source files, spilled pieces and threads that ask ahead hold descriptors; a quarter is plenty for spilled pieces, and
 * for those threads. */
static void share_descriptors(const struct uns_engine_options *options, size_t *files, size_t *spilled,
			      unsigned *ahead_storages)
{
	enum { MOST_SPILLED = 4096 };
	size_t all = uns_fds_budget(), others;

	*spilled = (size_t)uns_u64_min(all / 4 + 1, MOST_SPILLED);
	*ahead_storages = (unsigned)uns_u64_min(all / 4 / UNS_AHEAD_STORAGE_FDS, options->ahead_storages);
	others = *spilled + *ahead_storages * (size_t)UNS_AHEAD_STORAGE_FDS;
	*files = uns_u64_max(all - uns_u64_min(others, all), 1);
	if (options->max_open_files)
		*files = uns_u64_min(*files, options->max_open_files);
}

int uns_engine_new(const struct uns_engine_options *options, struct uns_engine **out, struct uns_err *err)
{
	UNS_CLEANUP(engine_free_p) struct uns_engine *e = calloc(1, sizeof(*e));
	struct uns_cache_limits cache = { .mem_bytes = options->cache_bytes, .spill_bytes = options->spill_bytes };
	unsigned ahead_storages;
	size_t max_open;

	UNS_TRY_ALLOC(e, err);
	share_descriptors(options, &max_open, &cache.spill_files, &ahead_storages);
	uns_fds_init(&e->fds, max_open, &e->count);
	uns_windows_init(&e->windows, uns_u64_max(options->window_bytes, LEAST_WINDOW_BYTES));
	e->delay_read_us = options->delay_read_us;
	e->most_ahead_bytes = options->ahead_bytes;
	e->ahead_limit_bytes = options->ahead_bytes;
	e->way = options->way;
	e->finds_way = options->finds_way;
	e->keeps_pages = options->keeps_pages;
	e->memory = options->ways;
	e->log = options->log;
	uns_ways_init(&e->ways);
	UNS_TRY(uns_pool_new(options->n_threads ? options->n_threads : UNS_THREADS_SESSION, NULL, &e->pool, err));
	UNS_TRY(uns_ahead_new(ahead_storages, &e->ahead, err));
	UNS_TRY(uns_cache_new(&cache, options->cache_dir, &e->count, options->log, &e->cache, err));
	*out = UNS_TAKE(e);
	return 0;
}

void uns_engine_free(struct uns_engine *e)
{
	if (!e)
		return;
	uns_ahead_free(e->ahead);
	uns_pool_free(e->pool);
	uns_cache_free(e->cache);
	uns_fds_fini(&e->fds);
	uns_windows_fini(&e->windows);
	uns_ways_fini(&e->ways);
	free(e);
}

struct uns_pool *uns_engine_pool(const struct uns_engine *engine)
{
	return engine->pool;
}

const char *uns_engine_cache_dir(const struct uns_engine *e)
{
	return uns_cache_dir(e->cache);
}

size_t uns_engine_ways(struct uns_engine *e, uint64_t dev, struct uns_way_of out[UNS_WAYS_STORAGES])
{
	if (e->finds_way)
		return uns_ways_known(&e->ways, out);
	out[0] = (struct uns_way_of){ dev, e->way };
	return 1;
}

#define GET(name) atomic_load_explicit(&engine->count.name, memory_order_relaxed)

void uns_engine_stats(const struct uns_engine *engine, struct uns_engine_stats *out)
{
	*out = (struct uns_engine_stats){
		.source_reads = GET(source_reads),
		.source_read_bytes = GET(source_read_bytes),
		.direct_read_bytes = GET(direct_read_bytes),
		.ordered_read_bytes = GET(ordered_read_bytes),
		.items_resolved = GET(items_resolved),
		.decoded_pieces = GET(decoded_pieces),
		.decoded_bytes = GET(decoded_bytes),
		.cache_bytes = GET(cache_bytes),
		.spill_bytes = GET(spill_bytes),
		.stale = GET(stale),
		.io_errors = GET(io_errors),
		.open_files = GET(open_files),
		.crc_exact = GET(crc_exact),
		.crc_zero = GET(crc_zero),
		.crc_done_bytes = GET(crc_done_bytes),
		.crc_total_bytes = GET(crc_total_bytes),
	};
}

/* -- what it keeps for one catalog -- */

static void backing_free_p(struct uns_backing **b)
{
	uns_backing_free(*b);
}

int uns_backing_new(struct uns_engine *engine, const struct uns_catalog *cat, struct uns_backing **out,
		    struct uns_err *err)
{
	UNS_CLEANUP(backing_free_p) struct uns_backing *b = calloc(1, sizeof(*b));
	size_t i;

	UNS_TRY_ALLOC(b, err);
	b->engine = engine;
	b->cat = cat;
	b->is_far = cat->n_files && major(cat->files[0].stat.id.dev) == 0;
	b->of_objects = cat->n_files && uns_root_is_remote(cat->files[0].root);
	b->dev = cat->n_files ? cat->files[0].stat.id.dev : 0;
	b->finds_way = engine->finds_way && cat->n_files && !b->of_objects;
	pthread_mutex_init(&b->behind_lock, NULL);
	uns_turns_init(&b->turns);
	b->slot = calloc(cat->n_files + 1, sizeof(*b->slot));
	b->direct_slot = calloc(cat->n_files + 1, sizeof(*b->direct_slot));
	b->turn_slot = calloc(cat->n_files + 1, sizeof(*b->turn_slot));
	b->turn = calloc(cat->n_files + 1, sizeof(*b->turn));
	b->resolved = calloc(cat->n_pieces + 1, sizeof(*b->resolved));
	b->piece_order = calloc(cat->n_tensors + 1, sizeof(*b->piece_order));
	b->crc = calloc(cat->n_tensors + 1, sizeof(*b->crc));
	UNS_TRY_ALLOC(b->slot && b->direct_slot && b->turn_slot && b->turn && b->resolved && b->piece_order && b->crc,
		      err);
	for (i = 0; i < cat->n_files; i++) {
		b->slot[i].checkpoint_used_ns = &b->used_ns;
		b->direct_slot[i].checkpoint_used_ns = b->turn_slot[i].checkpoint_used_ns = &b->used_ns;
		b->direct_slot[i].past_cache = true;
	}
	*out = UNS_TAKE(b);
	return 0;
}

size_t uns_backing_bytes(const struct uns_backing *b)
{
	const struct uns_catalog *cat = b->cat;

	return sizeof(*b) + b->places_bytes + cat->n_files * (3 * sizeof(*b->slot) + sizeof(*b->turn)) +
	       cat->n_pieces * sizeof(*b->resolved) + cat->n_tensors * (sizeof(*b->piece_order) + sizeof(*b->crc));
}

static void close_slots(struct uns_backing *b, struct uns_fd_slot *slot)
{
	size_t i;

	for (i = 0; slot && i < b->cat->n_files; i++)
		uns_fds_close(&b->engine->fds, &slot[i]);
	free(slot);
}

void uns_backing_let_go(struct uns_backing *b)
{
	struct uns_engine *e = b->engine;
	size_t i;

	for (i = 0; i < b->cat->n_files; i++) {
		const struct uns_file *f = &b->cat->files[i];

		if (!uns_written_elsewhere(major(f->stat.id.dev), minor(f->stat.id.dev)))
			continue;
		uns_ahead_let_go(e->ahead, f);
		uns_fds_let_go(&e->fds, &b->slot[i]);
		uns_fds_let_go(&e->fds, &b->direct_slot[i]);
		uns_fds_let_go(&e->fds, &b->turn_slot[i]);
	}
}

void uns_backing_free(struct uns_backing *b)
{
	struct uns_crc *memo, *next;
	size_t i;

	if (!b)
		return;
	uns_cache_drop(b->engine->cache, b);
	close_slots(b, b->slot);
	close_slots(b, b->direct_slot);
	close_slots(b, b->turn_slot);
	free(b->turn);
	uns_turns_fini(&b->turns);
	free(b->resolved);
	free(b->places);
	free((void *)b->piece_order);
	for (i = 0; b->crc && i < b->cat->n_tensors; i++)
		for (memo = atomic_load(&b->crc[i]); memo; memo = next) {
			next = memo->next;
			free(memo);
		}
	free((void *)b->crc);
	for (i = 0; b->behind && i < b->cat->n_files; i++)
		free(b->behind[i].gone);
	free(b->behind);
	pthread_mutex_destroy(&b->behind_lock);
	free(b);
}

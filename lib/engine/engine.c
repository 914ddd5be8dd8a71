/* Life of an engine and its counters. */
#include "engine/backing.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/cleanup.h"

enum {
	DEFAULT_THREADS = 32, /* they wait for storage, they do not compute */
	LEAST_WINDOW_BYTES = 8 << 20, /* RFC 8878 asks every decoder for that; zstd's levels up to 19 need it */
};

static void engine_free_p(struct uns_engine **engine)
{
	uns_engine_free(*engine);
}

/* Source files and spilled pieces hold descriptors; a quarter is plenty for the latter. */
static void share_descriptors(const struct uns_engine_options *options, size_t *files, size_t *spilled)
{
	enum { MOST_SPILLED = 4096 };
	size_t all = uns_fds_budget();

	*spilled = (size_t)uns_u64_min(all / 4 + 1, MOST_SPILLED);
	*files = uns_u64_max(all - uns_u64_min(*spilled, all), 1);
	if (options->max_open_files)
		*files = uns_u64_min(*files, options->max_open_files);
}

int uns_engine_new(const struct uns_engine_options *options, struct uns_engine **out,
		   struct uns_err *err)
{
	UNS_CLEANUP(engine_free_p) struct uns_engine *e = calloc(1, sizeof(*e));
	struct uns_cache_limits cache = { .mem_bytes = options->cache_bytes,
					  .spill_bytes = options->spill_bytes };
	size_t max_open;

	if (!e)
		return uns_oom(err);
	share_descriptors(options, &max_open, &cache.spill_files);
	uns_fds_init(&e->fds, max_open, &e->count);
	uns_windows_init(&e->windows, uns_u64_max(options->window_bytes, LEAST_WINDOW_BYTES));
	e->delay_read_us = options->delay_read_us;
	UNS_TRY(uns_pool_new(options->n_threads ? options->n_threads : DEFAULT_THREADS, &e->pool,
			     err));
	UNS_TRY(uns_cache_new(&cache, options->cache_dir, &e->count, options->log, &e->cache, err));
	*out = UNS_TAKE(e);
	return 0;
}

void uns_engine_free(struct uns_engine *e)
{
	if (!e)
		return;
	uns_pool_free(e->pool);
	uns_cache_free(e->cache);
	uns_fds_fini(&e->fds);
	uns_windows_fini(&e->windows);
	free(e);
}

struct uns_pool *uns_engine_pool(struct uns_engine *engine)
{
	return engine->pool;
}

#define GET(name) atomic_load_explicit(&engine->count.name, memory_order_relaxed)

void uns_engine_stats(const struct uns_engine *engine, struct uns_engine_stats *out)
{
	*out = (struct uns_engine_stats){
		.source_reads = GET(source_reads),
		.source_read_bytes = GET(source_read_bytes),
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

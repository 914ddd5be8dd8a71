/* Life of an engine and its counters. */
#include "engine/backing.h"

#include <stdlib.h>

#include "base/cleanup.h"

enum { DEFAULT_THREADS = 32 }; /* they wait for storage, they do not compute */

static void engine_free_p(struct uns_engine **engine)
{
	uns_engine_free(*engine);
}

int uns_engine_new(const struct uns_engine_options *options, struct uns_engine **out,
		   struct uns_err *err)
{
	UNS_CLEANUP(engine_free_p) struct uns_engine *e = calloc(1, sizeof(*e));

	if (!e)
		return uns_oom(err);
	uns_fds_init(&e->fds, options->max_open_files, &e->count);
	e->delay_read_us = options->delay_read_us;
	e->crc_exact = options->crc_exact;
	UNS_TRY(uns_pool_new(options->n_threads ? options->n_threads : DEFAULT_THREADS, &e->pool,
			     err));
	UNS_TRY(uns_cache_new(options->cache_bytes, options->cache_dir, options->spill_bytes,
			      &e->count, &e->cache, err));
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

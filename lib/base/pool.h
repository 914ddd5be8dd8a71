/* Worker threads for work that waits on storage: reading headers, checking, comparing. */
#ifndef UNS_BASE_POOL_H
#define UNS_BASE_POOL_H

#include <stddef.h>

#include "base/error.h"
#include "base/thread.h"

/* How many threads read is decided here, for all. They wait for storage rather than compute. */
enum {
	UNS_THREADS_SESSION = 32, /* items' headers, verification, the pieces of one read (engine/engine.c) */
	UNS_THREADS_EXPORT = 8,   /* with the thread that calls unshard_export */
	UNS_THREADS_DIFF = 8,     /* with the thread that calls unshard_diff */
	UNS_THREADS_MEASURE = 8,  /* with the thread that calls unshard_measure_tensors */
	/* Into a GPU, with a transfer's own, if there are as many processors: fewer than buffers, so that copies are
	 * under way while all of them read. */
	UNS_MOST_THREADS_DEVICE = 16,
};

struct uns_pool;

/* Threads are started on first use, so that a process may fork (daemonise) after this. They run on the processors
 * `where`; NULL = those of the thread that calls this. */
int uns_pool_new(unsigned n_threads, const struct uns_processors *where, struct uns_pool **out, struct uns_err *err);

/* Run work(ctx, i) for i in [0, n) on the pool and the calling thread; returns when all are done.
 * The first error stops further items from starting and is returned with its sentence. Any number of
 * threads may call at once. An item may call it too (pool.c has why that cannot end in a deadlock). */
int uns_pool_each(struct uns_pool *pool, size_t n, int (*work)(void *ctx, size_t i, struct uns_err *err), void *ctx,
		  struct uns_err *err);

void uns_pool_free(struct uns_pool *pool);

#endif

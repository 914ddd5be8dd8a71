/* Worker threads for work that waits on storage: reading headers, checking, comparing. */
#ifndef UNS_BASE_POOL_H
#define UNS_BASE_POOL_H

#include <stddef.h>

#include "base/error.h"

struct uns_pool;

/* Threads are started on first use, so that a process may fork (daemonise) after this. */
int uns_pool_new(unsigned n_threads, struct uns_pool **out, struct uns_err *err);

/* Run work(ctx, i) for i in [0, n) on the pool and the calling thread; returns when all are done.
 * The first error stops further items from starting and is returned with its sentence. Any number of
 * threads may call at once. An item may call it too (pool.c says why that cannot end in a deadlock). */
int uns_pool_each(struct uns_pool *pool, size_t n,
		  int (*work)(void *ctx, size_t i, struct uns_err *err), void *ctx,
		  struct uns_err *err);

void uns_pool_free(struct uns_pool *pool);

#endif

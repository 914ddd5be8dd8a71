/* What the engine keeps for one catalog, and reading its source files with identity checks. Private
 * to lib/engine. */
#ifndef UNS_ENGINE_BACKING_H
#define UNS_ENGINE_BACKING_H

#include "base/pool.h"
#include "engine/cache.h"
#include "engine/counters.h"
#include "engine/engine.h"
#include "engine/fds.h"
#include "engine/resolve.h"
#include "engine/windows.h"

struct uns_engine {
	struct uns_counters count;
	struct uns_pool *pool;
	struct uns_fds fds;
	struct uns_cache *cache;
	struct uns_windows windows;
	unsigned delay_read_us;
};

struct uns_backing {
	struct uns_engine *engine;
	const struct uns_catalog *cat;
	struct uns_fd_slot *slot;         /* one per file */
	struct uns_resolved *resolved;    /* one per piece */
	_Atomic unsigned char *piece_order; /* one per tensor: see gather.c */
	_Atomic(struct uns_crc *) *crc;     /* one list per tensor: see crc.c */
	_Atomic uint64_t crc_changes;
};

/* Exactly len bytes of a source file that is checked, before and after, to be the one that the
 * catalog saw: -ESTALE when it is not. */
int uns_source_pread(struct uns_backing *b, uint32_t file, void *buf, size_t len, uint64_t off,
		     struct uns_err *err);
/* The same where it needs no waiting for storage: -EAGAIN, without a sentence, where it does. */
int uns_source_pread_now(struct uns_backing *b, uint32_t file, void *buf, size_t len, uint64_t off,
			 struct uns_err *err);
/* The check alone, for bytes that were read earlier. */
int uns_source_check(struct uns_backing *b, uint32_t file, struct uns_err *err);

/* A source file of the catalog as a reader; `source` must outlive it. */
struct uns_source_file {
	struct uns_backing *backing;
	uint32_t file;
};
struct uns_reader uns_reader_of_source(struct uns_source_file *source);

#endif

/* What the engine is made of, and what it keeps for one catalog. engine.c makes and frees both; resolve.c, gather.c and
 * crc.c fill in what they find out. */
#ifndef UNS_ENGINE_BACKING_H
#define UNS_ENGINE_BACKING_H

#include <stdatomic.h>

#include "base/pool.h"
#include "engine/ahead.h"
#include "engine/cache.h"
#include "engine/counters.h"
#include "engine/fds.h"
#include "engine/turns.h"
#include "engine/ways.h"
#include "engine/windows.h"
#include "model/catalog.h"

struct uns_engine {
	struct uns_counters count;
	struct uns_pool *pool;
	struct uns_ahead *ahead;
	struct uns_fds fds;
	struct uns_cache *cache;
	struct uns_windows windows;
	unsigned delay_read_us;
	_Atomic uint64_t ahead_bytes; /* windows of all streams (streams.h) */
	uint64_t most_ahead_bytes;
	_Atomic uint64_t ahead_limit_bytes; /* of these, what memory has room for; looked at looked_ns */
	_Atomic int64_t looked_ns;
	_Atomic unsigned object_streams; /* that have a window in an object store */
	enum uns_way way; /* of files that are read from front to back */
	bool finds_way; /* else, what ways has found */
	bool keeps_pages;
	struct uns_ways ways;
	struct uns_ways_memory memory;
	const struct uns_log *log;
};

/* Where the elements of a piece lie. */
struct uns_location {
	bool dense; /* C order without gaps from data_bytes on */
	uint32_t crc32; /* of exactly the piece's bytes, as its container recorded it; 0 = not */
	uint64_t data_bytes; /* offset of the first element: in the file, or in the decompressed item */
};

/* A piece's location, once it is known. One per piece of the catalog, zero-initialised. */
struct uns_resolved {
	_Atomic unsigned state; /* UNS_RESOLVED_* */
	struct uns_location location; /* written by the thread that is KEEPING it; constant once READY */
};
enum { UNS_RESOLVED_NEW, UNS_RESOLVED_CLAIMED, UNS_RESOLVED_KEEPING, UNS_RESOLVED_READY };

/* One tensor served as one element type. */
struct uns_crc {
	struct uns_crc *next; /* the same tensor as other types */
	enum uns_dtype out;
	_Atomic uint64_t found, served; /* 0 = not yet; else UNS_CRC_IS_SET | the CRC */
};
#define UNS_CRC_IS_SET (UINT64_C(1) << 63)

/* Of a source file: what was read of it and need not stay in the page cache (behind.h). */
struct uns_stretch {
	uint64_t at, end;
	uint64_t fresh_bytes; /* read since its pages were let go of */
};
enum { UNS_STRETCHES = 32 }; /* readers of one shard may be far apart */
struct uns_behind {
	struct uns_stretch stretch[UNS_STRETCHES]; /* the one that grew last comes first */
	unsigned n;
	/* A bit for each 2 MiB whose pages have gone. Reads of neighbours may bring some of them back: the kernel reads
	 * ahead, and around what is read. */
	uint64_t *gone;
};

struct uns_backing {
	struct uns_engine *engine;
	const struct uns_catalog *cat;
	struct uns_fd_slot *slot; /* one per file */
	struct uns_fd_slot *direct_slot; /* the same to read past the page cache */
	struct uns_fd_slot *turn_slot; /* and in turns: the kernel reads ahead of these */
	struct uns_turn *turn;
	struct uns_turns turns;
	int64_t used_ns; /* when a slot was last used (fds.h) */
	struct uns_resolved *resolved; /* one per piece */
	struct uns_places *places; /* what a memo has of them (places.h); NULL = none */
	size_t places_bytes;
	_Atomic unsigned char *piece_order; /* one per tensor: see gather.c */
	_Atomic(struct uns_crc *) *crc; /* one list per tensor: see crc.c */
	_Atomic uint64_t crc_changes;
	_Atomic uint64_t call_bytes; /* see streams.c; 0 = not known yet */
	_Atomic bool foreseen; /* its slots are */
	uint64_t dev; /* of its first file */
	bool finds_way; /* which is read as the engine finds; objects have no page cache, nor another way */
	bool is_far; /* its first file is on no block device: what storage is asked for are requests to a program or a
			server */
	bool of_objects; /* its first file is in an object store */
	pthread_mutex_t behind_lock;
	struct uns_behind *behind; /* one per file, once bytes are kept elsewhere */
};

#endif

/* Sequential readers of one virtual file, and what storage is asked for ahead of them.
 *
 * A reader that goes through a file from front to back makes storage and FUSE take turns: the shards are read
 * when pages are wanted, and wait while pages are delivered. So, once a reader has taken more than the kernel
 * reads around a single touch, the shards' bytes that it will want next are asked for (posix_fadvise WILLNEED),
 * and the further the longer it continues. They go into the kernel's page cache, never into our memory. A file system
 * that may let the asking thread wait is asked by another one (ahead.h). Objects of a store have no page cache: what is
 * asked for of them is fetched into memory of their own (io/object_blocks.h), as much as keeps many requests under way.
 */
#ifndef UNS_ENGINE_STREAMS_H
#define UNS_ENGINE_STREAMS_H

#include <pthread.h>

#include "engine/engine.h"

enum { UNS_STREAMS = 4 }; /* readers that are distinguished, in one open file */

struct uns_stream {
	uint64_t next;    /* the furthest byte that was read, + 1 */
	uint64_t taken;   /* bytes read by this reader */
	uint64_t asked;   /* storage was asked for what is before this */
	uint64_t window;  /* how far ahead it may be asked, out of the engine's budget; 0 = not yet */
	bool of_object; /* and it has a window: it counts as one that shares their memory */
	uint64_t used_at; /* by the clock of the set: the one used longest ago makes room */
};

struct uns_streams {
	pthread_mutex_t lock;
	uint64_t clock;
	struct uns_stream stream[UNS_STREAMS];
};

struct uns_reading {
	enum uns_way way;
	bool counts; /* for what is found out about ways */
	unsigned stretch; /* then: of the trial */
};

void uns_streams_init(struct uns_streams *streams);
/* Gives the windows back to the engine. No uns_streams_read may be in progress. */
void uns_streams_fini(struct uns_streams *streams, struct uns_engine *engine);

/* Bytes [at, at+len) of the layout's file are about to be read: ask storage for what follows them, where that
 * is worth it. Any number of threads. Does not wait for storage to answer; fails silently, as a hint may. Returns by
 * which way to read them. uns_streams_read_end follows. */
struct uns_reading uns_streams_read(struct uns_streams *streams, struct uns_backing *backing,
				    const struct uns_layout *layout, uint64_t at, size_t len);

/* They were read, or that failed. The way that is found by it is logged and remembered. */
void uns_streams_read_end(struct uns_backing *backing, const struct uns_reading *reading, size_t len);

#endif

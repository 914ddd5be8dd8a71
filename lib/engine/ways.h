/* Which way of reading suits a storage (`-o reads=auto`): found out by the first large load from it.
 *
 * While a program reads a large file from front to back, stretches of it are read by one way after the other: through
 * the page cache, past it, and by two more where storage is a program or a server, unless that is as fast as a disk;
 * then through the page cache again, and by the fastest of the others. What counts is the time in which reads were
 * under way: how long the program itself took between them does not. Another way than the page cache is chosen if both
 * its stretches were faster than both of that, by a fifth. A way ends its stretch early when it is clear that it was
 * slower.
 *
 * Threads: any. */
#ifndef UNS_ENGINE_WAYS_H
#define UNS_ENGINE_WAYS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/direct.h"

enum {
	UNS_WAYS_STORAGES = 16, /* of others nothing is found out */
	UNS_WAYS_TRIALS = 6,
	UNS_WAYS_TRIAL_BYTES = 40 << 20, /* a stretch */
};

/* Which ways are tried of a storage. */
struct uns_ways_kind {
	bool is_far;      /* on no block device, and requests wait for each other */
	bool keeps_pages; /* none goes past the page cache */
	bool in_memory;   /* nothing is to be gained */
};

/* Fields belong to the lock of its uns_ways; `way` and `decided` are read without it. */
struct uns_storage {
	uint64_t dev; /* constant */
	_Atomic enum uns_way way; /* of the stretch, or the chosen one */
	atomic_bool decided; /* set after `way`, for good */
	struct uns_ways_kind kind;
	enum uns_way tried[UNS_WAYS_TRIALS];
	double bytes_per_s[UNS_WAYS_TRIALS];
	unsigned trial, n_trials;
	unsigned stretch; /* the how manieth */
	bool begun;
	uint64_t begun_bytes, bytes; /* since the stretch began: of reads that began and ended */
	bool waits; /* to ask ahead, as was noted last */
	uint64_t asked_bytes,
		cached_bytes; /* since it began: asked for ahead, and of these in the page cache already */
	unsigned reading, left; /* left: of these, they began in an earlier stretch. The next waits until they have
				   ended, as what is asked for meanwhile would seem to take no time */
	int64_t since_ns, busy_ns;
};

struct uns_ways {
	pthread_mutex_t lock;
	struct uns_storage storage[UNS_WAYS_STORAGES];
	_Atomic size_t n; /* once counted they stay */
};

/* How one read takes part in a trial. */
struct uns_trial {
	enum uns_way way;
	bool counts; /* uns_ways_end is to be called */
	bool waits; /* no stretch is being read: ask for nothing */
	bool first; /* of its stretch */
	unsigned stretch;
	uint64_t
		left_bytes; /* if it counts: of its stretch, after this read. To ask for more would be another's gain */
};

struct uns_way_of {
	uint64_t dev;
	enum uns_way way;
};

/* What was found out. */
struct uns_ways_found {
	uint64_t dev;
	enum uns_way way;
	double bytes_per_s[UNS_WAY_N]; /* by each way, the slower stretch; 0 = not tried */
};

/* Outlasts the process. Both may be NULL; called without a lock. */
struct uns_ways_memory {
	bool (*recall)(void *ctx, uint64_t dev, enum uns_way *out);
	void (*keep)(void *ctx, uint64_t dev, enum uns_way way);
	void *ctx;
};

void uns_ways_init(struct uns_ways *ways);
void uns_ways_fini(struct uns_ways *ways);

/* Is it known which way is right, or is it being found out? Takes no lock, as uns_ways_chosen. */
bool uns_ways_knows(struct uns_ways *ways, uint64_t dev);
/* Find it out, unless an earlier load has (`known`; else NULL). */
void uns_ways_learn(struct uns_ways *ways, uint64_t dev, struct uns_ways_kind kind, const enum uns_way *known);

/* A read begins, at this moment. */
struct uns_trial uns_ways_begin(struct uns_ways *ways, uint64_t dev, uint64_t bytes, int64_t now_ns);
/* It has ended. true: that decided it; *found is what was found out. */
bool uns_ways_end(struct uns_ways *ways, uint64_t dev, unsigned stretch, uint64_t bytes, int64_t now_ns,
		  struct uns_ways_found *found);
/* The chosen way; until there is one, the page cache. *trying: the way of the stretch that is being read. */
enum uns_way uns_ways_chosen(struct uns_ways *ways, uint64_t dev, enum uns_way *trying);
/* Of which storages it is known, and which way; in the order in which files of them were read first. */
size_t uns_ways_known(struct uns_ways *ways, struct uns_way_of out[UNS_WAYS_STORAGES]);
/* So much of what is being read was asked for ahead, of which the page cache had some. A stretch of which it had most
 * shows nothing: all begins again when it ends. */
void uns_ways_note(struct uns_ways *ways, uint64_t dev, uint64_t asked_bytes, uint64_t cached_bytes);
/* Does the thread that asks this storage ahead wait for answers? If not, more of them are no help, and are not tried.
 */
void uns_ways_note_waits(struct uns_ways *ways, uint64_t dev, bool waits);
/* What is being read is in the page cache already: all begins again. */
void uns_ways_restart(struct uns_ways *ways, uint64_t dev);

#endif

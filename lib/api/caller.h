/* What a program hands over at unshard.h's functions: structs that may be older or newer than the library, and
 * functions to call. */
#ifndef UNS_API_CALLER_H
#define UNS_API_CALLER_H

#include <pthread.h>

#include "base/error.h"
#include "engine/engine.h"
#include "unshard.h"

/* -- structs: `size` is the first member of each, and that of `own` is the library's -- */

/* Lay what a program filled over `own`, which holds the defaults. -EINVAL, -E2BIG. */
int caller_take(void *own, const void *given, const char *name, struct uns_err *err);
/* Fill a program's struct with what is in `own`, but its size. -EINVAL. */
int caller_give(void *out, const void *own, const char *name, struct uns_err *err);

#define CALLER_OWN(type) { .size = sizeof(type) }

/* -EINVAL: a flag that is none of `known`. */
int caller_flags(unsigned flags, unsigned known, struct uns_err *err);

/* -- calls -- */

struct caller {
	struct unshard_calls calls; /* NULL where the program has none */
	pthread_mutex_t asking;     /* progress is called by one thread at a time */
	_Atomic int answer;         /* what progress ended the call with; read without the lock */
};

/* Fails without anything to undo. */
int caller_init(struct caller *c, const struct unshard_calls *calls, struct uns_err *err);
/* The end of the call; returns what the call is to return: a callback's answer, or else `code`. */
int caller_fini(struct caller *c, int code);

/* Any thread. True = give up. */
bool caller_progress(struct caller *c, enum unshard_phase phase, uint64_t done_bytes, uint64_t total_bytes);
bool caller_scanned(struct caller *c, size_t directories, size_t checkpoints);

/* The call begins to write this directory. */
int caller_writes(struct caller *c, const char *directory, struct uns_err *err);

/* For uns_stop: how far the engine is with CRCs. */
struct caller_crcs {
	struct caller *caller;
	const struct uns_engine *engine;
};
bool caller_crcs_asked(void *crcs);

#endif

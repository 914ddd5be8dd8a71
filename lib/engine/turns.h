/* Readers of one shard take turns, so that storage sees its bytes asked for from front to back, one read after the
 * other. A program that fetches a file as one stream (rclone without a cache) begins another stream for each read out
 * of order. Headers of items take turns too.
 *
 * Threads: any number. A thread that waits for its turn must hold no descriptor (fds.h). */
#ifndef UNS_ENGINE_TURNS_H
#define UNS_ENGINE_TURNS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One for each shard, zero-initialised. All fields belong to the lock of its uns_turns. */
struct uns_turn {
	struct uns_turn_wish *first; /* those that wait */
	uint64_t next; /* where the last read ended */
	unsigned n_waiting;
	bool taken;
};

/* What the turns of a checkpoint's shards share. */
struct uns_turns {
	pthread_mutex_t lock;
	pthread_cond_t passed;
};

void uns_turns_init(struct uns_turns *turns);
void uns_turns_fini(struct uns_turns *turns);

/* Are turns still wanted? Called with the lock held. */
typedef bool uns_turns_wanted_fn(void *ctx);

/* Waits until the shard is not being read, and until the caller wants the bytes that come first of all that threads
 * wait for. *next is where the read before it ended. Returns false, without a turn, once turns are not wanted. */
bool uns_turn_take(struct uns_turns *turns, struct uns_turn *turn, uint64_t off, uns_turns_wanted_fn *wanted, void *ctx,
		   uint64_t *next);
/* The read has ended at `end`. */
void uns_turn_pass(struct uns_turns *turns, struct uns_turn *turn, uint64_t end);
/* Turns may be wanted no more: those that wait look. */
void uns_turns_look(struct uns_turns *turns);

#endif

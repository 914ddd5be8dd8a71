/* Reading what was planned. */
#ifndef UNS_VERIFY_READ_H
#define UNS_VERIFY_READ_H

#include "engine/engine.h"
#include "verify/verify_plan.h"

struct uns_verify {
	struct uns_backing *b;
	const struct uns_verify_watch *watch;
	pthread_mutex_t lock;   /* results that several stretches of one file add to */
	pthread_mutex_t asking; /* watch is asked by one thread at a time */
	_Atomic bool stopped;   /* it asked to give up; read without the lock */
	_Atomic uint64_t done_bytes, total_bytes;
	struct uns_verify_file *file; /* one for each of the catalog's */
};

/* Count n more bytes; Fails with -EINTR if watch asks to give up. */
int uns_verify_step(struct uns_verify *v, uint64_t n_bytes, struct uns_err *err);

/* Read all stretches, decoded pieces and values of all files. Fails with -ENOMEM and -EINTR only. */
int uns_verify_read(struct uns_verify *v, struct uns_err *err);

/* -- verify_master.c -- */

/* A weight and its fp32 copy. */
struct uns_verify_pair {
	const struct uns_tensor *weight, *master;
	uint64_t n_different, first;
	double at_master, expected, found; /* of the first different element */
};
struct uns_verify_pairs {
	struct uns_verify_pair *v;
	size_t n;
};
int uns_verify_pairs_find(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_verify_pairs *out,
			  struct uns_err *err);
uint64_t uns_verify_pairs_bytes(const struct uns_verify_pairs *pairs);
int uns_verify_pairs_compare(struct uns_verify *v, struct uns_verify_pairs *pairs, struct uns_err *err);

#endif

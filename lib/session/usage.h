/* What readers took from a session: how long reads lasted, and how much of each view and checkpoint was read. Counters
 * are atomics: written by any thread, read at any time. */
#ifndef UNS_SESSION_USAGE_H
#define UNS_SESSION_USAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/text.h"

/* Bucket i counts reads of less than 2^(i+3) microseconds; the last one, all that are longer. */
enum { USAGE_BUCKETS = 24, USAGE_FIRST_SHIFT = 3, USAGE_MOST = 128 };

/* One checkpoint in one view. */
struct usage_entry {
	char *view, *path; /* NULL in the last entry: of all that have none of their own */
	_Atomic uint64_t n_opens, n_reads, read_bytes, read_ns, slowest_ns;
};

struct usage {
	int64_t started_wall_ns;
	_Atomic uint64_t bucket[USAGE_BUCKETS], read_ns;
	pthread_mutex_t lock; /* of `n` and new entries */
	size_t n;
	struct usage_entry v[USAGE_MOST + 1];
};

void usage_init(struct usage *u);
void usage_fini(struct usage *u);

/* The entry of a checkpoint in a view, found or made, with one open more. Lives as long as `u`. */
struct usage_entry *usage_opened(struct usage *u, const char *view, const char *path);
/* One read has ended; e: NULL = of no view. */
void usage_read(struct usage *u, struct usage_entry *e, int64_t ns, uint64_t n_bytes);

/* A time in microseconds that so many of a hundred reads did not exceed: a bucket's bound. 0 = there was no read. */
uint64_t usage_percentile_us(const struct usage *u, unsigned percent);

/* [{"view","checkpoint","opens","reads","read_bytes","read_us","slowest_us"}], the most read first. */
void usage_json(struct usage *u, struct uns_text *out);
/* A histogram of reads, and bytes by view, as Prometheus reads them. */
void usage_metrics(struct usage *u, struct uns_text *out);

#endif

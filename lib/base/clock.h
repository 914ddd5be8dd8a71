/* Time that only goes forward. */
#ifndef UNS_BASE_CLOCK_H
#define UNS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic. */
static inline int64_t uns_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Wall clock, as files' times have it. */
static inline int64_t uns_wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif

/* ThreadSanitizer does not know pthread_clockjoin_np, and pthread_timedjoin_np goes by a clock that can be set. */
#include "join.h"

#include <errno.h>

static bool is_past(const struct timespec *until)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

bool fs_join(pthread_t thread, const struct timespec *until)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };

	while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
		if (is_past(until))
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

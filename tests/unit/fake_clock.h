/* Time that goes forward when a test says so: a test that includes this is linked with
 * --wrap=clock_gettime (tests/CMakeLists.txt). Only the monotonic clock is ours; files' times are compared
 * with the real one. */
#ifndef TESTS_FAKE_CLOCK_H
#define TESTS_FAKE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

static _Atomic int64_t fake_now_ms = 1000000;

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
	int64_t ms = atomic_load(&fake_now_ms);

	if (id != CLOCK_MONOTONIC)
		return __real_clock_gettime(id, out);
	*out = (struct timespec){ ms / 1000, ms % 1000 * 1000000 };
	return 0;
}

/* A session looks again at what it looked at before this. */
static inline void wait_recheck(void)
{
	atomic_fetch_add(&fake_now_ms, 1050);
}

#endif

/* Time that goes forward when a test says so: a test that includes this is linked with
 * --wrap=clock_gettime (tests/CMakeLists.txt). Files' times are compared with the real clock, which may be ahead. */
#ifndef TESTS_FAKE_CLOCK_H
#define TESTS_FAKE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

static _Atomic int64_t fake_now_ms = 1000000;
static _Atomic int64_t fake_ahead_s; /* of the real clock */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
	int64_t ms = atomic_load(&fake_now_ms);
	int code;

	if (id != CLOCK_MONOTONIC) {
		code = __real_clock_gettime(id, out);
		out->tv_sec += id == CLOCK_REALTIME ? atomic_load(&fake_ahead_s) : 0;
		return code;
	}
	*out = (struct timespec){ ms / 1000, ms % 1000 * 1000000 };
	return 0;
}

/* A session looks again at what it looked at before this. */
static inline void wait_recheck(void)
{
	atomic_fetch_add(&fake_now_ms, 1050);
}

#endif

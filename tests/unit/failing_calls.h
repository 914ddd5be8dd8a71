/* By how many calls a test goes on that makes one after the other fail. Under a sanitizer, which finds in
 * a failed call what it finds in the next one, every seventh fails; with UNSHARD_LONG each one does. */
#ifndef TESTS_FAILING_CALLS_H
#define TESTS_FAILING_CALLS_H

#include <stdlib.h>

static inline unsigned failing_calls_step(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	if (!getenv("UNSHARD_LONG"))
		return 7;
#endif
	return 1;
}

#endif

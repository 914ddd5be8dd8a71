/* Preloaded into the tests that TSan does not run (tests/CMakeLists.txt): one that begins a thread ends here. The
 * engine's own helpers, which have small stacks, may begin in any test that reads a file: test_fds and test_ahead are
 * theirs. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	size_t stack_bytes = 0;

	if (!attr || pthread_attr_getstacksize(attr, &stack_bytes) != 0 || stack_bytes != UNS_SMALL_STACK_BYTES) {
		fputs("This test begins a thread: name it in `with_threads` of tests/CMakeLists.txt, so that TSan runs "
		      "it\n",
		      stderr);
		abort();
	}
	*(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
	return create(thread, attr, start, arg);
}

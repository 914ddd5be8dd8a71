/* Preloaded into the tests that TSan does not run (tests/CMakeLists.txt): one that begins a thread ends here. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	(void)thread, (void)attr, (void)start, (void)arg;
	fputs("This test begins a thread: name it in `with_threads` of tests/CMakeLists.txt, so that TSan runs it\n",
	      stderr);
	abort();
}

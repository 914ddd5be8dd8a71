#include "base/thread.h"

#include <errno.h>
#include <signal.h>

void uns_processors_take(struct uns_processors *out)
{
	out->known = sched_getaffinity(0, sizeof(out->set), &out->set) == 0;
}

/* EINVAL: the process may use none of these processors any more. Any others are as good. */
static int thread_create(pthread_t *out, const struct uns_processors *where, void *(*run)(void *), void *arg)
{
	pthread_attr_t attributes;
	int code = EINVAL;

	if (where->known && pthread_attr_init(&attributes) == 0) {
		if (pthread_attr_setaffinity_np(&attributes, sizeof(where->set), &where->set) == 0)
			code = pthread_create(out, &attributes, run, arg);
		pthread_attr_destroy(&attributes);
	}
	return code == EINVAL ? pthread_create(out, NULL, run, arg) : code;
}

int uns_thread_begin(pthread_t *out, const struct uns_processors *where, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = thread_create(out, where, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

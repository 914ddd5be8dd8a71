#include "base/thread.h"

#include <time.h>
#include <errno.h>
#include <signal.h>

void uns_processors_take(struct uns_processors *out)
{
	out->known = sched_getaffinity(0, sizeof(out->set), &out->set) == 0;
}

static int thread_create(pthread_t *out, const struct uns_processors *where, size_t stack_bytes, void *(*run)(void *),
			 void *arg)
{
	pthread_attr_t attributes;
	int code = pthread_attr_init(&attributes);

	if (code)
		return code;
	if (stack_bytes)
		pthread_attr_setstacksize(&attributes, stack_bytes);
	if (where->known)
		pthread_attr_setaffinity_np(&attributes, sizeof(where->set), &where->set);
	code = pthread_create(out, &attributes, run, arg);
	pthread_attr_destroy(&attributes);
	return code;
}

static int thread_begin(pthread_t *out, const struct uns_processors *where, size_t stack_bytes, void *(*run)(void *),
			void *arg)
{
	const struct uns_processors anywhere = { 0 };
	sigset_t all, before;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = thread_create(out, where, stack_bytes, run, arg);
	if (code == EINVAL) /* the process may use none of these processors any more: any others are as good */
		code = thread_create(out, &anywhere, stack_bytes, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

int uns_thread_begin(pthread_t *out, const struct uns_processors *where, void *(*run)(void *), void *arg)
{
	return thread_begin(out, where, 0, run, arg);
}

int uns_thread_begin_small(pthread_t *out, const struct uns_processors *where, void *(*run)(void *), void *arg)
{
	return thread_begin(out, where, UNS_SMALL_STACK_BYTES, run, arg);
}

void uns_sigpipe_block(struct uns_sigpipe *before)
{
	sigset_t pipe, pending;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	before->was_pending = sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &before->mask);
}

void uns_sigpipe_restore(const struct uns_sigpipe *before)
{
	const struct timespec now = { 0 };
	sigset_t pipe;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	if (!before->was_pending)
		sigtimedwait(&pipe, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
}

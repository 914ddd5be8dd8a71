/* Every thread of the library is begun here. It blocks all signals: those are for the program's own threads. It runs
 * where its maker's processors are, not where the thread runs that happens to begin it: a transfer's thread stays near
 * its GPU, and what a session begins from there must not. */
#ifndef UNS_BASE_THREAD_H
#define UNS_BASE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>

struct uns_processors {
	bool known; /* false: threads run where the one does that begins them */
	cpu_set_t set;
};

/* Those that the calling thread may run on. */
void uns_processors_take(struct uns_processors *out);

/* Returns 0 or an errno, as pthread_create. */
int uns_thread_begin(pthread_t *out, const struct uns_processors *where, void *(*run)(void *), void *arg);

/* The same with a small stack, for a thread that waits and then calls the system. */
enum { UNS_SMALL_STACK_BYTES = 256 << 10 };
int uns_thread_begin_small(pthread_t *out, const struct uns_processors *where, void *(*run)(void *), void *arg);

/* Around code that may write to a connection whose other end is closed: SIGPIPE would end the process. */
struct uns_sigpipe {
	sigset_t mask;
	bool was_pending;
};
void uns_sigpipe_block(struct uns_sigpipe *before);
void uns_sigpipe_restore(const struct uns_sigpipe *before);

#endif

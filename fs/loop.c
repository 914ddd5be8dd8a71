/* libfuse has a loop of its own, and that one ends the mount when there is no memory for a thread's buffer. */
#include "loop.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "join.h"
#include "pulse.h"
#include "settled.h"

static const int64_t ending_s = 10; /* how long the loop waits for its threads in the end */

struct worker {
	struct loop *loop;
	struct worker *next;
	struct fuse_session *se;
	struct fuse_buf buf; /* libfuse allocates its memory */
	pthread_t thread;
};

struct loop {
	struct fs *fs;
	unsigned most;
	int ended; /* eventfd: a thread has found that the session is over */
	atomic_int error;
	atomic_uint idle; /* threads that wait for a request */
	struct fs_pulse look_at_settled, look_at_idle; /* two: each may have to wait */
	pthread_mutex_t lock;
	struct worker *workers; /* and what follows: under the lock */
	unsigned n_workers;
};

static int start_worker(struct loop *loop);

static void wait_for_memory(void)
{
	struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };

	nanosleep(&pause, NULL);
}

/* libfuse takes a megabyte for the largest request that there could be, also of memory that was in use before. On a
 * mount that is read-only requests are short: the pages behind the first one are given back, and are never touched. */
static void give_pages_back(const struct fuse_buf *buf, size_t n)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)buf->mem;
	const uintptr_t first = (at + n + page - 1) / page * page;
	const uintptr_t end = (at + malloc_usable_size(buf->mem)) / page * page;

	if (first < end)
		madvise((void *)first, end - first, MADV_DONTNEED);
}

/* A request is never left half done: between receiving and answering, a thread cannot be cancelled. */
static int receive(struct worker *worker)
{
	const void *mem = worker->buf.mem;
	int n;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	do
		n = fuse_session_receive_buf(worker->se, &worker->buf);
	while (n == -EINTR && !fuse_session_exited(worker->loop->fs->se));
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	if (worker->buf.mem != mem && n > 0)
		give_pages_back(&worker->buf, (size_t)n);
	return n;
}

static void *work(void *ctx)
{
	struct worker *worker = ctx;
	struct loop *loop = worker->loop;
	struct fuse_session *se = loop->fs->se;
	int n;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	worker->se = fs_connection_join(loop->fs);
	while (!fuse_session_exited(se)) {
		n = receive(worker);
		if (n == -ENOMEM) {
			wait_for_memory();
			continue;
		}
		if (n <= 0) {
			if (n < 0 && n != -EINTR)
				atomic_store(&loop->error, n);
			break;
		}
		if (atomic_fetch_sub(&loop->idle, 1) == 1)
			start_worker(loop);
		fs_sessions_process(&loop->fs->sessions, worker->se, &worker->buf);
		atomic_fetch_add(&loop->idle, 1);
	}
	fuse_session_exit(se);
	eventfd_write(loop->ended, 1);
	return NULL;
}

/* 0 or a negative errno: then the existing ones continue. */
static int add_worker(struct loop *loop)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int code;

	if (!worker)
		return -ENOMEM;
	worker->loop = loop;
	atomic_fetch_add(&loop->idle, 1);
	code = -pthread_create(&worker->thread, NULL, work, worker);
	if (code < 0) {
		atomic_fetch_sub(&loop->idle, 1);
		free(worker);
		return code;
	}
	worker->next = loop->workers;
	loop->workers = worker;
	loop->n_workers++;
	return 0;
}

static int start_worker(struct loop *loop)
{
	int code;

	pthread_mutex_lock(&loop->lock);
	code = loop->n_workers < loop->most ? add_worker(loop) : 0;
	pthread_mutex_unlock(&loop->lock);
	return code;
}

/* libfuse's handlers end the session. They run here alone, and only while this thread waits. */
static void wait_until_ended(struct loop *loop, const sigset_t *signals)
{
	struct pollfd ended = { .fd = loop->ended, .events = POLLIN };

	while (!fuse_session_exited(loop->fs->se))
		ppoll(&ended, 1, NULL, signals);
}

/* A thread that answers a request does so first. False: some still do at `until`. */
static bool end_workers(struct loop *loop, const struct timespec *until)
{
	struct worker *worker;

	pthread_mutex_lock(&loop->lock);
	loop->most = 0; /* none is started any more */
	pthread_mutex_unlock(&loop->lock);
	for (worker = loop->workers; worker; worker = worker->next)
		pthread_cancel(worker->thread);
	while ((worker = loop->workers)) {
		if (!fs_join(worker->thread, until))
			return false;
		loop->workers = worker->next;
		free(worker->buf.mem);
		free(worker);
	}
	return true;
}

/* Threads that wait for storage may wait for as long as there is none. */
static int loop_end(struct loop *loop)
{
	struct fs_waits *waits = &loop->fs->waits;
	struct timespec until;
	bool ended;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ending_s;
	ended = fs_sealing_stop(&loop->fs->sealing, &until);
	ended = end_workers(loop, &until) && ended;
	ended = fs_waits_stop(waits, &until) && ended;
	ended = fs_pulse_stop(&loop->look_at_settled, &until) && ended;
	ended = fs_pulse_stop(&loop->look_at_idle, &until) && ended;
	fs_waits_give_up(waits);
	if (ended)
		return 0;
	fs_sessions_close(&loop->fs->sessions);
	return 1;
}

static int loop_run(struct loop *loop)
{
	sigset_t ends, before;
	int code;

	sigemptyset(&ends);
	sigaddset(&ends, SIGHUP);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, &before);
	fs_pulse_start(&loop->look_at_settled, loop->fs, fs_settled_look);
	fs_pulse_start(&loop->look_at_idle, loop->fs, fs_idle_look);
	fs_waits_start(&loop->fs->waits);
	fs_sealing_start(&loop->fs->sealing);
	code = start_worker(loop);
	if (!code)
		wait_until_ended(loop, &before);
	fs_connection_unmount(loop->fs); /* first: a request can take as long as storage does not answer */
	if (loop_end(loop))
		return 1;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code ? code : atomic_load(&loop->error);
}

/* The loop is not on the stack: its threads may still use it when this has returned 1. A process has one mount. */
int fs_loop(struct fs *fs, unsigned most)
{
	static struct loop loop;
	int code;

	loop = (struct loop){ .fs = fs, .most = most, .ended = eventfd(0, EFD_CLOEXEC) };
	if (loop.ended < 0)
		return -errno;
	pthread_mutex_init(&loop.lock, NULL);
	code = loop_run(&loop);
	if (code == 1)
		return code;
	pthread_mutex_destroy(&loop.lock);
	close(loop.ended);
	return code;
}

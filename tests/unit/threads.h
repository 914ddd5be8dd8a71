/* What the kernel says about the threads of this process. */
#ifndef UNS_TESTS_THREADS_H
#define UNS_TESTS_THREADS_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SIGKILL and SIGSTOP cannot be blocked; 32 and 33 are libc's own. */
#define NOT_BLOCKABLE (1ull << 8 | 1ull << 18 | 1ull << 31 | 1ull << 32)

static inline unsigned long long thread_blocked_signals(const char *tid)
{
	unsigned long long mask = 0;
	char path[64], line[256];
	FILE *status;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", tid);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "SigBlk: %llx", &mask) == 1)
			break;
	if (status)
		fclose(status);
	return mask;
}

/* Whether the thread blocks all signals and runs on these processors; true too of a thread that has ended. */
static inline bool thread_is_library_s(pid_t tid, const char *name, const cpu_set_t *processors)
{
	cpu_set_t own;

	if (sched_getaffinity(tid, sizeof(own), &own) < 0)
		return errno == ESRCH;
	return CPU_EQUAL(&own, processors) && (thread_blocked_signals(name) | NOT_BLOCKABLE) == ~0ull;
}

/* Threads that are there before the library makes any: the calling one, and ThreadSanitizer's own. */
struct threads {
	size_t n;
	pid_t tid[16];
};

static void *thread_ends(void *arg)
{
	return arg;
}

/* ThreadSanitizer makes its own with the first thread that the program makes. */
static inline struct threads threads_now(void)
{
	struct threads now = { 0 };
	struct dirent *e;
	pthread_t first;
	pid_t tid;
	DIR *dir;

	assert_int_equal(pthread_create(&first, NULL, thread_ends, NULL), 0);
	pthread_join(first, NULL);
	dir = opendir("/proc/self/task");
	while ((e = readdir(dir)))
		if ((tid = (pid_t)atoi(e->d_name))) {
			assert_in_range(now.n, 0, sizeof(now.tid) / sizeof(*now.tid) - 1);
			now.tid[now.n++] = tid;
		}
	closedir(dir);
	return now;
}

static inline bool threads_have(const struct threads *threads, pid_t tid)
{
	size_t i;

	for (i = 0; i < threads->n && threads->tid[i] != tid; i++)
		;
	return i < threads->n;
}

/* How many threads there are beside those of before. Each must block all signals and run on these processors. The
   kernel lists a thread for a moment after it was joined: one that is another's gets ten seconds to be gone. */
static inline size_t library_threads_checked(const struct threads *before, const cpu_set_t *processors)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	size_t n = 0;

	while ((e = readdir(dir))) {
		pid_t tid = (pid_t)atoi(e->d_name);

		if (!tid || threads_have(before, tid))
			continue;
		for (int tries = 0; !thread_is_library_s(tid, e->d_name, processors); tries++) {
			assert_in_range(tries, 0, 1000);
			usleep(10000);
		}
		n++;
	}
	closedir(dir);
	return n;
}

#endif

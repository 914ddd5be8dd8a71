/* What the kernel says about the threads of this process. */
#ifndef UNS_TESTS_THREADS_H
#define UNS_TESTS_THREADS_H

#include <dirent.h>
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

/* How many threads there are beside the calling one. Each must block all signals and run on these processors. The
   kernel lists a thread for a moment after it was joined: one that is another's gets ten seconds to be gone. */
static inline size_t library_threads_checked(const cpu_set_t *processors)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	size_t n = 0;

	while ((e = readdir(dir))) {
		pid_t tid = (pid_t)atoi(e->d_name);

		if (!tid || tid == (pid_t)syscall(SYS_gettid))
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

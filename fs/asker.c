/* The kernel reports that a request is interrupted, but not by which signal, and only once: /proc knows. A signal that
 * ends a process is pending as SIGKILL in each of its threads (kernel/signal.c, complete_signal). */
#include "asker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIT(signal) (UINT64_C(1) << ((signal) - 1))

static const uint64_t asks_to_end = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGQUIT) | BIT(SIGHUP);
static const uint64_t ends_nothing = BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGSTOP) |
				     BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU);

static uint64_t mask_of(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

bool fs_asker_ends(pid_t tid, bool unknown)
{
	char path[40], status[8192];
	uint64_t pending;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/status", (long)tid);
	fd = tid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return unknown;
	n = read(fd, status, sizeof(status) - 1);
	close(fd);
	if (n <= 0)
		return unknown;
	status[n] = '\0';
	pending = mask_of(status, "\nSigPnd:") | mask_of(status, "\nShdPnd:");
	if (pending & BIT(SIGKILL))
		return true;
	pending &= ~(mask_of(status, "\nSigBlk:") | mask_of(status, "\nSigIgn:"));
	return pending & (asks_to_end | ~(mask_of(status, "\nSigCgt:") | ends_nothing));
}

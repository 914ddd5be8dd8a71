/* Which paths a program looks at, by its system calls: a test that includes this is linked with --wrap for each
 * (tests/CMakeLists.txt). */
#ifndef TESTS_TRACED_H
#define TESTS_TRACED_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Paths below traced_below that were opened, stat'ed or listed, each once. NULL = nothing is traced. */
static const char *traced_below;
static char *traced[4096];
static size_t n_traced;

static inline void trace_path(const char *path)
{
	size_t n = traced_below ? strlen(traced_below) : 0, i;

	if (!n || strncmp(path, traced_below, n) != 0 || path[n] != '/')
		return;
	for (i = 0; i < n_traced; i++)
		if (strcmp(traced[i], path) == 0)
			return;
	if (n_traced < sizeof(traced) / sizeof(*traced))
		traced[n_traced++] = strdup(path);
}

static inline void trace_at(int dir, const char *name)
{
	char link[40], path[2 * PATH_MAX];
	ssize_t n = 0;
	int was = errno;

	if (!traced_below)
		return;
	if (name[0] != '/') {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
		n = readlink(link, path, PATH_MAX);
		n = n < 0 ? 0 : n;
	}
	path[n] = '\0';
	if (*name && strcmp(name, ".") != 0)
		snprintf(path + n, sizeof(path) - (size_t)n, "%s%s", n ? "/" : "", name);
	trace_path(path);
	errno = was;
}

int __real_statx(int dir, const char *name, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir, const char *name, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir, const char *name, int flags, unsigned mask, struct statx *st)
{
	trace_at(dir, name);
	return __real_statx(dir, name, flags, mask, st);
}

ssize_t __real_getdents64(int fd, void *buf, size_t len);
ssize_t __wrap_getdents64(int fd, void *buf, size_t len);
ssize_t __wrap_getdents64(int fd, void *buf, size_t len)
{
	trace_at(fd, "");
	return __real_getdents64(fd, buf, len);
}

int __real_openat64(int dir, const char *name, int flags, ...);
int __wrap_openat64(int dir, const char *name, int flags, ...);
int __wrap_openat64(int dir, const char *name, int flags, ...)
{
	trace_at(dir, name);
	return __real_openat64(dir, name, flags);
}

int __real_fstatat64(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat64(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat64(int dir, const char *name, struct stat *st, int flags)
{
	trace_at(dir, name);
	return __real_fstatat64(dir, name, st, flags);
}

ssize_t __real_readlinkat(int dir, const char *name, char *buf, size_t size);
ssize_t __wrap_readlinkat(int dir, const char *name, char *buf, size_t size);
ssize_t __wrap_readlinkat(int dir, const char *name, char *buf, size_t size)
{
	trace_at(dir, name);
	return __real_readlinkat(dir, name, buf, size);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	long a[4];
	va_list ap;
	int i;

	va_start(ap, number);
	for (i = 0; i < 4; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_openat2)
		trace_at((int)a[0], (const char *)(intptr_t)a[1]);
	return __real_syscall(number, a[0], a[1], a[2], a[3]);
}

#endif

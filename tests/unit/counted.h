/* System calls that look at SOURCE, counted: a test that includes this is linked with --wrap for each
 * (tests/CMakeLists.txt), so that what the library calls arrives here first. Closing is not among them: a thread of the
 * library closes files when a second has passed, whatever the test does meanwhile. */
#ifndef TESTS_COUNTED_H
#define TESTS_COUNTED_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

static _Atomic unsigned counted; /* calls so far */

#define COUNTED(type, name, params, args)      \
	type __real_##name params;             \
	type __wrap_##name params;             \
	type __wrap_##name params              \
	{                                      \
		atomic_fetch_add(&counted, 1); \
		return __real_##name args;     \
	}

COUNTED(int, statx, (int dir, const char *name, int flags, unsigned mask, struct statx *st),
	(dir, name, flags, mask, st))
COUNTED(ssize_t, getdents64, (int fd, void *buf, size_t len), (fd, buf, len))
COUNTED(ssize_t, readlinkat, (int fd, const char *name, char *buf, size_t len), (fd, name, buf, len))
COUNTED(ssize_t, pread64, (int fd, void *buf, size_t len, off_t off), (fd, buf, len, off))

/* As the library calls them: never with a mode, openat2 being the only system call by number. */
int __real_openat64(int dir, const char *name, int flags, ...);
int __wrap_openat64(int dir, const char *name, int flags, ...);
int __wrap_openat64(int dir, const char *name, int flags, ...)
{
	atomic_fetch_add(&counted, 1);
	return __real_openat64(dir, name, flags);
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
	atomic_fetch_add(&counted, 1);
	return __real_syscall(number, a[0], a[1], a[2], a[3]);
}

#endif

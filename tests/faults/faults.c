/* The functions that fail: see faults.h. They may be called before anything is set up, from any thread
 * and from malloc itself, so that nothing in here allocates, locks or uses stdio.
 *
 * Built without sanitizers: a sanitizer's own functions are the "next ones" that are passed on to. */
#include "faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#define EXPORT __attribute__((visibility("default")))

static struct faults_plan own;
static struct faults_plan *plan = &own;
struct faults_plan *const faults_plan = &own;

bool (*faults_choose)(enum faults_call call, uint64_t where, uint32_t *action, int *error);
unsigned faults_frames;

/* Where those struck that came last, each in its turn. */
static struct {
	void *stack[FAULTS_DEEP];
	int len;
} kept[FAULTS_KEPT];
static struct {
	uintptr_t from, to;
} program; /* where a linked test's own code lies */

/* -- what is passed on to -- */

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* A function pointer of the declared type, looked up once: REAL(pread64)(fd, ..). */
#define REAL(name)                                                                                 \
	__extension__({                                                                            \
		static __typeof__(&name) real;                                                     \
		if (!__atomic_load_n(&real, __ATOMIC_RELAXED))                                     \
			__atomic_store_n(&real, (__typeof__(&name))next(#name), __ATOMIC_RELAXED); \
		real;                                                                              \
	})

/* A system call of our own, which nothing in here counts. */
static long raw(long number, long a, long b, long c)
{
	return REAL(syscall)(number, a, b, c);
}

/* -- does the plan mean this call? -- */

/* The absolute name of a descriptor's file, "" where there is none. */
static void name_of_fd(int fd, char out[PATH_MAX])
{
	char link[32] = "/proc/self/fd/", digits[12];
	size_t n = strlen(link), i = 0;
	long len;

	out[0] = '\0';
	if (fd < 0)
		return;
	do
		digits[i++] = (char)('0' + fd % 10);
	while (fd /= 10);
	while (i)
		link[n++] = digits[--i];
	link[n] = '\0';
	len = raw(SYS_readlink, (long)link, (long)out, PATH_MAX - 1);
	out[len > 0 ? len : 0] = '\0';
}

/* `path` as it was given, seen from the directory `dir`; "" or NULL = the descriptor's own file. */
static bool path_is_meant(int dir, const char *path)
{
	char whole[2 * PATH_MAX];
	size_t n;

	if (!plan->path[0])
		return true;
	whole[0] = '\0';
	if (!path || path[0] != '/') {
		if (dir == AT_FDCWD)
			raw(SYS_getcwd, (long)whole, PATH_MAX, 0);
		else
			name_of_fd(dir, whole);
	}
	n = strlen(whole);
	if (path && *path) {
		whole[n++] = '/';
		memcpy(whole + n, path, strnlen(path, PATH_MAX - 1) + 1);
		whole[sizeof(whole) - 1] = '\0';
	}
	return strstr(whole, plan->path) != NULL;
}

struct object {
	const char *name;
	uintptr_t at;
	bool found;
};

static int look_at_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct object *object = ctx;
	uintptr_t start;
	int i;

	(void)size;
	if (!strstr(info->dlpi_name, object->name))
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++) {
		start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		if (info->dlpi_phdr[i].p_type == PT_LOAD && object->at - start < info->dlpi_phdr[i].p_memsz)
			object->found = true;
	}
	return object->found;
}

static bool caller_is_meant(void *caller)
{
	struct object object = { plan->library, (uintptr_t)caller, false };

	if (!plan->library[0])
		return true;
	dl_iterate_phdr(look_at_object, &object);
	return object.found;
}

static bool process_is_meant(void)
{
	if (plan->pid && raw(SYS_getpid, 0, 0, 0) != plan->pid)
		return false;
	return !plan->program[0] || strcmp(plan->program, program_invocation_short_name) == 0;
}

static bool has_path(enum faults_call call)
{
	return call != FAULTS_MALLOC && call != FAULTS_SQLITE && call != FAULTS_THREAD;
}

/* Counts the call; true = it is of those that the plan means. */
static bool is_meant(enum faults_call call, int dir, const char *path, void *caller)
{
	if (!process_is_meant() || !caller_is_meant(caller) || (has_path(call) && !path_is_meant(dir, path)))
		return false;
	__atomic_add_fetch(&plan->count[call], 1, __ATOMIC_RELAXED);
	return plan->calls & 1u << call;
}

static bool is_armed(void)
{
	return __atomic_load_n(&plan->armed, __ATOMIC_ACQUIRE) != 0;
}

static void hold(void)
{
	const struct timespec moment = { 0, 1000000 };

	while (is_armed())
		raw(SYS_nanosleep, (long)&moment, 0, 0);
}

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *ctx)
{
	size_t i = *(const size_t *)ctx;

	if (kept[i].len == FAULTS_DEEP)
		return _URC_END_OF_STACK;
	kept[i].stack[kept[i].len++] = (void *)_Unwind_GetIP(context);
	return _URC_NO_REASON;
}

static __attribute__((noinline)) void keep_stack(uint64_t nth)
{
	size_t i = (nth - 1) % FAULTS_KEPT;

	kept[i].len = 0;
	_Unwind_Backtrace(add_frame, &i);
}

enum { OWN_FRAMES = 3 }; /* from the one that looks back to malloc, open .. of this file */

struct place {
	unsigned skip, left;
	uint64_t hash;
};

static _Unwind_Reason_Code add_to_hash(struct _Unwind_Context *context, void *ctx)
{
	struct place *place = ctx;
	uintptr_t at = (uintptr_t)_Unwind_GetIP(context);

	if (place->skip) {
		place->skip--;
		return _URC_NO_REASON;
	}
	if (faults_frames && (at < program.from || at >= program.to))
		return _URC_NO_REASON;
	place->hash = (place->hash ^ at) * 0x9e3779b97f4a7c15u;
	place->hash ^= place->hash >> 29;
	return --place->left ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static __attribute__((noinline)) uint64_t where_called(void)
{
	struct place place = { OWN_FRAMES, faults_frames ? faults_frames : FAULTS_DEEP, 1 };

	_Unwind_Backtrace(add_to_hash, &place);
	return place.hash;
}

/* In here, or in what bears no failure: nothing is counted. And what becomes of the call that fails. Aligned: RELRO
 * begins at .tbss, and mold 1.10 may put that of a single byte at the end of the page before the segment, where nothing
 * is. Such a program does not start. */
static __thread bool inside __attribute__((aligned(16)));
static __thread uint32_t action __attribute__((aligned(16)));

static __attribute__((always_inline)) inline bool is_chosen(enum faults_call call, int *error)
{
	uint64_t n = __atomic_add_fetch(&plan->seen, 1, __ATOMIC_RELAXED);

	action = plan->action;
	*error = plan->error;
	if (faults_choose)
		return faults_choose(call, where_called(), &action, error);
	return !plan->nth || n == plan->nth;
}

/* What becomes of a call: true = it fails with *error, which may be a short count for who can. */
static __attribute__((noinline)) bool strikes(enum faults_call call, int dir, const char *path, void *caller,
					      int *error)
{
	int saved = errno;
	bool struck = false;
	uint64_t nth;

	if (!inside && is_meant(call, dir, path, caller)) {
		inside = true; /* unwinding may allocate */
		struck = is_chosen(call, error);
		nth = struck ? __atomic_add_fetch(&plan->struck, 1, __ATOMIC_RELAXED) : 0;
		if (struck && plan == &own)
			keep_stack(nth);
		if (struck && action == FAULTS_KILL)
			raw(SYS_kill, raw(SYS_getpid, 0, 0, 0), SIGKILL, 0);
		if (struck && action == FAULTS_HOLD) {
			hold();
			struck = false;
		}
		inside = false;
	}
	errno = saved;
	return struck;
}

#define STRIKES(call, dir, path, error) (is_armed() && strikes(call, dir, path, __builtin_return_address(0), error))

/* Fail as libc does, -1 and errno. */
#define FAIL_IF(call, dir, path)                             \
	do {                                                 \
		int fail_error;                              \
		if (STRIKES(call, dir, path, &fail_error)) { \
			errno = fail_error;                  \
			return -1;                           \
		}                                            \
	} while (0)

/* The same for one that moves bytes: *len is 1 where it is to come short. */
#define FAIL_OR_SHORTEN(call, fd, len)                            \
	do {                                                      \
		int fail_error;                                   \
		if (STRIKES(call, fd, NULL, &fail_error)) {       \
			if (action != FAULTS_SHORT || len == 0) { \
				errno = fail_error;               \
				return -1;                        \
			}                                         \
			len = 1;                                  \
		}                                                 \
	} while (0)

/* -- the plan -- */

__attribute__((constructor)) static void map_plan(void)
{
	const char *file = getenv("UNSHARD_FAULTS");
	void *at;
	int fd;

	if (!file)
		return;
	fd = (int)raw(SYS_open, (long)file, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	at = REAL(mmap64)(NULL, sizeof(*plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	raw(SYS_close, fd, 0, 0);
	if (at != MAP_FAILED)
		plan = at;
}

/* The program is the first of all objects. */
static int look_at_program(struct dl_phdr_info *info, size_t size, void *unused)
{
	uintptr_t start;
	int i;

	(void)size;
	(void)unused;
	for (i = 0; i < info->dlpi_phnum; i++) {
		start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
			program.from = program.from && program.from < start ? program.from : start;
			program.to = start + info->dlpi_phdr[i].p_memsz;
		}
	}
	return 1;
}

void faults_arm(void)
{
	if (!program.to)
		dl_iterate_phdr(look_at_program, NULL);
	own.seen = own.struck = 0;
	memset(own.count, 0, sizeof(own.count));
	__atomic_store_n(&own.armed, 1, __ATOMIC_RELEASE);
}

void faults_disarm(void)
{
	__atomic_store_n(&own.armed, 0, __ATOMIC_RELEASE);
}

int faults_where(uint64_t nth, void *out[FAULTS_DEEP])
{
	size_t i = (nth - 1) % FAULTS_KEPT;

	if (nth == 0 || nth > own.struck || own.struck - nth >= FAULTS_KEPT)
		return 0;
	memcpy(out, kept[i].stack, sizeof(kept[i].stack));
	return kept[i].len;
}

/* -- open -- */

static bool wants_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

static mode_t mode_of(int flags, va_list ap)
{
	return wants_mode(flags) ? va_arg(ap, mode_t) : 0;
}

/* Both names of a function, of which one or the other is used by who was built with 64-bit offsets. */
#define OPEN(name)                                                                  \
	EXPORT int name(const char *path, int flags, ...)                           \
	{                                                                           \
		va_list ap;                                                         \
		mode_t mode;                                                        \
		va_start(ap, flags);                                                \
		mode = mode_of(flags, ap);                                          \
		va_end(ap);                                                         \
		FAIL_IF(flags &O_PATH ? FAULTS_STAT : FAULTS_OPEN, AT_FDCWD, path); \
		return REAL(name)(path, flags, mode);                               \
	}
#define OPENAT(name)                                                           \
	EXPORT int name(int dir, const char *path, int flags, ...)             \
	{                                                                      \
		va_list ap;                                                    \
		mode_t mode;                                                   \
		va_start(ap, flags);                                           \
		mode = mode_of(flags, ap);                                     \
		va_end(ap);                                                    \
		FAIL_IF(flags &O_PATH ? FAULTS_STAT : FAULTS_OPEN, dir, path); \
		return REAL(name)(dir, path, flags, mode);                     \
	}

#undef open
#undef openat
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static FILE *open_file(FILE *(*real)(const char *, const char *), const char *path, const char *mode, void *caller)
{
	int error;

	if (is_armed() && strikes(FAULTS_OPEN, AT_FDCWD, path, caller, &error)) {
		errno = error;
		return NULL;
	}
	return real(path, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	return open_file(REAL(fopen), path, mode, __builtin_return_address(0));
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	return open_file(REAL(fopen64), path, mode, __builtin_return_address(0));
}

EXPORT DIR *opendir(const char *path)
{
	int error;

	if (STRIKES(FAULTS_OPEN, AT_FDCWD, path, &error)) {
		errno = error;
		return NULL;
	}
	return REAL(opendir)(path);
}

EXPORT int mkostemp64(char *path, int flags)
{
	FAIL_IF(FAULTS_OPEN, AT_FDCWD, path);
	return REAL(mkostemp64)(path, flags);
}

/* openat2 has no function of its own. */
EXPORT long syscall(long number, ...)
{
	long v[6];
	va_list ap;
	size_t i;

	va_start(ap, number);
	for (i = 0; i < 6; i++)
		v[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_openat2)
		FAIL_IF(((const struct open_how *)v[2])->flags & O_PATH ? FAULTS_STAT : FAULTS_OPEN, (int)v[0],
			(const char *)v[1]);
	return REAL(syscall)(number, v[0], v[1], v[2], v[3], v[4], v[5]);
}

/* -- stat -- */

#define STAT(name, type)                                    \
	EXPORT int name(const char *path, struct type *out) \
	{                                                   \
		FAIL_IF(FAULTS_STAT, AT_FDCWD, path);       \
		return REAL(name)(path, out);               \
	}
#define FSTAT(name, type)                         \
	EXPORT int name(int fd, struct type *out) \
	{                                         \
		FAIL_IF(FAULTS_STAT, fd, NULL);   \
		return REAL(name)(fd, out);       \
	}
#define FSTATAT(name, type)                                                     \
	EXPORT int name(int dir, const char *path, struct type *out, int flags) \
	{                                                                       \
		FAIL_IF(FAULTS_STAT, dir, path);                                \
		return REAL(name)(dir, path, out, flags);                       \
	}

STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)
STAT(statfs64, statfs64)

EXPORT int statx(int dir, const char *path, int flags, unsigned mask, struct statx *out)
{
	FAIL_IF(FAULTS_STAT, dir, flags & AT_EMPTY_PATH && !*path ? NULL : path);
	return REAL(statx)(dir, path, flags, mask, out);
}

EXPORT int access(const char *path, int mode)
{
	FAIL_IF(FAULTS_STAT, AT_FDCWD, path);
	return REAL(access)(path, mode);
}

EXPORT int faccessat(int dir, const char *path, int mode, int flags)
{
	FAIL_IF(FAULTS_STAT, dir, path);
	return REAL(faccessat)(dir, path, mode, flags);
}

/* -- read -- */

EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	FAIL_OR_SHORTEN(FAULTS_READ, fd, len);
	return REAL(read)(fd, buf, len);
}

EXPORT ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
	FAIL_OR_SHORTEN(FAULTS_READ, fd, len);
	return REAL(pread)(fd, buf, len, off);
}

EXPORT ssize_t pread64(int fd, void *buf, size_t len, off64_t off)
{
	FAIL_OR_SHORTEN(FAULTS_READ, fd, len);
	return REAL(pread64)(fd, buf, len, off);
}

EXPORT ssize_t preadv64v2(int fd, const struct iovec *v, int n, off64_t off, int flags)
{
	struct iovec first = n ? v[0] : (struct iovec){ 0 };

	FAIL_OR_SHORTEN(FAULTS_READ, fd, first.iov_len);
	if (n && first.iov_len != v[0].iov_len)
		return REAL(preadv64v2)(fd, &first, 1, off, flags);
	return REAL(preadv64v2)(fd, v, n, off, flags);
}

static struct dirent *fail_entry(int error)
{
	errno = error;
	return NULL;
}

EXPORT struct dirent *readdir(DIR *dir)
{
	int error;

	if (STRIKES(FAULTS_READDIR, dirfd(dir), NULL, &error))
		return fail_entry(error);
	return REAL(readdir)(dir);
}

EXPORT struct dirent64 *readdir64(DIR *dir)
{
	int error;

	if (STRIKES(FAULTS_READDIR, dirfd(dir), NULL, &error))
		return (struct dirent64 *)(void *)fail_entry(error);
	return REAL(readdir64)(dir);
}

EXPORT ssize_t getdents64(int dir, void *out, size_t size)
{
	FAIL_IF(FAULTS_READDIR, dir, NULL);
	return REAL(getdents64)(dir, out, size);
}

EXPORT ssize_t readlink(const char *path, char *out, size_t size)
{
	FAIL_IF(FAULTS_READLINK, AT_FDCWD, path);
	return REAL(readlink)(path, out, size);
}

EXPORT ssize_t readlinkat(int dir, const char *path, char *out, size_t size)
{
	FAIL_IF(FAULTS_READLINK, dir, path);
	return REAL(readlinkat)(dir, path, out, size);
}

EXPORT char *realpath(const char *path, char *out)
{
	int error;

	if (STRIKES(FAULTS_READLINK, AT_FDCWD, path, &error)) {
		errno = error;
		return NULL;
	}
	return REAL(realpath)(path, out);
}

static void *fail_map(int error)
{
	errno = error;
	return MAP_FAILED;
}

EXPORT void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	int error;

	if (STRIKES(FAULTS_MMAP, fd, NULL, &error))
		return fail_map(error);
	return REAL(mmap)(at, len, prot, flags, fd, off);
}

EXPORT void *mmap64(void *at, size_t len, int prot, int flags, int fd, off64_t off)
{
	int error;

	if (STRIKES(FAULTS_MMAP, fd, NULL, &error))
		return fail_map(error);
	return REAL(mmap64)(at, len, prot, flags, fd, off);
}

/* -- write -- */

EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	FAIL_OR_SHORTEN(FAULTS_WRITE, fd, len);
	return REAL(write)(fd, buf, len);
}

EXPORT ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
	FAIL_OR_SHORTEN(FAULTS_WRITE, fd, len);
	return REAL(pwrite)(fd, buf, len, off);
}

EXPORT ssize_t pwrite64(int fd, const void *buf, size_t len, off64_t off)
{
	FAIL_OR_SHORTEN(FAULTS_WRITE, fd, len);
	return REAL(pwrite64)(fd, buf, len, off);
}

EXPORT ssize_t writev(int fd, const struct iovec *v, int n)
{
	struct iovec first = n ? v[0] : (struct iovec){ 0 };

	FAIL_OR_SHORTEN(FAULTS_WRITE, fd, first.iov_len);
	if (n && first.iov_len != v[0].iov_len)
		return REAL(writev)(fd, &first, 1);
	return REAL(writev)(fd, v, n);
}

EXPORT ssize_t splice(int from, off64_t *from_off, int to, off64_t *to_off, size_t len, unsigned flags)
{
	FAIL_IF(FAULTS_WRITE, to, NULL);
	return REAL(splice)(from, from_off, to, to_off, len, flags);
}

EXPORT ssize_t copy_file_range(int from, off64_t *from_off, int to, off64_t *to_off, size_t len, unsigned flags)
{
	FAIL_OR_SHORTEN(FAULTS_WRITE, to, len);
	return REAL(copy_file_range)(from, from_off, to, to_off, len, flags);
}

EXPORT int ftruncate64(int fd, off64_t len)
{
	FAIL_IF(FAULTS_WRITE, fd, NULL);
	return REAL(ftruncate64)(fd, len);
}

EXPORT int posix_fallocate64(int fd, off64_t off, off64_t len)
{
	int error;

	if (STRIKES(FAULTS_WRITE, fd, NULL, &error))
		return error;
	return REAL(posix_fallocate64)(fd, off, len);
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *argument;

	va_start(ap, request);
	argument = va_arg(ap, void *);
	va_end(ap);
	if (request == 0x40049409) /* FICLONE */
		FAIL_IF(FAULTS_WRITE, fd, NULL);
	return REAL(ioctl)(fd, request, argument);
}

EXPORT int fsync(int fd)
{
	FAIL_IF(FAULTS_FSYNC, fd, NULL);
	return REAL(fsync)(fd);
}

EXPORT int fdatasync(int fd)
{
	FAIL_IF(FAULTS_FSYNC, fd, NULL);
	return REAL(fdatasync)(fd);
}

/* -- directories and inodes -- */

/* Counted as a call on the new name. */
EXPORT int rename(const char *from, const char *to)
{
	FAIL_IF(FAULTS_RENAME, AT_FDCWD, to);
	return REAL(rename)(from, to);
}

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	FAIL_IF(FAULTS_RENAME, to_dir, to);
	return REAL(renameat2)(from_dir, from, to_dir, to, flags);
}

EXPORT int symlink(const char *target, const char *path)
{
	FAIL_IF(FAULTS_RENAME, AT_FDCWD, path);
	return REAL(symlink)(target, path);
}

EXPORT int mkdir(const char *path, mode_t mode)
{
	FAIL_IF(FAULTS_RENAME, AT_FDCWD, path);
	return REAL(mkdir)(path, mode);
}

EXPORT char *mkdtemp(char *path)
{
	int error;

	if (STRIKES(FAULTS_RENAME, AT_FDCWD, path, &error)) {
		errno = error;
		return NULL;
	}
	return REAL(mkdtemp)(path);
}

EXPORT int unlink(const char *path)
{
	FAIL_IF(FAULTS_RENAME, AT_FDCWD, path);
	return REAL(unlink)(path);
}

EXPORT int rmdir(const char *path)
{
	FAIL_IF(FAULTS_RENAME, AT_FDCWD, path);
	return REAL(rmdir)(path);
}

EXPORT int remove(const char *path)
{
	FAIL_IF(FAULTS_RENAME, AT_FDCWD, path);
	return REAL(remove)(path);
}

EXPORT int chmod(const char *path, mode_t mode)
{
	FAIL_IF(FAULTS_RENAME, AT_FDCWD, path);
	return REAL(chmod)(path, mode);
}

EXPORT int fchmod(int fd, mode_t mode)
{
	FAIL_IF(FAULTS_RENAME, fd, NULL);
	return REAL(fchmod)(fd, mode);
}

EXPORT int futimens(int fd, const struct timespec times[2])
{
	FAIL_IF(FAULTS_RENAME, fd, NULL);
	return REAL(futimens)(fd, times);
}

/* -- locks -- */

/* Taking one: nothing waits for who fails to give it back. */
static bool is_lock(int command, const struct flock *lock)
{
	switch (command) {
	case F_SETLK:
	case F_SETLKW:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
		return lock->l_type != F_UNLCK;
	default:
		return false;
	}
}

#define FCNTL(name)                                       \
	EXPORT int name(int fd, int command, ...)         \
	{                                                 \
		va_list ap;                               \
		void *argument;                           \
		va_start(ap, command);                    \
		argument = va_arg(ap, void *);            \
		va_end(ap);                               \
		if (is_lock(command, argument))           \
			FAIL_IF(FAULTS_LOCK, fd, NULL);   \
		return REAL(name)(fd, command, argument); \
	}

#undef fcntl
FCNTL(fcntl)
FCNTL(fcntl64)

/* -- memory -- */

/* A plan may not say which error: there is but one. */
#define NO_MEMORY_IF()                                               \
	do {                                                         \
		int fail_error;                                      \
		if (STRIKES(FAULTS_MALLOC, -1, NULL, &fail_error)) { \
			errno = ENOMEM;                              \
			return NULL;                                 \
		}                                                    \
	} while (0)

EXPORT void *malloc(size_t size)
{
	NO_MEMORY_IF();
	return REAL(malloc)(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	NO_MEMORY_IF();
	return REAL(calloc)(n, size);
}

EXPORT void *realloc(void *old, size_t size)
{
	NO_MEMORY_IF();
	return REAL(realloc)(old, size);
}

/* Not the next one of its name, which is made of realloc, but not in every sanitizer. */
EXPORT void *reallocarray(void *old, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	NO_MEMORY_IF();
	return REAL(realloc)(old, bytes);
}

/* A sanitizer asks at each thread's start, and ends the process where there is no answer. */
EXPORT int pthread_getattr_np(pthread_t thread, pthread_attr_t *out)
{
	bool was = inside;
	int code;

	inside = true;
	code = REAL(pthread_getattr_np)(thread, out);
	inside = was;
	return code;
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
	NO_MEMORY_IF();
	return REAL(aligned_alloc)(align, size);
}

EXPORT int posix_memalign(void **out, size_t align, size_t size)
{
	int error;

	if (STRIKES(FAULTS_MALLOC, -1, NULL, &error))
		return ENOMEM;
	return REAL(posix_memalign)(out, align, size);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *ctx)
{
	int error;

	if (STRIKES(FAULTS_THREAD, -1, NULL, &error))
		return error;
	return REAL(pthread_create)(thread, attributes, run, ctx);
}

/* -- time -- */

static int64_t ns_of(struct timespec t)
{
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* What the process is shown of a clock. */
static struct timespec shown(clockid_t clock, struct timespec now)
{
	if (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC)
		now.tv_sec += plan->later_s + (clock == CLOCK_REALTIME ? plan->wall_s : 0);
	if (clock == CLOCK_MONOTONIC && plan->stands_s && now.tv_sec >= plan->stands_s)
		now = (struct timespec){ .tv_sec = plan->stands_s };
	return now;
}

/* What the clock itself says when the process is shown `until`, if it went on from what it shows now. */
static struct timespec when_shown(clockid_t clock, struct timespec until)
{
	struct timespec now;
	int64_t ns;

	REAL(clock_gettime)(clock, &now);
	ns = ns_of(until) + ns_of(now) - ns_of(shown(clock, now));
	return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *out)
{
	int code = REAL(clock_gettime)(clock, out);

	if (code == 0 && process_is_meant())
		*out = shown(clock, *out);
	return code;
}

EXPORT time_t time(time_t *out)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return out ? *out = now.tv_sec : now.tv_sec;
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
				  const struct timespec *until)
{
	struct timespec really = process_is_meant() ? when_shown(clock, *until) : *until;

	return REAL(pthread_cond_clockwait)(cond, mutex, clock, &really);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	struct timespec really = *until;

	if (process_is_meant())
		really.tv_sec -= plan->later_s;
	return REAL(pthread_cond_timedwait)(cond, mutex, &really);
}

/* -- SQLite -- */

/* SQLite calls these of itself too, and could not know what became of a statement that did not run. */
static bool is_within(void *caller, void *function)
{
	Dl_info from, of;

	return dladdr(caller, &from) && dladdr(function, &of) && from.dli_fbase == of.dli_fbase;
}

#define SQLITE_FAIL_IF(function)                                                      \
	do {                                                                          \
		void *fail_of = (void *)(uintptr_t)(function);                        \
		int fail_error;                                                       \
		if (is_armed() && !is_within(__builtin_return_address(0), fail_of) && \
		    STRIKES(FAULTS_SQLITE, -1, NULL, &fail_error))                    \
			return fail_error;                                            \
	} while (0)

EXPORT int sqlite3_open_v2(const char *path, sqlite3 **out, int flags, const char *vfs)
{
	*out = NULL;
	SQLITE_FAIL_IF(REAL(sqlite3_open_v2));
	return REAL(sqlite3_open_v2)(path, out, flags, vfs);
}

EXPORT int sqlite3_prepare_v3(sqlite3 *db, const char *sql, int len, unsigned flags, sqlite3_stmt **out,
			      const char **tail)
{
	*out = NULL;
	SQLITE_FAIL_IF(REAL(sqlite3_prepare_v3));
	return REAL(sqlite3_prepare_v3)(db, sql, len, flags, out, tail);
}

EXPORT int sqlite3_step(sqlite3_stmt *statement)
{
	SQLITE_FAIL_IF(REAL(sqlite3_step));
	return REAL(sqlite3_step)(statement);
}

EXPORT int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *ctx, char **text)
{
	SQLITE_FAIL_IF(REAL(sqlite3_exec));
	return REAL(sqlite3_exec)(db, sql, row, ctx, text);
}

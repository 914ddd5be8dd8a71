/* A call that fails once, for tests: the n-th open, read, stat, malloc ... of a process ends with a
 * chosen errno, comes short, kills the process or waits until it is let go. And time that passes when a
 * test says so. Nothing of it is in the product.
 *
 * faults.c defines the functions themselves (open64, pread64, malloc, ...) and passes on to the next
 * ones of that name. That works in two ways:
 *
 *   linked into a unit test     what the executable defines comes before libc, for the libraries that
 *                               it uses (SQLite, zstd) as well; the test fills faults_plan
 *   preloaded into a process    LD_PRELOAD=libunshard_faults.so UNSHARD_FAULTS=FILE: FILE holds the
 *                               plan, mapped by all of these processes; tests/e2e/faults.py writes it
 *                               while they run
 *
 * A process that was started by a preloaded one is preloaded too: `program` chooses one. gcc's sanitizers,
 * which are libraries, come next in either way; clang's are part of the executable and do not bear it.
 */
#ifndef UNSHARD_TESTS_FAULTS_H
#define UNSHARD_TESTS_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

/* What calls are told apart by. The order is known to tests/e2e/faults.py. */
enum faults_call {
	FAULTS_OPEN, /* open, openat, openat2, fopen, opendir, mkostemp */
	FAULTS_STAT, /* stat, fstat, statx, access, statfs; an open that only looks (O_PATH) */
	FAULTS_READ, /* read, pread, preadv2 */
	FAULTS_READDIR, /* readdir, getdents64 */
	FAULTS_READLINK, /* readlink, realpath */
	FAULTS_MMAP,
	FAULTS_WRITE, /* write, writev, pwrite, splice, copy_file_range, ftruncate, fallocate, a reflink; what the
		       * kernel is answered is written to "/dev/fuse" */
	FAULTS_FSYNC,
	FAULTS_RENAME, /* what changes a directory or an inode: rename, mkdir, unlink, chmod, utimens */
	FAULTS_LOCK,   /* fcntl's locks, taken */
	FAULTS_MALLOC, /* malloc, calloc, realloc and all that is made of them */
	FAULTS_SQLITE, /* sqlite3_open_v2, prepare_v3, step, exec: `error` is SQLite's own code */
	FAULTS_THREAD, /* pthread_create */
	FAULTS_CALLS
};

enum faults_action {
	FAULTS_FAIL,  /* with `error` */
	FAULTS_SHORT, /* reads and writes move one byte; others fail with `error` */
	FAULTS_KILL,  /* SIGKILL, the call is not made */
	FAULTS_HOLD,  /* wait until the plan is disarmed, then make the call */
};

struct faults_plan {
	uint32_t armed; /* set last: nothing is counted before, nothing fails afterwards */
	uint32_t calls; /* which ones: bits 1 << FAULTS_OPEN .. */
	uint32_t action;
	int32_t error;
	int32_t pid; /* of this process only; 0 = any */
	uint32_t stands_s; /* the monotonic clock goes no further than to this second; 0 = it goes on. Whoever waits
			    * until later by it waits for as long as that would take from there */
	int64_t later_s;              /* added to what its clocks say, whether armed or not */
	int64_t wall_s;               /* added to what the wall clock says: somebody has set it. Deadlines
			 * that were made by it stay as they are */
	uint64_t nth;                 /* the first is 1; 0 = each one */
	uint64_t seen;                /* calls that were to be counted, since it was armed */
	uint64_t struck;              /* those that failed, were held .. */
	uint64_t count[FAULTS_CALLS]; /* of every kind, whatever `calls` says, since it was armed */
	char path[256]; /* on files whose absolute name contains this; "" = any. Memory, threads and
			 * SQLite's calls have none: they are not asked for it */
	char library[64]; /* made by the library or program of such a name ("libsqlite3"); "" = any */
	char program[32]; /* by a program of this name; "" = any */
};

extern struct faults_plan *const faults_plan; /* of a linked test: this process's own */

/* Of a linked test, in place of `nth`: asked of each call that the plan means. `where` is a hash of the places that it
 * is made from: the innermost faults_frames ones of the program's own code, or all, those in libraries too, where that
 * is 0. true = it fails, in this way. In any thread; what it calls does not fail. */
extern bool (*faults_choose)(enum faults_call call, uint64_t where, uint32_t *action, int *error);
extern unsigned faults_frames;

/* Arms: counters at 0. For a linked test; a preloaded process is armed through the file. */
void faults_arm(void);
void faults_disarm(void);

/* Where the nth one struck since it was armed (the first is 1; a linked test): return addresses, innermost first, and
 * how many. 0 = it has not, or FAULTS_KEPT have since. */
enum { FAULTS_DEEP = 24, FAULTS_KEPT = 32 };
int faults_where(uint64_t nth, void *stack[FAULTS_DEEP]);

#endif

/* A read that fails once says nothing about a checkpoint: what was asked for fails with it then, and nothing
 * of it is kept, neither by the session nor in the store. Each file that is read to open the golden
 * checkpoints fails once, and each open of a file or directory on the way.
 *
 * The calls of lib/io are wrapped (-Wl,--wrap, tests/CMakeLists.txt). */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing_calls.h"
#include "unshard.h"

enum { MAX_FILES = 128, MAX_CHECKPOINTS = 64 };

/* -- calls that fail -- */

static struct {
	const char *path; /* reads of this file; NULL = no reads */
	long nth;   /* the how-manieth open of anything fails; 0 = none */
	long opened;
	bool lasting; /* and all after it */
	bool recording, struck;
} fault;
/* Of `fault` and of what was read: several threads read the headers of items. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char read_files[MAX_FILES][PATH_MAX];
static size_t n_read_files;

static bool path_of(int fd, char path[PATH_MAX])
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	if (n > 0)
		path[n] = '\0';
	return n > 0 && strncmp(path, UNSHARD_GOLDEN "/", sizeof(UNSHARD_GOLDEN)) == 0;
}

static void record(const char *path)
{
	size_t i;

	for (i = 0; i < n_read_files; i++)
		if (strcmp(read_files[i], path) == 0)
			return;
	assert_true(n_read_files < MAX_FILES);
	strcpy(read_files[n_read_files++], path);
}

static bool read_fails(int fd)
{
	char path[PATH_MAX];

	if ((!fault.recording && !fault.path) || !path_of(fd, path))
		return false;
	if (fault.recording)
		record(path);
	if (!fault.path || fault.struck || strcmp(path, fault.path) != 0)
		return false;
	fault.struck = true;
	errno = EIO;
	return true;
}

static bool open_fails(void)
{
	bool fails;

	pthread_mutex_lock(&lock);
	fault.opened++;
	fails = fault.opened == fault.nth || (fault.lasting && fault.nth && fault.opened > fault.nth);
	fault.struck |= fails;
	pthread_mutex_unlock(&lock);
	if (fails)
		errno = EMFILE;
	return fails;
}

ssize_t __real_pread64(int fd, void *p, size_t n, off_t offset);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t offset);

ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t offset)
{
	bool fails;

	pthread_mutex_lock(&lock);
	fails = read_fails(fd);
	pthread_mutex_unlock(&lock);
	return fails ? -1 : __real_pread64(fd, p, n, offset);
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (number == SYS_openat2 && open_fails())
		return -1;
	return __real_syscall(number, a, b, c, d, e, f);
}

int __real_openat64(int dir, const char *path, int flags, int mode);
int __wrap_openat64(int dir, const char *path, int flags, int mode);

int __wrap_openat64(int dir, const char *path, int flags, int mode)
{
	return open_fails() ? -1 : __real_openat64(dir, path, flags, mode);
}

static void no_fault(void)
{
	memset(&fault, 0, sizeof(fault));
}

/* -- what is asked for -- */

struct fixture {
	char dir[32], store[64];
	char *checkpoint[MAX_CHECKPOINTS];
	size_t n;
};

static unshard *open_session(const struct fixture *f)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .store = f->store, .no_settling = true };
	struct unshard_error err = { 0 };
	unshard *u;

	if (unshard_open(UNSHARD_GOLDEN, &options, &u, &err) < 0)
		fail_msg("%s", err.text);
	return u;
}

static int print_finding(void *ctx, const struct unshard_finding *f)
{
	fprintf(ctx, "%s %s: %s\n", f->view ? f->view : "", f->id, f->text);
	return 0;
}

/* All that is said of a checkpoint; or the code that asking for it ends with. */
static int ask(unshard *u, const char *checkpoint, char **answer)
{
	static const enum unshard_what what[] = { UNSHARD_INFO, UNSHARD_TENSORS, UNSHARD_PROVENANCE };
	struct unshard_error err = { 0 };
	size_t len, unused, i;
	char *json;
	FILE *out = open_memstream(answer, &len);
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = out, .finding = print_finding };
	int code = 0;

	for (i = 0; code == 0 && i < sizeof(what) / sizeof(*what); i++) {
		code = unshard_describe(u, checkpoint, what[i], NULL, &json, &err);
		if (code == 0)
			fputs(json, out);
		if (code == 0)
			unshard_free(json);
	}
	if (code == 0)
		code = unshard_problems(u, checkpoint, &calls, &unused, &err);
	fclose(out);
	return code;
}

static void must_answer(unshard *u, const char *checkpoint, const char *right, const char *when)
{
	char *answer;
	int code = ask(u, checkpoint, &answer);

	if (code < 0)
		fail_msg("%s: %d %s", checkpoint, code, when);
	if (strcmp(answer, right) != 0)
		fail_msg("%s: another answer %s:\n%s\ninstead of\n%s", checkpoint, when, answer, right);
	free(answer);
}

static int keep_checkpoint(void *ctx, const struct unshard_checkpoint *c)
{
	struct fixture *f = ctx;

	assert_true(f->n < MAX_CHECKPOINTS);
	if (c->format)
		f->checkpoint[f->n++] = strdup(c->path);
	return 0;
}

static int setup(void **state)
{
	static struct fixture f;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &f, .checkpoint = keep_checkpoint };
	struct unshard_error err = { 0 };
	unshard *u;

	f = (struct fixture){ .dir = "/dev/shm/uns_moment_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.store, sizeof(f.store), "%s/store.db", f.dir);
	u = open_session(&f);
	assert_int_equal(unshard_scan(u, &calls, &err), 0);
	unshard_close(u);
	assert_true(f.n > 10);
	*state = &f;
	return 0;
}

static void new_store(const struct fixture *f)
{
	static const char *const ends[] = { "", "-wal", "-shm", "-journal" };
	char path[96];
	size_t i;

	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		snprintf(path, sizeof(path), "%s%s", f->store, ends[i]);
		unlink(path);
	}
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	new_store(f);
	rmdir(f->dir);
	while (f->n)
		free(f->checkpoint[--f->n]);
	return 0;
}

/* What is said where nothing fails, and which files are read for it. */
static char *right_answer(const struct fixture *f, const char *checkpoint)
{
	char *answer;
	unshard *u;

	new_store(f);
	u = open_session(f);
	n_read_files = 0;
	fault.recording = true;
	assert_int_equal(ask(u, checkpoint, &answer), 0);
	no_fault();
	unshard_close(u);
	return answer;
}

/* Two sessions with one store; the fault meets the first. Returns what it was told. */
static int try_once(const struct fixture *f, const char *checkpoint, const char *right)
{
	unshard *u, *later;
	char *answer;
	bool struck;
	int code;

	new_store(f);
	u = open_session(f);
	fault.opened = 0;
	code = ask(u, checkpoint, &answer);
	if (code == 0 && strcmp(answer, right) != 0)
		fail_msg("%s: a wrong answer while it fails:\n%s\ninstead of\n%s", checkpoint, answer, right);
	free(answer);
	struck = fault.struck;
	no_fault();
	if (struck) {
		later = open_session(f);
		must_answer(later, checkpoint, right, "in a later session");
		unshard_close(later);
		must_answer(u, checkpoint, right, "in the same session");
	}
	unshard_close(u);
	return struck ? code : 1;
}

/* The names in a directory of a view, one a line; or the code that asking for them ends with. */
static int list_names(const struct fixture *f, const char *path, char **names)
{
	unshard *u = open_session(f);
	unshard_listing *list;
	size_t len, i;
	FILE *out = open_memstream(names, &len);
	int code;

	fault.opened = 0;
	code = unshard_list(u, path, &list, NULL);
	for (i = 0; code == 0 && i < unshard_listing_count(list); i++)
		fprintf(out, "%s\n", unshard_listing_at(list, i)->name);
	if (code == 0)
		unshard_listing_free(list);
	unshard_close(u);
	fclose(out);
	return code;
}

/* What asking for that path ends with, when the nth open fails; 1 = there are fewer. */
static int stat_once(const char *path, long nth, bool lasting)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard *u;
	int code;

	no_fault();
	assert_int_equal(unshard_open(UNSHARD_GOLDEN, &options, &u, NULL), 0);
	fault.opened = 0;
	fault.nth = nth;
	fault.lasting = lasting;
	code = unshard_stat(u, path, &st, NULL);
	code = fault.struck ? code : 1;
	no_fault();
	unshard_close(u);
	return code;
}

/* Where checkpoints are shown as one file, too: the whole listing, or none. */
static void test_names(void **state)
{
	static const char *const views[] = { "weights", "full" };
	char path[PATH_MAX], *right, *names;
	unsigned n_files = 0;
	size_t i;
	int code;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/dcp/torch2.2.2_lightning", views[i]);
		no_fault();
		assert_int_equal(list_names(*state, path, &right), 0);
		n_files += strstr(right, ".ckpt\n") != NULL;
		for (fault.nth = 1;; fault.nth++) {
			fault.struck = false;
			code = list_names(*state, path, &names);
			if (code == 0 && strcmp(names, right) != 0)
				fail_msg("%s: open number %ld failed: other names:\n%s", path, fault.nth, names);
			free(names);
			if (!fault.struck)
				break;
			assert_true(code == 0 || code == -EMFILE);
		}
		free(right);
	}
	assert_true(n_files > 0);
	no_fault();
}

/* It is there, or what failed is said; never that it is absent, also where nothing can be opened for a while. */
static void test_a_file(void **state)
{
	const char *path = "full/dcp/torch2.2.2_lightning/ckpt.ckpt";
	int lasting, code;
	long nth;

	(void)state;
	for (lasting = 0; lasting < 2; lasting++)
		for (nth = 1; (code = stat_once(path, nth, lasting)) != 1; nth++)
			if (code != 0 && code != -EMFILE)
				fail_msg("open number %ld%s failed: %d", nth, lasting ? " and all after it" : "", code);
}

/* Not all that is said of a checkpoint needs it. */
static bool can_be_without(const char *path)
{
	const char *name = strrchr(path, '/');

	return strcmp(name, "/trainer_state.json") == 0;
}

static void test_reads(void **state)
{
	const struct fixture *f = *state;
	char *right;
	size_t i, k;
	int code;

	for (i = 0; i < f->n; i++) {
		right = right_answer(f, f->checkpoint[i]);
		assert_true(n_read_files > 0);
		for (k = 0; k < n_read_files; k += failing_calls_step()) {
			fault.path = read_files[k];
			code = try_once(f, f->checkpoint[i], right);
			if (code != -EIO && !(code == 0 && can_be_without(read_files[k])))
				fail_msg("%s: a failed read of %s: %d", f->checkpoint[i], read_files[k], code);
		}
		free(right);
	}
}

static void test_opens(void **state)
{
	const struct fixture *f = *state;
	char *right;
	size_t i;
	long nth;
	int code;

	for (i = 0; i < f->n; i++) {
		right = right_answer(f, f->checkpoint[i]);
		for (nth = 1; nth; nth += failing_calls_step()) {
			fault.nth = nth;
			code = try_once(f, f->checkpoint[i], right);
			if (code == 1)
				break;
			if (code != -EMFILE && code != 0)
				fail_msg("%s: open number %ld failed: %d", f->checkpoint[i], nth, code);
		}
		assert_true(nth > 1);
		free(right);
	}
}

static void test_only_what_there_is(void **state)
{
	const struct fixture *f = *state;
	struct unshard_error err = { 0 };
	unshard *u = open_session(f);
	char *json = NULL;

	assert_int_equal(unshard_describe(u, f->checkpoint[0], (enum unshard_what)1000, NULL, &json, &err), -EINVAL);
	assert_null(json);
	assert_int_equal(err.code, -EINVAL);
	unshard_close(u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_only_what_there_is, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_opens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test(test_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

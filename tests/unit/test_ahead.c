/* Threads that ask storage ahead: each byte once and in order, readers in turn, as many threads for each storage as one
 * wants, nobody held up by storage that does not answer, and nothing left behind. Storage is a posix_fadvise that waits
 * until it is let go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/ahead.h"

enum {
	MiB = 1 << 20,
	CALL = 256 << 10,
	FILES = 3,
	STORAGES = 2, /* file i lies on storage i % 2 */
	SIZE = 256 * MiB,
	CALLS = 4096,
	MOST_THREADS = 4,
	LONGEST_S = 120,
};

/* -- storage -- */

static struct call {
	unsigned file;
	uint64_t at, len;
	bool shared; /* by the reader's description: another is one more open */
} call[CALLS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* what follows, and call */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned n_calls, n_waiting, most_waiting, threads_made;
static bool hangs[STORAGES];
static atomic_bool no_thread, no_dup;
static atomic_bool came_at_once[STORAGES]; /* when a call has returned, its bytes are there */
static unsigned looks[STORAGES]; /* whether they are */
static atomic_bool on_its_way; /* a reader has asked for all of it */
static char path[FILES][64];
static struct uns_file file[FILES];
static int fd[FILES];
static const char reader[FILES];
static pthread_key_t of_thread;
static atomic_uint threads_gone;

static unsigned file_at(int at)
{
	struct stat st;
	unsigned i;

	assert_int_equal(fstat(at, &st), 0);
	for (i = 0; i < FILES; i++)
		if (file[i].stat.id.ino == st.st_ino)
			return i;
	fail_msg("not a shard");
	return 0;
}

int __wrap_posix_fadvise64(int at_fd, off_t at, off_t len, int advice);
int __wrap_posix_fadvise64(int at_fd, off_t at, off_t len, int advice)
{
	unsigned i = file_at(at_fd);

	assert_int_equal(advice, POSIX_FADV_WILLNEED);
	pthread_mutex_lock(&lock);
	n_waiting++;
	most_waiting = n_waiting > most_waiting ? n_waiting : most_waiting;
	pthread_cond_broadcast(&changed);
	while (hangs[i % STORAGES])
		pthread_cond_wait(&changed, &lock);
	n_waiting--;
	assert_true(n_calls < CALLS);
	call[n_calls++] = (struct call){ i, (uint64_t)at, (uint64_t)len, lseek(at_fd, 0, SEEK_CUR) == 1 };
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return 0;
}

bool __wrap_uns_page_has_come(int at_fd, uint64_t at);
bool __wrap_uns_page_has_come(int at_fd, uint64_t at)
{
	const unsigned storage = file_at(at_fd) % STORAGES;

	(void)at;
	pthread_mutex_lock(&lock);
	looks[storage]++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return came_at_once[storage];
}

bool __wrap_uns_pages_cached(int at_fd, uint64_t off, uint64_t len, uint64_t *cached);
bool __wrap_uns_pages_cached(int at_fd, uint64_t off, uint64_t len, uint64_t *cached)
{
	(void)at_fd, (void)off, (void)len;
	*cached = on_its_way;
	return true;
}

/* What a thread does after its function has returned takes a while. */
static void go_slowly(void *value)
{
	const struct timespec pause = { .tv_nsec = 20000000 };

	(void)value;
	nanosleep(&pause, NULL);
	atomic_fetch_add(&threads_gone, 1);
}

typedef void *work_fn(void *);
static _Atomic(work_fn *) work_of_threads; /* the same for all */

static void *work_as_a_slow_thread(void *ctx)
{
	pthread_setspecific(of_thread, &of_thread);
	return atomic_load(&work_of_threads)(ctx);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*work)(void *), void *ctx);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*work)(void *), void *ctx);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*work)(void *), void *ctx)
{
	if (no_thread)
		return EAGAIN;
	atomic_store(&work_of_threads, work);
	threads_made++;
	return __real_pthread_create(thread, attr, work_as_a_slow_thread, ctx);
}

int __wrap_fcntl64(int at, int what, int arg);
int __real_fcntl64(int at, int what, int arg);
int __wrap_fcntl64(int at, int what, int arg)
{
	if (no_dup && what == F_DUPFD_CLOEXEC) {
		errno = EMFILE;
		return -1;
	}
	return __real_fcntl64(at, what, arg);
}

static void hang(unsigned storage, bool on)
{
	pthread_mutex_lock(&lock);
	hangs[storage] = on;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* Until `*n` is that many. */
static void wait_for(const unsigned *n, unsigned many)
{
	const int64_t begun_ns = uns_now_ns();

	pthread_mutex_lock(&lock);
	while (*n < many) {
		const struct timespec soon = { .tv_sec = time(NULL) + 1 };

		pthread_cond_timedwait(&changed, &lock, &soon);
		assert_true(uns_now_ns() - begun_ns < LONGEST_S * INT64_C(1000000000));
	}
	pthread_mutex_unlock(&lock);
}

static unsigned calls(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = n_calls;
	pthread_mutex_unlock(&lock);
	return n;
}

static unsigned entries(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned n_fds_before, n_threads_before;

/* By itself, sooner or later. */
static void wait_until_nothing_is_left(void)
{
	const int64_t begun_ns = uns_now_ns();
	const struct timespec pause = { .tv_nsec = 10000000 };

	while (entries("/proc/self/fd") > n_fds_before || entries("/proc/self/task") > n_threads_before) {
		nanosleep(&pause, NULL);
		assert_true(uns_now_ns() - begun_ns < LONGEST_S * INT64_C(1000000000));
	}
}

/* -- */

static struct uns_ahead *ahead;
static unsigned most_threads; /* of a storage */

static int setup(void **state)
{
	struct stat st;
	unsigned i;

	(void)state;
	n_calls = n_waiting = threads_made = 0;
	memset(looks, 0, sizeof(looks));
	atomic_store(&threads_gone, 0);
	no_thread = no_dup = false;
	most_threads = 1;
	most_waiting = 0;
	for (i = 0; i < FILES; i++) {
		strcpy(path[i], "/tmp/unshard-ahead-XXXXXX");
		fd[i] = mkstemp(path[i]);
		assert_true(fd[i] >= 0);
		assert_int_equal(ftruncate(fd[i], SIZE), 0);
		assert_int_equal(fstat(fd[i], &st), 0);
		lseek(fd[i], 1, SEEK_SET); /* tells this description from another */
		file[i] = (struct uns_file){ .stat.id = { .dev = i % STORAGES, .ino = st.st_ino, .size = SIZE } };
	}
	n_fds_before = entries("/proc/self/fd");
	n_threads_before = entries("/proc/self/task");
	return uns_ahead_new(MOST_THREADS, &ahead, NULL);
}

static int teardown(void **state)
{
	unsigned i;

	(void)state;
	uns_ahead_free(ahead);
	if (ahead)
		assert_int_equal(atomic_load(&threads_gone),
				 threads_made); /* the process may end, the library be unloaded */
	wait_until_nothing_is_left();
	for (i = 0; i < FILES; i++) {
		close(fd[i]);
		unlink(path[i]);
	}
	return 0;
}

static bool ask_as(unsigned i, const char *who, uint64_t at, uint64_t end)
{
	const struct uns_ahead_ask ask = { &file[i], fd[i], at, end, CALL, who, most_threads };

	return uns_ahead_ask(ahead, &ask);
}

static bool ask(unsigned i, uint64_t at, uint64_t end)
{
	return ask_as(i, &reader[i], at, end);
}

static void asks_for_each_byte_once_and_in_order(void **state)
{
	uint64_t at = 5;
	unsigned i;

	(void)state;
	assert_int_equal(threads_made, 0);
	hang(0, true);
	for (i = 0; i < 32; i++)
		assert_true(ask(0, 5 + (uint64_t)i * MiB, 5 + (uint64_t)(i + 1) * MiB));
	hang(0, false);
	wait_for(&n_calls, 32 * MiB / CALL);
	for (i = 0; i < calls(); i++) {
		assert_int_equal(call[i].at, at);
		assert_true(call[i].len <= CALL);
		assert_true(call[i].shared);
		at += call[i].len;
	}
	assert_int_equal(at, 5 + 32 * MiB);
	assert_int_equal(threads_made, 1);
}

/* Storage that answers one call of a thread at a time has as many under way as there are threads, of what comes first.
 */
static void several_threads_ask_for_what_comes_first(void **state)
{
	static unsigned char times[32 * MiB / CALL];
	uint64_t i;

	(void)state;
	memset(times, 0, sizeof(times));
	most_threads = 4;
	hang(0, true);
	assert_true(ask(0, 0, MiB));
	wait_for(&n_waiting, 1); /* the first thread is held up before there is more to do */
	for (i = 1; i < 32; i++)
		assert_true(ask(0, i * MiB, (i + 1) * MiB));
	wait_for(&n_waiting, 4);
	hang(0, false);
	wait_for(&n_calls, 32 * MiB / CALL);
	assert_int_equal(most_waiting, 4);
	for (i = 0; i < 4; i++)
		assert_true(call[i].at < 4 * MiB);
	for (i = 0; i < calls(); i++)
		times[call[i].at / CALL]++;
	for (i = 0; i < sizeof(times); i++)
		assert_int_equal(times[i], 1);
}

/* A thread looks after it has counted what it saw before. */
static void says_whether_to_ask_is_to_wait(void **state)
{
	(void)state;
	atomic_store(&came_at_once[0], false);
	atomic_store(&came_at_once[1], true);
	atomic_store(&on_its_way, true);
	assert_true(ask(0, 0, 4 * MiB));
	wait_for(&n_calls, 4 * MiB / CALL);
	assert_int_equal(looks[0], 0);
	assert_true(uns_ahead_waits(ahead, 0)); /* it may be */
	atomic_store(&on_its_way, false);
	assert_true(ask(0, 4 * MiB, 12 * MiB));
	assert_true(ask(1, 0, 4 * MiB));
	wait_for(&looks[0], 8);
	wait_for(&looks[1], 4);
	assert_false(uns_ahead_waits(ahead, 0));
	assert_true(uns_ahead_waits(ahead, 1));
}

static void one_thread_asks_again_after_several(void **state)
{
	(void)state;
	most_threads = 4;
	hang(0, true);
	assert_true(ask(0, 0, 8 * MiB));
	wait_for(&n_waiting, 4);
	hang(0, false);
	wait_for(&n_calls, 8 * MiB / CALL);
	most_threads = 1;
	most_waiting = 0;
	hang(0, true);
	assert_true(ask(0, 8 * MiB, 16 * MiB));
	wait_for(&n_waiting, 1);
	hang(0, false);
	wait_for(&n_calls, 16 * MiB / CALL);
	assert_int_equal(most_waiting, 1);
}

/* The last of the threads that ask for a part closes it. */
static void a_file_that_is_let_go_of_is_closed_when_no_thread_asks_for_it(void **state)
{
	(void)state;
	most_threads = 4;
	hang(0, true);
	assert_true(ask(0, 0, 32 * MiB));
	wait_for(&n_waiting, 4);
	uns_ahead_let_go(ahead, &file[0]);
	assert_int_equal(entries("/proc/self/fd"), n_fds_before + 1);
	hang(0, false);
	wait_until_nothing_is_left();
	assert_int_equal(calls(), 4 * MiB / CALL);
}

static void a_storage_that_hangs_holds_nobody_up(void **state)
{
	uint64_t i;

	(void)state;
	hang(0, true);
	assert_true(ask(0, 0, MiB));
	wait_for(&n_waiting, 1);
	for (i = 0; ask(0, (2 * i + 2) * MiB, (2 * i + 3) * MiB); i++) /* apart: each is one more to remember */
		assert_true(i < SIZE / MiB / 2);
	assert_true(ask(1, 0, 4 * MiB));
	wait_for(&n_calls, 4 * MiB / CALL);
	assert_int_equal(call[0].file, 1);
	assert_int_equal(threads_made, 2);
	hang(0, false);
	wait_for(&n_calls, (unsigned)(5 + i) * MiB / CALL);
}

static void an_end_does_not_wait_for_storage_that_hangs(void **state)
{
	(void)state;
	hang(0, true);
	assert_true(ask(0, 0, 2 * MiB));
	assert_true(ask(2, 0, 2 * MiB));
	assert_true(ask(1, 0, MiB));
	wait_for(&n_waiting, 1);
	uns_ahead_free(ahead); /* returns: or this test ends here */
	ahead = NULL;
	hang(0, false);
	wait_until_nothing_is_left();
	assert_true(calls() <= 1 + MiB / CALL); /* the one that was under way, and the other storage's */
}

static void forgets_what_a_reader_wants_no_more(void **state)
{
	unsigned i, n = 0;

	(void)state;
	hang(0, true);
	assert_true(ask(0, 0, MiB));
	wait_for(&n_waiting, 1);
	assert_true(ask(0, MiB, 50 * MiB));
	assert_true(ask(2, 0, 2 * MiB));
	assert_true(ask_as(2, &reader[0], 8 * MiB, 9 * MiB));
	uns_ahead_forget(ahead, &reader[0]);
	hang(0, false);
	wait_for(&n_calls, 3 * MiB / CALL);
	wait_until_nothing_is_left();
	for (i = 0; i < calls(); i++)
		n += call[i].file == 0 || call[i].at >= 8 * MiB;
	assert_int_equal(n, MiB / CALL); /* what was begun */
	assert_int_equal(calls(), 3 * MiB / CALL);
}

static void readers_take_turns(void **state)
{
	unsigned i, last = 0;

	(void)state;
	hang(0, true);
	assert_true(ask(0, 0, MiB));
	wait_for(&n_waiting, 1);
	assert_true(ask_as(0, "first", 100 * MiB, 132 * MiB));
	assert_true(ask_as(2, "second", 0, 2 * MiB));
	assert_true(ask_as(2, "third", 50 * MiB, 52 * MiB));
	hang(0, false);
	wait_for(&n_calls, (1 + 32 + 2 + 2) * MiB / CALL);
	for (i = 0; i < calls(); i++)
		if (call[i].file == 2)
			last = i;
	assert_true(last < (1 + 2 + 2 + 2) * MiB / CALL);
}

static void says_so_where_there_is_no_thread_or_no_descriptor(void **state)
{
	(void)state;
	no_thread = true;
	assert_false(ask(0, 0, MiB));
	no_thread = false;
	no_dup = true;
	assert_false(ask(0, 0, MiB));
	no_dup = false;
	assert_true(ask(0, 0, MiB));
	wait_for(&n_calls, MiB / CALL);
}

static void begins_no_more_threads_than_it_may(void **state)
{
	unsigned i, n = 0;

	(void)state;
	for (i = 0; i < 2 * MOST_THREADS; i++) {
		file[0].stat.id.dev = 100 + i;
		n += ask(0, (uint64_t)i * MiB, (uint64_t)(i + 1) * MiB);
	}
	assert_true(n >= MOST_THREADS);
	wait_for(&n_calls, n * MiB / CALL);
	assert_true(entries("/proc/self/task") <= n_threads_before + MOST_THREADS);
}

static void nothing_is_left_of_what_was_asked_a_while_ago(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < FILES; i++)
		assert_true(ask(i, 0, 2 * MiB));
	wait_for(&n_calls, FILES * 2 * MiB / CALL);
	wait_until_nothing_is_left();
	assert_true(ask(0, 2 * MiB, 4 * MiB));
	wait_for(&n_calls, (FILES + 1) * 2 * MiB / CALL);
}

static void *nothing(void *ctx)
{
	return ctx;
}

/* A sanitizer may begin a thread of its own with the first, which is not to be counted. */
static int begin_one_thread(void **state)
{
	pthread_t thread;

	(void)state;
	if (pthread_key_create(&of_thread, go_slowly))
		return -1;
	return pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(asks_for_each_byte_once_and_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(several_threads_ask_for_what_comes_first, setup, teardown),
		cmocka_unit_test_setup_teardown(one_thread_asks_again_after_several, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_that_is_let_go_of_is_closed_when_no_thread_asks_for_it, setup,
						teardown),
		cmocka_unit_test_setup_teardown(says_whether_to_ask_is_to_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(a_storage_that_hangs_holds_nobody_up, setup, teardown),
		cmocka_unit_test_setup_teardown(an_end_does_not_wait_for_storage_that_hangs, setup, teardown),
		cmocka_unit_test_setup_teardown(forgets_what_a_reader_wants_no_more, setup, teardown),
		cmocka_unit_test_setup_teardown(readers_take_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(says_so_where_there_is_no_thread_or_no_descriptor, setup, teardown),
		cmocka_unit_test_setup_teardown(begins_no_more_threads_than_it_may, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_left_of_what_was_asked_a_while_ago, setup, teardown),
	};

	return cmocka_run_group_tests(tests, begin_one_thread, NULL);
}

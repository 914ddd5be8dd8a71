/* The table of descriptors by itself, in a process that runs out of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/fds.h"

enum { N = 8 };

struct files {
	char dir[64];
	struct uns_root *root;
	struct uns_catalog *cat;
	struct uns_counters count;
	struct uns_fds fds;
	struct uns_fd_slot slot[N];
	struct rlimit limit;
};

static void start(struct files *f, size_t max_open)
{
	char path[80];
	uint32_t i;
	int fd;

	*f = (struct files){ 0 };
	strcpy(f->dir, "/tmp/unshard-fds-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(uns_root_open(f->dir, NULL, &f->root, NULL), 0);
	assert_int_equal(uns_catalog_new("ckpt", &f->cat, NULL), 0);
	for (i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "%s/%u", f->dir, i);
		fd = open(path, O_CREAT | O_WRONLY, 0644);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(
			uns_catalog_add_file(f->cat, f->root, path + strlen(f->dir) + 1, &(uint32_t){ 0 }, NULL), 0);
	}
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &f->limit), 0);
	uns_fds_init(&f->fds, max_open, &f->count);
}

static void finish(struct files *f)
{
	char path[80];
	size_t i;

	for (i = 0; i < N; i++) {
		uns_fds_close(&f->fds, &f->slot[i]);
		snprintf(path, sizeof(path), "%s/%zu", f->dir, i);
		unlink(path);
	}
	assert_int_equal(f->count.open_files, 0);
	uns_fds_fini(&f->fds);
	uns_catalog_free(f->cat);
	uns_root_close(f->root);
	assert_int_equal(rmdir(f->dir), 0);
}

static int pin(struct files *f, size_t i, struct uns_err *err)
{
	return uns_fds_pin(&f->fds, &f->slot[i], &f->cat->files[i], err);
}

static void touch(struct files *f, size_t first, size_t end)
{
	for (; first < end; first++) {
		assert_int_equal(pin(f, first, NULL), 0);
		uns_fds_unpin(&f->fds, &f->slot[first]);
	}
}

/* No open() of this process succeeds from here on, until another descriptor is closed. */
static void use_up(struct files *f)
{
	int lowest_free = open("/dev/null", O_RDONLY);
	struct rlimit none = f->limit;

	close(lowest_free);
	none.rlim_cur = (rlim_t)lowest_free;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void restore(struct files *f)
{
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &f->limit), 0);
}

static void the_limit_is_back_when_descriptors_are(void **state)
{
	struct files f;

	(void)state;
	start(&f, N);
	touch(&f, 0, 3);
	use_up(&f);
	touch(&f, 3, N); /* each in place of the oldest */
	assert_int_equal(f.fds.n_open, 3);
	restore(&f);
	touch(&f, 0, N);
	assert_int_equal(f.fds.n_open, N);
	finish(&f);
}

static void without_any_it_fails_for_that_moment(void **state)
{
	struct uns_err err = { 0 };
	struct files f;

	(void)state;
	start(&f, N);
	use_up(&f);
	assert_int_equal(pin(&f, 0, &err), -EMFILE);
	assert_non_null(strstr(err.text, "Too many open files"));
	restore(&f);
	touch(&f, 0, N);
	assert_int_equal(f.fds.n_open, N);
	finish(&f);
}

static void *touch_all(void *arg)
{
	int i;

	for (i = 0; i < 200; i++)
		touch(arg, 0, N);
	return NULL;
}

/* Readers that hold the only descriptors are waited for. */
static void many_readers_share_two(void **state)
{
	pthread_t thread[6];
	struct files f;
	size_t i;

	(void)state;
	start(&f, N);
	touch(&f, 0, 2);
	use_up(&f);
	for (i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, touch_all, &f), 0);
	for (i = 0; i < 6; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(f.fds.n_open, 2);
	restore(&f);
	touch(&f, 0, N);
	assert_int_equal(f.fds.n_open, N);
	finish(&f);
}

struct party {
	struct files f;
	pthread_barrier_t barrier;
};

static void *touch_one_with_others(void *arg)
{
	struct party *p = arg;
	size_t i;

	for (i = 0; i < N; i++) {
		pthread_barrier_wait(&p->barrier);
		touch(&p->f, i, i + 1);
	}
	return NULL;
}

/* An open is a request to a server. */
static void readers_that_come_at_once_open_a_file_once(void **state)
{
	enum { READERS = 8 };
	pthread_t thread[READERS];
	struct party p;
	uint64_t looks;
	size_t i;

	(void)state;
	start(&p.f, N);
	looks = uns_root_looks(p.f.root);
	pthread_barrier_init(&p.barrier, NULL, READERS);
	for (i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, touch_one_with_others, &p), 0);
	for (i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(uns_root_looks(p.f.root) - looks, N);
	pthread_barrier_destroy(&p.barrier);
	finish(&p.f);
}

static size_t open_now(struct files *f)
{
	size_t n;

	pthread_mutex_lock(&f->fds.lock);
	n = f->fds.n_open;
	pthread_mutex_unlock(&f->fds.lock);
	return n;
}

static void what_nobody_reads_is_closed(void **state)
{
	struct files f;
	int i, round;

	(void)state;
	start(&f, N);
	assert_int_equal(pin(&f, 0, NULL), 0);
	for (round = 0; round < 2; round++) { /* its thread sleeps in between */
		touch(&f, 1, N);
		for (i = 0; i < 6000 && open_now(&f) > 1; i++)
			usleep(10000);
		assert_int_equal(open_now(&f), 1); /* the pinned one */
	}
	uns_fds_unpin(&f.fds, &f.slot[0]);
	for (i = 0; i < 6000 && open_now(&f); i++)
		usleep(10000);
	assert_int_equal(open_now(&f), 0);
	finish(&f);
}

/* Its space is the file system's again, although a reader does not stop reading. */
static void what_was_removed_is_closed_under_its_readers(void **state)
{
	struct files f;
	char path[80];
	int i, code = 0;

	(void)state;
	start(&f, N);
	touch(&f, 0, 1);
	snprintf(path, sizeof(path), "%s/0", f.dir);
	assert_int_equal(unlink(path), 0);
	for (i = 0; i < 6000 && code == 0; i++) {
		code = pin(&f, 0, NULL);
		if (code == 0) {
			assert_int_equal(uns_fds_check(&f.fds, &f.slot[0], &f.cat->files[0], NULL), 0);
			uns_fds_unpin(&f.fds, &f.slot[0]);
			usleep(10000);
		}
	}
	assert_int_equal(code, -ESTALE);
	assert_int_equal(open_now(&f), 0);
	finish(&f);
}

/* By a time to come it is as if another file of their checkpoint were read all the time. */
static void what_is_read_with_others_is_closed_when_it_is_removed(void **state)
{
	int64_t used_ns = 0;
	struct files f;
	char path[80];
	int i;

	(void)state;
	start(&f, N);
	f.slot[0].checkpoint_used_ns = f.slot[1].checkpoint_used_ns = &used_ns;
	touch(&f, 0, 3);
	pthread_mutex_lock(&f.fds.lock);
	for (i = 0; i < 2; i++) /* no file system of this kernel's has slots that are used together */
		f.slot[i].name = uns_fd_name(f.slot[i].fd);
	used_ns = INT64_MAX / 2;
	pthread_mutex_unlock(&f.fds.lock);
	for (i = 0; i < 6000 && open_now(&f) > 2; i++)
		usleep(10000);
	usleep(1500000); /* they would be closed with the third one */
	assert_int_equal(open_now(&f), 2);
	snprintf(path, sizeof(path), "%s/0", f.dir);
	assert_int_equal(unlink(path), 0);
	for (i = 0; i < 6000 && open_now(&f) > 1; i++)
		usleep(10000);
	assert_false(f.slot[0].is_open);
	pthread_mutex_lock(&f.fds.lock);
	used_ns = 0;
	pthread_mutex_unlock(&f.fds.lock);
	for (i = 0; i < 6000 && open_now(&f); i++)
		usleep(10000);
	assert_int_equal(open_now(&f), 0);
	finish(&f);
}

static void what_is_let_go_is_closed_after_its_reader(void **state)
{
	struct files f;

	(void)state;
	start(&f, N);
	assert_int_equal(pin(&f, 0, NULL), 0);
	touch(&f, 1, 2);
	uns_fds_let_go(&f.fds, &f.slot[0]);
	uns_fds_let_go(&f.fds, &f.slot[1]);
	assert_int_equal(open_now(&f), 1);
	uns_fds_unpin(&f.fds, &f.slot[0]);
	assert_int_equal(open_now(&f), 0);
	touch(&f, 0, 1); /* it may be read again */
	assert_int_equal(open_now(&f), 1);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_nobody_reads_is_closed),
		cmocka_unit_test(what_is_read_with_others_is_closed_when_it_is_removed),
		cmocka_unit_test(what_is_let_go_is_closed_after_its_reader),
		cmocka_unit_test(what_was_removed_is_closed_under_its_readers),
		cmocka_unit_test(the_limit_is_back_when_descriptors_are),
		cmocka_unit_test(without_any_it_fails_for_that_moment),
		cmocka_unit_test(many_readers_share_two),
		cmocka_unit_test(readers_that_come_at_once_open_a_file_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

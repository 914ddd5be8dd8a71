/* The cache of decoded pieces by itself: budgets, moving to files, failures, waiting for each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/cache.h"
#include "engine/spill.h"

static const int owner_a, owner_b;

struct recipe {
	unsigned char byte; /* what the entry is filled with */
	uint64_t size, base;
	int fails;
	_Atomic unsigned made;
};

static int make(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	struct recipe *r = ctx;
	unsigned char buf[1000];
	uint64_t at;

	atomic_fetch_add(&r->made, 1);
	if (r->fails)
		return uns_fail(err, r->fails, "recipe fails");
	for (at = 0; at < r->size; at += sizeof(buf)) {
		size_t n = r->size - at < sizeof(buf) ? (size_t)(r->size - at) : sizeof(buf);

		memset(buf, r->byte, n);
		UNS_TRY(uns_cached_write(e, buf, n, at, err));
	}
	uns_cached_settle(e, r->base, r->size);
	return 0;
}

struct cache {
	struct uns_cache *c;
	struct uns_counters count;
	char dir[64];
	size_t max_files; /* 0 = many */
};

static void start(struct cache *t, uint64_t mem, uint64_t spill)
{
	const struct uns_cache_limits max = { mem, spill, t->max_files ? t->max_files : 1000 };
	struct uns_err err = { 0 };

	*t = (struct cache){ .max_files = t->max_files };
	strcpy(t->dir, "/tmp/unshard-cache-XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	assert_int_equal(uns_cache_new(&max, t->dir, &t->count, NULL, &t->c, &err), 0);
}

/* Nothing may be counted, and no file may have a name. */
static void finish(struct cache *t)
{
	uns_cache_drop(t->c, &owner_a);
	uns_cache_drop(t->c, &owner_b);
	assert_int_equal(t->count.cache_bytes, 0);
	assert_int_equal(t->count.spill_bytes, 0);
	uns_cache_free(t->c);
	assert_int_equal(rmdir(t->dir), 0);
}

#define ID(n) ((struct uns_cache_id){ { n } })

static struct uns_cached *get(struct cache *t, const void *owner, uint64_t id, struct recipe *r)
{
	struct uns_err err = { 0 };
	struct uns_cached *e;

	if (uns_cache_get(t->c, owner, ID(id), r->size, make, r, &e, &err) < 0)
		fail_msg("%s", err.text);
	return e;
}

static void check_content(struct uns_cached *e, const struct recipe *r)
{
	uint64_t len = r->size - r->base, i;
	unsigned char *buf = malloc(len + 1);
	struct uns_err err = { 0 };

	assert_int_equal(uns_cached_read(e, buf, len, 0, &err), 0);
	for (i = 0; i < len; i++)
		assert_int_equal(buf[i], r->byte);
	assert_int_equal(uns_cached_read(e, buf, 2, len - 1, &err), -EBADMSG);
	free(buf);
}

static void touch(struct cache *t, const void *owner, uint64_t id, struct recipe *r)
{
	struct uns_cached *e = get(t, owner, id, r);

	check_content(e, r);
	uns_cache_put(t->c, e);
}

static void keeps_what_fits(void **state)
{
	struct recipe r = { .byte = 'a', .size = 400, .base = 100 };
	struct recipe other = { .byte = 'b', .size = 500 };
	struct cache t = { 0 };

	(void)state;
	start(&t, 1000, 0);
	touch(&t, &owner_a, 1, &r);
	touch(&t, &owner_b, 1, &other); /* same number, other owner */
	touch(&t, &owner_a, 1, &r);
	assert_int_equal(r.made, 1);
	assert_int_equal(t.count.cache_bytes, 900);
	uns_cache_drop(t.c, &owner_b);
	assert_int_equal(t.count.cache_bytes, 400);
	touch(&t, &owner_b, 1, &other);
	assert_int_equal(other.made, 2);
	finish(&t);
}

static void moves_the_oldest_to_a_file(void **state)
{
	struct recipe r[4] = {
		{ 'a', 400, 7, 0, 0 }, { 'b', 400, 0, 0, 0 }, { 'c', 400, 0, 0, 0 }, { 'd', 5000, 10, 0, 0 }
	};
	struct uns_cached *e;
	struct cache t = { 0 };
	size_t i, k;

	(void)state;
	start(&t, 1000, 100000);
	for (k = 0; k < 3; k++)
		for (i = 0; i < 4; i++)
			touch(&t, &owner_a, i, &r[i]);
	for (i = 0; i < 4; i++)
		assert_int_equal(r[i].made, 1);
	e = get(&t, &owner_a, 3, &r[3]);
	assert_null(uns_cached_bytes(e)); /* larger than the memory: never there */
	uns_cache_put(t.c, e);
	assert_int_equal(t.count.cache_bytes, 800);
	assert_int_equal(t.count.spill_bytes, 5400);
	finish(&t);
}

/* Of what is needed once, only an entry whose last byte nobody has read yet goes into a file. */
static void drops_what_was_read_to_the_end(void **state)
{
	struct recipe r[3] = { { 'a', 400, 0, 0, 0 }, { 'b', 400, 0, 0, 0 }, { 'c', 900, 0, 0, 0 } };
	struct uns_err err = { 0 };
	struct uns_cached *e;
	struct cache t = { 0 };
	unsigned char byte;
	size_t i;

	(void)state;
	start(&t, 1000, 100000);
	for (i = 0; i < 2; i++) {
		e = get(&t, &owner_a, i, &r[i]);
		uns_cached_once(e);
		assert_int_equal(uns_cached_read(e, &byte, 1, i ? 398 : 399, &err), 0);
		uns_cache_put(t.c, e);
	}
	touch(&t, &owner_a, 2, &r[2]);
	assert_int_equal(t.count.spill_bytes, 400);
	touch(&t, &owner_a, 1, &r[1]);
	touch(&t, &owner_a, 0, &r[0]);
	assert_int_equal(r[1].made, 1);
	assert_int_equal(r[0].made, 2);
	finish(&t);
}

static void drops_the_oldest_file(void **state)
{
	struct recipe r[3] = { { 'a', 4000, 0, 0, 0 }, { 'b', 4000, 0, 0, 0 }, { 'c', 4000, 0, 0, 0 } };
	struct cache t = { 0 };

	(void)state;
	start(&t, 0, 9000);
	touch(&t, &owner_a, 0, &r[0]);
	touch(&t, &owner_a, 1, &r[1]);
	touch(&t, &owner_a, 0, &r[0]);
	touch(&t, &owner_a, 2, &r[2]); /* takes the place of 1, the oldest */
	touch(&t, &owner_a, 0, &r[0]);
	assert_int_equal(r[0].made, 1);
	touch(&t, &owner_a, 1, &r[1]);
	assert_int_equal(r[1].made, 2);
	assert_int_equal(t.count.spill_bytes, 8000);
	finish(&t);
}

static void failures_leave_nothing(void **state)
{
	static const struct {
		uint64_t mem, spill, size;
		int fails, code;
		const char *why;
	} cases[] = {
		{ 1000, 0, 500, -EBADMSG, -EBADMSG, "recipe fails" },
		{ 0, 1000, 500, -EBADMSG, -EBADMSG, "recipe fails" },
		{ 100, 200, 500, 0, -ENOSPC, "raise mem or cache_size" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct recipe r = { .byte = 'a', .size = cases[i].size, .fails = cases[i].fails };
		struct uns_err err = { 0 };
		struct uns_cached *e;
		struct cache t = { 0 };

		start(&t, cases[i].mem, cases[i].spill);
		assert_int_equal(uns_cache_get(t.c, &owner_a, ID(1), r.size, make, &r, &e, &err), cases[i].code);
		assert_non_null(strstr(err.text, cases[i].why));
		assert_int_equal(t.count.cache_bytes + t.count.spill_bytes, 0);
		finish(&t);
	}
}

static void names_a_directory_that_is_not_there(void **state)
{
	struct recipe r = { .byte = 'a', .size = 500 };
	struct uns_err err = { 0 };
	struct uns_cached *e;
	const struct uns_cache_limits max = { 0, 1000, 10 };
	struct uns_counters count = { 0 };
	struct uns_cache *c;

	(void)state;
	assert_int_equal(uns_cache_new(&max, "/nonexistent/spill", &count, NULL, &c, &err), 0);
	assert_int_equal(uns_cache_get(c, &owner_a, ID(1), 500, make, &r, &e, &err), -EIO);
	assert_non_null(strstr(err.text, "/nonexistent/spill: temporary file: No such file"));
	assert_int_equal(count.spill_bytes, 0);
	uns_cache_free(c);
}

/* /dev/full is a disk without space. */
static void names_the_directory_when_it_is_full(void **state)
{
	struct uns_err err = { 0 };
	int fd;
	FILE *full = fopen("/dev/full", "r+");

	(void)state;
	assert_non_null(full);
	fd = fileno(full);
	assert_int_equal(uns_spill_write("/var/spill", fd, "x", 1, 0, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "/var/spill: no space left for decoded data"));
	assert_non_null(strstr(err.text, "cache_dir"));
	fclose(full);
}

static int make_mapped(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	struct recipe *r = ctx;
	uint8_t *room;

	UNS_TRY(uns_cached_map(e, &room, err));
	memset(room, r->byte, r->size);
	uns_cached_settle(e, r->base, r->size);
	return 0;
}

static void maps_both_kinds(void **state)
{
	static const uint64_t mem[] = { 0, 100000 };
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct recipe r = { .byte = 'm', .size = 50000, .base = 123 };
		struct uns_err err = { 0 };
		struct uns_cached *e;
		struct cache t = { 0 };

		start(&t, mem[i], 100000);
		assert_int_equal(uns_cache_get(t.c, &owner_a, ID(9), r.size, make_mapped, &r, &e, &err), 0);
		check_content(e, &r);
		uns_cache_put(t.c, e);
		finish(&t);
	}
}

/* -- threads: entries that do not fit together, so that they move, wait and are made again -- */

struct crowd {
	struct cache *t;
	struct recipe *r;
	unsigned seed;
	_Atomic unsigned *wrong;
};

static void *work(void *arg)
{
	struct crowd *w = arg;
	unsigned char buf[64];
	unsigned i;

	for (i = 0; i < 300; i++) {
		unsigned id = (w->seed = w->seed * 1103515245 + 12345) >> 16 & 7;
		struct uns_err err = { 0 };
		struct uns_cached *e;

		if (uns_cache_get(w->t->c, id & 1 ? &owner_a : &owner_b, ID(id), w->r[id].size, make, &w->r[id], &e,
				  &err) < 0 ||
		    uns_cached_read(e, buf, sizeof(buf), w->r[id].size - sizeof(buf), &err) < 0) {
			atomic_fetch_add(w->wrong, 1);
			continue;
		}
		if (buf[0] != w->r[id].byte || buf[63] != w->r[id].byte)
			atomic_fetch_add(w->wrong, 1);
		uns_cache_put(w->t->c, e);
	}
	return NULL;
}

static void a_crowd_gets_the_right_bytes(void **state)
{
	static const struct {
		uint64_t mem, spill;
	} cases[] = { { 9000, 0 }, { 0, 9000 }, { 9000, 9000 }, { 20000, 100000 } };
	size_t i, k;

	(void)state;
	for (k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
		_Atomic unsigned wrong = 0;
		struct recipe r[8] = { 0 };
		struct crowd w[8];
		pthread_t thread[8];
		struct cache t = { 0 };

		start(&t, cases[k].mem, cases[k].spill);
		for (i = 0; i < 8; i++) {
			r[i].byte = (unsigned char)('a' + i);
			r[i].size = 1000 + i * 1000;
			w[i] = (struct crowd){ &t, r, (unsigned)i, &wrong };
		}
		for (i = 0; i < 8; i++)
			assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
		for (i = 0; i < 8; i++)
			pthread_join(thread[i], NULL);
		assert_int_equal(wrong, 0);
		assert_true(t.count.cache_bytes <= cases[k].mem);
		assert_true(t.count.spill_bytes <= cases[k].spill);
		finish(&t);
	}
}

static int make_slowly(void *ctx, struct uns_cached *e, struct uns_err *err)
{
	usleep(50000);
	return make(ctx, e, err);
}

static void *get_slow(void *arg)
{
	struct crowd *w = arg;
	struct uns_cached *e;

	if (uns_cache_get(w->t->c, &owner_a, ID(1), w->r->size, make_slowly, w->r, &e, NULL) < 0)
		atomic_fetch_add(w->wrong, 1);
	else
		uns_cache_put(w->t->c, e);
	return NULL;
}

static void is_made_once_for_all_who_wait(void **state)
{
	struct recipe r = { .byte = 'a', .size = 500 };
	_Atomic unsigned wrong = 0;
	pthread_t thread[8];
	struct crowd w;
	struct cache t = { 0 };
	size_t i;

	(void)state;
	start(&t, 1000, 0);
	w = (struct crowd){ &t, &r, 0, &wrong };
	for (i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, get_slow, &w), 0);
	for (i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(wrong, 0);
	assert_int_equal(r.made, 1);
	finish(&t);
}

/* -- descriptors -- */

static size_t n_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* However many small pieces there are, only so many of them have a descriptor. */
static void spilled_entries_hold_few_descriptors(void **state)
{
	struct recipe r = { .byte = 'a', .size = 10 };
	struct cache t = { .max_files = 5 };
	size_t before, i;

	(void)state;
	start(&t, 20, 100000);
	before = n_descriptors();
	for (i = 0; i < 50; i++)
		touch(&t, &owner_a, i, &r);
	assert_int_equal(n_descriptors(), before + 5);
	assert_int_equal(t.count.spill_bytes, 50);
	touch(&t, &owner_a, 44, &r);
	assert_int_equal(r.made, 50); /* the seven newest are there: two in memory */
	touch(&t, &owner_a, 42, &r);
	assert_int_equal(r.made, 51);
	finish(&t);
}

/* -- a disk that does not answer: pwrite of this program waits while the gate is shut -- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool shut, waiting;
} gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };

ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
	pthread_mutex_lock(&gate.lock);
	gate.waiting = true;
	pthread_cond_broadcast(&gate.changed);
	while (gate.shut)
		pthread_cond_wait(&gate.changed, &gate.lock);
	gate.waiting = false;
	pthread_mutex_unlock(&gate.lock);
	return pwritev(fd, &(struct iovec){ (void *)buf, len }, 1, off);
}

static void shut_gate(bool shut)
{
	pthread_mutex_lock(&gate.lock);
	gate.shut = shut;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.lock);
}

static void *get_b(void *arg)
{
	static struct recipe b = { .byte = 'b', .size = 800 };

	touch(arg, &owner_b, 1, &b);
	return NULL;
}

/* Entry a moves to a file, on behalf of b, which needs the memory: dropping a does not wait for that. */
static void drop_waits_for_no_disk(void **state)
{
	struct recipe a = { .byte = 'a', .size = 800 };
	struct cache t = { 0 };
	pthread_t other;

	(void)state;
	alarm(60); /* instead of waiting for ever */
	start(&t, 1000, 100000);
	touch(&t, &owner_a, 1, &a);
	shut_gate(true);
	assert_int_equal(pthread_create(&other, NULL, get_b, &t), 0);
	pthread_mutex_lock(&gate.lock);
	while (!gate.waiting)
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	uns_cache_drop(t.c, &owner_a);
	shut_gate(false);
	pthread_join(other, NULL);
	alarm(0);
	touch(&t, &owner_a, 1, &a);
	assert_int_equal(a.made, 2);
	finish(&t);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_what_fits),
		cmocka_unit_test(moves_the_oldest_to_a_file),
		cmocka_unit_test(drops_what_was_read_to_the_end),
		cmocka_unit_test(drops_the_oldest_file),
		cmocka_unit_test(failures_leave_nothing),
		cmocka_unit_test(names_a_directory_that_is_not_there),
		cmocka_unit_test(names_the_directory_when_it_is_full),
		cmocka_unit_test(maps_both_kinds),
		cmocka_unit_test(a_crowd_gets_the_right_bytes),
		cmocka_unit_test(is_made_once_for_all_who_wait),
		cmocka_unit_test(spilled_entries_hold_few_descriptors),
		cmocka_unit_test(drop_waits_for_no_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

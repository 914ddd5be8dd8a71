/* The pool: every item once, the first failure, many callers, and items that use the pool themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/pool.h"
#include "threads.h"

enum { WIDTH = 12, DEPTH = 3 };

/* A tree of jobs: an item at depth < DEPTH runs a job of WIDTH items one level below. */
struct tree {
	struct uns_pool *pool;
	unsigned depth;
	int fails_at; /* an item of the lowest level; -1 = none */
	_Atomic unsigned *leaves;
};

static int branch(void *ctx, size_t i, struct uns_err *err)
{
	const struct tree *t = ctx;
	struct tree below = *t;

	if (t->depth == DEPTH) {
		atomic_fetch_add(t->leaves, 1);
		return (int)i == t->fails_at ? uns_fail(err, -EIO, "leaf %zu", i) : 0;
	}
	below.depth++;
	return uns_pool_each(t->pool, WIDTH, branch, &below, err);
}

static void *run_tree(void *arg)
{
	const struct tree *t = arg;

	return branch((void *)t, 0, NULL) < 0 ? arg : NULL;
}

static void items_may_use_the_pool(void **state)
{
	static const unsigned n_threads[] = { 0, 1, 2, 8 };
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(n_threads) / sizeof(*n_threads); i++) {
		_Atomic unsigned leaves = 0;
		struct tree t = { .fails_at = -1, .leaves = &leaves };
		pthread_t caller[4];
		void *failed;

		assert_int_equal(uns_pool_new(n_threads[i], NULL, &t.pool, NULL), 0);
		for (k = 0; k < 4; k++)
			assert_int_equal(pthread_create(&caller[k], NULL, run_tree, &t), 0);
		for (k = 0; k < 4; k++) {
			pthread_join(caller[k], &failed);
			assert_null(failed);
		}
		assert_int_equal(leaves, 4 * WIDTH * WIDTH * WIDTH);
		uns_pool_free(t.pool);
	}
}

static void a_failure_comes_up_with_its_sentence(void **state)
{
	_Atomic unsigned leaves = 0;
	struct tree t = { .fails_at = 5, .leaves = &leaves };
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(uns_pool_new(4, NULL, &t.pool, NULL), 0);
	assert_int_equal(branch(&t, 0, &err), -EIO);
	assert_string_equal(err.text, "leaf 5");
	assert_true(leaves < WIDTH * WIDTH * WIDTH);
	assert_int_equal(uns_pool_each(t.pool, 0, branch, &t, &err), 0);
	uns_pool_free(t.pool);
}

static size_t n_threads_now(void)
{
	DIR *tasks = opendir("/proc/self/task");
	size_t n = 0;

	assert_non_null(tasks);
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n - 2; /* . and .. */
}

static int nothing(void *ctx, size_t i, struct uns_err *err)
{
	(void)ctx;
	(void)i;
	(void)err;
	return 0;
}

/* However many the pool may have: where many small jobs follow each other, each would wake them all. */
static void a_small_job_has_few_threads(void **state)
{
	size_t before = n_threads_now(), i;
	struct uns_pool *pool;

	(void)state;
	assert_int_equal(uns_pool_new(32, NULL, &pool, NULL), 0);
	assert_int_equal(uns_pool_each(pool, 1, nothing, NULL, NULL), 0);
	assert_int_equal(n_threads_now(), before);
	assert_int_equal(uns_pool_each(pool, 3, nothing, NULL, NULL), 0);
	assert_int_equal(n_threads_now(), before + 2);
	assert_int_equal(uns_pool_each(pool, 100, nothing, NULL, NULL), 0);
	assert_int_equal(n_threads_now(), before + 32);
	for (i = 0; i < 100; i++)
		assert_int_equal(uns_pool_each(pool, 3, nothing, NULL, NULL), 0);
	assert_int_equal(n_threads_now(), before + 32);
	uns_pool_free(pool);
}

struct caller {
	struct uns_pool *pool;
	cpu_set_t one;
};

/* As a GPU's transfer does: it stays on the processors near its GPU, and what it reads makes the pool's threads begin.
 */
static void *call_from_one_processor(void *arg)
{
	const struct caller *c = arg;

	if (sched_setaffinity(0, sizeof(c->one), &c->one) < 0 || uns_pool_each(c->pool, 8, nothing, NULL, NULL) < 0)
		return arg;
	return NULL;
}

/* Whoever lets them begin. The program's signals are for its own threads. */
static void threads_have_their_makers_processors_and_take_no_signal(void **state)
{
	const struct threads before = threads_now();
	cpu_set_t own;
	struct caller c;
	pthread_t thread;
	void *failed;
	int i = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(own), &own), 0);
	while (!CPU_ISSET(i, &own))
		i++;
	CPU_ZERO(&c.one);
	CPU_SET(i, &c.one);
	assert_int_equal(uns_pool_new(4, NULL, &c.pool, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, call_from_one_processor, &c), 0);
	pthread_join(thread, &failed);
	assert_null(failed);
	assert_true(library_threads_checked(&before, &own) >= 4);
	uns_pool_free(c.pool);
	assert_int_equal(uns_pool_new(4, &(struct uns_processors){ true, c.one }, &c.pool, NULL), 0);
	assert_int_equal(uns_pool_each(c.pool, 8, nothing, NULL, NULL), 0);
	assert_true(library_threads_checked(&before, &c.one) >= 4);
	uns_pool_free(c.pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(items_may_use_the_pool),
		cmocka_unit_test(a_failure_comes_up_with_its_sentence),
		cmocka_unit_test(a_small_job_has_few_threads),
		cmocka_unit_test(threads_have_their_makers_processors_and_take_no_signal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

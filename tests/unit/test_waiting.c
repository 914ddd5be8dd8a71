/* Who waits for whom: a view that takes long to make keeps nobody waiting who asks for another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shell.h"
#include "unshard.h"

/* -- reads that do not end before they may: the delay of a read (delay_read_us) is ours -- */

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_closed;
static unsigned n_waiting;

int __wrap_nanosleep(const struct timespec *want, struct timespec *left);
int __wrap_nanosleep(const struct timespec *want, struct timespec *left)
{
	(void)want, (void)left;
	pthread_mutex_lock(&gate_lock);
	n_waiting++;
	pthread_cond_broadcast(&gate_changed);
	while (gate_closed)
		pthread_cond_wait(&gate_changed, &gate_lock);
	n_waiting--;
	pthread_mutex_unlock(&gate_lock);
	return 0;
}

static void gate_set(bool closed)
{
	pthread_mutex_lock(&gate_lock);
	gate_closed = closed;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_lock);
}

static void wait_for_a_read(void)
{
	pthread_mutex_lock(&gate_lock);
	while (!n_waiting)
		pthread_cond_wait(&gate_changed, &gate_lock);
	pthread_mutex_unlock(&gate_lock);
}

struct fixture {
	char dir[32], source[64];
	unshard *u;
};

static int setup(void **state)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .delay_read_us = 1,
						 .no_settling = true };
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_waiting_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.source, sizeof(f.source), "%s/run", f.dir);
	shell(f.dir, "cp -r " UNSHARD_GOLDEN "/run . && chmod -R u+w run && "
		     "mv run/checkpoint-2 run/latest && rm run/latest/trainer_state.json "
		     "run/latest/scheduler.pt && rm run/config.json");
	assert_int_equal(unshard_open(f.source, &options, &f.u, NULL), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	unshard_close(f->u);
	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

static void must_stat(struct fixture *f, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error err;

	if (unshard_stat(f->u, path, &st, &err) < 0)
		fail_msg("%s: %s", path, err.text);
}

struct other {
	struct fixture *f;
	const char *path;
	_Atomic bool done;
};

static void *look(void *ctx)
{
	struct other *o = ctx;
	struct unshard_stat st = { UNSHARD_STAT_INIT };

	unshard_stat(o->f->u, o->path, &st, NULL);
	atomic_store(&o->done, true);
	return NULL;
}

/* The second is answered while the first, which reads, is still being looked for: else the alarm ends it
 * all. */
static void overtakes(struct fixture *f, const char *slow, const char *fast)
{
	struct other o = { .f = f, .path = slow };
	pthread_t thread;

	gate_set(true);
	assert_int_equal(pthread_create(&thread, NULL, look, &o), 0);
	wait_for_a_read();
	alarm(60);
	must_stat(f, fast);
	alarm(0);
	assert_false(atomic_load(&o.done));
	gate_set(false);
	pthread_join(thread, NULL);
	must_stat(f, slow);
}

/* The facts of the training are read out of the optimizer; weights need none. */
#define SLOW "dcp/latest/rng_state_0.pth"
#define FAST "weights/latest/model.safetensors"

static void a_finished_tree_is_found_at_once(void **state)
{
	struct fixture *f = *state;

	must_stat(f, FAST);
	overtakes(f, SLOW, FAST);
}

static void another_tree_is_made_meanwhile(void **state)
{
	struct fixture *f = *state;

	must_stat(f, "weights/latest"); /* the catalog */
	overtakes(f, SLOW, FAST);
}

/* One who needs the same waits, and then has it. */
static void the_same_is_found_out_once(void **state)
{
	enum { N = 4 };
	struct fixture *f = *state;
	struct other o[N];
	pthread_t thread[N];
	char stats[4096] = "", *reads;
	unshard_file *file;
	int i;

	must_stat(f, "weights/latest");
	gate_set(true);
	for (i = 0; i < N; i++) {
		o[i] = (struct other){ .f = f, .path = i % 2 ? SLOW : "full/latest/optimizer.pt" };
		assert_int_equal(pthread_create(&thread[i], NULL, look, &o[i]), 0);
	}
	wait_for_a_read();
	gate_set(false);
	for (i = 0; i < N; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(unshard_file_open(f->u, ".unshard/stats.json", NULL, &file, NULL, NULL), 0);
	assert_true(unshard_pread(file, stats, sizeof(stats) - 1, 0, NULL) > 0);
	unshard_file_close(file);
	reads = strstr(stats, "\"items_resolved\": ");
	assert_non_null(reads);
	/* The header of each parameter's step once (11 of them); the tied weights' at most once each. */
	assert_in_range(strtoull(reads + strlen("\"items_resolved\": "), NULL, 10), 1, 11 + 7);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_finished_tree_is_found_at_once),
		TEST(another_tree_is_made_meanwhile),
		TEST(the_same_is_found_out_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

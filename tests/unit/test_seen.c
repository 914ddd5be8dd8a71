/* io/seen.c without memory: each allocation of each look fails once. The look then fails for want of memory, in what it
 * returns and in what it says, or its answer is right. What is absent is not said to be so for another reason. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "faults/faults.h"
#include "io/seen.h"
#include "shell.h"

static struct uns_root *root;

static int setup(void **state)
{
	static char dir[] = "/tmp/uns_seen_XXXXXX";

	assert_non_null(mkdtemp(dir));
	shell(dir, "mkdir -p run/c run/beside && echo 1 >run/config.json");
	assert_int_equal(uns_root_open(dir, NULL, &root, NULL), 0);
	*state = dir;
	return 0;
}

static int teardown(void **state)
{
	uns_root_close(root);
	shell(*state, "rm -r ../$(basename $PWD)");
	return 0;
}

struct look {
	struct uns_capture *capture;
	struct uns_arena *arena;
	const char *path;
	struct uns_err *err;
};

static int look_stat(const struct look *l)
{
	struct uns_stat st;

	return uns_stat_seen(root, l->capture, l->path, &st, l->err);
}

static int look_list(const struct look *l)
{
	struct uns_listing list;

	return uns_list_seen(root, l->capture, l->path, l->arena, &list, l->err);
}

static int look_fitting(const struct look *l)
{
	static const char *const globs[] = { "*.json", NULL };
	struct uns_listing list;

	return uns_list_fitting(root, l->capture, l->path, globs, l->arena, &list, l->err);
}

static int look_there(const struct look *l)
{
	return uns_is_there(root, l->capture, l->path, l->err);
}

static int look_since(const struct look *l)
{
	return uns_is_there_since(root, l->capture, l->path, 1, l->err);
}

static int look_open(const struct look *l)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_stat st;

	return uns_open_seen(root, l->capture, l->path, &fd, &st, l->err);
}

static int look_read(const struct look *l)
{
	struct uns_span bytes;

	return uns_read_seen(root, l->capture, l->path, 100, l->arena, &bytes, l->err);
}

/* As who looks, and goes on where there is nothing. */
static int look_if_passing(const struct look *l)
{
	struct uns_err why = { 0 };
	struct uns_stat st;

	return uns_fail_if_passing(l->err, uns_stat_seen(root, l->capture, l->path, &st, &why), &why);
}

/* With the n-th allocation failing. Returns whether there was one. */
static bool try(int (*look)(const struct look *l), const char *path, uint64_t nth, int right)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	struct look l = { .arena = &arena, .path = path, .err = &err };
	int code;

	assert_int_equal(uns_capture_new(root, "run/c", NULL, &l.capture, NULL), 0);
	*faults_plan = (struct faults_plan){ .calls = 1u << FAULTS_MALLOC, .error = ENOMEM, .nth = nth };
	faults_arm();
	code = look(&l);
	faults_disarm();
	uns_capture_free(l.capture);
	if (code == -ENOMEM && faults_plan->struck) {
		assert_int_equal(err.code, -ENOMEM);
		assert_non_null(strstr(err.text, "memory"));
	} else {
		assert_int_equal(code, right);
		assert_int_equal(err.code, right < 0 ? right : 0);
	}
	return faults_plan->struck;
}

static void want_of_memory_is_not_absence(void **state)
{
	static const struct {
		int (*look)(const struct look *l);
		const char *path;
		int right;
	} looks[] = {
		{ look_stat, "run/absent", -ENOENT }, { look_stat, "run/config.json", 0 },
		{ look_list, "run/absent", -ENOENT }, { look_list, "run/config.json", -ENOENT },
		{ look_list, "run/beside", 0 },       { look_fitting, "run/absent", -ENOENT },
		{ look_fitting, "run", 0 },           { look_there, "run/absent", 0 },
		{ look_there, "run/beside", 1 },      { look_since, "run/absent", 0 },
		{ look_since, "run/config.json", 1 }, { look_open, "run/absent", -ENOENT },
		{ look_open, "run/config.json", 0 },  { look_read, "run/absent", -ENOENT },
		{ look_read, "run/config.json", 0 },  { look_if_passing, "run/absent", 0 },
	};
	uint64_t nth;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(looks) / sizeof(*looks); i++) {
		for (nth = 1; try(looks[i].look, looks[i].path, nth, looks[i].right); nth++)
			;
		assert_true(nth > 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(want_of_memory_is_not_absence, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

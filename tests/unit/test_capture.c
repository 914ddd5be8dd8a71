/* io/capture.c: what was seen once stays, and what it costs in system calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted.h"
#include "base/cleanup.h"
#include "io/seen.h"
#include "shell.h"

struct fixture {
	char dir[32];
	struct uns_root *root;
	struct uns_capture *capture;
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_capture_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	shell(f.dir, "mkdir -p run/c/sub/deep run/beside && cd run && echo 1 > config.json && "
		     "echo 22 > c/a && echo 333 > c/sub/b && echo 4444 > c/sub/deep/d && "
		     "ln -s a c/link && ln -s nowhere c/dangling && ln -s ../beside c/out");
	assert_int_equal(uns_root_open(f.dir, NULL, &f.root, NULL), 0);
	assert_int_equal(uns_capture_new(f.root, "run/c", NULL, &f.capture, NULL), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	uns_capture_free(f->capture);
	uns_root_close(f->root);
	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

/* Its size, or the code. */
static int64_t size_of(struct fixture *f, const char *path)
{
	struct uns_stat st;
	int code = uns_capture_stat(f->capture, path, &st, NULL);

	return code < 0 ? code : (int64_t)st.id.size;
}

static void what_was_seen_stays(void **state)
{
	struct fixture *f = *state;
	const struct uns_listing *list;

	assert_int_equal(uns_capture_fill(f->capture, 4, NULL), 0);
	shell(f->dir, "cd run/c && rm a sub/b && echo 55555 > sub/deep/d && echo > new && echo > sub/new");
	assert_int_equal(size_of(f, "run/c/a"), 3);
	assert_int_equal(size_of(f, "run/c/link"), 3); /* followed */
	assert_int_equal(size_of(f, "run/c/dangling"), -ENOENT);
	assert_int_equal(size_of(f, "run/c/sub/b"), 4);
	assert_int_equal(size_of(f, "run/c/sub/deep/d"), 5);
	assert_int_equal(size_of(f, "run/c/new"), -ENOENT);
	assert_int_equal(size_of(f, "run/c/sub/new"), -ENOENT);
	assert_int_equal(uns_capture_list(f->capture, "run/c", &list, NULL), 0);
	assert_non_null(uns_listing_find(list, "a"));
	assert_null(uns_listing_find(list, "new"));
	/* Elsewhere from the first question on. */
	assert_int_equal(size_of(f, "run/config.json"), 2);
	assert_int_equal(size_of(f, "run/absent"), -ENOENT);
	shell(f->dir, "cd run && echo 1234 > config.json && echo 1 > absent");
	assert_int_equal(size_of(f, "run/config.json"), 2);
	assert_int_equal(size_of(f, "run/absent"), -ENOENT);
}

static void one_call_an_entry(void **state)
{
	static const char *const names[] = { "config.json", "absent", "beside" };
	struct fixture *f = *state;
	struct uns_listing seen;
	unsigned before;

	shell(f->dir, "cd run/c/sub && touch $(seq 100)");
	before = counted;
	assert_int_equal(uns_capture_fill(f->capture, 4, NULL), 0);
	/* 107 entries; three links, which are followed, with three calls each; of three directories
	 * open, fstat, twice getdents (the first was opened by uns_capture_new). */
	assert_in_range(counted - before, 107, 107 + 3 * 3 + 3 * 4);
	before = counted;
	assert_int_equal(size_of(f, "run/c/sub/77"), 0);
	assert_int_equal(size_of(f, "run/c/sub/none"), -ENOENT);
	assert_int_equal(uns_list_seen(f->root, f->capture, "run/c/sub", NULL, &seen, NULL), 0);
	assert_int_equal(seen.n, 102);
	assert_int_equal(counted, before);
	uns_capture_look(f->capture, f->root, "run", names, 3);
	assert_int_equal(counted - before, 4);
	assert_int_equal(size_of(f, "run/config.json"), 2);
	assert_int_equal(size_of(f, "run/absent"), -ENOENT);
	assert_int_equal(counted - before, 4);
}

static void names_alone_cost_no_stats(void **state)
{
	struct fixture *f = *state;
	const struct uns_listing *list;
	unsigned before = counted;

	shell(f->dir, "cd run/c/sub && touch $(seq 100)");
	assert_int_equal(uns_capture_list(f->capture, "run/c", &list, NULL), 0);
	assert_int_equal(uns_capture_list(f->capture, "run/c/sub", &list, NULL), 0);
	assert_int_equal(list->n, 102);
	assert_in_range(counted - before, 1, 2 * 5);
}

static void what_is_hidden_is_never_touched(void **state)
{
	struct fixture *f = *state;
	struct uns_capture *c;
	const struct uns_listing *list;
	struct uns_stat st;
	unsigned before;

	assert_int_equal(uns_capture_new(f->root, "run/c", "run/c/sub", &c, NULL), 0);
	assert_int_equal(uns_capture_fill(c, 4, NULL), 0);
	assert_int_equal(uns_capture_list(c, "run/c", &list, NULL), 0);
	assert_null(uns_listing_find(list, "sub"));
	before = counted;
	assert_int_equal(uns_capture_stat(c, "run/c/sub", &st, NULL), -ENOENT);
	assert_int_equal(uns_capture_stat(c, "run/c/sub/b", &st, NULL), -ENOENT);
	assert_int_equal(uns_capture_list(c, "run/c/sub", &list, NULL), -ENOENT);
	assert_int_equal(counted, before);
	uns_capture_free(c);
}

static void what_cannot_be_captured(void **state)
{
	struct fixture *f = *state;
	struct uns_err err = { 0 };
	struct uns_capture *c;

	assert_int_equal(uns_capture_new(f->root, "run/c/a", NULL, &c, &err), -ENOTDIR);
	assert_string_equal(err.text, "run/c/a is not a directory");
	err = (struct uns_err){ 0 };
	assert_int_equal(uns_capture_new(f->root, "run/x", NULL, &c, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/run/x: No such file or directory"));
	err = (struct uns_err){ 0 };
	assert_int_equal(uns_capture_fill(f->capture, 4, NULL), 0);
	assert_int_equal(uns_capture_stat(f->capture, "run/c/x", &(struct uns_stat){ 0 }, &err), -ENOENT);
	assert_non_null(strstr(err.text, "/run/c/x: No such file or directory"));
}

/* What was seen outside its directory: the list, and whether all of it is so still. */
static void what_lies_elsewhere_is_in_the_list(void **state)
{
	static const char *const globs[] = { "*.json", NULL };
	struct fixture *f = *state;
	struct uns_inputs **list = uns_capture_inputs(f->capture);
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_listing names;
	struct uns_stat st;

	assert_int_equal(uns_list_seen(f->root, f->capture, "run/c/sub", NULL, &names, NULL), 0);
	assert_int_equal((*list)->n, 1);
	assert_int_equal(uns_capture_fill(f->capture, 4, NULL), 0);
	assert_int_equal(uns_seen_elsewhere(f->capture, NULL), 0);
	assert_int_equal((*list)->n, 0);
	assert_int_equal(uns_stat_seen(f->root, f->capture, "run/c/sub/b", &st, NULL), 0);
	assert_int_equal((*list)->n, 0);
	assert_int_equal(uns_list_fitting(f->root, f->capture, "run", globs, &arena, &names, NULL), 0);
	assert_int_equal(names.n, 1);
	assert_int_equal(uns_stat_seen(f->root, f->capture, "run/config.json", &st, NULL), 0);
	assert_int_equal(uns_stat_seen(f->root, f->capture, "run/absent", &st, NULL), -ENOENT);
	assert_int_equal(uns_stat_seen(f->root, f->capture, "run/absent", &st, NULL), -ENOENT);
	assert_int_equal(uns_list_seen(f->root, f->capture, "run/c/out", &arena, &names, NULL), 0);
	assert_int_equal(uns_is_there(f->root, f->capture, "run/beside", NULL), 1);
	assert_int_equal(uns_is_there_since(f->root, f->capture, "run/config.json", st.id.mtime_ns, NULL), 1);
	assert_int_equal((*list)->n, 6);
}

/* Look at all of the list with a new capture. */
static int is_same(struct fixture *f)
{
	struct uns_capture *c;
	int same;

	assert_int_equal(uns_capture_new(f->root, "run/c", NULL, &c, NULL), 0);
	same = uns_seen_again(c, *uns_capture_inputs(f->capture), NULL);
	uns_capture_free(c);
	return same;
}

static void each_change_of_the_list_is_seen(void **state)
{
	static const struct {
		const char *change, *back;
		int same;
	} tests[] = {
		{ "echo 2 > run/config.json", "true", 0 },
		{ "cp run/config.json run/c2 && mv run/c2 run/config.json", "true", 0 },
		{ "echo > run/absent", "rm run/absent", 0 },
		{ "echo > run/new.json", "rm run/new.json", 0 },
		{ "echo > run/beside/new", "rm run/beside/new", 0 },
		{ "rm run/tracker", "echo > run/tracker", 0 },
		{ "echo > run/notes.txt", "rm run/notes.txt", 1 },
		{ "echo 12 > run/tracker", "true", 1 },
		{ "touch -d '1 hour ago' run/tracker", "touch run/tracker", 0 },
	};
	static const char *const globs[] = { "*.json", NULL };
	struct fixture *f = *state;
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_inputs *first;
	struct uns_listing names;
	struct uns_stat st;
	size_t i;

	shell(f->dir, "echo > run/tracker");
	assert_int_equal(uns_stat_seen(f->root, NULL, "run/tracker", &st, NULL), 0);
	for (i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		uns_capture_free(f->capture);
		assert_int_equal(uns_capture_new(f->root, "run/c", NULL, &f->capture, NULL), 0);
		uns_list_fitting(f->root, f->capture, "run", globs, &arena, &names, NULL);
		uns_stat_seen(f->root, f->capture, "run/config.json", &st, NULL);
		uns_stat_seen(f->root, f->capture, "run/absent", &st, NULL);
		uns_list_seen(f->root, f->capture, "run/c/out", &arena, &names, NULL);
		uns_is_there_since(f->root, f->capture, "run/tracker", st.id.mtime_ns, NULL);
		assert_int_equal(is_same(f), 1);
		shell(f->dir, tests[i].change);
		if (is_same(f) != tests[i].same)
			fail_msg("%s", tests[i].change);
		shell(f->dir, tests[i].back);
	}
	/* A list that somebody else holds does not change. */
	first = uns_inputs_ref(*uns_capture_inputs(f->capture));
	i = first->n;
	uns_is_there(f->root, f->capture, "run/other", NULL);
	assert_int_equal(first->n, i);
	assert_int_equal((*uns_capture_inputs(f->capture))->n, i + 1);
	assert_true(uns_inputs_hash(first) != uns_inputs_hash(*uns_capture_inputs(f->capture)));
	uns_inputs_put(first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_was_seen_stays),
		TEST(one_call_an_entry),
		TEST(names_alone_cost_no_stats),
		TEST(what_is_hidden_is_never_touched),
		TEST(what_cannot_be_captured),
		TEST(what_lies_elsewhere_is_in_the_list),
		TEST(each_change_of_the_list_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

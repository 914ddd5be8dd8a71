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
#include "io/capture.h"
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
	shell(f->dir,
	      "cd run/c && rm a sub/b && echo 55555 > sub/deep/d && echo > new && echo > sub/new");
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
	 * open, fstat, twice getdents, close (the first was opened by uns_capture_new). */
	assert_in_range(counted - before, 107, 107 + 3 * 3 + 3 * 5);
	before = counted;
	assert_int_equal(size_of(f, "run/c/sub/77"), 0);
	assert_int_equal(size_of(f, "run/c/sub/none"), -ENOENT);
	assert_int_equal(uns_list_seen(f->root, f->capture, "run/c/sub", NULL, &seen, NULL), 0);
	assert_int_equal(seen.n, 102);
	assert_int_equal(counted, before);
	uns_capture_look(f->capture, "run", names, 3);
	assert_int_equal(counted - before, 5);
	assert_int_equal(size_of(f, "run/config.json"), 2);
	assert_int_equal(size_of(f, "run/absent"), -ENOENT);
	assert_int_equal(counted - before, 5);
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
	assert_int_equal(uns_capture_stat(f->capture, "run/c/x", &(struct uns_stat){ 0 }, &err),
			 -ENOENT);
	assert_non_null(strstr(err.text, "/run/c/x: No such file or directory"));
}

static void which_directories_were_listed(void **state)
{
	struct fixture *f = *state;
	const struct uns_listing *list;
	struct uns_stat st;
	size_t at = 0;

	assert_int_equal(uns_capture_list(f->capture, "run/c", &list, NULL), 0);
	assert_int_equal(uns_capture_list(f->capture, "run/c/sub", &list, NULL), 0);
	assert_int_equal(uns_capture_list(f->capture, "run/c", &list, NULL), 0);
	assert_string_equal(uns_capture_listed(f->capture, &at, &st), "run/c");
	assert_string_equal(uns_capture_listed(f->capture, &at, &st), "run/c/sub");
	assert_int_equal(st.kind, UNS_KIND_DIR);
	assert_null(uns_capture_listed(f->capture, &at, &st));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_was_seen_stays),       TEST(one_call_an_entry),
		TEST(names_alone_cost_no_stats), TEST(what_is_hidden_is_never_touched),
		TEST(what_cannot_be_captured),   TEST(which_directories_were_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

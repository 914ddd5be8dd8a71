/* A program that the linker gave no identity (--build-id=none, tests/CMakeLists.txt) keeps no metadata in the store: it
 * could not tell its own from that of a build that reads otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"
#include "unshard.h"

static void expect_opened(const struct unshard_options *options)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct unshard_error err = { 0 };
	char stats[4096] = "", *json;
	unshard_file *file;
	unshard *u;

	assert_int_equal(unshard_open(UNSHARD_GOLDEN "/run", options, &u, NULL), 0);
	if (unshard_describe(u, "checkpoint-2", UNSHARD_TENSORS, NULL, &json, &err) < 0)
		fail_msg("%s", err.text);
	unshard_free(json);
	assert_int_equal(unshard_file_open(u, ".unshard/stats.json", NULL, &file, &st, NULL), 0);
	assert_true(unshard_pread(file, stats, sizeof(stats) - 1, 0, NULL) > 0);
	unshard_file_close(file);
	unshard_close(u);
	assert_non_null(strstr(stats, "\"catalogs_opened\": 1,"));
	assert_non_null(strstr(stats, "\"catalogs_remembered\": 0,"));
}

static void nothing_is_remembered(void **state)
{
	char dir[] = "/tmp/uns_build_XXXXXX", store[64];
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .store = store };

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(store, sizeof(store), "%s/store.db", dir);
	expect_opened(&options);
	expect_opened(&options);
	shell(dir, "rm -r ../$(basename $PWD)");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(nothing_is_remembered) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* universal/RUN/latest_universal: the last checkpoint of a plain engine's run, where DeepSpeed looks for it. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shell.h"
#include "unshard.h"

struct fixture {
	char dir[40], source[64];
	struct unshard_options options;
	struct unshard_error err;
};

/* runs/a: global_step2, global_step4, latest = global_step2. */
static void start(struct fixture *f, const char *change)
{
	*f = (struct fixture){ .dir = "/tmp/uns_latest_XXXXXX",
			       .options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true } };
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->source, sizeof(f->source), "%s/runs", f->dir);
	shell(f->dir, "mkdir runs && cp -r " UNSHARD_GOLDEN "/zero/z2_w3 runs/a && cd runs/a && "
		      "rm -r expected.txt *_universal && cp -r global_step2 global_step4 && "
		      "printf global_step2 > latest");
	shell(f->dir, change);
}

static void end(struct fixture *f)
{
	shell(f->dir, "rm -r ../$(basename $PWD)");
}

static unshard *open_session(struct fixture *f)
{
	unshard *u;

	if (unshard_open(f->source, &f->options, &u, &f->err) < 0)
		fail_msg("%s", f->err.text);
	return u;
}

static bool is_listed(unshard *u, const char *folder, const char *name)
{
	unshard_listing *list;
	bool found = false;
	size_t i;

	assert_int_equal(unshard_list(u, folder, &list, NULL), 0);
	for (i = 0; i < unshard_listing_count(list); i++)
		found |= strcmp(unshard_listing_at(list, i)->name, name) == 0;
	unshard_listing_free(list);
	return found;
}

static void text_of(unshard *u, const char *path, char *out, size_t size)
{
	struct unshard_error err;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;

	if (unshard_file_open(u, path, NULL, &file, &st, &err) < 0)
		fail_msg("%s: %s", path, err.text);
	assert_true(st.size_bytes < size);
	assert_int_equal(unshard_pread(file, out, st.size_bytes, 0, NULL), st.size_bytes);
	out[st.size_bytes] = '\0';
	unshard_file_close(file);
}

static const struct {
	const char *name, *change, *folder, *says; /* says NULL = there is no such file */
} cases[] = {
	{ "what latest names", "true", "universal/a", "global_step2/global_step2" },
	{ "with a newline", "echo global_step4 > runs/a/latest", "universal/a", "global_step4/global_step2" },
	{ "SOURCE's own first", "cp -r " UNSHARD_GOLDEN "/zero/z2_w3/*_universal runs/a", "universal/a",
	  "global_step2_universal/global_step2" },
	{ "SOURCE's own, of a tag that has gone", "printf gone > runs/a/latest_universal", "universal/a",
	  "gone" }, /* as it is */
	{ "no mark", "rm runs/a/latest", "universal/a", NULL },
	{ "a tag that is not there", "printf global_step9 > runs/a/latest", "universal/a", NULL },
	{ "a name that leads elsewhere", "printf ../a/global_step2 > runs/a/latest", "universal/a", NULL },
	{ "a tag that is no checkpoint", "mkdir runs/a/x && printf x > runs/a/latest", "universal/a", NULL },
	{ "a tag that is damaged", "rm runs/a/global_step2/*_rank_1_*", "universal/a", NULL },
	{ "no other view has one", "true", "weights/a", NULL },
	{ "a directory of runs", "true", "universal", NULL },
};

static void what_it_says(void **state)
{
	char path[128], text[128];
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct fixture f;
	unshard *u;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		start(&f, cases[i].change);
		u = open_session(&f);
		snprintf(path, sizeof(path), "%s/latest_universal", cases[i].folder);
		if (is_listed(u, cases[i].folder, "latest_universal") != !!cases[i].says ||
		    (unshard_stat(u, path, &st, NULL) == 0) != !!cases[i].says)
			fail_msg("%s", cases[i].name);
		if (cases[i].says) {
			text_of(u, path, text, sizeof(text));
			assert_string_equal(text, cases[i].says);
		}
		unshard_close(u);
		end(&f);
	}
}

/* The run as SOURCE, its view at the root. */
static void at_the_root(void **state)
{
	char text[128];
	struct fixture f;
	unshard *u;

	(void)state;
	start(&f, "true");
	strcat(f.source, "/a");
	f.options.view = "universal";
	u = open_session(&f);
	assert_true(is_listed(u, "", "latest_universal"));
	text_of(u, "latest_universal", text, sizeof(text));
	assert_string_equal(text, "global_step2/global_step2");
	unshard_close(u);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_says),
		cmocka_unit_test(at_the_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ranks/tracker.c: what veRL's int() and EasyR1's json.load take, and the sentences about the
 * rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "ranks/tracker.h"
#include "said.h"

#define VERL "latest_checkpointed_iteration.txt"
#define EASY "checkpoint_tracker.json"

static struct uns_span span_of(const char *text)
{
	return (struct uns_span){ (const uint8_t *)text, (const uint8_t *)text + strlen(text) };
}

static const struct {
	const char *name, *text;
	int64_t step;    /* -1 = refused */
	const char *why; /* ... with this */
} parse_cases[] = {
	{ VERL, "2", 2, NULL },
	{ VERL, "0", 0, NULL },
	{ VERL, " 12\n", 12, NULL },
	{ VERL, "000123456789012345", 123456789012345, NULL },
	{ VERL, "", -1, "is empty" },
	{ VERL, "\n", -1, "is empty" },
	{ VERL, "2abc", -1, "holds \"2abc\" instead of a step's number" },
	{ VERL, "2\n3", -1, "holds \"2?3\" instead of a step's number" },
	{ VERL, "-3", -1, "holds \"-3\" instead of a step's number" },
	{ VERL, "{\"last_global_step\": 2}", -1, "holds {\"last_global_step\":... instead of a step's number" },
	{ EASY, "{\"last_global_step\": 8, \"best_global_step\": 4}", 8, NULL },
	{ EASY, "{\"last_global_step\": 0}", 0, NULL },
	{ EASY, "{\"best_global_step\": 4}", -1, "has no number as last_global_step" },
	{ EASY, "{\"last_global_step\": \"8\"}", -1, "has no number as last_global_step" },
	{ EASY, "{\"last_global_step\": -8}", -1, "has no number as last_global_step" },
	{ EASY, "{\"last_global_step\": 8", -1, "is not JSON" },
	{ EASY, "", -1, "is not JSON" },
	{ EASY, "8", -1, "has no number as last_global_step" },
};

static void parses(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(parse_cases) / sizeof(*parse_cases); i++) {
		struct uns_err err = { 0 };
		int64_t step = -1;
		int code = uns_rank_tracker_parse(parse_cases[i].name, span_of(parse_cases[i].text), &step, &err);

		print_message("%s: %s\n", parse_cases[i].name, parse_cases[i].text);
		assert_int_equal(code, parse_cases[i].why ? -EBADMSG : 0);
		if (parse_cases[i].why)
			assert_string_equal(err.text, parse_cases[i].why);
		else
			assert_true(step == parse_cases[i].step);
	}
}

static struct uns_entry run_entries[] = {
	{ .name = "global_step_2", .kind = UNS_KIND_DIR },
	{ .name = "global_step_10", .kind = UNS_KIND_DIR },
	{ .name = "global_step_99", .kind = UNS_KIND_FILE },
	{ .name = "global_step_x", .kind = UNS_KIND_DIR },
};

static const struct {
	const char *name, *text;
	size_t n; /* of run_entries */
	const char *sentence;
} check_cases[] = {
	{ VERL, "10", 4, NULL },
	{ VERL, "2", 4, NULL },
	{ EASY, "{\"last_global_step\": 2}", 1, NULL },
	{ VERL, "12", 4,
	  "latest_checkpointed_iteration.txt of run names step 12, and global_step_12 does not "
	  "exist: veRL would start from the beginning; copy the directory back, or set it to 10, "
	  "the newest step that exists, if that one is whole" },
	{ VERL, "99", 4,
	  "latest_checkpointed_iteration.txt of run names step 99, and global_step_99 does not "
	  "exist: veRL would start from the beginning; copy the directory back, or set it to 10, "
	  "the newest step that exists, if that one is whole" },
	{ EASY, "{\"last_global_step\": 8}", 0,
	  "checkpoint_tracker.json of run names step 8, and global_step_8 does not exist: EasyR1 "
	  "would start from the beginning; copy the directory back, or delete it, there is no "
	  "step to resume from" },
	{ EASY, "{}", 1,
	  "checkpoint_tracker.json of run has no number as last_global_step: EasyR1 fails when it "
	  "looks "
	  "there for the last checkpoint; set it to 2, the newest step that exists, if that one "
	  "is "
	  "whole" },
	{ VERL, "", 1,
	  "latest_checkpointed_iteration.txt of run is empty: veRL fails when it looks there for "
	  "the last "
	  "checkpoint; set it to 2, the newest step that exists, if that one is whole" },
};

static void checks(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(check_cases) / sizeof(*check_cases); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		const struct uns_listing list = { .v = run_entries, .n = check_cases[i].n };
		struct uns_finding f;
		bool well =
			uns_rank_tracker_check(check_cases[i].name, span_of(check_cases[i].text), &list, &arena, &f);

		assert_int_equal(well, check_cases[i].sentence == NULL);
		if (well)
			continue;
		f.checkpoint = "run";
		f.file = check_cases[i].name;
		assert_string_equal(said(&f), check_cases[i].sentence);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses),
		cmocka_unit_test(checks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

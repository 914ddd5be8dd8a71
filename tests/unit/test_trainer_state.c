/* trainer_state.json: what a Trainer takes, what is made from facts, and JSON text laid out without
 * touching its numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "files/trainer_state.h"
#include "wire/json_text.h"

#define NEEDED "\"train_batch_size\":2,\"logging_steps\":1,\"eval_steps\":500,\"save_steps\":2"

static const struct {
	const char *json, *why; /* why NULL = it is taken */
} files[] = {
	{ "{\"global_step\":2," NEEDED "}", NULL },
	{ "{\"global_step\":2," NEEDED ",\"log_history\":null,\"stateful_callbacks\":{}}\n", NULL },
	{ "{\"global_step\":2," NEEDED ",\"best_metric\":NaN,\"epoch\":0.5}", NULL },
	{ "{\"global_step\":2," NEEDED ",\"of_a_newer_version\":[1]}", NULL },
	{ "", "the file is empty" },
	{ "[]", "the file is not a JSON object" },
	{ "{\"global_step\":2", "JSON is damaged" },
	{ "{" NEEDED "}", "the file has no global_step" },
	{ "{\"global_step\":2}", NULL },
	{ "{\"global_step\":2.0," NEEDED "}", "global_step is 2.0 where an integer" },
	{ "{\"global_step\":-2," NEEDED "}", "global_step is -2 where an integer" },
	{ "{\"global_step\":\"2\"," NEEDED "}", "where an integer" },
	{ "{\"global_step\":2,\"train_batch_size\":null,\"logging_steps\":1}", NULL },
	{ "{\"global_step\":2,\"logging_steps\":null}", NULL },
	{ "{\"global_step\":2,\"train_batch_size\":2,\"logging_steps\":0,\"eval_steps\":0.0,\"save_steps\":null}",
	  NULL },
	{ "{\"global_step\":2,\"train_batch_size\":2,\"logging_steps\":-1,\"eval_steps\":1,"
	  "\"save_steps\":1}",
	  "logging_steps is -1 where a positive number" },
	{ "{\"global_step\":2," NEEDED ",\"is_hyper_param_search\":1}", "true or false" },
	{ "{\"global_step\":2," NEEDED ",\"log_history\":{}}", "where a list" },
};

static void test_check(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct uns_err err = { 0 };
		struct uns_span unknown;
		int code = uns_trainer_state_check(files[i].json, strlen(files[i].json), &unknown, &err);

		assert_int_equal(code, files[i].why ? -EBADMSG : 0);
		if (files[i].why && !strstr(err.text, files[i].why))
			fail_msg("%s: \"%s\"", files[i].json, err.text);
	}
}

/* What TrainerState has defaults for is no damage; train_batch_size is null where the Trainer never set it. */
static void test_absent_keys(void **state)
{
	static const struct {
		const char *json, *absent[5];
	} cases[] = {
		{ "{\"global_step\":2," NEEDED "}", { NULL } },
		{ "{\"global_step\":2}", { "eval_steps", "logging_steps", "save_steps", "train_batch_size", NULL } },
		{ "{\"train_batch_size\":null,\"eval_steps\":1,\"logging_steps\":1}",
		  { "save_steps", "train_batch_size", NULL } },
	};
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (k = 0; cases[i].absent[k]; k++)
			assert_string_equal(uns_trainer_state_absent(cases[i].json, strlen(cases[i].json), k),
					    cases[i].absent[k]);
		assert_null(uns_trainer_state_absent(cases[i].json, strlen(cases[i].json), k));
	}
}

static void test_an_unknown_key_is_named(void **state)
{
	static const char json[] = "{\"global_step\":2," NEEDED ",\"later\":1}";
	struct uns_span unknown;

	(void)state;
	assert_int_equal(uns_trainer_state_check(json, strlen(json), &unknown, NULL), 0);
	assert_memory_equal(unknown.p, "\"later\"", uns_span_left(&unknown));
	assert_int_equal(uns_span_left(&unknown), 7);
}

static const struct {
	const char *key, *json, *why;
} facts[] = {
	{ "global_step", "200", NULL },
	{ "global_step", " 200\n", NULL },
	{ "train_batch_size", "8", NULL },
	{ "epoch", "0.25", NULL },
	{ "epoch", "null", NULL },
	{ "trial_name", "\"a\"", NULL },
	{ "log_history", "[{\"loss\":1.0}]", NULL },
	{ "global_step", "2.0", "where an integer" },
	{ "train_batch_size", "null", "where an integer" },
	{ "save_steps", "-1", "a positive number" },
	{ "max_steps", "-1", NULL },
	{ "learning_rate", "1", "not a key of trainer_state.json" },
	{ "epoch", "x", "epoch=x: JSON" },
	{ "epoch", "", "epoch=" },
};

static void test_facts(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		struct uns_err err = { 0 };
		int code = uns_trainer_state_check_fact(facts[i].key, facts[i].json, &err);

		assert_int_equal(code < 0, facts[i].why != NULL);
		if (facts[i].why && !strstr(err.text, facts[i].why))
			fail_msg("%s=%s: \"%s\"", facts[i].key, facts[i].json, err.text);
	}
}

/* Exactly what json.dumps(..., indent=2, sort_keys=True) + "\n" gives. */
static const char made[] = "{\n"
			   "  \"best_metric\": null,\n"
			   "  \"best_model_checkpoint\": null,\n"
			   "  \"epoch\": 0.0,\n"
			   "  \"eval_steps\": 500,\n"
			   "  \"global_step\": 200,\n"
			   "  \"is_hyper_param_search\": false,\n"
			   "  \"is_local_process_zero\": true,\n"
			   "  \"is_world_process_zero\": true,\n"
			   "  \"log_history\": [\n"
			   "    {\n"
			   "      \"grad_norm\": NaN,\n"
			   "      \"loss\": 4.0,\n"
			   "      \"step\": 1\n"
			   "    }\n"
			   "  ],\n"
			   "  \"logging_steps\": 500,\n"
			   "  \"max_steps\": 0,\n"
			   "  \"num_input_tokens_seen\": 0,\n"
			   "  \"num_train_epochs\": 0,\n"
			   "  \"save_steps\": 100,\n"
			   "  \"stateful_callbacks\": {},\n"
			   "  \"total_flos\": 0,\n"
			   "  \"train_batch_size\": 8,\n"
			   "  \"trial_name\": null,\n"
			   "  \"trial_params\": null\n"
			   "}\n";

static void test_emit(void **state)
{
	static const struct uns_fact v[] = {
		{ .key = "global_step", .json = "200" },
		{ .key = "log_history", .json = "[{\"step\":1, \"loss\": 4.0,\"grad_norm\":NaN}]" },
		{ .key = "logging_steps", .json = "\"no number: the default stands\"" },
		{ .key = "save_steps", .json = "100" },
		{ .key = "stateful_callbacks", .json = "{}" },
	};
	const struct uns_training training = { .v = v, .n = sizeof(v) / sizeof(v[0]) };
	struct uns_text text = UNS_TEXT_INIT;

	(void)state;
	assert_int_equal(uns_trainer_state_emit(&training, &text, NULL), 0);
	assert_string_equal(text.p, made);
	assert_int_equal(uns_trainer_state_check(text.p, text.len, NULL, NULL), 0);
	uns_text_fini(&text);
}

static void test_no_step_no_file(void **state)
{
	const struct uns_training nothing = { 0 };
	struct uns_text text = UNS_TEXT_INIT;
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(uns_trainer_state_emit(&nothing, &text, &err), -ENODATA);
	assert_non_null(strstr(err.text, "global_step=N"));
	uns_text_fini(&text);
}

static void test_keys_are_sorted(void **state)
{
	size_t i;

	(void)state;
	for (i = 1; uns_trainer_state_key(i); i++)
		assert_true(strcmp(uns_trainer_state_key(i - 1), uns_trainer_state_key(i)) < 0);
	assert_int_equal(i, 20);
	assert_string_equal(uns_trainer_state_assumed("train_batch_size"), "8");
	assert_null(uns_trainer_state_assumed("global_step"));
}

/* -- JSON text -- */

static const struct {
	const char *in, *out;
} layouts[] = {
	{ "1.50", "1.50" },
	{ "[]", "[]" },
	{ "{ }", "{}" },
	{ "[1,[],{}]", "[\n  1,\n  [],\n  {}\n]" },
	{ "{\"b\":1,\"a\":{\"d\":null,\"c\":\"},\\\"{\"}}",
	  "{\n  \"a\": {\n    \"c\": \"},\\\"{\",\n    \"d\": null\n  },\n  \"b\": 1\n}" },
	{ "{\"ab\":1,\"a\":2}", "{\n  \"a\": 2,\n  \"ab\": 1\n}" },
};

static void test_layout(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		struct uns_text text = UNS_TEXT_INIT;

		uns_json_text_indent(&text, uns_span_of(layouts[i].in, strlen(layouts[i].in)), 0);
		assert_string_equal(text.p, layouts[i].out);
		uns_text_fini(&text);
	}
}

static void test_the_last_of_equal_keys(void **state)
{
	static const char json[] = "{\"a\": 1, \"b\": {\"a\": 5}, \"a\": [2, 3]}";
	struct uns_span v, item;
	int64_t n;

	(void)state;
	assert_true(uns_json_text_get(uns_span_of(json, strlen(json)), "a", &v));
	assert_true(uns_json_text_next(&v, NULL, &item) && uns_json_text_int(item, &n) && n == 2);
	assert_true(uns_json_text_next(&v, NULL, &item) && uns_json_text_int(item, &n) && n == 3);
	assert_false(uns_json_text_next(&v, NULL, &item));
	assert_false(uns_json_text_get(uns_span_of(json, strlen(json)), "c", &v));
}

static void test_integers(void **state)
{
	static const char *const not[] = { "", "-", "2.0", "1e3", "9223372036854775808", "true" };
	int64_t n;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(not) / sizeof(not[0]); i++)
		assert_false(uns_json_text_int(uns_span_of(not[i], strlen(not[i])), &n));
	assert_true(uns_json_text_int(uns_span_of("-9223372036854775808", 20), &n));
	assert_true(n == INT64_MIN);
}

/* Whatever is cut off, nothing behind the end is looked at (the sanitizers watch). */
static void test_cut_text(void **state)
{
	static const char json[] = "{\"a\":[1,{\"b\":\"\\\"x\"}],\"c\":-1.5e3}";
	size_t len;

	(void)state;
	for (len = 0; len <= strlen(json); len++) {
		char *copy = test_malloc(len + 1);
		struct uns_text text = UNS_TEXT_INIT;
		struct uns_span v;

		memcpy(copy, json, len);
		uns_json_text_indent(&text, uns_span_of(copy, len), 0);
		uns_json_text_get(uns_span_of(copy, len), "c", &v);
		uns_text_fini(&text);
		test_free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check),           cmocka_unit_test(test_an_unknown_key_is_named),
		cmocka_unit_test(test_facts),           cmocka_unit_test(test_emit),
		cmocka_unit_test(test_no_step_no_file), cmocka_unit_test(test_keys_are_sorted),
		cmocka_unit_test(test_layout),          cmocka_unit_test(test_the_last_of_equal_keys),
		cmocka_unit_test(test_integers),        cmocka_unit_test(test_cut_text),
		cmocka_unit_test(test_absent_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

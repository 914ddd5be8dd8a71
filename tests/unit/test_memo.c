/* A session with a store: a checkpoint that did not change is not read again, one that did is; facts
 * through unshard.h. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "shell.h"
#include "unshard.h"

struct fixture {
	char dir[32], source[64], store[64];
	struct unshard_options options;
	struct unshard_error err;
};

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_memo_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.source, sizeof(f.source), "%s/run", f.dir);
	snprintf(f.store, sizeof(f.store), "%s/store.db", f.dir);
	shell(f.dir, "cp -r " UNSHARD_GOLDEN "/run . && rm -f run/config.json && sleep 0.2");
	f.options = (struct unshard_options){ UNSHARD_OPTIONS_INIT, .store = f.store };
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

static unshard *open_session(struct fixture *f)
{
	unshard *u;

	if (unshard_open(f->source, &f->options, &u, &f->err) < 0)
		fail_msg("%s", f->err.text);
	return u;
}

static char *content(unshard *u, const char *path)
{
	struct unshard_error err = { 0 };
	unshard_file *file;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	char *text;

	if (unshard_file_open(u, path, NULL, &file, &st, &err) < 0)
		fail_msg("%s: %s", path, err.text);
	text = calloc(1, st.size_bytes + 1);
	assert_int_equal(unshard_pread(file, text, st.size_bytes, 0, NULL), st.size_bytes);
	unshard_file_close(file);
	return text;
}

/* Is there a file of that name now? */
static bool has(unshard *u, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };

	return unshard_stat(u, path, &st, NULL) == 0;
}

/* For a second a directory is not looked at again; how long that takes is the machine's affair. */
static void eventually(unshard *u, const char *path, bool there)
{
	int i;

	for (i = 0; i < 600 && has(u, path) != there; i++)
		usleep(100000);
	assert_int_equal(has(u, path), there);
}

/* "OPENED REMEMBERED" of one fresh session that describes the checkpoint in full. */
static void expect_opened(struct fixture *f, unsigned opened, unsigned remembered)
{
	unshard *u = open_session(f);
	unsigned got_opened, got_remembered;
	char *json, *stats, *at;

	if (unshard_describe(u, "checkpoint-2", UNSHARD_TENSORS, NULL, &json, &f->err) < 0)
		fail_msg("%s", f->err.text);
	assert_non_null(strstr(json, "model.embed_tokens.weight"));
	unshard_free(json);
	stats = content(u, ".unshard/stats.json");
	at = strstr(stats, "catalogs_opened\": ");
	assert_int_equal(sscanf(at, "catalogs_opened\": %u", &got_opened), 1);
	at = strstr(stats, "catalogs_remembered\": ");
	assert_int_equal(sscanf(at, "catalogs_remembered\": %u", &got_remembered), 1);
	free(stats);
	unshard_close(u);
	if (got_opened != opened || got_remembered != remembered)
		fail_msg("%u opened, %u remembered", got_opened, got_remembered);
}

static void what_did_not_change_is_not_read_again(void **state)
{
	struct fixture *f = *state;

	expect_opened(f, 1, 0);
	expect_opened(f, 0, 1);
	expect_opened(f, 0, 1);
	shell(f->dir, "touch run/checkpoint-2/optimizer_0/.metadata && sleep 0.2");
	expect_opened(f, 1, 0);
	expect_opened(f, 0, 1);
	shell(f->dir, "mv run/checkpoint-2/scheduler.pt . && sleep 0.2");
	expect_opened(f, 1, 0);
	shell(f->dir, "mv run moved && cp -r moved run && sleep 0.2"); /* other files of the same names */
	expect_opened(f, 1, 0);
	f->options.no_store = true;
	expect_opened(f, 1, 0);
}

/* A snapshot of a file that changed just now might not show its next change. */
static void what_changed_just_now_is_not_remembered(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "touch -d '1 hour' run/checkpoint-2/optimizer_0/.metadata");
	expect_opened(f, 1, 0);
	expect_opened(f, 1, 0);
}

/* Whether a save has ended is recorded beside the checkpoint, by a file that may go and come back. */
static void the_end_of_a_save_is_not_remembered(void **state)
{
	static const char *const sources[] = { "run", "run/global_step_2", "run/global_step_2/actor" };
	struct fixture *f = *state;
	char *json;
	unshard *u;
	size_t i;
	int has;

	shell(f->dir, "rm -r run; mkdir -p run/global_step_2 && cp -r " UNSHARD_GOLDEN
		      "/ranks/fsdp2 run/global_step_2/actor && sleep 0.2");
	for (i = 0; i < 3; i++)
		for (has = 1; has >= 0; has--) {
			shell(f->dir, has ? "printf 2 > run/latest_checkpointed_iteration.txt; sleep 0.2"
					  : "rm run/latest_checkpointed_iteration.txt; sleep 0.2");
			snprintf(f->source, sizeof(f->source), "%s/%s", f->dir, sources[i]);
			u = open_session(f);
			if (unshard_describe(u,
					     &"global_step_2/actor"[i == 2 ? 19
								    : i    ? 14
									   : 0],
					     0, NULL, &json, &f -> err) < 0)
				fail_msg("%s", f->err.text);
			if (!strstr(json, has ? "\"finished\":true" : "\"finished\":false"))
				fail_msg("%s: %s", sources[i], json);
			unshard_free(json);
			unshard_close(u);
		}
}

static void other_options_are_another_catalog(void **state)
{
	static const char *const roots[] = { "model" };
	struct fixture *f = *state;

	expect_opened(f, 1, 0);
	f->options.weight_root = roots;
	f->options.n_weight_root = 1;
	expect_opened(f, 1, 0);
	expect_opened(f, 0, 1);
	f->options.n_weight_root = 0;
	expect_opened(f, 0, 1);
}

static void a_fact_is_no_reason_to_read_again(void **state)
{
	struct fixture *f = *state;
	unshard *u;

	expect_opened(f, 1, 0);
	u = open_session(f);
	assert_int_equal(unshard_meta_set(u, "checkpoint-2", "seed", "1", NULL, NULL), 0);
	unshard_close(u);
	expect_opened(f, 0, 1);
}

static void memos_can_be_deleted(void **state)
{
	struct fixture *f = *state;
	unshard *u;

	expect_opened(f, 1, 0);
	u = open_session(f);
	assert_int_equal(unshard_meta_clear_cache(u, NULL), 0);
	unshard_close(u);
	expect_opened(f, 1, 0);
	expect_opened(f, 0, 1);
}

static void bytes_are_the_same_either_way(void **state)
{
	struct fixture *f = *state;
	char *first, *second;
	unshard *u = open_session(f);

	first = content(u, "weights/checkpoint-2/.unshard/tensors.json");
	unshard_close(u);
	u = open_session(f);
	second = content(u, "weights/checkpoint-2/.unshard/tensors.json");
	assert_string_equal(first, second);
	free(second);
	second = content(u, "weights/checkpoint-2/.unshard/info.json");
	assert_non_null(strstr(second, "\"ok\""));
	free(first);
	free(second);
	unshard_close(u);
}

/* -- facts -- */

static int collect(void *ctx, const struct unshard_fact *fact)
{
	char *text = ctx, line[512];
	const char *base = strrchr(fact->subject, '/');

	snprintf(line, sizeof(line), "%s %s=%s (%s)\n", base, fact->key, fact->json, fact->origin);
	strncat(text, line, 4095 - strlen(text));
	return 0;
}

static void expect_facts(struct fixture *f, unshard *u, const char *path, const char *wanted)
{
	char text[4096] = "";
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = text, .fact = collect };

	if (unshard_meta_list(u, path, &calls, &f->err) < 0)
		fail_msg("%s", f->err.text);
	assert_string_equal(text, wanted);
}

static const struct {
	const char *key, *value, *json; /* NULL: refused, with this sentence: */
	const char *sentence;
} values[] = {
	{ "global_step", "200", "200", NULL },
	{ "global_step", " 200 ", "200", NULL },
	{ "global_step", "2.5", NULL, "global_step takes an integer" },
	{ "global_step", "many", NULL, "global_step takes an integer" },
	{ "epoch", "0.5", "0.5", NULL },
	{ "epoch", "1.0", "1.0", NULL },
	{ "save_strategy", "steps", "\"steps\"", NULL },
	{ "save_strategy", "\"steps\"", "\"steps\"", NULL },
	{ "log_history", "[ { \"loss\": 1 } ]", "[{\"loss\":1}]", NULL },
	{ "log_history", "[1", NULL, "[1 is not JSON" },
	{ "model", "/somewhere", "\"/somewhere\"", NULL },
	{ "model", "somewhere", NULL, "model takes the absolute path of a directory" },
	{ "is_world_process_zero", "true", "true", NULL },
	{ "my.own-key_2", "a b \"c\"", "\"a b \\\"c\\\"\"", NULL },
	{ "my.own-key_2", "", "\"\"", NULL },
	/* What no mount would take. */
	{ "logging_steps", "0", NULL, "logging_steps takes a positive number" },
	{ "logging_steps", "0.1", "0.1", NULL },
	{ "save_steps", "-1", NULL, "save_steps takes a positive number" },
	{ "eval_steps", "null", NULL, "eval_steps takes a positive number" },
	{ "train_batch_size", "null", NULL, "train_batch_size takes an integer of 0 or more" },
	{ "train_batch_size", "2.0", NULL, "train_batch_size takes an integer of 0 or more" },
	{ "per_device_train_batch_size", "null", NULL, "per_device_train_batch_size takes an integer" },
	{ "per_device_train_batch_size", "4", "4", NULL },
	{ "trial_params", "[1]", NULL, "trial_params takes an object, or null" },
	{ "trial_params", "null", "null", NULL },
	{ "max_steps", "-1", "-1", NULL },
	{ "eval_strategy", "null", "null", NULL },
	{ "seed", "1.5", NULL, "seed takes an integer" },
	{ "Key", "1", NULL, "'Key' is not a key" },
	{ "", "1", NULL, "'' is not a key" },
};

static void values_and_keys_are_checked(void **state)
{
	struct fixture *f = *state;
	unshard *u = open_session(f);
	char wanted[512];
	size_t i;
	int code;

	for (i = 0; i < sizeof(values) / sizeof(*values); i++) {
		code = unshard_meta_set(u, "x", values[i].key, values[i].value, NULL, &f->err);
		if (values[i].json) {
			if (code < 0)
				fail_msg("%s=%s: %s", values[i].key, values[i].value, f->err.text);
			snprintf(wanted, sizeof(wanted), "/x %s=%s (set by the user)\n", values[i].key, values[i].json);
			expect_facts(f, u, "x", wanted);
			assert_int_equal(unshard_meta_unset(u, "x", values[i].key, NULL), 0);
		} else if (code != -EINVAL || !strstr(f->err.text, values[i].sentence)) {
			fail_msg("%s=%s: %s", values[i].key, values[i].value, f->err.text);
		}
	}
	unshard_close(u);
}

static void a_fact_of_the_run_holds_for_its_checkpoints(void **state)
{
	struct fixture *f = *state;
	unshard *u = open_session(f);

	assert_int_equal(unshard_meta_set(u, "", "seed", "1", "the run", NULL), 0);
	assert_int_equal(unshard_meta_set(u, "", "max_steps", "9", "the run", NULL), 0);
	assert_int_equal(unshard_meta_set(u, "checkpoint-2", "seed", "2", "its own", NULL), 0);
	expect_facts(f, u, "checkpoint-2",
		     "/run max_steps=9 (the run)\n"
		     "/checkpoint-2 seed=2 (its own)\n");
	expect_facts(f, u, "checkpoint-3", "/run max_steps=9 (the run)\n/run seed=1 (the run)\n");
	unshard_close(u);
}

static void files_of_a_trainer_are_imported(void **state)
{
	struct fixture *f = *state;
	char path[128];
	unshard *u = open_session(f);
	size_t n;

	shell(f->dir, "echo '{\"global_step\": 20, \"epoch\": 1.5, \"unheard_of\": 1, \"max_steps\": \"x\"}' "
		      "> trainer_state.json; echo '{\"a\": 1}' > other.json; echo '{' > broken.json");
	snprintf(path, sizeof(path), "%s/trainer_state.json", f->dir);
	assert_int_equal(unshard_meta_import_file(u, "checkpoint-2", path, &n, &f->err), 0);
	assert_int_equal(n, 2);
	snprintf(path, sizeof(path), "%s/other.json", f->dir);
	assert_int_equal(unshard_meta_import_file(u, "checkpoint-2", path, &n, &f->err), -ENOTSUP);
	assert_non_null(strstr(f->err.text, "holds no facts about a training"));
	snprintf(path, sizeof(path), "%s/broken.json", f->dir);
	assert_int_equal(unshard_meta_import_file(u, "checkpoint-2", path, &n, &f->err), -EBADMSG);
	snprintf(path, sizeof(path), "%s/run/checkpoint-2/scheduler.pt", f->dir);
	assert_int_equal(unshard_meta_import_file(u, "other", path, &n, &f->err), 0);
	assert_int_equal(n, 1);
	unshard_close(u);
}

static void the_whole_store_out_and_in(void **state)
{
	struct fixture *f = *state;
	char other[80], *json, *again;
	unshard *u = open_session(f);
	size_t n;

	unshard_meta_set(u, "", "trial_name", "caf\xc3\xa9 \"x\"", "a\nb", NULL);
	unshard_meta_set(u, "checkpoint-2", "seed", "2", NULL, NULL);
	/* Names that differ only in what is not UTF-8; numbers that a double does not hold, or not as they are written.
	 */
	assert_int_equal(unshard_meta_set(u, "caf\xe9", "seed", "3", NULL, NULL), 0);
	assert_int_equal(unshard_meta_set(u, "caf\xe8", "seed", "4", NULL, NULL), 0);
	assert_int_equal(unshard_meta_set(u, "x", "max_steps", "9007199254740993", NULL, NULL), 0);
	assert_int_equal(unshard_meta_set(u, "x", "best_metric", "NaN", NULL, NULL), 0);
	assert_int_equal(unshard_meta_set(u, "x", "later", " { \"a\": 1.0 } ", NULL, NULL), 0);
	assert_int_equal(unshard_meta_export(u, &json, NULL), 0);
	unshard_close(u);
	snprintf(other, sizeof(other), "%s/other.db", f->dir);
	f->options.store = other;
	u = open_session(f);
	assert_int_equal(unshard_meta_import(u, json, &n, &f->err), 0);
	assert_int_equal(n, 7);
	assert_int_equal(unshard_meta_export(u, &again, NULL), 0);
	assert_string_equal(json, again);
	assert_non_null(strstr(again, "\"value\": 9007199254740993,"));
	assert_non_null(strstr(again, "\"value\": NaN,"));
	assert_non_null(strstr(again, "\"value\": {\"a\":1.0},"));
	expect_facts(f, u, "caf\xe9",
		     "/run trial_name=\"caf\xc3\xa9 \\\"x\\\"\" (a\nb)\n/caf\xe9 seed=3 (set by the user)\n");
	assert_int_equal(unshard_meta_set(u, "", "model", "/caf\xe9", NULL, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "not UTF-8"));
	assert_int_equal(unshard_meta_import(u,
					     "{\"unshard_store\": 1, \"facts\": [{\"subject\": \"/x\", "
					     "\"subject_hex\": \"2f0\", \"key\": \"a\", \"value\": 1}]}",
					     NULL, &f->err),
			 -EBADMSG);
	assert_int_equal(unshard_meta_import(u, "[]", NULL, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "not a file that `unshard meta export` wrote"));
	assert_int_equal(unshard_meta_import(u, "{\"unshard_store\": 1, \"facts\": [{}]}", NULL, &f->err), -EBADMSG);
	assert_non_null(strstr(f->err.text, "fact 1"));
	assert_int_equal(unshard_meta_import(u, "{\"unshard_store\": 2, \"facts\": []}", NULL, &f->err), -ENOTSUP);
	unshard_free(json);
	unshard_free(again);
	unshard_close(u);
}

static void the_model_directory_is_a_fact(void **state)
{
	struct fixture *f = *state;
	char dir[80];
	unshard *u = open_session(f);

	shell(f->dir, "mkdir base && cp " UNSHARD_GOLDEN "/run/config.json base");
	assert_false(has(u, "weights/checkpoint-2/config.json"));
	snprintf(dir, sizeof(dir), "%s/base", f->dir);
	assert_int_equal(unshard_meta_set(u, "", "model", dir, NULL, NULL), 0);
	eventually(u, "weights/checkpoint-2/config.json", true);
	assert_int_equal(unshard_meta_unset(u, "", "model", NULL), 0);
	eventually(u, "weights/checkpoint-2/config.json", false);
	unshard_close(u);
}

static void a_store_in_source_is_refused(void **state)
{
	struct fixture *f = *state;
	char path[80];
	unshard *u;

	snprintf(path, sizeof(path), "%s/store.db", f->source);
	f->options.store = path;
	u = open_session(f);
	assert_int_equal(unshard_meta_set(u, "", "seed", "1", NULL, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "is inside SOURCE"));
	assert_true(has(u, "weights/checkpoint-2/model.safetensors"));
	unshard_close(u);
	shell(f->dir, "test ! -e run/store.db");
}

/* A file that is put in the store's place is taken up, and one that could not be opened is asked for
 * again: here both at once, by its name. */
static void a_store_that_is_replaced_is_taken_up(void **state)
{
	struct fixture *f = *state;
	unshard *u = open_session(f);

	assert_int_equal(unshard_meta_set(u, "", "seed", "1", NULL, NULL), 0);
	shell(f->dir, "mkdir away && mv store.db* away");
	expect_facts(f, u, "", "");
	assert_int_equal(unshard_meta_set(u, "", "seed", "2", NULL, NULL), 0);
	expect_facts(f, u, "", "/run seed=2 (set by the user)\n");
	unshard_close(u);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_did_not_change_is_not_read_again),
		TEST(what_changed_just_now_is_not_remembered),
		TEST(the_end_of_a_save_is_not_remembered),
		TEST(other_options_are_another_catalog),
		TEST(a_fact_is_no_reason_to_read_again),
		TEST(memos_can_be_deleted),
		TEST(bytes_are_the_same_either_way),
		TEST(values_and_keys_are_checked),
		TEST(a_fact_of_the_run_holds_for_its_checkpoints),
		TEST(files_of_a_trainer_are_imported),
		TEST(the_whole_store_out_and_in),
		TEST(the_model_directory_is_a_fact),
		TEST(a_store_in_source_is_refused),
		TEST(a_store_that_is_replaced_is_taken_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

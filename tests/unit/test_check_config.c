/* Rules over training configs: each has a fixture that breaks it and one that does not, and the
 * exact sentence; files that are no configs; versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/setting_rules.h"
#include "unshard.h"

enum { MAX_FOUND = 8 };

struct heard {
	struct {
		char path[256], check[64], text[1024];
		enum unshard_severity severity;
	} v[MAX_FOUND];
	size_t n;
	struct unshard_check_counts counts;
	struct unshard_error err;
};

static int hear(void *ctx, const struct unshard_finding *f)
{
	struct heard *h = ctx;

	assert_in_range(h->n, 0, MAX_FOUND - 1);
	snprintf(h->v[h->n].path, sizeof(h->v[0].path), "%s", f->path);
	snprintf(h->v[h->n].check, sizeof(h->v[0].check), "%s", f->check);
	snprintf(h->v[h->n].text, sizeof(h->v[0].text), "%s", f->text);
	h->v[h->n++].severity = f->severity;
	return 0;
}

static int check_two(const char *one, const char *two, const char *versions, struct heard *h)
{
	char path[2][512];
	const char *files[] = { path[0], path[1] };
	const char *kinds[2] = { NULL, NULL };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = h, .finding = hear };
	int code;

	memset(h, 0, sizeof(*h));
	h->counts.size = sizeof(h->counts);
	snprintf(path[0], sizeof(path[0]), UNSHARD_GOLDEN "/check/%s", one);
	snprintf(path[1], sizeof(path[1]), UNSHARD_GOLDEN "/check/%s", two ? two : "");
	code = unshard_check_config(files, two ? 2 : 1, versions, &calls, kinds, &h->counts, &h->err);
	assert_true(code < 0 || kinds[0]);
	return code;
}

static int check(const char *file, const char *versions, struct heard *h)
{
	return check_two(file, NULL, versions, h);
}

/* The finding of that check, or NULL. */
static const char *text_of(const struct heard *h, const char *name)
{
	size_t i;

	for (i = 0; i < h->n; i++)
		if (strcmp(h->v[i].check, name) == 0)
			return h->v[i].text;
	return NULL;
}

static const struct row {
	const char *rule, *bad, *good, *versions;
	enum unshard_severity severity;
	const char *text;
} rows[] = {
	{ "sharded_save_only_model", "sharded_save_only_model.bad.json", "sharded_save_only_model.good.json", NULL,
	  UNSHARD_PROBLEM,
	  "save_only_model with FSDP SHARDED_STATE_DICT saves no weights: transformers "
	  "before 4.50 fails at the first save with FileNotFoundError for "
	  "trainer_state.json, newer ones refuse to start (transformers PR 36627); set "
	  "save_only_model to false, or fsdp_state_dict_type to FULL_STATE_DICT" },
	{ "save_only_model_load_best", "save_only_model_load_best.bad.yaml", "save_only_model_load_best.good.yaml",
	  NULL, UNSHARD_PROBLEM,
	  "save_only_model and load_best_model_at_end exclude each other under FSDP "
	  "and DeepSpeed: Trainer refuses to start (transformers PR 28866); set one of "
	  "them to false" },
	{ "sharded_load_best_model", "sharded_load_best_model.bad.yaml", "sharded_load_best_model.good.yaml", NULL,
	  UNSHARD_PROBLEM,
	  "load_best_model_at_end with FSDP SHARDED_STATE_DICT reads the best model "
	  "back from shards, so every node must see all of output_dir (accelerate "
	  "issue 3010), and trainer.save_model() afterwards writes no weights "
	  "(transformers issue 30491); set fsdp_state_dict_type to FULL_STATE_DICT, or "
	  "take the best checkpoint's weights from a mount" },
	{ "fsdp2_accelerate", "fsdp2_accelerate.bad.yaml", "fsdp2_accelerate.good.yaml", "accelerate=1.5.2,torch=2.6.0",
	  UNSHARD_PROBLEM,
	  "FSDP2 needs accelerate 1.6.0 or newer: older ones do not know fsdp_version "
	  "(accelerate PR 3394); upgrade accelerate, or set fsdp_version to 1" },
	{ "fsdp2_transformers", "fsdp2_transformers.bad.json", "fsdp2_transformers.good.json",
	  "transformers=4.50.3,accelerate==1.6.0,torch=2.6.0+cu124", UNSHARD_PROBLEM,
	  "FSDP2 with a Trainer needs transformers 4.51.0 or newer: older ones make "
	  "the optimizer after the model, which accelerate refuses for FSDP2 "
	  "(accelerate issue 3476, transformers PR 37147); upgrade transformers, or "
	  "set fsdp_version to 1" },
	{ "fsdp2_full_state_dict", "fsdp2_full_state_dict.bad.yaml", "fsdp2_full_state_dict.good.yaml",
	  "accelerate=1.6.0,torch=2.7", UNSHARD_PROBLEM,
	  "FSDP2 with FULL_STATE_DICT needs accelerate 1.7.0 or newer: 1.6 knows "
	  "SHARDED_STATE_DICT only (accelerate/utils/constants.py, "
	  "FSDP2_STATE_DICT_TYPE); upgrade accelerate, or set fsdp_state_dict_type to "
	  "SHARDED_STATE_DICT" },
	{ "fsdp2_full_adapter", "fsdp2_full_adapter.bad.yaml", "fsdp2_full_adapter.good.yaml",
	  "accelerate=1.14.0,torch=2.7", UNSHARD_NOTE,
	  "a Trainer that trains an adapter of PEFT under FSDP2 with FULL_STATE_DICT saves "
	  "rank 0's rows only into pytorch_model_fsdp.bin before accelerate 1.15.0, and "
	  "cannot resume from it; upgrade accelerate, or set fsdp_state_dict_type to "
	  "SHARDED_STATE_DICT" },
	{ "fsdp2_torch", "fsdp2_torch.bad.yaml", "fsdp2_torch.good.yaml", "accelerate=1.7.0,torch=2.5.1",
	  UNSHARD_PROBLEM,
	  "FSDP2 needs torch 2.6.0 or newer (accelerate/utils/constants.py, "
	  "FSDP2_PYTORCH_VERSION); upgrade torch, or set fsdp_version to 1" },
	{ "fsdp_version_default", "fsdp_version_default.bad.json", "fsdp_version_default.good.json", NULL,
	  UNSHARD_UNJUDGED,
	  "this depends on the version of transformers, which is not known (name it with "
	  "--versions transformers=...): fsdp_config names no version: transformers before 5.10 "
	  "takes FSDP1, newer ones FSDP2 (transformers PR 45640); set fsdp_config's version" },
	{ "lightning_sharded_weights_only", "lightning_sharded_weights_only.bad.yaml",
	  "lightning_sharded_weights_only.good.yaml", "lightning=2.2.0", UNSHARD_PROBLEM,
	  "FSDPStrategy(state_dict_type='sharded') with "
	  "ModelCheckpoint(save_weights_only=True) fails at the first save with "
	  "KeyError 'optimizer_states' and leaves an empty directory before Lightning "
	  "2.2.2 (Lightning issue 19492); upgrade Lightning, or set save_weights_only "
	  "to false, or state_dict_type to 'full'" },
	{ "deepspeed_universal_key", "deepspeed_universal_key.bad.json", "deepspeed_universal_key.good.json", NULL,
	  UNSHARD_PROBLEM,
	  "universal_checkpoint, load_universal and load_universal_checkpoint have no "
	  "effect at the top of a DeepSpeed config; write \"checkpoint\": "
	  "{\"load_universal\": true}" },
	{ "load_universal_frozen", "load_universal_frozen.bad.json", "load_universal_frozen.good.json", NULL,
	  UNSHARD_NOTE,
	  "load_universal restores neither frozen parameters nor buffers: those that the base "
	  "model does not contain keep their fresh values, without a warning; load the model's "
	  "weights before deepspeed.initialize" },
	{ "load_universal_groups", "load_universal_groups.bad.json", "load_universal_groups.good.json", NULL,
	  UNSHARD_PROBLEM,
	  "load_universal at ZeRO stage 3 gives every parameter group the first group's learning "
	  "rate and weight decay, so several groups that differ (a Trainer with weight_decay has "
	  "two) train wrongly, without a warning; resume with stage 1 or 2, with one group, or "
	  "without load_universal" },
	{ "round_robin_gradients", "round_robin_gradients.bad.json", "round_robin_gradients.good.json", NULL,
	  UNSHARD_NOTE,
	  "round_robin_gradients makes ds_to_universal mix parameters up, without a warning; set "
	  "zero_optimization.round_robin_gradients to false if checkpoints will be converted with "
	  "it" },
	{ "zero3_no_16bit_weights", "zero3_no_16bit_weights.bad.json", "zero3_no_16bit_weights.good.json", NULL,
	  UNSHARD_PROBLEM,
	  "ZeRO stage 3 saves no weights that from_pretrained reads, only the ranks' "
	  "shards; set zero_optimization.stage3_gather_16bit_weights_on_model_save "
	  "(Accelerate: zero3_save_16bit_model) to true" },
	{ "exclude_frozen_parameters", "exclude_frozen_parameters.bad.yaml", "exclude_frozen_parameters.good.yaml",
	  NULL, UNSHARD_PROBLEM,
	  "exclude_frozen_parameters leaves frozen parameters out of checkpoints, so no "
	  "checkpoint can restore them; keep the base model, or set it to false" },
	{ "output_dir", "output_dir.bad.json", "output_dir.good.json", NULL, UNSHARD_PROBLEM,
	  "output_dir cannot be written: /dev/null/run would be made in /dev/null, which is a "
	  "file; name a directory" },
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static void every_rule_has_a_row(void **state)
{
	size_t i;

	(void)state;
	assert_int_equal(uns_n_setting_rules, N_ROWS);
	for (i = 0; i < N_ROWS; i++)
		assert_string_equal(uns_setting_rules[i].name, rows[i].rule);
}

static void bad_configs(void **state)
{
	struct heard h;
	size_t i, k;

	(void)state;
	for (i = 0; i < N_ROWS; i++) {
		assert_int_equal(check(rows[i].bad, rows[i].versions, &h), 0);
		assert_non_null(text_of(&h, rows[i].rule));
		assert_string_equal(text_of(&h, rows[i].rule), rows[i].text);
		for (k = 0; k < h.n; k++)
			if (strcmp(h.v[k].check, rows[i].rule) == 0)
				assert_int_equal(h.v[k].severity, rows[i].severity);
		/* Stage 3 with load_universal is two conditions. */
		assert_int_equal(h.n, strcmp(rows[i].rule, "load_universal_groups") ? 1 : 2);
		assert_int_equal(h.counts.problems + h.counts.notes + h.counts.unjudged, h.n);
	}
}

static void good_configs(void **state)
{
	struct heard h;
	size_t i;

	(void)state;
	for (i = 0; i < N_ROWS; i++) {
		/* All versions known: nothing may be left to judge. */
		assert_int_equal(check(rows[i].good,
				       "transformers=5.23.0,accelerate=1.15.0,lightning=2.6.6,"
				       "deepspeed=0.15.4,torch=2.13.0",
				       &h),
				 0);
		assert_null(text_of(&h, rows[i].rule));
		assert_int_equal(h.counts.problems + h.counts.unjudged, 0);
	}
}

/* The same configs are fine with the first version that knows better. */
static void fixed_versions(void **state)
{
	static const struct {
		const char *rule, *file, *below, *from;
	} cases[] = {
		{ "fsdp2_accelerate", "fsdp2_accelerate.bad.yaml", "accelerate=1.6.0.dev0", "accelerate=1.6.0" },
		{ "fsdp2_transformers", "fsdp2_transformers.bad.json", "transformers=4.50.3", "transformers=4.51.0" },
		{ "fsdp2_full_state_dict", "fsdp2_full_state_dict.bad.yaml", "accelerate=1.6.0", "accelerate=1.7.0" },
		{ "fsdp2_torch", "fsdp2_torch.bad.yaml", "torch=2.5.1+cu124", "torch=2.6" },
		{ "lightning_sharded_weights_only", "lightning_sharded_weights_only.bad.yaml", "lightning=2.2.1",
		  "pytorch-lightning=2.2.2" },
		/* Without a version in fsdp_config, that of transformers decides which FSDP it is.
		 */
		{ "fsdp2_accelerate", "fsdp_version_default.bad.json", "transformers=5.10.1,accelerate=1.5.2",
		  "transformers=5.9.0,accelerate=1.5.2" },
	};
	struct heard h;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(check(cases[i].file, cases[i].below, &h), 0);
		assert_int_equal(h.counts.problems, 1);
		assert_non_null(text_of(&h, cases[i].rule));
		assert_int_equal(check(cases[i].file, cases[i].from, &h), 0);
		assert_int_equal(h.counts.problems, 0);
		assert_null(text_of(&h, cases[i].rule));
	}
}

static void unknown_versions_are_not_guessed(void **state)
{
	static const char start[] = "this depends on the version of torch, which is not known "
				    "(name it with --versions torch=...): FSDP2 ";
	struct heard h;

	(void)state;
	assert_int_equal(check("fsdp2_transformers.bad.json", NULL, &h), 0);
	assert_int_equal(h.counts.unjudged, 3);
	assert_int_equal(h.counts.problems, 0);
	assert_non_null(text_of(&h, "fsdp2_torch"));
	assert_int_equal(strncmp(text_of(&h, "fsdp2_torch"), start, strlen(start)), 0);
}

/* What one file says about saving, and another about shards, is one training. */
static void two_files_together(void **state)
{
	struct heard h;

	(void)state;
	assert_int_equal(check_two("fsdp2_torch.good.yaml", "sharded_save_only_model.good.json", NULL, &h), 0);
	assert_int_equal(h.counts.problems, 0); /* the later one says FULL_STATE_DICT */
	assert_int_equal(check_two("sharded_save_only_model.good.json", "fsdp2_torch.good.yaml", NULL, &h), 0);
	assert_non_null(text_of(&h, "sharded_save_only_model"));
	assert_string_equal(h.v[0].path, "");
}

static void files_that_are_named(void **state)
{
	struct heard h;

	(void)state;
	assert_int_equal(check("names_deepspeed.bad.json", NULL, &h), 0);
	assert_non_null(text_of(&h, "zero3_no_16bit_weights"));
	assert_int_equal(check("names_deepspeed.good.yaml", NULL, &h), 0);
	assert_int_equal(h.n, 0);
	assert_int_equal(check("names_nothing.bad.json", NULL, &h), 0);
	assert_int_equal(h.counts.problems, 1);
	assert_non_null(strstr(h.v[0].text, "it names no_such_file.json, which cannot be read and is not "
					    "checked: "));
}

static void what_is_no_config(void **state)
{
	static const struct {
		const char *file, *versions;
		int code;
		const char *text; /* in the sentence */
	} cases[] = {
		{ "empty.json", NULL, -EINVAL, "/check/empty.json is empty" },
		{ "unknown.yaml", NULL, -ENOTSUP,
		  "/check/unknown.yaml is not a config that unshard knows: expected "
		  "TrainingArguments (output_dir, save_steps, fsdp, ...), Accelerate "
		  "(distributed_type, fsdp_config, deepspeed_config), DeepSpeed "
		  "(zero_optimization, ...) or LightningCLI (trainer)" },
		{ "broken.json", NULL, -EBADMSG, "/check/broken.json: JSON is damaged at byte 19 of 20" },
		{ "broken.yaml", NULL, -EBADMSG,
		  "/check/broken.yaml: line 3: YAML is damaged: did not find expected ',' or ']'" },
		{ "aliases.yaml", NULL, -ENOTSUP, "/check/aliases.yaml: line 2: YAML aliases (*name) are not read" },
		{ "no_such.yaml", NULL, -ENOENT, "/check/no_such.yaml" },
		{ "output_dir.good.json", "numpy=1.26", -EINVAL,
		  "versions: 'numpy=1.26' is not PACKAGE=VERSION of transformers, accelerate, "
		  "lightning, deepspeed or torch" },
		{ "output_dir.good.json", "torch=new", -EINVAL, "versions: 'torch=new' has no version" },
	};
	struct heard h;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(check(cases[i].file, cases[i].versions, &h), cases[i].code);
		if (!strstr(h.err.text, cases[i].text))
			fail_msg("%s: %s", cases[i].file, h.err.text);
	}
}

static void versions(void **state)
{
	static const struct {
		const char *text;
		bool before; /* 4.51.0 */
	} cases[] = {
		{ "4.50.3", true },  { "4.51.0", false },     { "4.51", false },    { "4", true },
		{ "5", false },      { "4.51.0.dev0", true }, { "4.51rc1", true },  { "4.52.dev1", false },
		{ "v4.49.0", true }, { "4.51.0+cu1", false }, { "4.51.1a", false }, { "10.0", false },
	};
	char text[64];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_version v[UNS_N_PACKAGES] = { 0 };
		struct uns_err err = { 0 };

		snprintf(text, sizeof(text), "torch=2.6,transformers=%s", cases[i].text);
		assert_int_equal(uns_versions_parse(text, v, &err), 0);
		assert_true(v[UNS_TRANSFORMERS].known && v[UNS_TORCH].known);
		assert_false(v[UNS_ACCELERATE].known);
		if (uns_version_before(&v[UNS_TRANSFORMERS], 4, 51, 0) != cases[i].before)
			fail_msg("%s", cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_has_a_row),
		cmocka_unit_test(bad_configs),
		cmocka_unit_test(good_configs),
		cmocka_unit_test(fixed_versions),
		cmocka_unit_test(unknown_versions_are_not_guessed),
		cmocka_unit_test(two_files_together),
		cmocka_unit_test(files_that_are_named),
		cmocka_unit_test(what_is_no_config),
		cmocka_unit_test(versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A second save into a directory, of every family: while it goes on, where it died, and what looks like it and
 * is a copy. Files are born when the test makes them; "two hours later" is a time in the future. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"
#include "unshard.h"

#define GOLDEN UNSHARD_GOLDEN
#define OLDER  GOLDEN "/older"
#define WEIGHTS(name, tensor)                \
	"printf '\\065\\0\\0\\0\\0\\0\\0\\0" \
	"{\"" tensor "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}x' > ckpt/" name "; "
#define INDEX                                                                    \
	"printf '{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"," \
	"\"b\": \"model-00002-of-00002.safetensors\"}}' > ckpt/model.safetensors.index.json"

static const struct family {
	const char *name;
	const char *make; /* the files of a first save */
	const char *path; /* the checkpoint */
	const char *last; /* what is written last, in the first save too */
	const char *shard, *other;
	const char *view; /* that shows them, and not while they are saved */
} families[] = {
	{ "torch.distributed.checkpoint", "cp -r " OLDER "/torch2.4.1_fsdp2_w2_fp32_dcp/run/ckpt/p*_0 ckpt", "ckpt",
	  "ckpt/.metadata", "ckpt/__0_0.distcp", "ckpt/__1_0.distcp", "weights" },
	{ "the same without collectives", "cp -r " GOLDEN "/dcp/ranks/ckpt ckpt", "ckpt", "ckpt/__*.metadata",
	  "ckpt/__1_0.distcp", "ckpt/__0_0.distcp", "weights" },
	{ "Megatron-Core", "cp -r " GOLDEN "/dcp/megatron/iter_0000010 .", "iter_0000010", "iter_0000010/.metadata",
	  "iter_0000010/__1_1.distcp", "iter_0000010/__0_1.distcp", "weights" },
	{ "a Trainer's model", "cp -r " GOLDEN "/run/checkpoint-2 .", "checkpoint-2",
	  "checkpoint-2/pytorch_model_fsdp_0/.metadata checkpoint-2/trainer_state.json",
	  "checkpoint-2/pytorch_model_fsdp_0/__0_0.distcp", "checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp",
	  "weights" },
	{ "a Trainer's model and optimizer", "cp -r " GOLDEN "/run/checkpoint-2 .", "checkpoint-2",
	  "checkpoint-2/trainer_state.json",
	  "checkpoint-2/pytorch_model_fsdp_0/*.distcp checkpoint-2/pytorch_model_fsdp_0/.metadata",
	  "checkpoint-2/optimizer_0/*.distcp checkpoint-2/optimizer_0/.metadata", "full" },
	{ "Accelerate", "cp -r " OLDER "/accelerate0.29.3-torch2.2.2_f1_sh_w3/run/ckpt .", "ckpt",
	  "ckpt/pytorch_model_fsdp_0/.metadata", "ckpt/pytorch_model_fsdp_0/__2_0.distcp",
	  "ckpt/pytorch_model_fsdp_0/__1_0.distcp", "weights" },
	{ "Lightning", "cp -r " GOLDEN "/dcp/torch2.2.2_lightning/ckpt .", "ckpt", "ckpt/.metadata ckpt/meta.pt",
	  "ckpt/__1_0.distcp", "ckpt/__0_0.distcp", "weights" },
	{ "DeepSpeed, stage 2", "cp -r " GOLDEN "/zero/z2_w3/global_step2 " GOLDEN "/zero/z2_w3/latest .",
	  "global_step2", "latest", "global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
	  "global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "weights" },
	{ "DeepSpeed, stage 3", "cp -r " GOLDEN "/zero/z3_w2/global_step2 " GOLDEN "/zero/z3_w2/latest .",
	  "global_step2", "latest", "global_step2/*pp_rank_1_mp_rank_00_optim_states.pt",
	  "global_step2/*pp_rank_0_mp_rank_00_optim_states.pt", "weights" },
	{ "DeepSpeed below a Trainer",
	  "mkdir checkpoint-2; cp -r " GOLDEN "/zero/z2_w3/global_step2 " GOLDEN
	  "/run/checkpoint-2/trainer_state.json checkpoint-2",
	  "checkpoint-2", "checkpoint-2/trainer_state.json",
	  "checkpoint-2/global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
	  "checkpoint-2/global_step2/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "weights" },
	{ "a universal checkpoint",
	  "cp -r " GOLDEN "/zero/z2_w3/global_step2_universal " GOLDEN "/zero/z2_w3/latest_universal .",
	  "global_step2_universal", "latest_universal", "global_step2_universal/zero/up.weight/fp32.pt",
	  "global_step2_universal/zero/down.weight/fp32.pt", "weights" },
	{ "veRL",
	  "mkdir -p global_step_2; cp -r " GOLDEN "/ranks/fsdp2 global_step_2/actor; "
	  "printf 2 > latest_checkpointed_iteration.txt",
	  "global_step_2/actor", "latest_checkpointed_iteration.txt",
	  "global_step_2/actor/model_world_size_2_rank_1.pt", "global_step_2/actor/model_world_size_2_rank_0.pt",
	  "weights" },
	{ "EasyR1",
	  "mkdir -p global_step_2; cp -r " GOLDEN "/ranks/fsdp2 global_step_2/actor; "
	  "printf '{\"last_global_step\": 2}' > checkpoint_tracker.json",
	  "global_step_2/actor", "checkpoint_tracker.json", "global_step_2/actor/optim_world_size_2_rank_1.pt",
	  "global_step_2/actor/optim_world_size_2_rank_0.pt", "full" },
	{ "save_pretrained",
	  "mkdir ckpt; " WEIGHTS("model-00001-of-00002.safetensors", "a")
		  WEIGHTS("model-00002-of-00002.safetensors", "b") INDEX,
	  "ckpt", "ckpt/model.safetensors.index.json", "ckpt/model-00001-of-00002.safetensors",
	  "ckpt/model-00002-of-00002.safetensors", "weights" },
};

struct fixture {
	char dir[32];
	const struct family *family;
	struct {
		enum unshard_severity severity;
		char check[32], text[1024];
	} found;
	size_t n_found;
	enum unshard_state state;
};

static void fixture_init(struct fixture *f, const struct family *family)
{
	*f = (struct fixture){ .dir = "/tmp/uns_second_XXXXXX", .family = family };
	assert_non_null(mkdtemp(f->dir));
	shell(f->dir, family->make);
}

static void fixture_fini(struct fixture *f)
{
	shell(f->dir, "rm -r ../$(basename $PWD)");
}

/* $last, $shard and $other are the family's. */
static void run(const struct fixture *f, const char *command)
{
	char line[2048];

	snprintf(line, sizeof(line), "last='%s'; shard='%s'; other='%s'; %s", f->family->last, f->family->shard,
		 f->family->other, command);
	shell(f->dir, line);
}

static int hear(void *ctx, const struct unshard_finding *finding)
{
	struct fixture *f = ctx;

	if (strcmp(finding->check, "mixed") != 0 && strcmp(finding->check, "saving") != 0)
		return 0;
	f->n_found++;
	f->found.severity = finding->severity;
	snprintf(f->found.check, sizeof(f->found.check), "%s", finding->check);
	snprintf(f->found.text, sizeof(f->found.text), "%s", finding->text);
	return 0;
}

static int see(void *ctx, const struct unshard_checkpoint *c)
{
	struct fixture *f = ctx;

	if (strcmp(c->path, f->family->path) == 0)
		f->state = c->state;
	return 0;
}

/* What check finds, and what `unshard ls` calls the checkpoint. */
static void look(struct fixture *f, bool settled)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true,
						 .settle_seconds = settled ? 0 : 3600, .no_settling = settled };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = f, .finding = hear, .checkpoint = see };
	struct unshard_check_counts counts = { UNSHARD_CHECK_COUNTS_INIT };
	unshard *u;

	f->n_found = 0;
	f->state = UNSHARD_UNREADABLE;
	assert_int_equal(unshard_open(f->dir, &options, &u, NULL), 0);
	assert_int_equal(unshard_check(u, f->family->path, 0, &calls, &counts, NULL), 0);
	assert_int_equal(unshard_scan(u, &calls, NULL), 0);
	unshard_close(u);
}

static void expect_shown(struct fixture *f, bool shown, const char *what)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .settle_seconds = 3600 };
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	char path[256];
	unshard *u;
	int code;

	snprintf(path, sizeof(path), "%s/%s", f->family->view, f->family->path);
	assert_int_equal(unshard_open(f->dir, &options, &u, NULL), 0);
	code = unshard_stat(u, path, &st, NULL);
	unshard_close(u);
	if (code != (shown ? 0 : -ENOENT))
		fail_msg("%s, %s: %d", f->family->name, what, code);
}

static void expect_ok(struct fixture *f, const char *what)
{
	look(f, true);
	if (f->n_found)
		fail_msg("%s, %s: %s", f->family->name, what, f->found.text);
	assert_int_equal(f->state, UNSHARD_OK);
}

static void expect_found(struct fixture *f, enum unshard_severity severity, const char *what)
{
	look(f, true);
	if (f->n_found != 1 || f->found.severity != severity || strcmp(f->found.check, "mixed") != 0)
		fail_msg("%s, %s: %zu found, %s", f->family->name, what, f->n_found, f->found.text);
	if (severity == UNSHARD_PROBLEM)
		assert_int_equal(f->state, UNSHARD_DAMAGED);
	else
		assert_int_equal(f->state, UNSHARD_OK);
}

/* -- the tests: one for each family -- */

static void a_save_that_ended(struct fixture *f)
{
	expect_ok(f, "as copied");
	run(f, "touch $last");
	expect_shown(f, true, "just saved");
	run(f, "touch -d '+2 hours' $shard; touch -d '+3 hours' $other; touch -d '+4 hours' $last");
	expect_ok(f, "saved again");
}

static void a_save_that_goes_on(struct fixture *f)
{
	run(f, "touch -d '+1 second' $last; touch -d '+2 seconds' $shard");
	expect_shown(f, false, "goes on");
	look(f, false);
	assert_int_equal(f->state, UNSHARD_SAVING);
	assert_int_equal(f->n_found, 1);
	assert_string_equal(f->found.check, "saving");
	run(f, "touch -d '+3 seconds' $other; touch -d '+4 seconds' $last");
	expect_shown(f, true, "ended");
	expect_ok(f, "ended");
}

/* The files that the finding names, from where it says: one line to paste is all that it takes. */
static void touch_as_advised(const struct fixture *f)
{
	const char *advice = strstr(f->found.text, "run in the checkpoint's directory: touch ");
	char line[1024];

	if (!advice)
		fail_msg("%s: %s", f->family->name, f->found.text);
	snprintf(line, sizeof(line), "cd %s; touch -d '+3 hours' %s", f->family->path, strrchr(advice, ':') + 8);
	run(f, line);
}

static void a_save_that_died(struct fixture *f)
{
	run(f, "touch $last; touch -d '+2 hours' $shard");
	expect_found(f, UNSHARD_PROBLEM, "died");
	touch_as_advised(f);
	expect_ok(f, "touched as advised");
}

/* Nobody can tell a copy of mixed files from files that were downloaded with a break. */
static void times_that_were_copied(struct fixture *f)
{
	run(f, "touch -d '-9 hours' $(find . -type f); touch -d '-2 hours' $shard");
	expect_found(f, UNSHARD_NOTE, "copied with its times");
	expect_shown(f, true, "copied with its times");
	touch_as_advised(f);
	expect_ok(f, "touched as advised");
}

/* One file after another, each way around. */
static void copies_in_any_order(struct fixture *f)
{
	static const char *const orders[] = { "sort", "sort -r", "sort -R" };
	char line[256];
	size_t i;

	for (i = 0; i < sizeof(orders) / sizeof(*orders); i++) {
		snprintf(line, sizeof(line),
			 "rm -rf ../$(basename $PWD).copy; find . -type f | %s |"
			 "while read f; do mkdir -p ../$(basename $PWD).copy/$(dirname $f);"
			 "cp $f ../$(basename $PWD).copy/$f; done;"
			 "rm -r *; mv ../$(basename $PWD).copy/* .; rmdir ../$(basename $PWD).copy",
			 orders[i]);
		run(f, line);
		expect_ok(f, orders[i]);
		expect_shown(f, true, orders[i]);
	}
}

static void families_saved_twice(void **state)
{
	static void (*const tests[])(struct fixture *) = { a_save_that_ended, a_save_that_goes_on, a_save_that_died,
							   times_that_were_copied, copies_in_any_order };
	struct fixture f;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(families) / sizeof(*families); i++) {
		for (k = 0; k < sizeof(tests) / sizeof(*tests); k++) {
			fixture_init(&f, &families[i]);
			tests[k](&f);
			fixture_fini(&f);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(families_saved_twice) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

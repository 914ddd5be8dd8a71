/* Directories that become checkpoints: shards that arrive in a sub-directory made long before, as rsync,
 * s3 sync and DeepSpeed without `latest` do it. Until then the directory is hidden, for as long as
 * something may still be writing; then it is there within a second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_clock.h"
#include "shell.h"
#include "unshard.h"

#define GOLDEN UNSHARD_GOLDEN
#define SHARD  "shard-00001-model-00001-of-00001.safetensors"
/* Older than anything that makes a directory's times doubtful. */
#define AGE "touch -d '20 seconds ago' $(find . -type d)"

struct fixture {
	char dir[32];
	unshard *u;
};

static void fixture_init(struct fixture *f, unsigned settle_seconds)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true,
						 .settle_seconds = settle_seconds,
						 .no_settling = settle_seconds == UINT_MAX };

	*f = (struct fixture){ .dir = "/tmp/uns_growing_XXXXXX" };
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(unshard_open(f->dir, &options, &f->u, NULL), 0);
}

static void fixture_fini(struct fixture *f)
{
	unshard_close(f->u);
	shell(f->dir, "chmod -R u+w . && rm -r ../$(basename $PWD)");
}

static bool exists(struct fixture *f, const char *path)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	int code = unshard_stat(f->u, path, &st, NULL);

	assert_true(code == 0 || code == -ENOENT);
	return code == 0;
}

static bool listed(struct fixture *f, const char *dir, const char *name)
{
	unshard_listing *l;
	bool found = false;
	size_t i;

	assert_int_equal(unshard_list(f->u, dir, &l, NULL), 0);
	for (i = 0; i < unshard_listing_count(l); i++)
		found |= strcmp(unshard_listing_at(l, i)->name, name) == 0;
	unshard_listing_free(l);
	return found;
}

static void expect_shown(struct fixture *f, const char *name, bool shown)
{
	char path[128];

	snprintf(path, sizeof(path), "weights/%s", name);
	if (exists(f, path) != shown || listed(f, "weights", name) != shown)
		fail_msg("%s is %s", path, shown ? "not there" : "there");
}

static const struct {
	const char *name, *dir;
	const char *first; /* makes the directory, without a shard */
	const char *some;  /* brings a part of the shards; NULL = all at once */
	const char *rest, *file;
} cases[] = {
	{ "DeepSpeed below a Trainer", "checkpoint-2", "mkdir -p checkpoint-2/global_step2",
	  "cp " GOLDEN "/zero/z2_w3/global_step2/bf16_zero_pp_rank_1* checkpoint-2/global_step2",
	  "cp " GOLDEN "/zero/z2_w3/global_step2/* checkpoint-2/global_step2; "
	  "cp " GOLDEN "/run/checkpoint-2/trainer_state.json checkpoint-2",
	  "model.safetensors" },
	{ "DeepSpeed below a Trainer, copied under another name", "best",
	  "mkdir -p best/global_step2; touch best/training_args.bin", NULL,
	  "cp " GOLDEN "/zero/z2_w3/global_step2/* best/global_step2; "
	  "cp " GOLDEN "/run/checkpoint-2/trainer_state.json best",
	  "model.safetensors" },
	{ "DeepSpeed's own", "global_step2", "mkdir global_step2",
	  "cp " GOLDEN "/zero/z2_w3/global_step2/bf16_zero_pp_rank_1* global_step2",
	  "cp " GOLDEN "/zero/z2_w3/global_step2/* global_step2; printf global_step2 > latest", "model.safetensors" },
	{ "a universal directory", "checkpoint-2", "mkdir -p checkpoint-2/global_step2/zero", NULL,
	  "cp -r " GOLDEN "/zero/z2_w3/global_step2_universal/* checkpoint-2/global_step2; "
	  "cp " GOLDEN "/run/checkpoint-2/trainer_state.json checkpoint-2",
	  "model.safetensors" },
	{ "FSDP's optimizer first", "ckpt", "mkdir -p ckpt/optimizer_0",
	  "cp -r " GOLDEN "/run/checkpoint-2/optimizer_0 ckpt", "cp -r " GOLDEN "/run/checkpoint-2/* ckpt",
	  "model.safetensors" },
	{ "torch's safetensors", "ckpt", "mkdir -p ckpt/sharded", NULL,
	  "cp " GOLDEN "/run.model.safetensors ckpt/sharded/" SHARD, "model.safetensors" },
	{ "a Trainer's small files first", "checkpoint-2",
	  "mkdir checkpoint-2; cp " GOLDEN "/run/config.json checkpoint-2", NULL,
	  "cp " GOLDEN "/run.model.safetensors checkpoint-2/model.safetensors; "
	  "cp " GOLDEN "/run/checkpoint-2/trainer_state.json checkpoint-2",
	  "model.safetensors" },
	{ "per-rank files", "actor", "mkdir actor; touch actor/fsdp_config.json", NULL,
	  "rm actor/fsdp_config.json; cp " GOLDEN "/ranks/fsdp2/*.pt actor", "model.safetensors" },
};

static void shards_arrive_later(void **state)
{
	struct fixture f;
	char path[128];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		print_message("%s\n", cases[i].name);
		fixture_init(&f, 60);
		shell(f.dir, cases[i].first);
		shell(f.dir, AGE);
		expect_shown(&f, cases[i].dir, false);
		wait_recheck();
		expect_shown(&f, cases[i].dir, false);
		if (cases[i].some) {
			shell(f.dir, cases[i].some);
			wait_recheck();
			expect_shown(&f, cases[i].dir, false);
		}
		shell(f.dir, cases[i].rest);
		wait_recheck();
		expect_shown(&f, cases[i].dir, true);
		snprintf(path, sizeof(path), "weights/%s/%s", cases[i].dir, cases[i].file);
		assert_true(exists(&f, path));
		fixture_fini(&f);
	}
}

/* Nobody writes any more, or nobody is waited for: a plain directory, until it is more. */
static void what_has_settled_is_plain(void **state)
{
	struct fixture f;
	char path[128];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		print_message("%s\n", cases[i].name);
		fixture_init(&f, (unsigned)-1);
		shell(f.dir, cases[i].first);
		shell(f.dir, AGE);
		expect_shown(&f, cases[i].dir, true);
		wait_recheck();
		expect_shown(&f, cases[i].dir, true);
		shell(f.dir, cases[i].rest);
		wait_recheck();
		snprintf(path, sizeof(path), "weights/%s/%s", cases[i].dir, cases[i].file);
		assert_true(exists(&f, path));
		fixture_fini(&f);
	}
}

/* What holds other things is not hidden with them. */
static void other_directories_are_not_hidden(void **state)
{
	static const char *const others[] = {
		"mkdir -p d/pytorch_model",
		"mkdir -p d/checkpoint-2",
		"mkdir -p d/global_step2 && touch d/latest",
		"mkdir -p d/optimizer && touch d/training_args.bin",
		"mkdir -p d/global_step_7/actor",
	};
	struct fixture f;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(others) / sizeof(*others); i++) {
		print_message("%s\n", others[i]);
		fixture_init(&f, 60);
		shell(f.dir, others[i]);
		expect_shown(&f, "d", true);
		fixture_fini(&f);
	}
	fixture_init(&f, 60);
	shell(f.dir, "mkdir -p global_step_7/critic");
	expect_shown(&f, "global_step_7", true);
	fixture_fini(&f);
}

/* Times of a file server whose clock is an hour ahead: a save that was seen to go on is hidden all the same, and listed
 * with its problem when nothing has changed for `settle`. */
static void where_the_servers_clock_is_ahead(void **state)
{
	struct fixture f;

	(void)state;
	fixture_init(&f, 60);
	fake_ahead_s = -3600;
	shell(f.dir,
	      "mkdir -p global_step2 && cp " GOLDEN "/zero/z2_w3/global_step2/bf16_zero_pp_rank_1* global_step2");
	exists(&f, "weights/global_step2"); /* seen for the first time */
	wait_recheck();
	shell(f.dir, "cp " GOLDEN "/zero/z2_w3/global_step2/bf16_zero_pp_rank_2* global_step2");
	expect_shown(&f, "global_step2", false);
	fake_now_ms += 61 * 1000;
	expect_shown(&f, "global_step2", true);
	assert_false(exists(&f, "weights/global_step2/model.safetensors"));
	fake_ahead_s = 0;
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shards_arrive_later),
		cmocka_unit_test(what_has_settled_is_plain),
		cmocka_unit_test(where_the_servers_clock_is_ahead),
		cmocka_unit_test(other_directories_are_not_hidden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

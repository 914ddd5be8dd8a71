/* unshard_check: copies of a real run with something missing, and directories that were never
 * filled; each with the exact sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/leftover.h"
#include "unshard.h"

enum { MAX_FOUND = 16 };

struct fixture {
	char dir[64]; /* holds run/ */
	struct {
		char path[128], check[64], text[2048];
		enum unshard_severity severity;
	} v[MAX_FOUND];
	size_t n;
	struct unshard_check_counts counts;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/unshard-check-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char line[128];

	snprintf(line, sizeof(line), "chmod -R u+rwx '%s' && rm -rf '%s'", f->dir, f->dir);
	assert_int_equal(system(line), 0);
	free(f);
	return 0;
}

/* A fresh run/, then the shell line in it. */
static void make(struct fixture *f, const char *line)
{
	char whole[1024];

	snprintf(whole, sizeof(whole),
		 "rm -rf %s/run && mkdir %s/run && cp -r '" UNSHARD_GOLDEN "/run/.' %s/run && "
		 "cd %s/run && %s",
		 f->dir, f->dir, f->dir, f->dir, line);
	assert_int_equal(system(whole), 0);
}

static int hear(void *ctx, const struct unshard_finding *finding)
{
	struct fixture *f = ctx;

	assert_in_range(f->n, 0, MAX_FOUND - 1);
	snprintf(f->v[f->n].path, sizeof(f->v[0].path), "%s", finding->path);
	snprintf(f->v[f->n].check, sizeof(f->v[0].check), "%s", finding->check);
	snprintf(f->v[f->n].text, sizeof(f->v[0].text), "%s", finding->text);
	f->v[f->n++].severity = finding->severity;
	return 0;
}

static int check_settled(struct fixture *f, const char *path, unsigned settle_seconds)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .settle_seconds = settle_seconds,
						 .no_settling = settle_seconds == UINT_MAX };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = f, .finding = hear };
	struct unshard_error err = { 0 };
	unshard *u;
	int code;

	f->n = 0;
	f->counts = (struct unshard_check_counts){ UNSHARD_CHECK_COUNTS_INIT };
	assert_int_equal(unshard_open(f->dir, &options, &u, &err), 0);
	code = unshard_check(u, path, 0, &calls, &f->counts, &err);
	unshard_close(u);
	assert_int_equal(f->counts.problems + f->counts.notes + f->counts.unjudged, f->n);
	return code;
}

static void check(struct fixture *f, const char *path)
{
	assert_int_equal(check_settled(f, path, UINT_MAX), 0);
}

static void a_sound_run(void **state)
{
	struct fixture *f = *state;

	make(f, "true");
	check(f, "run");
	assert_int_equal(f->n, 0);
	assert_int_equal(f->counts.checkpoints, 1);
	check(f, "run/checkpoint-2");
	assert_int_equal(f->n, 0);
	assert_int_equal(check_settled(f, "run/no", UINT_MAX), -ENOENT);
}

/* What is done to checkpoint-2, the one finding, and its sentence. */
static const struct {
	const char *line, *check;
	enum unshard_severity severity;
	const char *text;
} cases[] = {
	{ "rm checkpoint-2/trainer_state.json", "trainer_state", UNSHARD_PROBLEM,
	  "checkpoint-2 has no trainer_state.json: a Trainer that resumes from it fails with "
	  "FileNotFoundError; copy it back from the training machine, write a copy with one by --repair OUT, or "
	  "resume from a mount, whose view full makes one" },
	{ ": > checkpoint-2/trainer_state.json", "trainer_state", UNSHARD_PROBLEM,
	  "a Trainer cannot resume from trainer_state.json of checkpoint-2: the file is empty; copy it "
	  "back from the training machine, write a copy with one by --repair OUT, or resume from a mount, whose view "
	  "full makes one" },
	{ "sed -i /train_batch_size/d checkpoint-2/trainer_state.json", "trainer_state", UNSHARD_NOTE,
	  "trainer_state.json of checkpoint-2 has no train_batch_size, which older versions of transformers and other "
	  "trainers do not write: the Trainer of transformers 5.23 ends with a TypeError when it resumes from this "
	  "file; resume from a mount, whose views add the key, or with the version that saved the checkpoint" },
	{ "sed -i -E '/(logging|eval)_steps/d' checkpoint-2/trainer_state.json", "trainer_state", UNSHARD_NOTE,
	  "trainer_state.json of checkpoint-2 has no eval_steps, logging_steps: a Trainer that resumes from this file "
	  "uses 500 instead of its own arguments; resume from a mount with -o fact=KEY=VALUE for each of them" },
	{ "sed -i -E 's/(\"global_step\": ).*,/\\12.5,/' checkpoint-2/trainer_state.json", "trainer_state",
	  UNSHARD_PROBLEM,
	  "a Trainer cannot resume from trainer_state.json of checkpoint-2: global_step is 2.5 where an integer of 0 or "
	  "more is expected; copy it back from the training machine, write a copy with one by --repair OUT, or resume from a mount, whose view full makes "
	  "one" },
	{ "sed -i /global_step/d checkpoint-2/trainer_state.json", "trainer_state", UNSHARD_PROBLEM,
	  "a Trainer cannot resume from trainer_state.json of checkpoint-2: the file has no global_step, without which "
	  "a Trainer counts from 0; copy it back from the training machine, write a copy with one by --repair OUT, or resume from a mount, whose view full "
	  "makes one" },
	{ "rm checkpoint-2/scheduler.pt", "scheduler", UNSHARD_PROBLEM,
	  "checkpoint-2 has an optimizer and no scheduler.pt: a Trainer restores both or neither, "
	  "so both would start from the beginning without a warning; copy scheduler.pt back from "
	  "the training machine" },
	{ "rm -r checkpoint-2/optimizer_0", "optimizer", UNSHARD_PROBLEM,
	  "checkpoint-2 has scheduler.pt and no optimizer: a Trainer restores both or neither, so "
	  "both would start from the beginning without a warning; copy optimizer_0 (or "
	  "optimizer.pt, optimizer.bin) back from the training machine" },
	{ "rm -r checkpoint-2/optimizer_0 checkpoint-2/scheduler.pt", "optimizer", UNSHARD_PROBLEM,
	  "checkpoint-2 has random states, but neither an optimizer nor scheduler.pt: a Trainer that resumes from it "
	  "starts both from the beginning without a message; copy scheduler.pt and optimizer_0 (or optimizer.pt, optimizer.bin) back "
	  "from the training machine" },
	{ "rm -r checkpoint-2/optimizer_0 checkpoint-2/scheduler.pt checkpoint-2/rng*", "optimizer", UNSHARD_NOTE,
	  "checkpoint-2 has neither an optimizer nor scheduler.pt nor random states, as save_only_model saves it: a "
	  "Trainer that resumes from it starts all three from the beginning without a message" },
	{ "rm checkpoint-2/rng_state_0.pth", "rng", UNSHARD_PROBLEM,
	  "rng_state_0.pth of checkpoint-2 is missing: random states of 1 of 2 ranks were found, "
	  "and rank 0 would resume with other ones; copy it back from the training machine" },
	{ "rm checkpoint-2/rng_state_1.pth", "rng", UNSHARD_PROBLEM,
	  "the shards of checkpoint-2 are of 2 ranks and its random states of 1: copy the other "
	  "ranks' rng_state_*.pth back, or the directory mixes two saves" },
	{ "cp checkpoint-2/rng_state_1.pth checkpoint-2/rng_state_2.pth", "rng", UNSHARD_NOTE,
	  "checkpoint-2 has shards of 2 ranks, and random states of 3: either some ranks had nothing to write, or "
	  "the directory mixes two saves; compare the times of the rng_state files with those of the shards" },
	{ "rm checkpoint-2/rng_state_*", "rng", UNSHARD_NOTE,
	  "checkpoint-2 has no rng_state files: a Trainer that resumes from it shuffles data and "
	  "drops out differently; copy them back from the training machine" },
	{ "rm config.json", "config", UNSHARD_NOTE,
	  "no config.json was found for the weights of checkpoint-2, and from_pretrained needs "
	  "one; put the model's config.json and tokenizer into the run directory, or mount with "
	  "-o model=DIR" },
	{ "rm checkpoint-2/optimizer_0/.metadata", "damaged", UNSHARD_PROBLEM,
	  "optimizer_0/.metadata is missing: the save did not finish, or the file was not copied; "
	  "without it the .distcp files cannot be read; copy it back from the training machine, "
	  "or resume from the checkpoint before it" },
	{ "mkdir checkpoint-4", "empty", UNSHARD_PROBLEM,
	  "checkpoint-4 is empty: nothing can be recovered from it; FSDP SHARDED_STATE_DICT with "
	  "save_only_model does this (transformers before 4.50): set save_only_model to false, or "
	  "fsdp_state_dict_type to FULL_STATE_DICT; if the shards are on other nodes' disks, copy "
	  "them here" },
	{ "mkdir checkpoint-4 && cp checkpoint-2/trainer_state.json checkpoint-4", "no_weights", UNSHARD_PROBLEM,
	  "checkpoint-4 holds no weights, only files such as trainer_state.json: nothing can be "
	  "recovered from it; FSDP SHARDED_STATE_DICT with save_only_model does this (transformers "
	  "before 4.50): set save_only_model to false, or fsdp_state_dict_type to FULL_STATE_DICT; "
	  "if "
	  "the shards are on other nodes' disks, copy them here" },
	{ "mkdir -p checkpoints/step=2.ckpt", "empty", UNSHARD_PROBLEM,
	  "step=2.ckpt is empty: nothing can be recovered from it; "
	  "FSDPStrategy(state_dict_type='sharded') with ModelCheckpoint(save_weights_only=True) "
	  "does "
	  "this before Lightning 2.2.2: upgrade Lightning, or set save_weights_only to false, or "
	  "state_dict_type to 'full'" },
	{ "mkdir -p global_step7/empty", "empty", UNSHARD_PROBLEM,
	  "global_step7 is empty: nothing can be recovered from it; the save did not begin, or the "
	  "shards are on other nodes' disks: copy them here, or delete the directory" },
	{ "mkdir -p step-000007/actor && touch step-000007/x.json step-000007/actor/shard_0.npz", "not_read",
	  UNSHARD_NOTE,
	  "step-000007 is in a format that unshard does not know (shard_0.npz), so it was not "
	  "checked" },
	{ "mkdir tmp-checkpoint-4 && touch tmp-checkpoint-4/x", "staging", UNSHARD_PROBLEM,
	  "tmp-checkpoint-4 is the directory that a Trainer writes to and renames when the save "
	  "has ended: this save did not end; resume from the checkpoint before it and delete this "
	  "directory" },
};

static void one_thing_wrong(void **state)
{
	struct fixture *f = *state;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make(f, cases[i].line);
		check(f, "run");
		if (f->n != 1 || strcmp(f->v[0].text, cases[i].text) != 0)
			fail_msg("%s: %zu: %s", cases[i].line, f->n, f->n ? f->v[0].text : "");
		assert_string_equal(f->v[0].check, cases[i].check);
		assert_int_equal(f->v[0].severity, cases[i].severity);
		assert_int_equal(f->counts.checkpoints, 1);
	}
}

/* With a view: what a training that resumes from it would miss. */
static void resumes_from_a_view(void **state)
{
	static const struct {
		const char *line, *view, *missed; /* missed: in the last problem; NULL = none */
	} resumes[] = {
		{ "true", "full", NULL },
		{ "true", "full-fsdp", NULL },
		{ "true", "dcp", NULL },
		{ "true", "universal",
		  "for a resume from the view universal, checkpoint-2 has no rng_state_RANK.pth: each process keeps" },
		{ "true", "world-2", "the view world-2 cannot show checkpoint-2: " },
		{ "rm checkpoint-2/rng_state_1.pth", "full", NULL },
		{ "rm checkpoint-2/rng_state_1.pth", "dcp", NULL }, /* nothing records that there were two ranks */
		{ "rm checkpoint-2/rng_state_0.pth", "full",
		  "for a resume from the view full, checkpoint-2 has no rng_state.pth: each process keeps" },
		{ "rm checkpoint-2/scheduler.pt", "dcp",
		  "for a resume from the view dcp, checkpoint-2 has no scheduler.pt: the Trainer starts the optimizer and "
		  "the scheduler from the beginning, without a message" },
		{ "rm -r checkpoint-2/scheduler.pt checkpoint-2/optimizer_0", "full",
		  "for a resume from the view full, checkpoint-2 has no optimizer.pt and no scheduler.pt: the Trainer" },
		{ "rm checkpoint-2/trainer_state.json", "full",
		  "checkpoint-2 has no trainer_state.json with eval_steps, logging_steps, save_steps, train_batch_size: the "
		  "view makes one with assumed values" },
	};
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = *state, .finding = hear };
	struct fixture *f = *state;
	struct unshard_error err = { 0 };
	const char *missed;
	unshard *u;
	size_t i, k;

	for (i = 0; i < sizeof(resumes) / sizeof(resumes[0]); i++) {
		const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true,
							 .view = resumes[i].view };

		make(f, resumes[i].line);
		f->n = 0;
		assert_int_equal(unshard_open(f->dir, &options, &u, &err), 0);
		assert_int_equal(unshard_check(u, "run", UNSHARD_FOR_VIEW, &calls, NULL, &err), 0);
		unshard_close(u);
		for (k = 0, missed = NULL; k < f->n; k++)
			if (!strcmp(f->v[k].check, "resume") && f->v[k].severity == UNSHARD_PROBLEM)
				missed = f->v[k].text;
		if (!missed != !resumes[i].missed || (missed && !strstr(missed, resumes[i].missed)))
			fail_msg("%s, %s: %s", resumes[i].line, resumes[i].view, missed ? missed : "nothing");
	}
}

static void views_that_nothing_resumes_from(void **state)
{
	static const char *const views[] = { NULL, "weights", "adapter" };
	struct fixture *f = *state;
	struct unshard_error err = { 0 };
	unshard *u;
	size_t i;

	make(f, "true");
	for (i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
		const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .view = views[i] };

		assert_int_equal(unshard_open(f->dir, &options, &u, &err), 0);
		assert_int_equal(unshard_check(u, "run", UNSHARD_FOR_VIEW, NULL, NULL, &err), -EINVAL);
		assert_non_null(strstr(err.text, "judged for the views full, full-fsdp, dcp"));
		unshard_close(u);
	}
}

/* What the formats say of damage is passed on, as a problem, with the file's name. */
static void damage(void **state)
{
	static const struct {
		const char *line, *names;
	} damaged[] = {
		{ "rm checkpoint-2/pytorch_model_fsdp_0/.metadata", ".metadata" },
		{ "rm checkpoint-2/optimizer_0/.metadata", "optimizer_0/.metadata" },
		{ "rm checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp", "__1_0.distcp" },
		{ "truncate -s 2000 checkpoint-2/pytorch_model_fsdp_0/__1_0.distcp", "__1_0.distcp" },
		{ "rm -r checkpoint-2/pytorch_model_fsdp_0", "pytorch_model_fsdp_0" },
	};
	struct fixture *f = *state;
	size_t i, k;
	bool named;

	for (i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
		make(f, damaged[i].line);
		check(f, "run");
		for (k = 0, named = false; k < f->n; k++)
			named |= f->v[k].severity == UNSHARD_PROBLEM && strcmp(f->v[k].check, "damaged") == 0 &&
				 strstr(f->v[k].text, damaged[i].names);
		if (!named)
			fail_msg("%s: %zu: %s", damaged[i].line, f->n, f->n ? f->v[0].text : "");
	}
}

/* A copier that reserves the whole size first and dies, or a power cut: safetensors has no checksum. */
static void an_end_that_nobody_wrote(void **state)
{
	struct fixture *f = *state;

	make(f, "rm -r * && mkdir m && cp " UNSHARD_GOLDEN "/run/*.json m && cp " UNSHARD_GOLDEN
		"/run.model.safetensors m/model.safetensors");
	check(f, "run");
	assert_int_equal(f->n, 0);
	make(f, "rm -r * && mkdir m && cp " UNSHARD_GOLDEN "/run/*.json m && cp " UNSHARD_GOLDEN
		"/run.model.safetensors m/model.safetensors && truncate -s 8192 m/model.safetensors && "
		"truncate -s 11272 m/model.safetensors");
	check(f, "run");
	assert_int_equal(f->n, 1);
	assert_string_equal(f->v[0].check, "hole");
	assert_int_equal(f->v[0].severity, UNSHARD_NOTE);
	assert_non_null(strstr(f->v[0].text, "model.safetensors: the last 3080 of its 11272 bytes were never written"));
}

static void a_config_that_does_not_fit(void **state)
{
	static const char widen[] = "sed -i -E 's/(\"hidden_size\": )[0-9]+/\\14096/' config.json";
	struct fixture *f = *state;

	make(f, widen);
	check(f, "run");
	assert_int_equal(f->n, 1);
	assert_string_equal(f->v[0].check, "config");
	assert_int_equal(f->v[0].severity, UNSHARD_PROBLEM);
	assert_non_null(strstr(f->v[0].text, "does not fit"));
	assert_non_null(strstr(f->v[0].text, "4096"));
	assert_non_null(strstr(f->v[0].text, "-o model=DIR"));

	make(f, "sed -E 's/(\"hidden_size\": )[0-9]+/\\14096/' config.json > "
		"checkpoint-2/config.json");
	check(f, "run");
	assert_int_equal(f->n, 1);
	assert_string_equal(f->v[0].check, "config");
	assert_int_equal(f->v[0].severity, UNSHARD_PROBLEM);
	assert_non_null(strstr(f->v[0].text, "4096"));
}

static void what_is_still_being_saved(void **state)
{
	struct fixture *f = *state;

	make(f, "rm checkpoint-2/trainer_state.json && mkdir checkpoint-4");
	assert_int_equal(check_settled(f, "run", 3600), 0);
	assert_int_equal(f->n, 2);
	assert_int_equal(f->counts.problems + f->counts.notes, 0);
	assert_int_equal(f->counts.unjudged, 2);
	assert_int_equal(f->counts.saving, 2);
	assert_int_equal(f->v[0].severity, UNSHARD_UNJUDGED);
	assert_string_equal(f->v[0].check, "saving");
	assert_string_equal(f->v[1].text, "still being saved: the file that is written last is missing, or "
					  "older than a shard, and something changed less than 3600 s ago; "
					  "nothing to do: what is missing 3600 s after the last change is "
					  "reported as damaged (-o settle=SECONDS)");
}

static void nothing_at_all(void **state)
{
	struct fixture *f = *state;

	make(f, "rm -r checkpoint-2");
	check(f, "run");
	assert_int_equal(f->n, 1);
	assert_string_equal(f->v[0].check, "nothing");
	assert_int_equal(f->v[0].severity, UNSHARD_PROBLEM);
	assert_string_equal(f->v[0].text, "no checkpoint was found below run: nothing was saved yet, or the "
					  "saves failed (FSDP SHARDED_STATE_DICT with save_only_model leaves "
					  "nothing before transformers 4.50)");
}

static int end_at_second(void *ctx, const struct unshard_finding *finding)
{
	(void)finding;
	return ++*(int *)ctx == 2 ? 77 : 0;
}

static void a_visitor_that_ends_it(void **state)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_settling = true };
	struct fixture *f = *state;
	unshard *u;
	int n = 0;
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = &n, .finding = end_at_second };

	make(f, "mkdir checkpoint-4 checkpoint-5 checkpoint-6");
	assert_int_equal(unshard_open(f->dir, &options, &u, NULL), 0);
	assert_int_equal(unshard_check(u, "run", 0, &calls, NULL, NULL), 77);
	assert_int_equal(n, 2);
	unshard_close(u);
}

static void names(void **state)
{
	static const struct {
		const char *name;
		enum uns_checkpoint_name is;
	} all[] = {
		{ "checkpoint-12", UNS_NAME_TRAINER },
		{ "checkpoint-012", UNS_NAME_OTHER },
		{ "checkpoint-", UNS_NAME_OTHER },
		{ "checkpoint-12-old", UNS_NAME_OTHER },
		{ "tmp-checkpoint-3", UNS_NAME_TRAINER_STAGING },
		{ "epoch=1-step=200.ckpt", UNS_NAME_LIGHTNING },
		{ ".ckpt", UNS_NAME_OTHER },
		{ "global_step100", UNS_NAME_STEP },
		{ "global_step_100", UNS_NAME_STEP },
		{ "step-000100", UNS_NAME_STEP },
		{ "iter_0000100", UNS_NAME_STEP },
		{ "steps", UNS_NAME_OTHER },
		{ "step", UNS_NAME_OTHER },
		{ "logs", UNS_NAME_OTHER },
		{ "", UNS_NAME_OTHER },
	};
	static const char *const weightless[] = { "trainer_state.json", "rng_state_0.pth",   "latest",   "scheduler.pt",
						  "tokenizer.model",    "training_args.bin", ".complete" };
	static const char *const unread[] = { "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
					      "model_world_size_2_rank_0.pt", "weights.npz", "model.bin",
					      "__0_0.distcp" };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (uns_checkpoint_name_of(all[i].name) != all[i].is)
			fail_msg("%s", all[i].name);
	for (i = 0; i < sizeof(weightless) / sizeof(weightless[0]); i++)
		assert_true(uns_leftover_is_weightless(weightless[i]));
	for (i = 0; i < sizeof(unread) / sizeof(unread[0]); i++)
		assert_false(uns_leftover_is_weightless(unread[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_sound_run, setup, teardown),
		cmocka_unit_test_setup_teardown(one_thing_wrong, setup, teardown),
		cmocka_unit_test_setup_teardown(resumes_from_a_view, setup, teardown),
		cmocka_unit_test_setup_teardown(views_that_nothing_resumes_from, setup, teardown),
		cmocka_unit_test_setup_teardown(damage, setup, teardown),
		cmocka_unit_test_setup_teardown(an_end_that_nobody_wrote, setup, teardown),
		cmocka_unit_test_setup_teardown(a_config_that_does_not_fit, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_still_being_saved, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_at_all, setup, teardown),
		cmocka_unit_test_setup_teardown(a_visitor_that_ends_it, setup, teardown),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which format a directory is, and what the FSDP formats say about whole and broken ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/format.h"
#include "model/cover.h"
#include "said.h"
#include "shell.h"

extern const struct uns_format uns_format_dcp, uns_format_hf_fsdp, uns_format_megatron;

struct temp {
	char dir[32];
	struct uns_root *root;
	struct uns_arena arena;
};

static void temp_init(struct temp *t)
{
	*t = (struct temp){ .dir = "/tmp/uns_formats_XXXXXX" };
	assert_non_null(mkdtemp(t->dir));
	assert_int_equal(uns_root_open(t->dir, NULL, &t->root, NULL), 0);
}

static void temp_fini(struct temp *t)
{
	shell(t->dir, "rm -r ../$(basename $PWD)");
	uns_root_close(t->root);
	uns_arena_fini(&t->arena);
}

static struct uns_directory directory_of(struct temp *t, const char *path, struct uns_listing *list)
{
	assert_int_equal(uns_root_list(t->root, path, &t->arena, list, NULL), 0);
	return (struct uns_directory){ .root = t->root, .path = path, .list = list };
}

/* -- probe -- */

static const struct {
	const char *name, *make; /* in the directory */
	int dcp, hf_fsdp;
} probe_cases[] = {
	{ "nothing", "true", 0, 0 },
	{ "DCP", "touch .metadata __0_0.distcp", 70, 0 },
	{ "DCP without collectives", "touch __0.metadata __0_0.distcp", 70, 0 },
	{ "Lightning", "touch .metadata __0_0.distcp meta.pt", 40, 0 },
	{ "shards without metadata", "touch __0_0.distcp", 30, 0 },
	{ "metadata without shards", "touch .metadata", 30, 0 },
	{ "Trainer", "mkdir pytorch_model_fsdp_0 optimizer_0; touch trainer_state.json", 0, 90 },
	{ "per-rank files", "touch pytorch_model_fsdp_0_rank0.bin", 0, 90 },
	{ "an optimizer alone", "mkdir optimizer_0; touch optimizer_0/.metadata", 0, 70 },
	{ "an empty optimizer", "mkdir optimizer_0", 0, 0 },
	{ "a full model", "touch pytorch_model_fsdp.bin", 0, 65 },
	{ "a full model twice", "touch pytorch_model_fsdp.bin model.safetensors", 0, 65 },
	{ "a plain checkpoint", "touch model.safetensors optimizer.pt trainer_state.json", 0, 0 },
	{ "another name", "mkdir pytorch_model_fsdp_x optimizer_00", 0, 0 },
};

static const struct {
	const char *make; /* in the directory */
	int sure;
	bool begun;
} rank_cases[] = {
	{ "true", 0, false },
	{ "mkdir mp_rank_00; touch mp_rank_00/model_optim_rng.pt", 90, false },
	{ "mkdir mp_rank_01_002_003; touch mp_rank_01_002_003/model_optim_rng.pt", 90, false },
	{ "mkdir mp_rank_00", 0, true },
	{ "mkdir mp_rank_0 mp_rank_00_000_000_000 mp_rank_00_x mp_rank_; touch mp_rank_00_x/model_optim_rng.pt", 0,
	  false },
	{ "touch mp_rank_00_model_states.pt mp_rank_01", 0, false },
};

static void probes_files_of_megatrons_ranks(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rank_cases) / sizeof(*rank_cases); i++) {
		struct temp t = { 0 };
		struct uns_listing list;
		struct uns_directory dir;

		temp_init(&t);
		shell(t.dir, rank_cases[i].make);
		dir = directory_of(&t, "", &list);
		if (uns_format_megatron.probe(&dir) != rank_cases[i].sure ||
		    uns_format_megatron.begun(&dir) != rank_cases[i].begun)
			fail_msg("%s", rank_cases[i].make);
		temp_fini(&t);
	}
}

static void probes(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(probe_cases) / sizeof(*probe_cases); i++) {
		struct uns_listing list = { 0 };
		struct uns_directory dir;
		struct temp t;
		char command[256];

		print_message("%s\n", probe_cases[i].name);
		temp_init(&t);
		snprintf(command, sizeof(command), "mkdir d; cd d; %s", probe_cases[i].make);
		shell(t.dir, command);
		dir = directory_of(&t, "d", &list);
		assert_int_equal(uns_format_dcp.probe(&dir), probe_cases[i].dcp);
		assert_int_equal(uns_format_hf_fsdp.probe(&dir), probe_cases[i].hf_fsdp);
		temp_fini(&t);
	}
}

/* -- open -- */

static const struct {
	const char *name, *change; /* in a copy of a Trainer's checkpoint-2 */
	bool finished;
	int64_t step, world_size;
	size_t n_weights, n_moments; /* exp_avg */
	enum uns_scope scope;        /* of the one problem */
	const char *problem;
} open_cases[] = {
	{ "whole", "true", true, 2, 2, 12, 11, 0, NULL },
	{ "trainer_state.json is not there (yet)", "rm trainer_state.json", false, 2, 2, 12, 11, 0, NULL },
	{ "the model's save did not end", "rm pytorch_model_fsdp_0/.metadata", true, 2, 2, 0, 11, UNS_SCOPE_WEIGHTS,
	  "pytorch_model_fsdp_0/.metadata is missing: the save did not finish" },
	{ "the optimizer's save did not end", "rm optimizer_0/.metadata", true, 2, 2, 12, 0, UNS_SCOPE_OPTIMIZER,
	  "optimizer_0/.metadata is missing: the save did not finish" },
	{ "no optimizer", "rm -r optimizer_0", true, 2, 2, 12, 0, 0, NULL },
	{ "no model", "rm -r pytorch_model_fsdp_0", true, 2, 2, 0, 11, UNS_SCOPE_WEIGHTS,
	  "checkpoint-2 has no pytorch_model_fsdp_0" },
	{ "the optimizer's metadata is damaged", "truncate -s 5000 optimizer_0/.metadata", true, 2, 2, 12, 0,
	  UNS_SCOPE_OPTIMIZER, "optimizer_0/.metadata: " },
	{ "a further model", "cp -r pytorch_model_fsdp_0 pytorch_model_fsdp_1", true, 2, 2, 12, 11, UNS_SCOPE_NOTE,
	  "pytorch_model_fsdp_1 is a further model" },
};

static void copy_run(const struct temp *t)
{
	char text[1200];

	snprintf(text, sizeof(text), "cp -r " UNSHARD_GOLDEN "/run/checkpoint-2 %s/ && chmod -R u+w %s", t->dir,
		 t->dir);
	assert_int_equal(system(text), 0);
}

static size_t count(const struct uns_catalog *cat, enum uns_role role)
{
	size_t i, n = 0;

	for (i = 0; i < cat->n_tensors; i++)
		n += cat->tensors[i].role == role;
	return n;
}

static struct uns_catalog *open_with(const struct uns_format *format, struct temp *t, const char *path)
{
	struct uns_listing list = { 0 };
	struct uns_directory dir = directory_of(t, path, &list);
	struct uns_err err = { 0 };
	struct uns_catalog *cat;
	size_t i;

	assert_int_equal(uns_catalog_new(path, &cat, NULL), 0);
	if (format->open(&dir, NULL, cat, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(cat->summary.format, format->name);
	for (i = 0; i < cat->n_tensors; i++)
		if (uns_cover_check(cat, &cat->tensors[i], &err) < 0)
			fail_msg("%s", err.text);
	return cat;
}

static void opens(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(open_cases) / sizeof(*open_cases); i++) {
		struct uns_catalog *cat;
		struct temp t;
		char change[512];

		print_message("%s\n", open_cases[i].name);
		temp_init(&t);
		copy_run(&t);
		snprintf(change, sizeof(change), "cd checkpoint-2 && { %s; }", open_cases[i].change);
		shell(t.dir, change);
		cat = open_with(&uns_format_hf_fsdp, &t, "checkpoint-2");
		assert_int_equal(cat->summary.finished, open_cases[i].finished);
		assert_int_equal(cat->summary.step, open_cases[i].step);
		assert_int_equal(cat->summary.world_size, open_cases[i].world_size);
		assert_int_equal(count(cat, UNS_ROLE_WEIGHT), open_cases[i].n_weights);
		assert_int_equal(count(cat, UNS_ROLE_EXP_AVG), open_cases[i].n_moments);
		assert_int_equal(cat->n_findings, open_cases[i].problem != NULL);
		if (open_cases[i].problem) {
			assert_int_equal(cat->findings[0].scope, open_cases[i].scope);
			if (!strstr(said(&cat->findings[0]), open_cases[i].problem))
				fail_msg("said: %s", said(&cat->findings[0]));
		}
		uns_catalog_free(cat);
		temp_fini(&t);
	}
}

/* Nothing marks the end of an Accelerate save but that each rank's random state is there. */
static void accelerate_ends_with_random_states(void **state)
{
	static const struct {
		const char *change;
		bool finished;
	} cases[] = {
		{ "touch random_states_0.pkl random_states_1.pkl", true },
		{ "touch random_states_0.pkl", false },
		{ "touch random_states_1.pkl", false },
		{ "true", false },
		{ "touch random_states_0.pkl random_states_1.pkl; rm optimizer_0/.metadata", false },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_catalog *cat;
		struct temp t;
		char change[256];

		temp_init(&t);
		copy_run(&t);
		snprintf(change, sizeof(change),
			 "mv checkpoint-2 state && cd state && "
			 "rm trainer_state.json rng_state* && { %s; }",
			 cases[i].change);
		shell(t.dir, change);
		cat = open_with(&uns_format_hf_fsdp, &t, "state");
		assert_string_equal(cat->summary.framework, "Hugging Face Accelerate, FSDP");
		assert_int_equal(cat->summary.finished, cases[i].finished);
		assert_int_equal(cat->summary.step, UNS_UNKNOWN);
		uns_catalog_free(cat);
		temp_fini(&t);
	}
}

static void lists_companions(void **state)
{
	static const struct {
		const char *name;
		bool there, shard;
	} cases[] = {
		{ "scheduler.pt", true, false },
		{ "rng_state_1.pth", true, false },
		{ "trainer_state.json", true, false },
		{ "linked.json", true, false },
		{ "pytorch_model_fsdp_0/.metadata", true, true },
		{ "pytorch_model_fsdp_0/__1_0.distcp", true, true },
		{ "optimizer_0/__0_0.distcp", true, true },
		{ "optimizer.bin", true, true },
		{ "dangling.json", false, false },
		{ "pytorch_model_fsdp_0", false, false },
		{ "fifo", false, false },
	};
	const struct uns_companion *c;
	struct uns_catalog *cat;
	struct temp t;
	size_t i;

	(void)state;
	temp_init(&t);
	copy_run(&t);
	shell(t.dir, "cd checkpoint-2; ln -s trainer_state.json linked.json; ln -s none dangling.json; "
		     "mkfifo fifo; touch optimizer.bin");
	cat = open_with(&uns_format_hf_fsdp, &t, "checkpoint-2");
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		c = uns_catalog_companion(cat, cases[i].name);
		print_message("%s\n", cases[i].name);
		assert_int_equal(c != NULL, cases[i].there);
		if (c)
			assert_int_equal(c->shard, cases[i].shard);
	}
	uns_catalog_free(cat);
	temp_fini(&t);
}

static void a_second_optimizer_has_its_own_root(void **state)
{
	struct uns_catalog *cat;
	struct temp t;
	size_t i, n = 0;

	(void)state;
	temp_init(&t);
	copy_run(&t);
	shell(t.dir, "cp -r checkpoint-2/optimizer_0 checkpoint-2/optimizer_1");
	cat = open_with(&uns_format_hf_fsdp, &t, "checkpoint-2");
	assert_int_equal(cat->n_groups, 4);
	assert_string_equal(cat->groups[0].root, "optimizer");
	assert_string_equal(cat->groups[2].root, "optimizer_1");
	for (i = 0; i < cat->n_tensors; i++) {
		if (cat->tensors[i].role != UNS_ROLE_EXP_AVG)
			continue;
		n++;
		assert_int_equal(cat->tensors[i].group >= 2, strcmp(cat->tensors[i].root, "optimizer_1") == 0);
	}
	assert_int_equal(n, 22);
	uns_catalog_free(cat);
	temp_fini(&t);
}

static void opens_plain_dcp(void **state)
{
	struct uns_catalog *cat;
	struct temp t;

	(void)state;
	temp_init(&t);
	copy_run(&t);
	shell(t.dir, "mv checkpoint-2/pytorch_model_fsdp_0 step-7; touch step-7/config.json");
	cat = open_with(&uns_format_dcp, &t, "step-7");
	assert_int_equal(cat->summary.step, 7);
	assert_int_equal(cat->summary.world_size, 2);
	assert_true(cat->summary.finished);
	assert_int_equal(count(cat, UNS_ROLE_WEIGHT), 12);
	assert_non_null(uns_catalog_companion(cat, "config.json"));
	uns_catalog_free(cat);

	shell(t.dir, "rm step-7/.metadata");
	cat = open_with(&uns_format_dcp, &t, "step-7");
	assert_false(cat->summary.finished);
	assert_int_equal(cat->n_findings, 1);
	assert_int_equal(cat->findings[0].scope, UNS_SCOPE_ALL);
	assert_int_equal(cat->findings[0].code, -ENODATA);
	uns_catalog_free(cat);
	temp_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probes),
		cmocka_unit_test(opens),
		cmocka_unit_test(accelerate_ends_with_random_states),
		cmocka_unit_test(lists_companions),
		cmocka_unit_test(a_second_optimizer_has_its_own_root),
		cmocka_unit_test(probes_files_of_megatrons_ranks),
		cmocka_unit_test(opens_plain_dcp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The per-rank format on what two ranks of torch save in veRL's way (golden/ranks/make.py): which
 * elements of which parameter a numbered moment is, which number of ranks is read, what a tracker says.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "formats/format.h"
#include "model/cover.h"
#include "said.h"
#include "shell.h"

#define GOLDEN UNSHARD_GOLDEN "/ranks"
#define MODEL0 "model_world_size_2_rank_0.pt"

extern const struct uns_format uns_format_ranks;

struct fixture {
	char dir[32];
	struct uns_root *root;
	struct uns_arena arena;
	struct uns_catalog *cat;
};

/* run/global_step_7/actor with the files of golden/ranks/WHICH. */
static void fixture_init(struct fixture *f, const char *which)
{
	char text[1024];

	*f = (struct fixture){ .dir = "/tmp/uns_ranks_XXXXXX" };
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(uns_root_open(f->dir, NULL, &f->root, NULL), 0);
	snprintf(text, sizeof(text),
		 "mkdir -p run/global_step_7 && cp -r " GOLDEN "/%s run/global_step_7/actor && "
		 "chmod -R u+w run",
		 which);
	shell(f->dir, text);
}

static void fixture_fini(struct fixture *f)
{
	uns_catalog_free(f->cat);
	uns_root_close(f->root);
	uns_arena_fini(&f->arena);
	shell(f->dir, "rm -r ../$(basename $PWD)");
}

static struct uns_directory directory_of(struct fixture *f, const char *path, struct uns_listing *list)
{
	assert_int_equal(uns_root_list(f->root, path, &f->arena, list, NULL), 0);
	return (struct uns_directory){ .root = f->root, .path = path, .list = list };
}

static void open_actor(struct fixture *f)
{
	static const char path[] = "run/global_step_7/actor";
	struct uns_listing list = { 0 };
	struct uns_directory dir = directory_of(f, path, &list);
	struct uns_err err = { 0 };

	assert_int_equal(uns_catalog_new(path, &f->cat, NULL), 0);
	if (uns_format_ranks.open(&dir, NULL, f->cat, &err) < 0)
		fail_msg("%s", err.text);
}

/* -- names -- */

static const struct {
	const char *name;
	int probe;
} probe_cases[] = {
	{ MODEL0, 90 },
	{ "optim_world_size_16_rank_15.pt", 90 },
	{ "extra_state_world_size_2_rank_0.pt", 0 },
	{ "model_world_size_2_rank_00.pt", 0 },
	{ "model_world_size_0_rank_0.pt", 0 },
	{ "model_world_size_2_rank_0.pth", 0 },
	{ "model_world_size_99999999999999999999_rank_0.pt", 0 },
	{ "xmodel_world_size_2_rank_0.pt", 0 },
};

static void probes(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(probe_cases) / sizeof(*probe_cases); i++) {
		struct uns_listing list = { 0 };
		struct uns_directory dir;
		struct fixture f;
		char command[256];

		print_message("%s\n", probe_cases[i].name);
		fixture_init(&f, "fsdp2");
		snprintf(command, sizeof(command), "mkdir d && touch d/%s", probe_cases[i].name);
		shell(f.dir, command);
		dir = directory_of(&f, "d", &list);
		assert_int_equal(uns_format_ranks.probe(&dir), probe_cases[i].probe);
		fixture_fini(&f);
	}
}

/* -- numbered moments -- */

static float element(const struct fixture *f, const struct uns_piece *p, uint64_t i)
{
	UNS_CLEANUP(uns_close_p) int fd = -1;
	struct uns_err err = { 0 };
	float v = 0;

	if (uns_root_open_file(f->root, f->cat->files[p->file].path, &fd, NULL, &err) < 0 ||
	    uns_fd_pread(fd, &v, sizeof(v), p->offset_bytes + i * sizeof(v), "", &err) < 0)
		fail_msg("%s", err.text);
	return v;
}

/* make.py writes each element's number into it. Boxes here are whole rows. */
static void check_moment(const struct fixture *f, const struct uns_tensor *t, unsigned number)
{
	float base = 100.0f * (float)number + (t->role == UNS_ROLE_EXP_AVG_SQ ? 0.5f : 0.0f);
	struct uns_err err = { 0 };
	uint64_t i, k, first;

	if (uns_cover_check(f->cat, t, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(t->inferred);
	for (k = 0; k < t->n_pieces; k++) {
		const struct uns_piece *p = &f->cat->pieces[t->first_piece + k];

		first = uns_piece_first(&t->shape, p);
		for (i = 0; i < uns_piece_elems(p); i++)
			assert_true(element(f, p, i) == base + (float)(first + i));
	}
}

static void numbers_stand_for_parameters(void **state)
{
	static const char *const forms[] = { "fsdp2", "orig" };
	static const char *const names[] = { "emb.weight", "lin.weight", "lin.bias" };
	const struct uns_tensor *a, *b;
	unsigned i, k;

	(void)state;
	for (k = 0; k < 2; k++) {
		struct fixture f;

		fixture_init(&f, forms[k]);
		open_actor(&f);
		assert_int_equal(f.cat->n_findings, 0);
		assert_int_equal(f.cat->n_groups, 1);
		for (i = 0; i < 3; i++) {
			a = uns_catalog_find(f.cat, UNS_ROLE_EXP_AVG, names[i]);
			b = uns_catalog_find(f.cat, UNS_ROLE_EXP_AVG_SQ, names[i]);
			assert_true(a && b);
			check_moment(&f, a, i);
			check_moment(&f, b, i);
			assert_int_equal(a->position, i);
			assert_string_equal(f.cat->groups[0].param[i], names[i]);
		}
		fixture_fini(&f);
	}
}

/* -- what is told -- */

static const struct {
	const char *name, *form, *change;
	enum uns_scope scope;
	const char *problem; /* NULL = none */
} open_cases[] = {
	{ "whole", "fsdp2", "true", 0, NULL },
	/* And with it what the optimizer's numbers stand for. */
	{ "a rank's model is missing", "fsdp2", "rm model*rank_1.pt", UNS_SCOPE_ALL,
	  "model_world_size_2_rank_1.pt is missing: it holds rank 1's pieces" },
	{ "a rank's optimizer is missing", "fsdp2", "rm optim*rank_1.pt", UNS_SCOPE_OPTIMIZER,
	  "optim_world_size_2_rank_1.pt is missing: it holds rank 1's pieces" },
	{ "no optimizer", "fsdp2", "rm optim*", 0, NULL },
	{ "no model", "fsdp2", "rm model*", UNS_SCOPE_NOTE, "holds no model files" },
	{ "parts as long as each other: flat units or not?", "orig",
	  "sed s/2_rank_0/2_rank_1/g optim_world_size_2_rank_0.pt >optim_world_size_2_rank_1.pt", UNS_SCOPE_OPTIMIZER,
	  "parameters in 3 flat units" },
	{ "parts of another rank", "orig", "cp optim_world_size_2_rank_0.pt optim_world_size_2_rank_1.pt",
	  UNS_SCOPE_OPTIMIZER, "optim_world_size_2_rank_1.pt: the file was saved as optim_world_size_2_rank_0.pt" },
	{ "two world sizes", "fsdp2", "cp " MODEL0 " model_world_size_3_rank_2.pt", UNS_SCOPE_ALL,
	  "files of saves on different numbers of ranks are mixed: 2 (complete) and 3 (1 of 3 "
	  "model files); no file says which save is current" },
	{ "two world sizes, one known", "fsdp2",
	  "cp " MODEL0 " model_world_size_3_rank_2.pt; echo '{\"world_size\": 2}' >fsdp_config.json", UNS_SCOPE_NOTE,
	  "those of 2 ranks are read, as fsdp_config.json records" },
	{ "another world size", "fsdp2", "echo '{\"world_size\": 8}' >fsdp_config.json", UNS_SCOPE_ALL,
	  "records 8 ranks, but the files are of 2" },
	{ "a config that says nothing", "fsdp2", "echo '{\"world_size\": -1}' >fsdp_config.json", UNS_SCOPE_SHARDED,
	  "fsdp_config.json has no world_size above 0" },
	{ "a config that is none", "fsdp2", "echo '[' >fsdp_config.json", UNS_SCOPE_SHARDED,
	  "fsdp_config.json is not a JSON object" },
	{ "files of a world that the config does not name", "fsdp2",
	  "cp " MODEL0 " model_world_size_3_rank_2.pt; echo '{\"world_size\": 8}' >fsdp_config.json", UNS_SCOPE_ALL,
	  "records 8 ranks, but the files are of 2 (complete) and 3" },
	{ "ranks of a larger world", "fsdp2",
	  "rm *rank_1.pt; for k in model optim; do mv ${k}_world_size_2_rank_0.pt "
	  "${k}_world_size_1_rank_0.pt; done",
	  UNS_SCOPE_ALL, "the model was saved by 2 ranks, but its files are named for 1" },
	{ "ranks renamed", "fsdp2",
	  "mv " MODEL0 " x; mv model_world_size_2_rank_1.pt " MODEL0 "; mv x model_world_size_2_rank_1.pt",
	  UNS_SCOPE_SHARDED, "is named rank 0, but its content is rank 1's" },
};

static void says_what_is_wrong(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(open_cases) / sizeof(*open_cases); i++) {
		struct fixture f;
		char command[1024];

		print_message("%s\n", open_cases[i].name);
		fixture_init(&f, open_cases[i].form);
		snprintf(command, sizeof(command), "cd run/global_step_7/actor; %s", open_cases[i].change);
		shell(f.dir, command);
		open_actor(&f);
		assert_int_equal(f.cat->summary.step, 7);
		assert_int_equal(f.cat->n_findings > 0, open_cases[i].problem != NULL);
		if (open_cases[i].problem) {
			assert_int_equal(f.cat->findings[0].scope, open_cases[i].scope);
			assert_non_null(strstr(said(&f.cat->findings[0]), open_cases[i].problem));
		}
		fixture_fini(&f);
	}
}

static const struct {
	const char *make, *framework;
	bool finished;
} tracker_cases[] = {
	{ "true", "FSDP, one file per rank", false },
	{ "printf 7 >run/latest_checkpointed_iteration.txt", "FSDP, one file per rank", true },
	{ "printf 6 >run/latest_checkpointed_iteration.txt", "FSDP, one file per rank", false },
	{ "printf x >run/latest_checkpointed_iteration.txt", "FSDP, one file per rank", false },
	{ "echo '{\"last_global_step\": 8}' >run/checkpoint_tracker.json", "EasyR1, FSDP", true },
	{ "echo '{\"last_global_step\": 6}' >run/checkpoint_tracker.json", "EasyR1, FSDP", false },
	{ "echo '{' >run/checkpoint_tracker.json", "EasyR1, FSDP", false },
};

static void trackers(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(tracker_cases) / sizeof(*tracker_cases); i++) {
		struct fixture f;

		print_message("%s\n", tracker_cases[i].make);
		fixture_init(&f, "fsdp2");
		shell(f.dir, tracker_cases[i].make);
		open_actor(&f);
		assert_int_equal(f.cat->summary.finished, tracker_cases[i].finished);
		assert_string_equal(f.cat->summary.framework, tracker_cases[i].framework);
		fixture_fini(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probes),
		cmocka_unit_test(numbers_stand_for_parameters),
		cmocka_unit_test(says_what_is_wrong),
		cmocka_unit_test(trackers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

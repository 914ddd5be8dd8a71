/* VIEW/RUN/latest: the made link to the newest checkpoint that the view shows whole. */
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
	char dir[40];
	unshard *u;
};

/* run: checkpoint-2, checkpoint-10; then the case's own changes. */
static void start(struct fixture *f, const char *change, const char *view)
{
	struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true, .view = view };
	struct unshard_error err;
	char source[64];

	strcpy(f->dir, "/tmp/uns_newest_XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	shell(f->dir, "mkdir runs && cp -r " UNSHARD_GOLDEN "/run runs/run && "
		      "cp -r runs/run/checkpoint-2 runs/run/checkpoint-10");
	shell(f->dir, change);
	snprintf(source, sizeof(source), "%s/runs%s", f->dir, view ? "/run" : "");
	if (unshard_open(source, &options, &f->u, &err) < 0)
		fail_msg("%s", err.text);
}

static void end(struct fixture *f)
{
	unshard_close(f->u);
	shell(f->dir, "rm -r ../$(basename $PWD)");
}

#define LAST  "runs/run/checkpoint-10"
#define RANKS "cp -r " UNSHARD_GOLDEN "/ranks/fsdp2"

static const struct {
	const char *name, *change, *link, *target; /* target NULL = there is no such name */
} cases[] = {
	{ "numbers, not text", "true", "weights/run/latest", "checkpoint-10" },
	{ "each view", "true", "full-fsdp/run/latest", "checkpoint-10" },
	{ "a view with a parameter", "true", "weights-fp16/run/latest", "checkpoint-10" },
	{ "the highest number, whichever was written last", "touch runs/run/checkpoint-2/*", "weights/run/latest",
	  "checkpoint-10" },
	{ "no damaged one", "rm " LAST "/pytorch_model_fsdp_0/__1_0.distcp", "weights/run/latest", "checkpoint-2" },
	{ "whole in one view", "rm " LAST "/optimizer_0/__1_0.distcp", "weights/run/latest", "checkpoint-10" },
	{ "damaged in another", "rm " LAST "/optimizer_0/__1_0.distcp", "full/run/latest", "checkpoint-2" },
	{ "another name that was written later",
	  "mv runs/run/checkpoint-2 runs/run/best && touch -d @2000000000 runs/run/best/*", "weights/run/latest",
	  "best" },
	{ "another name that was written earlier",
	  "mv runs/run/checkpoint-2 runs/run/best && find " LAST " -exec touch -d @2000000000 {} +",
	  "weights/run/latest", "checkpoint-10" },
	{ "a directory of SOURCE's", "mkdir runs/run/latest", "weights/run/latest/x", NULL },
	{ "no checkpoints", "mkdir runs/empty && touch runs/empty/x", "weights/empty/latest", NULL },
	{ "a directory of runs", "true", "weights/latest", NULL },
	{ "none of this kind", "true", "world-2/run/latest", NULL },
	{ "in a checkpoint", "true", "weights/run/checkpoint-2/latest", NULL },
	{ "a name below a link", "true", "weights/run/latest/latest", NULL },
	{ "parts of one step",
	  "mkdir -p runs/verl/global_step_9 runs/verl/global_step_11 && " RANKS
	  " runs/verl/global_step_9/actor && " RANKS " runs/verl/global_step_11/actor",
	  "weights/verl/latest", "global_step_11" },
	{ "a step with a damaged part",
	  "mkdir -p runs/verl/global_step_9 runs/verl/global_step_11 && " RANKS
	  " runs/verl/global_step_9/actor && " RANKS " runs/verl/global_step_11/actor && " RANKS
	  " runs/verl/global_step_11/critic && rm runs/verl/global_step_11/critic/model_*_rank_1.pt",
	  "weights/verl/latest", "global_step_9" },
	{ "Lightning's file",
	  "mkdir runs/l && cp -r " UNSHARD_GOLDEN "/dcp/torch2.2.2_lightning/ckpt 'runs/l/epoch=0-step=2.ckpt'",
	  "full/l/latest", "epoch=0-step=2.ckpt" },
	{ "Lightning's directory of weights",
	  "mkdir runs/l && cp -r " UNSHARD_GOLDEN "/dcp/torch2.2.2_lightning/ckpt 'runs/l/epoch=0-step=2.ckpt'",
	  "weights/l/latest", "epoch=0-step=2" },
};

static void where_it_leads(void **state)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	char *target = NULL;
	struct fixture f;
	size_t i;
	int code;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		start(&f, cases[i].change, NULL);
		code = unshard_readlink(f.u, cases[i].link, &target, NULL);
		if ((code == 0) != !!cases[i].target || (code == 0 && strcmp(target, cases[i].target) != 0))
			fail_msg("%s: %d %s", cases[i].name, code, code ? "" : target);
		if (cases[i].target) {
			assert_int_equal(unshard_stat(f.u, cases[i].link, &st, NULL), 0);
			assert_int_equal(st.kind, UNSHARD_LINK);
			assert_int_equal(st.size_bytes, strlen(target));
			unshard_free(target);
		}
		end(&f);
	}
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

/* Who lists a run meets each checkpoint once; what SOURCE calls so is listed, and is what it is there. */
static void it_is_not_listed(void **state)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct fixture f;

	(void)state;
	start(&f, "true", NULL);
	assert_false(is_listed(f.u, "weights/run", "latest"));
	end(&f);
	start(&f, "printf checkpoint-2 > runs/run/latest", NULL);
	assert_true(is_listed(f.u, "weights/run", "latest"));
	assert_int_equal(unshard_stat(f.u, "weights/run/latest", &st, NULL), 0);
	assert_int_equal(st.kind, UNSHARD_FILE);
	end(&f);
	start(&f, "ln -s checkpoint-2 runs/run/latest", NULL);
	assert_int_equal(unshard_stat(f.u, "weights/run/latest", &st, NULL), 0);
	assert_int_equal(st.size_bytes, strlen("checkpoint-2"));
	end(&f);
}

/* Paths of the library's tree lead through it, as the kernel's do; also where the run is SOURCE. */
static void paths_go_through_it(void **state)
{
	struct unshard_stat through = { UNSHARD_STAT_INIT }, direct = { UNSHARD_STAT_INIT };
	struct fixture f;

	(void)state;
	start(&f, "true", "weights");
	assert_true(is_listed(f.u, "checkpoint-10", "model.safetensors"));
	assert_int_equal(unshard_stat(f.u, "latest/model.safetensors", &through, NULL), 0);
	assert_int_equal(unshard_stat(f.u, "checkpoint-10/model.safetensors", &direct, NULL), 0);
	assert_int_equal(through.ino, direct.ino);
	end(&f);
}

/* A node that was looked up leads where it did; a new look gives another inode. */
static void a_node_keeps_its_target(void **state)
{
	struct unshard_stat was = { UNSHARD_STAT_INIT }, now = { UNSHARD_STAT_INIT };
	unshard_node *dir[3], *link, *later;
	struct fixture f;
	char *target;
	size_t i;

	(void)state;
	start(&f, "mv runs/run/checkpoint-10 .", NULL);
	assert_int_equal(unshard_root(f.u, &dir[0], NULL), 0);
	assert_int_equal(unshard_lookup(dir[0], "weights", &dir[1], NULL, NULL), 0);
	assert_int_equal(unshard_lookup(dir[1], "run", &dir[2], NULL, NULL), 0);
	assert_int_equal(unshard_lookup(dir[2], "latest", &link, &was, NULL), 0);
	assert_true(was.live);
	shell(f.dir, "mv checkpoint-10 runs/run");
	assert_int_equal(unshard_lookup(dir[2], "latest", &later, &now, NULL), 0);
	assert_int_not_equal(was.ino, now.ino);
	assert_int_equal(unshard_node_readlink(link, &target, NULL), 0);
	assert_string_equal(target, "checkpoint-2");
	unshard_free(target);
	assert_int_equal(unshard_node_readlink(later, &target, NULL), 0);
	assert_string_equal(target, "checkpoint-10");
	unshard_free(target);
	unshard_node_unref(link);
	unshard_node_unref(later);
	for (i = 0; i < 3; i++)
		unshard_node_unref(dir[i]);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(where_it_leads),
		cmocka_unit_test(it_is_not_listed),
		cmocka_unit_test(paths_go_through_it),
		cmocka_unit_test(a_node_keeps_its_target),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

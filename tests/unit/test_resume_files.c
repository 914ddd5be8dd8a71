/* What stands beside weights and optimizer: which companions are shown, under which names, and what
 * is said about those that are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "files/resume_files.h"

enum { MAX = 12 };

struct made {
	struct uns_catalog cat;
	struct uns_file files[MAX];
	struct uns_companion companions[MAX];
	struct uns_vtree tree;
};

static void start(struct made *m, const char *names)
{
	static char kept[MAX][40];
	int n;

	memset(m, 0, sizeof(*m));
	m->cat = (struct uns_catalog){ .path = "run/checkpoint-2", .files = m->files, .companions = m->companions };
	for (; sscanf(names, "%39s%n", kept[m->cat.n_files], &n) == 1; names += n) {
		uint32_t i = (uint32_t)m->cat.n_files++;

		m->files[i] = (struct uns_file){ .path = kept[i], .stat = { .kind = UNS_KIND_FILE, .id.size = 8 } };
		m->companions[i] = (struct uns_companion){ .name = kept[i],
							   .file = i,
							   .shard = strstr(kept[i], ".distcp") != NULL };
	}
	m->cat.n_companions = m->cat.n_files;
	uns_resume_find(&m->cat);
}

#define TRAINER                                                                  \
	"optimizer_0/__0_0.distcp rng_state_0.pth rng_state_1.pth scheduler.pt " \
	"trainer_state.json"

static const struct {
	const char *names;
	bool one_process, valid, hide_rng, plain, with_schedule;
	const char *listed, *note; /* note NULL = none */
} cases[] = {
	{ TRAINER, true, true, false, false, true, "rng_state.pth scheduler.pt trainer_state.json", NULL },
	{ TRAINER, false, true, false, false, true, "rng_state_0.pth rng_state_1.pth scheduler.pt trainer_state.json",
	  NULL },
	{ TRAINER, true, true, true, false, true, "scheduler.pt trainer_state.json", NULL },
	{ TRAINER, true, true, false, false, false, "rng_state.pth trainer_state.json", "scheduler.pt is hidden" },
	{ TRAINER, true, false, false, false, true, "rng_state.pth scheduler.pt", NULL },
	{ "rng_state_1.pth trainer_state.json", true, true, false, false, true, "trainer_state.json", NULL },
	{ "random_states_0.pkl random_states_1.pkl custom_checkpoint_0.pkl scheduler.bin", true, true, false, false,
	  true, "custom_checkpoint_0.pkl random_states_0.pkl scheduler.bin", NULL },
	{ "model.safetensors optimizer.bin pytorch_model_fsdp.bin scaler.pt", true, true, false, false, true,
	  "scaler.pt", NULL },
	{ "model.safetensors optimizer.pt rng_state.pth scheduler.pt", true, true, false, true, true,
	  "model.safetensors optimizer.pt rng_state.pth scheduler.pt", NULL },
	{ "model.safetensors rng_state_0.pth rng_state_1.pth", true, true, false, true, true,
	  "model.safetensors rng_state.pth rng_state_0.pth rng_state_1.pth", NULL },
	{ "model.safetensors optimizer.pt", true, true, false, true, false, "model.safetensors",
	  "optimizer.pt is hidden" },
	{ "model.safetensors pytorch_model_fsdp.bin", true, true, false, true, true, "model.safetensors", NULL },
};

static void list(const struct made *m, char *buf, size_t size)
{
	size_t i, at = 0;

	buf[0] = '\0';
	for (i = 0; i < m->tree.n; i++)
		at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? " " : "", m->tree.v[i].path);
}

static void test_what_is_listed(void **state)
{
	char listed[400];
	struct made m;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uns_resume_input in = { .catalog = &m.cat,
					       .trainer_state_valid = cases[i].valid,
					       .one_process = cases[i].one_process,
					       .hide_rng = cases[i].hide_rng,
					       .plain = cases[i].plain,
					       .with_schedule = cases[i].with_schedule };

		start(&m, cases[i].names);
		assert_int_equal(uns_resume_files_add(&in, &m.tree, NULL), 0);
		uns_vtree_seal(&m.tree);
		list(&m, listed, sizeof(listed));
		assert_string_equal(listed, cases[i].listed);
		assert_int_equal(m.tree.n_notes, cases[i].note != NULL);
		if (cases[i].note)
			assert_non_null(strstr(m.tree.note[0], cases[i].note));
		uns_vtree_fini(&m.tree);
	}
}

static void test_rank_0s_random_states_are_said_to_be(void **state)
{
	struct uns_resume_input in = { .one_process = true, .trainer_state_valid = true };
	const struct uns_vfile *f;
	struct made m;

	(void)state;
	start(&m, "rng_state_0.pth rng_state_1.pth");
	in.catalog = &m.cat;
	assert_int_equal(uns_resume_files_add(&in, &m.tree, NULL), 0);
	uns_vtree_seal(&m.tree);
	f = uns_vtree_find(&m.tree, "rng_state.pth");
	assert_non_null(strstr(f->origin, "rank 0"));
	assert_int_equal(f->source, 0);
	uns_vtree_fini(&m.tree);
}

static void test_made_state_and_what_is_said(void **state)
{
	static const struct uns_fact summary[] = {
		{ "global_step", "2", "the directory's name", false },
		{ "stateful_callbacks", "null", "the default", true },
		{ "train_batch_size", "8", "the default", true },
	};
	static const char *const notes[] = { "train_batch_size = 8 is assumed to be right" };
	const struct uns_training training = { summary, 3, notes, 1 };
	struct uns_resume_input in = { .training = &training };
	const struct uns_vfile *f;
	struct made m;

	(void)state;
	start(&m, "scaler.pt");
	in.catalog = &m.cat;
	assert_int_equal(uns_resume_trainer_state_add(&in, &m.tree, NULL), 0);
	uns_vtree_seal(&m.tree);
	f = uns_vtree_find(&m.tree, "trainer_state.json");
	assert_non_null(strstr(f->origin, "synthesised: global_step from the directory's name; "
					  "stateful_callbacks assumed, the default; "
					  "train_batch_size assumed, the default"));
	assert_non_null(strstr(f->origin, "; assumed, because no file or fact records them: epoch "
					  "= 0.0, "));
	assert_int_equal(m.tree.n_notes, 3);
	assert_string_equal(m.tree.note[0], notes[0]);
	assert_non_null(strstr(m.tree.note[1], "stateful_callbacks = null is assumed"));
	assert_non_null(strstr(m.tree.note[1], "-o fact=stateful_callbacks=VALUE"));
	assert_non_null(strstr(m.tree.note[2],
			       "assumed, because no file or fact records them: epoch = 0.0, eval_steps = 500, "
			       "log_history = [], logging_steps = 500, max_steps = 0, "
			       "num_input_tokens_seen = 0, num_train_epochs = 0, save_steps = 500, "
			       "total_flos = 0."));
	uns_vtree_fini(&m.tree);
}

static const struct {
	const char *names;
	unsigned by;
} kinds[] = {
	{ "trainer_state.json", UNS_BY_TRAINER },
	{ "rng_state_0.pth", UNS_BY_TRAINER },
	{ "scheduler.pt", UNS_BY_TRAINER }, /* by its directory's name: checkpoint-2 */
	{ "random_states_0.pkl", UNS_BY_ACCELERATE },
	{ "custom_checkpoint_0.pkl trainer_state.json", UNS_BY_ACCELERATE },
};

static unsigned resumed_by(struct uns_catalog *cat)
{
	cat->summary.resumed_by = 0;
	uns_resume_find(cat);
	return cat->summary.resumed_by;
}

static void test_whose_it_is(void **state)
{
	struct made m;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		start(&m, kinds[i].names);
		assert_int_equal(resumed_by(&m.cat), kinds[i].by);
	}
	start(&m, "scheduler.pt");
	m.cat.path = "run/state";
	assert_int_equal(resumed_by(&m.cat), 0);
	m.cat.summary.family = UNS_FAMILY_ZERO;
	assert_int_equal(resumed_by(&m.cat), UNS_BY_ENGINE);
	assert_false(m.cat.summary.is_pretrained);
	start(&m, "scheduler.pt");
	m.cat.summary.family = UNS_FAMILY_UNIVERSAL;
	assert_int_equal(resumed_by(&m.cat), UNS_BY_TRAINER);
	assert_true(m.cat.summary.is_pretrained);
	assert_true(uns_resume_is_rng("rng_state_12.pth") && !uns_resume_is_rng("rng_state_x.pth"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_listed),
		cmocka_unit_test(test_rank_0s_random_states_are_said_to_be),
		cmocka_unit_test(test_made_state_and_what_is_said),
		cmocka_unit_test(test_whose_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

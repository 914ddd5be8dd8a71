/* The format universal on what ds_to_universal makes, of both stage families. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "zero_golden.h"

extern const struct uns_format uns_format_zero, uns_format_universal;

static const struct {
	const char *name, *golden, *change, *path;
	unsigned served;
	bool finished;
	const char *problem; /* SCOPE: sentence; NULL = none that is serious */
} open_cases[] = {
	{ "stage 2", "z2_w3", "rm -r global_step2", "global_step2_universal", MODEL_ROLES | STATE_ROLES, true, NULL },
	{ "stage 3", "z3_w2", "rm -r global_step2", "global_step2_universal", MODEL_ROLES | STATE_ROLES, true, NULL },
	{ "a run", "z3_w2", "rm -r global_step2", "", MODEL_ROLES | STATE_ROLES, true, NULL },
	{ "a Trainer's", "z2_w3",
	  "rm -r global_step2; mkdir checkpoint-2; mv global_step2_universal latest* checkpoint-2; touch "
	  "checkpoint-2/trainer_state.json",
	  "checkpoint-2", MODEL_ROLES | STATE_ROLES, true, NULL },
	{ "not named yet", "z2_w3", "rm latest_universal", "global_step2_universal", MODEL_ROLES | STATE_ROLES, false,
	  NULL },
	{ "stage 2: a parameter is missing", "z2_w3", "rm -r global_step2_universal/zero/up.weight",
	  "global_step2_universal", MODEL_ROLES, true,
	  "2: zero/up.weight is missing, and mp_rank_00_model_states.pt lists it" },
	{ "stage 3: a parameter is missing", "z3_w2", "rm -r global_step2_universal/zero/up.weight",
	  "global_step2_universal", 0, true, "3: zero/up.weight is missing" },
	{ "fp32.pt is missing", "z2_w3", "rm global_step2_universal/zero/up.weight/fp32.pt", "global_step2_universal",
	  MODEL_ROLES, true, "2: zero/up.weight/fp32.pt is missing" },
	{ "a file is cut", "z2_w3", "truncate -s 900 global_step2_universal/zero/up.weight/exp_avg.pt",
	  "global_step2_universal", MODEL_ROLES, true, "2: zero/up.weight/exp_avg.pt: " },
	{ "another parameter's file", "z2_w3", "cd global_step2_universal/zero; cp emb.weight/fp32.pt up.weight",
	  "global_step2_universal", MODEL_ROLES, true,
	  "zero/up.weight/fp32.pt: the tensor has shape [7, 3]; expected [5, 3]" },
	{ "optimizer_state.pt is missing", "z2_w3", "rm global_step2_universal/zero/optimizer_state.pt",
	  "global_step2_universal", MODEL_ROLES, true, "2: zero/optimizer_state.pt: the file is missing" },
};

static bool serves(struct fixture *f, unsigned roles)
{
	size_t i;

	for (i = 0; i < f->cat->n_findings; i++) {
		enum uns_scope scope = f->cat->findings[i].scope;

		if (scope == UNS_SCOPE_ALL || (scope == UNS_SCOPE_WEIGHTS && (roles & MODEL_ROLES)) ||
		    (scope == UNS_SCOPE_OPTIMIZER && (roles & STATE_ROLES)))
			return false;
	}
	return true;
}

static void opens(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(open_cases) / sizeof(*open_cases); i++) {
		struct fixture f;

		print_message("%s\n", open_cases[i].name);
		fixture_init(&f, open_cases[i].golden);
		shell(f.dir, open_cases[i].change);
		fixture_open(&f, &uns_format_universal, open_cases[i].path);
		if (!open_cases[i].problem)
			assert_string_equal(serious(&f), "");
		else if (!strstr(serious(&f), open_cases[i].problem))
			fail_msg("said: %s", serious(&f));
		assert_int_equal(serves(&f, MODEL_ROLES), (open_cases[i].served & MODEL_ROLES) != 0);
		assert_int_equal(serves(&f, STATE_ROLES), (open_cases[i].served & STATE_ROLES) != 0);
		if (open_cases[i].served)
			compare_expected(&f, open_cases[i].served);
		assert_int_equal(f.cat->summary.finished, open_cases[i].finished);
		assert_int_equal(f.cat->summary.step, 2);
		fixture_fini(&f);
	}
}

static const struct {
	const char *name, *make, *path;
	int zero, universal;
} probe_cases[] = {
	{ "a tag", "true", "global_step2_universal", 0, 88 },
	{ "the native tag beside it", "true", "global_step2", 90, 0 },
	{ "a plain run", "true", "", 0, 0 },
	{ "a Trainer's with both", "touch trainer_state.json", "", 95, 93 },
	{ "a Trainer's", "touch trainer_state.json; rm -r global_step2", "", 0, 93 },
	{ "without model files", "rm global_step2_universal/*.pt", "global_step2_universal", 0, 0 },
};

static void probes(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(probe_cases) / sizeof(*probe_cases); i++) {
		struct uns_listing list = { 0 };
		struct uns_directory dir;
		struct fixture f;

		print_message("%s\n", probe_cases[i].name);
		fixture_init(&f, "z2_w3");
		shell(f.dir, probe_cases[i].make);
		dir = fixture_dir(&f, probe_cases[i].path, &list);
		assert_int_equal(uns_format_zero.probe(&dir), probe_cases[i].zero);
		assert_int_equal(uns_format_universal.probe(&dir), probe_cases[i].universal);
		fixture_fini(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens),
		cmocka_unit_test(probes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

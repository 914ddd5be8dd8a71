/* Names of DeepSpeed's files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "zero/names.h"

static const struct {
	const char *name;
	bool known;
	enum uns_zero_kind kind;
	int32_t dp, mp, layer, expert;
} name_cases[] = {
	{ "mp_rank_00_model_states.pt", true, UNS_ZERO_MODEL, -1, 0, -1, -1 },
	{ "mp_rank_12_model_states.pt", true, UNS_ZERO_MODEL, -1, 12, -1, -1 },
	{ "zero_pp_rank_7_mp_rank_01_model_states.pt", true, UNS_ZERO_MODEL, 7, 1, -1, -1 },
	{ "zero_pp_rank_10_mp_rank_00_optim_states.pt", true, UNS_ZERO_OPTIM, 10, 0, -1, -1 },
	{ "bf16_zero_pp_rank_10_mp_rank_02_optim_states.pt", true, UNS_ZERO_OPTIM, 10, 2, -1, -1 },
	{ "zero_pp_rank_0_mp_rank_00optim_states.pt", true, UNS_ZERO_OPTIM, 0, 0, -1, -1 },
	{ "layer_03-model_states.pt", true, UNS_ZERO_LAYER, -1, 0, 3, -1 },
	{ "layer_03-model_01-model_states.pt", true, UNS_ZERO_LAYER, -1, 1, 3, -1 },
	{ "expert_5_mp_rank_00_model_states.pt", true, UNS_ZERO_EXPERT, -1, 0, -1, 5 },
	{ "layer_1_expert_5_mp_rank_00_model_states.pt", true, UNS_ZERO_EXPERT, -1, 0, 1, 5 },
	{ "expp_rank_1_mp_rank_00_optim_states.pt", true, UNS_ZERO_EXPERT_OPTIM, -1, 0, -1, 1 },
	{ "fp16_zero_pp_rank_0_mp_rank_00_optim_states.pt", false, 0, 0, 0, 0, 0 },
	{ "mp_rank__model_states.pt", false, 0, 0, 0, 0, 0 },
	{ "mp_rank_00_model_states.pt.tmp", false, 0, 0, 0, 0, 0 },
	{ "mp_rank_123456789_model_states.pt", false, 0, 0, 0, 0, 0 },
	{ "model_states.pt", false, 0, 0, 0, 0, 0 },
	{ "", false, 0, 0, 0, 0, 0 },
};

static void parses_names(void **state)
{
	struct uns_zero_name name;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(name_cases) / sizeof(*name_cases); i++) {
		bool known = uns_zero_name_parse(name_cases[i].name, &name);

		if (known != name_cases[i].known)
			fail_msg("%s", name_cases[i].name);
		if (!known)
			continue;
		assert_int_equal(name.kind, name_cases[i].kind);
		assert_int_equal(name.dp, name_cases[i].dp);
		assert_int_equal(name.mp, name_cases[i].mp);
		assert_int_equal(name.layer, name_cases[i].layer);
		assert_int_equal(name.expert, name_cases[i].expert);
	}
}

static void names_other_ranks(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	(void)state;
	assert_string_equal(uns_zero_name_of_rank(&arena, "a/bf16_zero_pp_rank_9_mp_rank_01_optim_states.pt", 10),
			    "a/bf16_zero_pp_rank_10_mp_rank_01_optim_states.pt");
	assert_null(uns_zero_name_of_rank(&arena, "mp_rank_00_model_states.pt", 1));
}

static void makes_names(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	(void)state;
	assert_string_equal(uns_zero_name_make(&arena, UNS_ZERO_MODEL, -1, 0), "mp_rank_00_model_states.pt");
	assert_string_equal(uns_zero_name_make(&arena, UNS_ZERO_MODEL, 3, 0),
			    "zero_pp_rank_3_mp_rank_00_model_states.pt");
	assert_string_equal(uns_zero_name_make(&arena, UNS_ZERO_OPTIM, 12, 1),
			    "zero_pp_rank_12_mp_rank_01_optim_states.pt");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_names),
		cmocka_unit_test(names_other_ranks),
		cmocka_unit_test(makes_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Names of per-rank files, both ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "ranks/names.h"

static const struct {
	const char *name;
	int kind; /* -1: no such name */
	int64_t world, rank;
} cases[] = {
	{ "model_world_size_4_rank_2.pt", UNS_RANK_MODEL, 4, 2 },
	{ "optim_world_size_1_rank_0.pt", UNS_RANK_OPTIM, 1, 0 },
	{ "extra_state_world_size_65536_rank_65535.pt", UNS_RANK_EXTRA, 65536, 65535 },
	{ "model_world_size_2_rank_3.pt", UNS_RANK_MODEL, 2, 3 }, /* the reader finds it too many */
	{ "model_world_size_65537_rank_0.pt", -1, 0, 0 },
	{ "model_world_size_2_rank_65536.pt", -1, 0, 0 },
	{ "model_world_size_0_rank_0.pt", -1, 0, 0 },
	{ "model_world_size_2_rank_0.pt.tmp", -1, 0, 0 },
	{ "model_world_size_2_rank_.pt", -1, 0, 0 },
	{ "model_world_size__rank_0.pt", -1, 0, 0 },
	{ "model_world_size_2.pt", -1, 0, 0 },
	{ "critic_world_size_2_rank_0.pt", -1, 0, 0 },
	{ "a_name_that_is_longer_than_any_that_such_a_file_may_have_before_its_mark_rank_0.pt", -1, 0, 0 },
	{ "", -1, 0, 0 },
};

static void parses_names(void **state)
{
	struct uns_rank_name name;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		bool known = uns_rank_name_parse(cases[i].name, &name);

		if (known != (cases[i].kind >= 0))
			fail_msg("%s", cases[i].name);
		if (!known)
			continue;
		assert_int_equal(name.kind, cases[i].kind);
		assert_int_equal(name.world, cases[i].world);
		assert_int_equal(name.rank, cases[i].rank);
	}
}

static void makes_names(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;

	(void)state;
	assert_string_equal(uns_rank_name_stem(&arena, UNS_RANK_EXTRA, 8, 7), "extra_state_world_size_8_rank_7");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_names),
		cmocka_unit_test(makes_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

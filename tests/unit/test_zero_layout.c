/* The arithmetic of ZeRO's layout: partition, slices, deal, sub-groups and padding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "wire/value_new.h"
#include "zero/layout.h"

#define N_OF(table) (sizeof(table) / sizeof(*(table)))

/* Parameters of these sizes over W ranks: the runs that each must have, "rank:first+count@local". */
static const struct {
	const char *name;
	struct uns_zero_layout layout;
	uint64_t at, elems;
	const char *runs;
} run_cases[] = {
	{ "flat, inside one part", { false, 3, 10 }, 2, 5, "0:0+5@2" },
	{ "flat, over a boundary", { false, 3, 10 }, 7, 5, "0:0+3@7 1:3+2@0" },
	{ "flat, over all", { false, 3, 10 }, 0, 30, "0:0+10@0 1:10+10@0 2:20+10@0" },
	{ "flat, from a boundary", { false, 3, 10 }, 20, 1, "2:0+1@0" },
	{ "flat, empty", { false, 3, 10 }, 5, 0, "" },
	{ "flat, behind the last", { false, 3, 10 }, 28, 5, "2:0+2@8" },
	{ "flat, no parts", { false, 3, 0 }, 0, 5, "" },
	{ "sliced, even", { true, 2, 0 }, 4, 6, "0:0+3@4 1:3+3@4" },
	{ "sliced, the last is shorter", { true, 3, 0 }, 1, 7, "0:0+3@1 1:3+3@1 2:6+1@1" },
	{ "sliced, the last has none", { true, 4, 0 }, 0, 3, "0:0+1@0 1:1+1@0 2:2+1@0" },
	{ "sliced, one element", { true, 4, 0 }, 9, 1, "0:0+1@9" },
	{ "sliced, empty", { true, 4, 0 }, 9, 0, "" },
};

static void lays_out_parameters(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < N_OF(run_cases); i++) {
		struct uns_zero_stretch stretch = { 0 };
		char text[256] = "";

		for (; uns_zero_stretch_next(&run_cases[i].layout, run_cases[i].at, run_cases[i].elems, &stretch);
		     stretch.rank++)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%llu:%llu+%llu@%llu",
				 *text ? " " : "", (unsigned long long)stretch.rank, (unsigned long long)stretch.first,
				 (unsigned long long)stretch.count, (unsigned long long)stretch.local);
		print_message("%s\n", run_cases[i].name);
		assert_string_equal(text, run_cases[i].runs);
	}
}

/* Each rank, asked alone, holds the stretch that the run over all ranks gives it, and nothing else. */
static void asks_one_rank(void **state)
{
	struct uns_zero_stretch stretch, one;
	uint64_t rank;
	size_t i;

	(void)state;
	for (i = 0; i < N_OF(run_cases); i++) {
		const struct uns_zero_layout *layout = &run_cases[i].layout;
		uint64_t at = run_cases[i].at, elems = run_cases[i].elems;

		stretch = (struct uns_zero_stretch){ 0 };
		for (rank = 0; rank < layout->world; rank++) {
			bool there = uns_zero_stretch_next(layout, at, elems, &stretch) && stretch.rank == rank;

			assert_int_equal(uns_zero_stretch_of(layout, at, elems, rank, &one), there);
			if (there)
				assert_memory_equal(&one, &stretch, sizeof(stretch));
			if (there)
				stretch.rank++;
		}
	}
}

/* A flat group of `end` elements over `world` ranks: each rank's part, what it holds, and its padding as ZeRO
 * and as BF16_Optimizer record it. */
static const struct {
	uint64_t end, world, part;
	const char *held, *paddings, *last;
} group_cases[] = {
	{ 12, 2, 6, "6 6", "0 0", "0 0" },
	{ 13, 2, 8, "8 5", "0 3", "0 3" },
	{ 9, 4, 4, "4 4 1 0", "0 0 3 4", "0 0 0 7" },
	{ 1, 3, 2, "1 0 0", "1 2 2", "0 0 5" },
	{ 0, 2, 0, "0 0", "0 0", "0 0" },
	{ 7, 1, 8, "7", "1", "1" },
};

static void add_number(char *text, size_t size, uint64_t n)
{
	snprintf(text + strlen(text), size - strlen(text), "%s%llu", *text ? " " : "", (unsigned long long)n);
}

static void pads_groups(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < N_OF(group_cases); i++) {
		uint64_t end = group_cases[i].end, world = group_cases[i].world, rank;
		struct uns_zero_layout layout = { false, world, uns_zero_part(end, world) };
		char held[64] = "", paddings[64] = "", last[64] = "";

		assert_int_equal(layout.part_elems, group_cases[i].part);
		for (rank = 0; rank < world; rank++) {
			add_number(held, sizeof(held), uns_zero_held(&layout, end, rank));
			add_number(paddings, sizeof(paddings), uns_zero_padding(&layout, end, rank, false));
			add_number(last, sizeof(last), uns_zero_padding(&layout, end, rank, true));
		}
		assert_string_equal(held, group_cases[i].held);
		assert_string_equal(paddings, group_cases[i].paddings);
		assert_string_equal(last, group_cases[i].last);
	}
}

static const struct {
	size_t n;
	uint64_t world;
	const char *order;
} deal_cases[] = {
	{ 7, 3, "0 3 6 1 4 2 5" },
	{ 4, 1, "0 1 2 3" },
	{ 2, 4, "0 1" },
	{ 0, 2, "" },
};

static void deals_parameters(void **state)
{
	size_t i, k, order[8];

	(void)state;
	for (i = 0; i < N_OF(deal_cases); i++) {
		char text[64] = "";

		uns_zero_deal(deal_cases[i].n, deal_cases[i].world, order);
		for (k = 0; k < deal_cases[i].n; k++)
			add_number(text, sizeof(text), order[k]);
		assert_string_equal(text, deal_cases[i].order);
	}
}

/* -- settings -- */

static const struct uns_value *config_with(struct uns_arena *arena, const char *name, const struct uns_value *v)
{
	struct uns_value *zero = uns_value_new_dict(arena, 1), *config = uns_value_new_dict(arena, 1);

	assert_true(uns_value_put_str(arena, zero, name, v));
	assert_true(uns_value_put_str(arena, config, "zero_optimization", zero));
	return config;
}

static void reads_settings(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	const struct {
		const struct uns_value *v;
		uint64_t size;
	} cases[] = {
		{ uns_value_new_int(&arena, 5), 5 },
		{ uns_value_new_int(&arena, 0), 0 },
		{ uns_value_new_float(&arena, 2e9), 2000000000 },
		{ uns_value_new_float(&arena, 1e30), UINT64_C(1000000000000000000) },
		{ uns_value_new_int(&arena, -1), 1000000000 },
		{ uns_value_new_none(&arena), 1000000000 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < N_OF(cases); i++)
		assert_int_equal(uns_zero_sub_group_size(config_with(&arena, "sub_group_size", cases[i].v)),
				 cases[i].size);
	assert_int_equal(uns_zero_sub_group_size(NULL), 1000000000);
	assert_true(uns_zero_is_round_robin(
		config_with(&arena, "round_robin_gradients", uns_value_new_bool(&arena, true))));
	assert_false(uns_zero_is_round_robin(
		config_with(&arena, "round_robin_gradients", uns_value_new_bool(&arena, false))));
	assert_false(
		uns_zero_is_round_robin(config_with(&arena, "round_robin_gradients", uns_value_new_int(&arena, 1))));
	assert_false(uns_zero_is_round_robin(NULL));
}

static void reads_alignment(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_value *all = uns_value_new_list(&arena, 1), *of_group = uns_value_new_list(&arena, 2);
	uint64_t n = 9;

	(void)state;
	assert_true(uns_value_append(of_group, uns_value_new_int(&arena, 3)));
	assert_true(uns_value_append(of_group, uns_value_new_int(&arena, -1)));
	assert_true(uns_value_append(all, of_group));
	assert_true(uns_zero_alignment(NULL, 0, 0, &n));
	assert_int_equal(n, 0);
	assert_true(uns_zero_alignment(uns_value_new_none(&arena), 4, 4, &n));
	assert_true(uns_zero_alignment(all, 0, 0, &n));
	assert_int_equal(n, 3);
	assert_false(uns_zero_alignment(all, 0, 1, &n)); /* no count */
	assert_false(uns_zero_alignment(all, 0, 2, &n)); /* no such parameter */
	assert_false(uns_zero_alignment(all, 1, 0, &n)); /* no such group */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lays_out_parameters), cmocka_unit_test(asks_one_rank),
		cmocka_unit_test(pads_groups),         cmocka_unit_test(deals_parameters),
		cmocka_unit_test(reads_settings),      cmocka_unit_test(reads_alignment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

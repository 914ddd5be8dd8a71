/* Layouts: what the builder makes, what it refuses, and where a byte is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/layout.h"

static const struct uns_tensor weight = { .name = "w", .dtype = UNS_BF16, .shape = { .n = 2, .dim = { 3, 4 } } };
static const struct uns_catalog catalog = { .path = "checkpoint-1" };

static void builds_in_order(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_layout_builder b = { .arena = &arena };
	struct uns_layout l;
	struct uns_err err = { 0 };

	(void)state;
	uns_layout_literal(&b, "header", 6);
	uns_layout_zeros(&b, 2);
	uns_layout_literal(&b, "", 0);
	uns_layout_tensor(&b, &weight, 0, 12, UNS_F32);
	uns_layout_tensor(&b, &weight, 12, 0, UNS_F32);
	uns_layout_tensor(&b, &weight, 4, 8, UNS_BF16);
	assert_int_equal(uns_layout_build(&b, &catalog, &l, &err), 0);
	assert_int_equal(l.n, 4);
	assert_int_equal(l.size_bytes, 6 + 2 + 48 + 16);
	assert_int_equal(l.segment[2].at_bytes, 8);
	assert_int_equal(l.segment[2].len_bytes, 48);
	assert_int_equal(l.segment[3].first_elem, 4);
	assert_ptr_equal(l.catalog, &catalog);
	uns_arena_fini(&arena);
}

static void reserve_makes_room(void **state)
{
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_layout_builder b = { .arena = &arena };
	const struct uns_segment *first;
	unsigned i;

	(void)state;
	uns_layout_literal(&b, "header", 6);
	uns_layout_reserve(&b, 100);
	first = b.segment;
	for (i = 1; i < 100; i++)
		uns_layout_zeros(&b, i);
	assert_ptr_equal(b.segment, first);
	assert_int_equal(b.n, 100);
	assert_int_equal(b.segment[0].len_bytes, 6);
	assert_int_equal(b.segment[99].at_bytes, 6 + 98 * 99 / 2);
	uns_layout_reserve(&b, 2);
	assert_ptr_equal(b.segment, first);
	assert_int_equal(b.cap, 100);
	uns_arena_fini(&arena);
}

/* Two stretches of two elements: 2, 3 and 8, 9 of the twelve. */
static void cuts_slices(void **state)
{
	static const struct uns_slice slice = { .first_elem = 2,
						.shape = { .n = 2, .dim = { 2, 2 } },
						.loop = { { 2, 6 } } };
	static const struct uns_tensor whole = {
		.name = "w", .dtype = UNS_BF16, .shape = { .n = 2, .dim = { 3, 4 } }, .alias_of = UNS_NONE
	};
	static const struct uns_tensor part = {
		.name = "p", .dtype = UNS_BF16, .shape = { .n = 2, .dim = { 2, 2 } }, .of = &whole, .slice = &slice
	};
	struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_layout_builder b = { .arena = &arena };
	struct uns_layout l;
	struct uns_err err = { 0 };

	(void)state;
	uns_layout_tensor(&b, &part, 0, 4, UNS_F32);
	uns_layout_tensor(&b, &part, 1, 2, UNS_BF16);
	uns_layout_crc32(&b, &part, UNS_BF16);
	assert_int_equal(uns_layout_build(&b, &catalog, &l, &err), 0);
	assert_int_equal(l.n, 5);
	assert_int_equal(l.size_bytes, 16 + 4 + 4);
	assert_ptr_equal(l.segment[0].tensor, &whole);
	assert_int_equal(l.segment[0].first_elem, 2);
	assert_int_equal(l.segment[1].first_elem, 8);
	assert_int_equal(l.segment[1].len_bytes, 8);
	assert_int_equal(l.segment[2].first_elem, 3);
	assert_int_equal(l.segment[2].len_bytes, 2);
	assert_int_equal(l.segment[3].first_elem, 8);
	assert_int_equal(l.segment[4].from, UNS_FROM_ZEROS); /* its CRC */
	uns_arena_fini(&arena);

	b = (struct uns_layout_builder){ .arena = &arena };
	arena = UNS_ARENA_INIT;
	uns_layout_tensor(&b, &part, 1, 4, UNS_BF16);
	assert_true(uns_layout_build(&b, &catalog, &l, &err) < 0);
	uns_arena_fini(&arena);
}

static void finds_bytes(void **state)
{
	static const struct {
		uint64_t at;
		size_t want;
	} cases[] = { { 0, 0 },  { 5, 0 },  { 6, 1 },  { 7, 1 },  { 8, 2 },
		      { 55, 2 }, { 56, 3 }, { 71, 3 }, { 72, 4 }, { UINT64_MAX, 4 } };
	static const struct uns_segment segment[] = { { .at_bytes = 0, .len_bytes = 6 },
						      { .at_bytes = 6, .len_bytes = 2 },
						      { .at_bytes = 8, .len_bytes = 48 },
						      { .at_bytes = 56, .len_bytes = 16 } };
	const struct uns_layout l = { .segment = segment, .n = 4, .size_bytes = 72 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(uns_layout_find(&l, cases[i].at), cases[i].want);
}

static void refuses(void **state)
{
	static const struct uns_tensor vast = { .dtype = UNS_U8, .shape = { .n = 1, .dim = { UINT64_C(1) << 62 } } };
	static const struct {
		const struct uns_tensor *tensor;
		uint64_t first, n;
		enum uns_dtype out;
		const char *why;
	} cases[] = {
		{ &weight, 0, 13, UNS_BF16, "passes the end of its tensor" },
		{ &weight, 12, 1, UNS_BF16, "passes the end of its tensor" },
		{ &weight, UINT64_MAX, 2, UNS_BF16, "passes the end of its tensor" },
		{ &vast, 0, UINT64_C(1) << 62, UNS_F32, "larger than 2^63" },
		{ &vast, 0, UINT64_C(1) << 62, UNS_BF16, "larger than 2^63" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_layout_builder b = { .arena = &arena };
		struct uns_layout l;
		struct uns_err err = { 0 };

		uns_layout_tensor(&b, cases[i].tensor, cases[i].first, cases[i].n, cases[i].out);
		assert_int_equal(uns_layout_build(&b, &catalog, &l, &err), -EINVAL);
		assert_non_null(strstr(err.text, cases[i].why));
		assert_non_null(strstr(err.text, "checkpoint-1"));
		uns_arena_fini(&arena);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(builds_in_order), cmocka_unit_test(cuts_slices), cmocka_unit_test(reserve_makes_room),
		cmocka_unit_test(finds_bytes),     cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

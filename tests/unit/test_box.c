/* Shapes, boxes and the runs of a box in the flattened tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "model/box.h"
#include "model/box_pool.h"

#define SHAPE(...)                                                                   \
	{                                                                            \
		.n = sizeof((uint64_t[]){ __VA_ARGS__ }) / 8, .dim = { __VA_ARGS__ } \
	}

static void checks_shapes(void **state)
{
	static const struct {
		struct uns_shape shape;
		enum uns_dtype dtype;
		int code;
		const char *says;
	} cases[] = {
		{ { .n = 0 }, UNS_F32, 0, NULL },
		{ SHAPE(3, 4), UNS_BF16, 0, NULL },
		{ SHAPE(0, 4), UNS_BF16, 0, NULL },
		{ SHAPE(UINT64_C(1) << 60), UNS_F32, 0, NULL },
		{ SHAPE(UINT64_C(1) << 62), UNS_F32, -EBADMSG, "2^63 bytes" },
		{ SHAPE(UINT64_C(1) << 63), UNS_U8, -EBADMSG, "2^63 bytes" },
		{ SHAPE(INT64_MAX), UNS_U8, 0, NULL },
		{ SHAPE(UINT64_C(1) << 40, UINT64_C(1) << 40), UNS_U8, -EBADMSG, "2^63" },
		{ SHAPE(UINT64_C(1) << 40, 0, UINT64_C(1) << 40), UNS_U8, -EBADMSG, "2^63" },
		{ { .n = 9 }, UNS_U8, -ENOTSUP, "9 dimensions" },
		{ SHAPE(3), UNS_DTYPE_NONE, -ENOTSUP, "dtype" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_err err = { 0 };

		assert_int_equal(uns_shape_check(&cases[i].shape, cases[i].dtype, &err), cases[i].code);
		if (cases[i].says)
			assert_non_null(strstr(err.text, cases[i].says));
	}
}

static void writes_shapes(void **state)
{
	static const struct {
		struct uns_shape shape;
		size_t size;
		const char *text;
	} cases[] = {
		{ { .n = 0 }, 20, "[]" },    { SHAPE(2), 20, "[2]" }, { SHAPE(2, 30), 20, "[2, 30]" },
		{ SHAPE(2, 30), 5, "[2, " }, { SHAPE(2, 30), 1, "" },
	};
	char buf[20];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memset(buf, 'x', sizeof(buf));
		assert_string_equal(uns_shape_text(&cases[i].shape, buf, cases[i].size), cases[i].text);
	}
}

static void knows_inside_and_overlap(void **state)
{
	static const struct uns_shape shape = SHAPE(4, 6);
	static const struct {
		struct uns_box a, b;
		bool inside, overlap; /* of a; of both */
	} cases[] = {
		{ { 2, { 0, 0 }, { 4, 6 } }, { 2, { 3, 5 }, { 1, 1 } }, true, true },
		{ { 2, { 0, 0 }, { 2, 6 } }, { 2, { 2, 0 }, { 2, 6 } }, true, false },
		{ { 2, { 0, 0 }, { 4, 3 } }, { 2, { 0, 3 }, { 4, 3 } }, true, false },
		{ { 2, { 0, 0 }, { 3, 4 } }, { 2, { 2, 3 }, { 2, 3 } }, true, true },
		{ { 2, { 4, 0 }, { 0, 6 } }, { 2, { 0, 0 }, { 4, 6 } }, true, false },
		{ { 2, { 1, 0 }, { 0, 6 } }, { 2, { 0, 0 }, { 4, 6 } }, true, false },
		{ { 2, { 5, 0 }, { 0, 6 } }, { 2, { 0, 0 }, { 4, 6 } }, false, false },
		{ { 2, { 3, 0 }, { 2, 6 } }, { 2, { 0, 0 }, { 1, 1 } }, false, false },
		{ { 2, { UINT64_MAX, 0 }, { 2, 6 } }, { 2, { 0, 0 }, { 1, 1 } }, false, false },
		{ { 1, { 0 }, { 4 } }, { 1, { 3 }, { 1 } }, false, true },
		{ { 0, { 0 }, { 0 } }, { 0, { 0 }, { 0 } }, false, true },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(uns_box_inside(&cases[i].a, &shape), cases[i].inside);
		assert_int_equal(uns_box_overlap(&cases[i].a, &cases[i].b), cases[i].overlap);
		assert_int_equal(uns_box_overlap(&cases[i].b, &cases[i].a), cases[i].overlap);
	}
}

static const struct {
	const char *name;
	struct uns_shape shape;
	struct uns_box box;
	uint64_t n, stretch_elems, first, last; /* where the first and the last run start */
} run_cases[] = {
	{ "whole", SHAPE(3, 4), { 2, { 0, 0 }, { 3, 4 } }, 1, 12, 0, 0 },
	{ "scalar", { .n = 0 }, { 0, { 0 }, { 0 } }, 1, 1, 0, 0 },
	{ "rows", SHAPE(5, 4), { 2, { 2, 0 }, { 2, 4 } }, 1, 8, 8, 8 },
	{ "columns", SHAPE(3, 4), { 2, { 0, 1 }, { 3, 2 } }, 3, 2, 1, 9 },
	{ "one element", SHAPE(3, 4), { 2, { 2, 3 }, { 1, 1 } }, 1, 1, 11, 11 },
	{ "planes", SHAPE(2, 3, 4), { 3, { 1, 0, 0 }, { 1, 3, 4 } }, 1, 12, 12, 12 },
	{ "middle", SHAPE(2, 3, 4), { 3, { 0, 1, 0 }, { 2, 2, 4 } }, 2, 8, 4, 16 },
	{ "corner", SHAPE(2, 3, 4), { 3, { 0, 1, 2 }, { 2, 2, 2 } }, 4, 2, 6, 22 },
	{ "vector", SHAPE(7), { 1, { 3 }, { 2 } }, 1, 2, 3, 3 },
	{ "no rows", SHAPE(5, 4), { 2, { 5, 0 }, { 0, 4 } }, 0, 0, 20, 0 },
	{ "no columns", SHAPE(5, 4), { 2, { 0, 4 }, { 5, 0 } }, 0, 0, 4, 0 },
};

static void cuts_boxes_into_runs(void **state)
{
	struct uns_stretches r;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(run_cases) / sizeof(*run_cases); i++) {
		print_message("%s\n", run_cases[i].name);
		r = uns_stretches_of_box(&run_cases[i].box, &run_cases[i].shape);
		assert_int_equal(r.n, run_cases[i].n);
		assert_int_equal(r.base, run_cases[i].first);
		if (!r.n)
			continue;
		assert_int_equal(r.stretch_elems, run_cases[i].stretch_elems);
		assert_int_equal(uns_stretches_at(&r, 0), run_cases[i].first);
		assert_int_equal(uns_stretches_at(&r, r.n - 1), run_cases[i].last);
	}
}

/* Every element of the tensor, against the definition spelled out. */
static void runs_hold_the_boxes_elements(void **state)
{
	static const struct uns_shape shape = SHAPE(3, 4, 5);
	static const struct uns_box box = { 3, { 1, 0, 2 }, { 2, 3, 2 } };
	struct uns_stretches r = uns_stretches_of_box(&box, &shape);
	uint64_t e, k, x[3], in_box = 0;
	bool inside;

	(void)state;
	for (e = 0; e < 60; e++) {
		x[0] = e / 20;
		x[1] = e / 5 % 4;
		x[2] = e % 5;
		inside = x[0] >= 1 && x[1] < 3 && x[2] >= 2 && x[2] < 4;
		k = uns_stretches_find(&r, e);
		assert_int_equal(k < r.n && uns_stretches_at(&r, k) <= e, inside);
		if (inside)
			assert_int_equal(k * r.stretch_elems + (e - uns_stretches_at(&r, k)), in_box++);
	}
	assert_int_equal(in_box, uns_box_elems(&box));
	assert_int_equal(uns_stretches_find(&r, 1000), r.n);
}

/* Boxes that come again and again, more of them than the pool has room for at first: few are there twice. */
static void keeps_equal_boxes_once(void **state)
{
	enum { DISTINCT = 5000, ROUNDS = 40 };
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_box_pool_fini) struct uns_box_pool pool = { 0 };
	struct uns_box box = { .n = 2, .len = { 7, 9 } };
	const struct uns_box *kept;
	size_t i;

	(void)state;
	for (i = 0; i < DISTINCT * ROUNDS; i++) {
		box.lo[0] = 7 * (i % DISTINCT);
		kept = uns_box_keep(&pool, &arena, &box);
		assert_non_null(kept);
		assert_true(uns_box_equal(kept, &box));
	}
	assert_in_range(arena.used_bytes / sizeof(box), DISTINCT, 4 * DISTINCT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checks_shapes),
		cmocka_unit_test(writes_shapes),
		cmocka_unit_test(knows_inside_and_overlap),
		cmocka_unit_test(cuts_boxes_into_runs),
		cmocka_unit_test(runs_hold_the_boxes_elements),
		cmocka_unit_test(keeps_equal_boxes_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

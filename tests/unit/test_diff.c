/* unshard_diff: what ends it, what it refuses; single elements of every kind. Figures of whole tensors against torch's
 * are in tests/e2e/test_diff.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "diff/groups.h"
#include "names/module_path.h"
#include "unshard.h"

static const struct diff_tolerance none;

static struct diff_tally of(enum uns_dtype a, const void *x, enum uns_dtype b, const void *y, size_t n,
			    const struct diff_tolerance *tolerance)
{
	struct diff_tally out;

	diff_tally_block(a, x, b, y, n, tolerance, &out);
	return out;
}

static void is_double(double got, double want)
{
	assert_memory_equal(&got, &want, sizeof(want));
}

/* -- elements -- */

static void test_zeros_and_nan(void **state)
{
	const float a[] = { 0.0f, NAN, NAN, INFINITY, INFINITY, -INFINITY, 1.0f, 2.0f };
	const float b[] = { -0.0f, NAN, 1.0f, INFINITY, -INFINITY, 3.0f, 1.0f, 2.5f };
	struct diff_tally t = of(UNS_F32, a, UNS_F32, b, 8, &none);

	(void)state;
	assert_int_equal(t.n_elems, 8);
	assert_int_equal(t.n_changed, 5);
	assert_int_equal(t.n_beyond, 5);
	assert_int_equal(t.n_not_finite_a, 5);
	assert_int_equal(t.n_not_finite_b, 3);
	assert_int_equal(t.n_not_finite_changed, 3);
	assert_int_equal(t.n_finite, 3);
	is_double(t.max_abs, 0.5);
	is_double(uns_sum_value(&t.square_a), 5);
	is_double(uns_sum_value(&t.square_b), 1 + 9 + 1 + 6.25);
	/* A tolerance forgives the sign of zero, and no NaN. */
	t = of(UNS_F32, a, UNS_F32, b, 8, &(struct diff_tolerance){ .absolute = 0.5 });
	assert_int_equal(t.n_beyond, 3);
}

static void test_nan_of_other_bits(void **state)
{
	const uint32_t a = 0x7fc00000, b = 0x7fc00001;
	const float nan = NAN;
	const double wide = -(double)NAN;
	struct diff_tally t = of(UNS_F32, &a, UNS_F32, &b, 1, &none);

	(void)state;
	assert_int_equal(t.n_changed, 1);
	assert_int_equal(t.n_not_finite_changed, 1);
	t = of(UNS_F32, &nan, UNS_F64, &wide, 1, &none);
	assert_int_equal(t.n_changed, 0);
}

static void test_integers_of_64_bits(void **state)
{
	const int64_t a[] = { INT64_MIN, INT64_MAX, (1LL << 53) + 1, -1 };
	const int64_t b[] = { INT64_MAX, INT64_MAX - 1, 1LL << 53, -1 };
	const uint64_t u[] = { 0, INT64_MAX, (1ULL << 53) + 1, UINT64_MAX };
	const double d[] = { 0, 0, 9007199254740992.0, -1 };
	struct diff_tally t = of(UNS_I64, a, UNS_I64, b, 4, &none);

	(void)state;
	assert_int_equal(t.n_changed, 3);
	is_double(t.max_abs, 18446744073709551615.0);
	t = of(UNS_I64, a, UNS_U64, u, 4, &none);
	assert_int_equal(t.n_changed, 2);
	t = of(UNS_I64, a + 2, UNS_F64, d + 2, 2, &none);
	assert_int_equal(t.n_changed, 1);
	is_double(t.max_abs, 1);
}

static void test_complex(void **state)
{
	const float a[] = { 1, 2, 3, NAN };
	const double b[] = { 4, 6, 3, NAN };
	struct diff_tally t = of(UNS_C64, a, UNS_C128, b, 2, &none);

	(void)state;
	assert_int_equal(t.n_changed, 1);
	assert_int_equal(t.n_not_finite_a, 1);
	is_double(t.max_abs, 5);
}

/* The same sums however the elements are cut, and whether or not anything changed: those of equal tensors have a way
 * of their own. */
static void test_sums_are_made_in_one_order(void **state)
{
	enum { N = 5000 };
	float *a = calloc(N, sizeof(*a)), *b = calloc(N, sizeof(*b));
	struct diff_tally equal, other;
	size_t i;

	(void)state;
	for (i = 0; i < N; i++)
		a[i] = b[i] = (float)sin((double)i) * (i % 7 ? 1.0f : 1e6f);
	equal = of(UNS_F32, a, UNS_F32, b, N, &none);
	b[N - 1] += 1;
	other = of(UNS_F32, a, UNS_F32, b, N, &none);
	is_double(uns_sum_value(&equal.square_a), uns_sum_value(&other.square_a));
	assert_int_equal(other.n_changed, 1);
	free(a);
	free(b);
}

static void test_sums_keep_what_is_small(void **state)
{
	struct diff_tally t = { .square = { .sum = 1e16 } }, one = { .square = { .sum = 1 } };
	int i;

	(void)state;
	for (i = 0; i < 10; i++)
		diff_tally_add(&t, &one);
	is_double(uns_sum_value(&t.square), 1e16 + 10);
	t = (struct diff_tally){ .square = { .sum = DBL_MAX } };
	diff_tally_add(&t, &t);
	assert_true(isinf(uns_sum_value(&t.square)));
}

/* -- names -- */

static void test_layers_and_experts(void **state)
{
	static const struct {
		const char *name, *layer, *expert;
		uint64_t n_experts;
	} rows[] = {
		{ "model.layers.3.mlp.experts.7.w1.weight", "model.layers.3", "model.layers.3.mlp.experts.7", 0 },
		{ "model.layers.12.mlp.experts.gate_up_proj", "model.layers.12", NULL, 5 },
		{ "model.embed_tokens.weight", NULL, NULL, 0 },
		{ "experts.2", "experts.2", "experts.2", 0 },
		{ "3", "3", NULL, 0 },
		{ "model.layers.3a.myexperts.4b", NULL, NULL, 0 },
		{ "", NULL, NULL, 0 },
		{ "experts", NULL, NULL, 0 },
		{ "experts.", NULL, NULL, 5 },
		{ "..experts..1", "..experts..1", NULL, 5 },
	};
	const uint64_t shape[] = { 5, 2, 2 };
	struct diff_tally t = { .n_elems = 4 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct diff_groups g = { 0 };

		assert_int_equal(diff_groups_add(&g, rows[i].name, &t, true, NULL), 0);
		assert_int_equal(g.layer.n, rows[i].layer != NULL);
		assert_int_equal(g.expert.n, rows[i].expert != NULL);
		assert_true(!rows[i].layer || uns_map_get(&g.layer, rows[i].layer));
		assert_true(!rows[i].expert || uns_map_get(&g.expert, rows[i].expert));
		assert_int_equal(uns_name_experts(rows[i].name, shape, 3), rows[i].n_experts);
		assert_int_equal(uns_name_experts(rows[i].name, shape, 2), 0);
		if (rows[i].n_experts) {
			assert_int_equal(diff_groups_add_part(&g, rows[i].name, 4, &t, false, NULL), 0);
			assert_int_equal(g.expert.n, 1);
		}
		diff_groups_fini(&g);
	}
}

/* -- the call -- */

struct seen {
	size_t tensors, groups, values;
	int end_at_tensor, end_at_group, end_at_value, end_at_progress;
};

static int on_tensor(void *ctx, const struct unshard_tensor_diff *t)
{
	struct seen *s = ctx;

	assert_non_null(t->name);
	assert_int_equal(t->kind == UNSHARD_DIFF_EQUAL, t->figures && !t->figures->n_changed);
	s->tensors++;
	return s->end_at_tensor;
}

static int on_group(void *ctx, const struct unshard_group_diff *g)
{
	struct seen *s = ctx;

	assert_non_null(unshard_group_name(g->group));
	s->groups++;
	return s->end_at_group;
}

static int on_value(void *ctx, const struct unshard_value_diff *v)
{
	struct seen *s = ctx;

	assert_true(v->json_a || v->json_b);
	s->values++;
	return s->end_at_value;
}

static int on_progress(void *ctx, const struct unshard_progress *p)
{
	assert_true(p->done_bytes <= p->total_bytes);
	return ((struct seen *)ctx)->end_at_progress;
}

static int call(struct seen *s, const char *a, const char *b, const struct unshard_diff_options *options,
		struct unshard_diff_counts *counts, struct unshard_error *err)
{
	const struct unshard_options session = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT,      .ctx = s,
					     .progress = on_progress, .tensor_diff = on_tensor,
					     .group_diff = on_group,  .value_diff = on_value };
	unshard *u;
	int code;

	assert_int_equal(unshard_open(UNSHARD_GOLDEN, &session, &u, NULL), 0);
	code = unshard_diff(u, a, u, b, options, s ? &calls : NULL, counts, err);
	unshard_close(u);
	return code;
}

#define Z3 "zero/z3_w2/global_step2"
#define Z2 "zero/z2_w3/global_step2"

static void test_two_checkpoints_of_one_session(void **state)
{
	struct unshard_diff_options options = { UNSHARD_DIFF_OPTIONS_INIT, .flags = UNSHARD_DIFF_OPTIMIZER };
	struct unshard_diff_counts counts = { UNSHARD_DIFF_COUNTS_INIT };
	struct unshard_error err = { 0 };
	struct seen s = { 0 };

	(void)state;
	assert_int_equal(call(&s, Z3, Z3, &options, &counts, &err), 0);
	assert_int_equal(counts.kind[UNSHARD_DIFF_EQUAL], s.tensors);
	assert_int_equal(s.values, 0);
	assert_true(counts.read_bytes > 0);
	assert_int_equal(call(&s, Z3, Z2, NULL, NULL, &err), 1);
	assert_int_equal(call(NULL, Z3, Z2, NULL, NULL, NULL), 1);
	options = (struct unshard_diff_options){ UNSHARD_DIFF_OPTIONS_INIT, .tolerance = 100,
						 .flags = UNSHARD_DIFF_TENSORS };
	assert_int_equal(call(&s, Z3, Z2, &options, &counts, &err), 0);
	assert_true(counts.kind[UNSHARD_DIFF_WITHIN] > 0);
}

static void test_a_callback_ends_it(void **state)
{
	struct seen ends[] = {
		{ .end_at_tensor = 7 }, { .end_at_group = 8 }, { .end_at_value = -9 }, { .end_at_progress = -EINTR }
	};
	const int want[] = { 7, 8, -9, -EINTR };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		assert_int_equal(call(&ends[i], Z3, Z2, NULL, NULL, NULL), want[i]);
	assert_int_equal(ends[0].tensors, 1);
	assert_int_equal(ends[1].groups, 1);
	assert_int_equal(ends[2].values, 1);
}

static void test_what_is_refused(void **state)
{
	const struct {
		const char *b;
		struct unshard_diff_options options;
		int code;
		const char *said;
	} rows[] = {
		{ "zero", { UNSHARD_DIFF_OPTIONS_INIT }, -ENOENT, "not a checkpoint" },
		{ "nowhere", { UNSHARD_DIFF_OPTIONS_INIT }, -ENOENT, "nowhere" },
		{ Z3, { UNSHARD_DIFF_OPTIONS_INIT, .view = "weigths" }, -ENOENT, "no such view" },
		{ Z3, { UNSHARD_DIFF_OPTIONS_INIT, .view = "universal" }, -ENOTSUP, "safetensors" },
		{ Z3, { UNSHARD_DIFF_OPTIONS_INIT, .tolerance = -1 }, -EINVAL, "tolerance" },
		{ Z3, { UNSHARD_DIFF_OPTIONS_INIT, .relative_tolerance = (double)NAN }, -EINVAL, "tolerance" },
		{ Z3, { UNSHARD_DIFF_OPTIONS_INIT, .flags = 64 }, -EINVAL, "flag" },
		{ Z3, { 0 }, -EINVAL, "size" },
		{ "zero/other/global_step2",
		  { UNSHARD_DIFF_OPTIONS_INIT, .flags = UNSHARD_DIFF_OPTIMIZER },
		  -ENODATA,
		  "optimizer shards" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct unshard_error err = { 0 };

		assert_int_equal(call(NULL, Z3, rows[i].b, &rows[i].options, NULL, &err), rows[i].code);
		if (!strstr(err.text, rows[i].said))
			fail_msg("%s: %s", rows[i].said, err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeros_and_nan),
		cmocka_unit_test(test_nan_of_other_bits),
		cmocka_unit_test(test_integers_of_64_bits),
		cmocka_unit_test(test_complex),
		cmocka_unit_test(test_sums_are_made_in_one_order),
		cmocka_unit_test(test_sums_keep_what_is_small),
		cmocka_unit_test(test_layers_and_experts),
		cmocka_unit_test(test_two_checkpoints_of_one_session),
		cmocka_unit_test(test_a_callback_ends_it),
		cmocka_unit_test(test_what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

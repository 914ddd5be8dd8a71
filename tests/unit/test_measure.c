/* unshard_measure_tensors: figures that were worked out by hand, Adam's rule as a checkpoint records it, what ends the
 * call. Figures of whole tensors of every dtype against torch's are in tests/e2e/test_values.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/adam_rule.h"
#include "unshard.h"

static void is_double(double got, double want)
{
	assert_memory_equal(&got, &want, sizeof(want));
}

static void is_near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-14 * fabs(want)))
		fail_msg("%.17g is not %.17g", got, want);
}

static uint64_t of_magnitude(const uint64_t *magnitude, int exponent)
{
	return magnitude[exponent - UNSHARD_LEAST_EXPONENT];
}

/* -- a block of elements -- */

static void test_counts_and_sums(void **state)
{
	const float x[] = { 3.0f, -4.0f, 0.0f, -0.0f, NAN, INFINITY, -INFINITY, 0.5f };
	struct tally t;

	(void)state;
	tally_make(&(struct tally_block){ .dtype = UNS_F32, .elems = x, .n = 8 }, &t);
	assert_int_equal(t.n_elems, 8);
	assert_int_equal(t.n_zero, 2);
	assert_int_equal(t.n_negative, 1);
	assert_int_equal(t.n_nan, 1);
	assert_int_equal(t.n_infinite, 2);
	assert_int_equal(t.n_finite, 5);
	is_double(t.min, -4);
	is_double(t.max, 3);
	is_double(uns_sum_value(&t.sum), -0.5);
	is_double(uns_sum_value(&t.square), 9 + 16 + 0.25);
	assert_int_equal(of_magnitude(t.magnitude, 1), 1); /* 3 */
	assert_int_equal(of_magnitude(t.magnitude, 2), 1); /* -4 */
	assert_int_equal(of_magnitude(t.magnitude, -1), 1); /* 0.5 */
	assert_int_equal(t.n_small_rows, 0);
}

/* Whole chunks of finite elements are added up another way than the rest: both have the same figures. */
static void test_all_ways_to_add_up_agree(void **state)
{
	static const double odd[] = { 0, -0.0, 5e-324, -1e-310, 1e200, NAN, INFINITY };
	enum { N = 3 * 2048 + 5, STEP = 7 };
	static double x[N];
	struct tally whole, parts, part;
	size_t i, k;

	(void)state;
	for (k = 0; k <= sizeof(odd) / sizeof(odd[0]); k++) {
		for (i = 0; i < N; i++)
			x[i] = sin((double)i) * pow(2, (double)(i % 99) - 85);
		if (k)
			x[2048 + 100 * k] = x[5000] = odd[k - 1];
		tally_make(&(struct tally_block){ .dtype = UNS_F64, .elems = x, .n = N }, &whole);
		parts = (struct tally){ 0 };
		for (i = 0; i < N; i += STEP) {
			tally_make(&(struct tally_block){ .dtype = UNS_F64,
							  .elems = x + i,
							  .n = N - i < STEP ? N - i : STEP },
				   &part);
			tally_add(&parts, &part);
		}
		assert_int_equal(whole.n_elems, parts.n_elems);
		assert_int_equal(whole.n_zero, parts.n_zero);
		assert_int_equal(whole.n_negative, parts.n_negative);
		assert_int_equal(whole.n_nan, parts.n_nan);
		assert_int_equal(whole.n_infinite, parts.n_infinite);
		assert_int_equal(whole.n_finite, parts.n_finite);
		is_double(whole.min, parts.min);
		is_double(whole.max, parts.max);
		assert_memory_equal(whole.magnitude, parts.magnitude, sizeof(whole.magnitude));
		assert_int_equal(isfinite(uns_sum_value(&whole.square)), isfinite(uns_sum_value(&parts.square)));
		if (isfinite(uns_sum_value(&whole.square)))
			is_near(uns_sum_value(&whole.square), uns_sum_value(&parts.square));
	}
}

/* The first and the last count also have what is beyond. */
static void test_magnitudes_beyond_the_ends(void **state)
{
	const double x[] = {
		ldexp(1, -80), ldexp(1, -81), 5e-324, ldexp(1, 15), ldexp(1, 16), 1e300, 65535.9, 32767.9
	};
	struct tally t;

	(void)state;
	tally_make(&(struct tally_block){ .dtype = UNS_F64, .elems = x, .n = 8 }, &t);
	assert_int_equal(of_magnitude(t.magnitude, -80), 3);
	assert_int_equal(of_magnitude(t.magnitude, 15), 4);
	assert_int_equal(of_magnitude(t.magnitude, 14), 1);
}

static void test_complex_numbers_are_their_absolute_values(void **state)
{
	const float x[] = { 3, -4, 0, 0, NAN, 1 };
	struct tally t;

	(void)state;
	tally_make(&(struct tally_block){ .dtype = UNS_C64, .elems = x, .n = 3 }, &t);
	assert_int_equal(t.n_finite, 2);
	assert_int_equal(t.n_nan, 1);
	assert_int_equal(t.n_zero, 1);
	assert_int_equal(t.n_negative, 0);
	is_double(t.max, 5);
	is_double(uns_sum_value(&t.square), 25);
}

/* A row with NaN is not small. */
static void test_small_rows(void **state)
{
	const double x[] = { 0, 1e-17, 1e-16, -1e-16, 0, 2e-16, 0, NAN };
	struct tally t;

	(void)state;
	tally_make(&(struct tally_block){ .dtype = UNS_F64, .elems = x, .n = 8, .row = 2, .small = 1e-16 }, &t);
	assert_int_equal(t.n_small_rows, 2);
	tally_make(&(struct tally_block){ .dtype = UNS_F64, .elems = x, .n = 8, .row = 2 }, &t);
	assert_int_equal(t.n_small_rows, 0);
	/* A part of a row: what is in it decides, with the other parts. */
	tally_make(&(struct tally_block){ .dtype = UNS_F64, .elems = x, .n = 4, .row = 8, .small = 1e-16 }, &t);
	assert_int_equal(t.n_small_rows, 0);
	assert_false(t.has_large);
	tally_make(&(struct tally_block){ .dtype = UNS_F64, .elems = x + 4, .n = 4, .row = 8, .small = 1e-16 }, &t);
	assert_true(t.has_large);
}

static void test_tallies_add_up(void **state)
{
	const float x[] = { 1, -2, 0, NAN }, y[] = { NAN, NAN, INFINITY, 0 }, z[] = { -3, 8, 8, 8 };
	struct tally all = { 0 }, t;

	(void)state;
	tally_make(&(struct tally_block){ .dtype = UNS_F32, .elems = y, .n = 3 }, &t);
	tally_add(&all, &t);
	assert_int_equal(all.n_finite, 0);
	is_double(all.min, 0);
	tally_make(&(struct tally_block){ .dtype = UNS_F32, .elems = z, .n = 2, .row = 1 }, &t);
	tally_add(&all, &t);
	tally_make(&(struct tally_block){ .dtype = UNS_F32, .elems = x, .n = 4, .row = 1 }, &t);
	tally_add(&all, &t);
	assert_int_equal(all.n_elems, 9);
	assert_int_equal(all.n_nan, 3);
	assert_int_equal(all.n_infinite, 1);
	assert_int_equal(all.n_zero, 1);
	assert_int_equal(all.n_small_rows, 1);
	is_double(all.min, -3);
	is_double(all.max, 8);
	is_double(uns_sum_value(&all.sum), 4);
	is_double(uns_sum_value(&all.square), 9 + 64 + 1 + 4);
}

/* -- Adam's update -- */

/* rate * m / (sqrt(v) / root + eps): 2 * 3 / (1 / 0.5 + 1) = 2; 2 * -8 / (1.5 / 0.5 + 1) = -4; what is not finite is
 * left out; 2 * 5 / (infinity) = 0. */
static void test_the_squares_of_an_update(void **state)
{
	const struct adam rule = { .rate = 2, .root = 0.5, .eps = 1 };
	const float m[] = { 3, -8, 0, NAN, 5, 1 };
	const double v[] = { 1, 2.25, 4, 1, INFINITY, -1 };
	float many[5000];
	double ones[5000];
	size_t i;

	(void)state;
	is_double(adam_squares(&rule, UNS_F32, m, UNS_F64, v, 6), 4 + 16);
	is_double(adam_squares(&rule, UNS_F32, m, UNS_F64, v, 0), 0);
	for (i = 0; i < 5000; i++) {
		many[i] = 3;
		ones[i] = 1;
	}
	is_double(adam_squares(&rule, UNS_F32, many, UNS_F64, ones, 5000), 4.0 * 5000);
}

#define Z2 "zero/z2_w3/global_step2"

static unshard *session_of(const char *source)
{
	const struct unshard_options options = { UNSHARD_OPTIONS_INIT, .no_store = true, .no_settling = true };
	unshard *u;

	assert_int_equal(unshard_open(source, &options, &u, NULL), 0);
	return u;
}

/* Two steps of two groups: tests/golden/zero/make.py has their numbers. A tensor that is in no group has no rule. */
static void test_the_rule_that_a_checkpoint_records(void **state)
{
	static const struct {
		const char *name;
		double lr, beta1, beta2, eps;
	} rows[] = { { "down.weight", 0.01, 0.9, 0.999, 1e-8 }, { "up.bias", 0.02, 0.9, 0.999, 1e-8 } };
	unshard *u = session_of(UNSHARD_GOLDEN);
	unshard_tensors *list;
	struct adam rule;
	double lr;
	size_t i, k;

	(void)state;
	assert_int_equal(unshard_tensors_open(u, Z2, NULL, &list, NULL), 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(unshard_tensors_find(list, rows[i].name, "exp_avg", &k, NULL), 0);
		assert_true(adam_rule_of(list, k, &rule, &lr));
		is_double(lr, rows[i].lr);
		is_double(rule.eps, rows[i].eps);
		is_near(rule.rate, rows[i].lr / (1 - rows[i].beta1 * rows[i].beta1));
		is_near(rule.root, sqrt(1 - rows[i].beta2 * rows[i].beta2));
	}
	assert_int_equal(unshard_tensors_find(list, "mean", NULL, &k, NULL), 0);
	assert_false(adam_rule_of(list, k, &rule, &lr));
	unshard_tensors_close(list);
	unshard_close(u);
}

/* -- the call -- */

struct seen {
	size_t n;
	struct {
		char name[32];
		struct unshard_measure m; /* `tensor` and `why` are not valid any more */
		bool has_why;
	} v[64];
	uint64_t done_bytes, total_bytes;
	int end_at_measure, end_at_progress;
};

static int on_measure(void *ctx, const struct unshard_measure *m)
{
	struct seen *s = ctx;

	assert_true(s->n < 64);
	snprintf(s->v[s->n].name, sizeof(s->v[s->n].name), "%s", m->tensor->name);
	s->v[s->n].has_why = m->why != NULL;
	s->v[s->n++].m = *m;
	return s->end_at_measure;
}

static int on_progress(void *ctx, const struct unshard_progress *p)
{
	struct seen *s = ctx;

	assert_int_equal(p->phase, UNSHARD_READING);
	assert_true(p->done_bytes <= p->total_bytes);
	s->done_bytes = p->done_bytes > s->done_bytes ? p->done_bytes : s->done_bytes;
	s->total_bytes = p->total_bytes;
	return s->end_at_progress;
}

static int measure(struct seen *s, const char *source, const char *checkpoint, struct unshard_error *err)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT, .ctx = s, .progress = on_progress,
					     .measure = on_measure };
	unshard *u = session_of(source);
	int code = unshard_measure_tensors(u, checkpoint, s ? &calls : NULL, err);

	unshard_close(u);
	return code;
}

/* A model.safetensors of float32 tensors, in a directory "model" of a new one. */
static void model_make(char *dir, const char *header, const float *x, size_t n)
{
	char path[64];
	uint64_t len = strlen(header);
	FILE *f;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "mkdir %s/model", dir);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof(path), "%s/model/model.safetensors", dir);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(&len, 8, 1, f), 1); /* little-endian, as all machines that this is built for */
	assert_int_equal(fwrite(header, len, 1, f), 1);
	assert_int_equal(fwrite(x, sizeof(*x), n, f), n);
	assert_int_equal(fclose(f), 0);
}

static void model_remove(const char *dir)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

/* Two experts of two rows of two, and a vector. */
static void test_experts_and_the_whole(void **state)
{
	static const char header[] = "{\"m.0.mlp.experts.up_proj\":{\"dtype\":\"F32\",\"shape\":[2,2,2],"
				     "\"data_offsets\":[0,32]},"
				     "\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}";
	static const float x[] = { 3, -4, 0, 0, 1, 1, 1, -1, 6, 8 };
	static const struct {
		const char *name;
		int64_t expert;
		uint64_t n_elems, n_zero, n_negative, n_rows, n_small_rows;
		double min, max, mean, norm;
	} rows[] = {
		{ "m.0.mlp.experts.up_proj", 0, 4, 2, 1, 2, 1, -4, 3, -0.25, 5 },
		{ "m.0.mlp.experts.up_proj", 1, 4, 0, 1, 2, 0, -1, 1, 0.5, 2 },
		{ "m.0.mlp.experts.up_proj", -1, 8, 2, 2, 4, 1, -4, 3, 0.125, 5.385164807134504 },
		{ "v", -1, 2, 0, 0, 0, 0, 6, 8, 7, 10 },
	};
	char dir[] = "/tmp/uns_measure_XXXXXX";
	struct unshard_error err = { 0 };
	struct seen s = { 0 };
	size_t i;

	(void)state;
	model_make(dir, header, x, 10);
	assert_int_equal(measure(&s, dir, "model", &err), 0);
	assert_int_equal(s.n, 4);
	for (i = 0; i < 4; i++) {
		const struct unshard_measure *m = &s.v[i].m;

		assert_string_equal(s.v[i].name, rows[i].name);
		assert_false(s.v[i].has_why);
		assert_int_equal(m->expert, rows[i].expert);
		assert_int_equal(m->n_elems, rows[i].n_elems);
		assert_int_equal(m->n_zero, rows[i].n_zero);
		assert_int_equal(m->n_negative, rows[i].n_negative);
		assert_int_equal(m->n_rows, rows[i].n_rows);
		assert_int_equal(m->n_small_rows, rows[i].n_small_rows);
		is_double(m->min, rows[i].min);
		is_double(m->max, rows[i].max);
		is_double(m->mean, rows[i].mean);
		is_double(m->norm, rows[i].norm);
		assert_true(isnan(m->norm_update) && isnan(m->lr));
	}
	assert_int_equal(s.done_bytes, 40);
	assert_int_equal(s.total_bytes, 40);
	model_remove(dir);
}

/* Rows of more than a block: two that are zeros, but for the last element of the second. */
static void test_rows_that_are_longer_than_a_block(void **state)
{
	enum { ROW = TALLY_BLOCK_ELEMS + 5 };
	float *x = calloc(2 * ROW, sizeof(*x));
	char header[128], dir[] = "/tmp/uns_measure_XXXXXX";
	struct seen s = { 0 };

	(void)state;
	x[2 * ROW - 1] = 2;
	snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,%d],\"data_offsets\":[0,%d]}}", ROW,
		 8 * ROW);
	model_make(dir, header, x, 2 * ROW);
	assert_int_equal(measure(&s, dir, "model", NULL), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.v[0].m.n_rows, 2);
	assert_int_equal(s.v[0].m.n_small_rows, 1);
	assert_int_equal(s.v[0].m.n_zero, 2 * ROW - 1);
	is_double(s.v[0].m.norm, 2);
	model_remove(dir);
	free(x);
}

static void test_a_callback_ends_it(void **state)
{
	struct seen ends[] = { { .end_at_measure = 7 }, { .end_at_progress = -EINTR } };

	(void)state;
	assert_int_equal(measure(&ends[0], UNSHARD_GOLDEN, Z2, NULL), 7);
	assert_int_equal(ends[0].n, 1);
	assert_int_equal(measure(&ends[1], UNSHARD_GOLDEN, Z2, NULL), -EINTR);
	assert_int_equal(ends[1].n, 0);
	assert_int_equal(measure(NULL, UNSHARD_GOLDEN, Z2, NULL), 0);
}

static void test_what_is_refused(void **state)
{
	static const struct {
		const char *checkpoint;
		int code;
		const char *said;
	} rows[] = { { "zero", -ENOENT, "not a checkpoint" }, { "nowhere", -ENOENT, "nowhere" } };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct unshard_error err = { 0 };

		assert_int_equal(measure(NULL, UNSHARD_GOLDEN, rows[i].checkpoint, &err), rows[i].code);
		if (!strstr(err.text, rows[i].said))
			fail_msg("%s: %s", rows[i].said, err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts_and_sums),
		cmocka_unit_test(test_all_ways_to_add_up_agree),
		cmocka_unit_test(test_magnitudes_beyond_the_ends),
		cmocka_unit_test(test_complex_numbers_are_their_absolute_values),
		cmocka_unit_test(test_small_rows),
		cmocka_unit_test(test_tallies_add_up),
		cmocka_unit_test(test_the_squares_of_an_update),
		cmocka_unit_test(test_the_rule_that_a_checkpoint_records),
		cmocka_unit_test(test_experts_and_the_whole),
		cmocka_unit_test(test_rows_that_are_longer_than_a_block),
		cmocka_unit_test(test_a_callback_ends_it),
		cmocka_unit_test(test_what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

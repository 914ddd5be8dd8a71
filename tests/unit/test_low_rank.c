/* engine/low_rank.c against the sum in fp64, element by element: random matrices, and sums that lie on the middle
 * between two numbers of the dtype, or next to it, where fp32 cannot decide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backing.h"
#include "engine/cast.h"
#include "engine/fp64.h"
#include "engine/low_rank.h"

enum { ROWS = 70, COLUMNS = 600, MOST_INNER = 256, BASE = 0, LEFT = 1, RIGHT = 2, MADE = 3 };

struct made {
	struct uns_catalog cat;
	struct uns_tensor tensor[4];
	struct uns_term term[2];
	struct uns_sum sum;
	uint8_t *bytes[3];
	unsigned n_reads[3], n_checks; /* n_checks: of the right factor */
	int check_code;
};

static uint64_t seed = 35;

static double uniform(void)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(seed >> 11) * 0x1p-52 - 1;
}

/* All elements, for the caller to free. */
static double *numbers(const struct made *m, int of)
{
	const size_t n = (size_t)2 * COLUMNS * MOST_INNER;
	double *to = malloc(n * sizeof(*to));

	assert_non_null(to);
	uns_cast(m->tensor[of].dtype, m->bytes[of], UNS_F64, to, n);
	return to;
}

static void put(struct made *m, int of, uint64_t i, double x)
{
	const enum uns_dtype to = m->tensor[of].dtype;

	uns_cast(UNS_F64, &x, to, m->bytes[of] + i * uns_dtype_size(to), 1);
}

static void start(struct made *m, enum uns_dtype base, enum uns_dtype factor, enum uns_dtype out, uint64_t inner,
		  double times, uint64_t batch)
{
	const enum uns_dtype is[] = { base, factor, factor };
	int i;

	memset(m, 0, sizeof(*m));
	for (i = 0; i < 3; i++) {
		m->tensor[i].dtype = is[i];
		m->tensor[i].n_pieces = 1;
		m->bytes[i] = calloc((size_t)2 * COLUMNS * MOST_INNER, 4);
		assert_non_null(m->bytes[i]);
	}
	m->term[0] = (struct uns_term){ .times = 1, .left = { &m->tensor[BASE], base, 0 } };
	m->term[1] = (struct uns_term){ .times = times,
					.left = { &m->tensor[LEFT], factor, 0 },
					.right = { &m->tensor[RIGHT], factor, 0 },
					.inner = inner,
					.batch = batch };
	m->sum = (struct uns_sum){ .term = m->term, .n = 2, .columns = COLUMNS, .divisor = 1 };
	m->tensor[MADE].dtype = out;
	m->tensor[MADE].sum = &m->sum;
	assert_true(uns_low_rank_is(&m->cat, &m->tensor[MADE]));
}

static void finish(struct made *m)
{
	int i;

	for (i = 0; i < 3; i++)
		free(m->bytes[i]);
}

static int read_bytes(void *ctx, const struct uns_tensor *tensor, uint8_t *dst, uint64_t at, size_t len,
		      struct uns_err *err)
{
	struct made *m = ctx;

	(void)err;
	m->n_reads[tensor - m->tensor]++;
	memcpy(dst, m->bytes[tensor - m->tensor] + at, len);
	return 0;
}

static void want_elements(const struct made *m, uint8_t *out)
{
	const struct uns_term *t = &m->term[1];
	double *base = numbers(m, BASE), *left = numbers(m, LEFT), *right = numbers(m, RIGHT), sum;
	uint64_t row, column, before, k;

	for (row = 0; row < ROWS; row++)
		for (column = 0; column < COLUMNS; column++) {
			before = t->batch ? row / t->batch * COLUMNS : 0;
			sum = 0;
			for (k = 0; k < t->inner; k++)
				sum += left[row * t->inner + k] * right[(before + column) * t->inner + k];
			sum *= t->times;
			sum += base[row * COLUMNS + column];
			uns_fp64_round(&sum, m->tensor[MADE].dtype, out + 2 * (row * COLUMNS + column), 1);
		}
	free(base);
	free(left);
	free(right);
}

static bool is_nan(enum uns_dtype type, const uint8_t *code)
{
	float f;

	uns_cast(type, code, UNS_F32, &f, 1);
	return f != f;
}

/* All of it, and windows that begin and end anywhere, also inside an element. */
static void check(struct made *m)
{
	const struct uns_sum_reader reader = { .read = read_bytes, .ctx = m };
	const enum uns_dtype out = m->tensor[MADE].dtype;
	const size_t size = (size_t)2 * ROWS * COLUMNS;
	uint8_t *want = malloc(size), *got = malloc(size);
	struct uns_err err = { 0 };
	size_t i, at, len;

	assert_true(want && got);
	want_elements(m, want);
	assert_int_equal(uns_low_rank_bytes(&m->cat, &m->tensor[MADE], &reader, got, 0, size, &err), 0);
	for (i = 0; i < size; i += 2)
		if (memcmp(want + i, got + i, 2) != 0 && !(is_nan(out, want + i) && is_nan(out, got + i)))
			fail_msg("row %zu, column %zu: expected %02x%02x, found %02x%02x", i / 2 / COLUMNS,
				 i / 2 % COLUMNS, want[i + 1], want[i], got[i + 1], got[i]);
	memcpy(want, got, size);
	for (i = 0; i < 30; i++) {
		at = (size_t)((uniform() + 1) / 2 * (double)(size - 1));
		len = (size_t)((uniform() + 1) / 2 * (double)(i % 2 ? size - at : size - at < 900 ? size - at : 900));
		assert_int_equal(uns_low_rank_bytes(&m->cat, &m->tensor[MADE], &reader, got, at, len, &err), 0);
		assert_memory_equal(got, want + at, len);
	}
	free(want);
	free(got);
}

static void is_the_sum_in_fp64(void **state)
{
	static const struct {
		enum uns_dtype base, factor, out;
		uint64_t inner;
		double times, size; /* size: of the factors' elements */
		uint64_t batch;
	} rows[] = {
		{ UNS_BF16, UNS_BF16, UNS_BF16, 16, 2, 0.3, 0 },   { UNS_BF16, UNS_F32, UNS_BF16, 64, 0.5, 0.01, 0 },
		{ UNS_BF16, UNS_F32, UNS_BF16, 256, 1.1, 1, 0 },   { UNS_F16, UNS_F16, UNS_F16, 16, 0.3, 0.2, 0 },
		{ UNS_F16, UNS_F32, UNS_F16, 17, -3, 1, 35 },      { UNS_F32, UNS_F32, UNS_BF16, 1, 1, 0.5, 0 },
		{ UNS_F32, UNS_BF16, UNS_F16, 256, 7, 0.05, 0 },   { UNS_F16, UNS_BF16, UNS_BF16, 33, 0, 1, 0 },
		{ UNS_BF16, UNS_F32, UNS_BF16, 5, 1, 1e-21, 0 },   { UNS_BF16, UNS_F32, UNS_BF16, 40, 1, 1e18, 0 },
		{ UNS_BF16, UNS_F32, UNS_F16, 16, 1000, 1e-5, 0 }, { UNS_BF16, UNS_BF16, UNS_BF16, 256, 0.5, 0.1, 0 },
		{ UNS_BF16, UNS_BF16, UNS_BF16, 6, -1, 1e-21, 0 }, { UNS_BF16, UNS_BF16, UNS_F16, 64, 1, 1e-6, 35 },
		{ UNS_BF16, UNS_BF16, UNS_BF16, 40, 1, 1e18, 0 },
	};
	struct made m;
	size_t i, j;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		start(&m, rows[i].base, rows[i].factor, rows[i].out, rows[i].inner, rows[i].times, rows[i].batch);
		for (j = 0; j < ROWS * COLUMNS; j++)
			put(&m, BASE, j, uniform());
		for (j = 0; j < ROWS * rows[i].inner; j++)
			put(&m, LEFT, j, rows[i].size * uniform());
		for (j = 0; j < 2 * COLUMNS * rows[i].inner; j++)
			put(&m, RIGHT, j, rows[i].size * uniform());
		check(&m);
		finish(&m);
	}
}

/* Element = base + half a step + next, of which `next` is nothing or little, and there are numbers that cancel. */
static void put_middles(struct made *m, double step)
{
	const uint64_t inner = m->term[1].inner;
	uint64_t i, j;

	for (i = 0; i < ROWS; i++) {
		put(m, LEFT, i * inner, 1 + (double)(i % 8) / 8);
		put(m, LEFT, i * inner + 1, -(1 + (double)(i % 8) / 8));
		put(m, LEFT, i * inner + 2, step / 2);
		put(m, LEFT, i * inner + 3, i % 5 == 4 ? 0 : (i % 2 ? -1 : 1) * step * ldexp(1, -(int)i));
		for (j = 0; j < COLUMNS; j++)
			put(m, BASE, i * COLUMNS + j, (j % 3 ? 1 : -1) * (1 + step * (double)((i * 7 + j) % 64)));
	}
	for (j = 0; j < COLUMNS; j++) {
		put(m, RIGHT, j * inner, (double)(j % 100));
		put(m, RIGHT, j * inner + 1, (double)(j % 100));
		put(m, RIGHT, j * inner + 2, j % 2 ? 1 : -1);
		put(m, RIGHT, j * inner + 3, j % 7 ? 1 : -1);
	}
}

static void decides_middles(void **state)
{
	static const struct {
		enum uns_dtype out, factor;
	} rows[] = { { UNS_BF16, UNS_F32 }, { UNS_F16, UNS_F32 }, { UNS_BF16, UNS_BF16 } };
	static const uint64_t inners[] = { 4, 16, 64, 256 };
	struct made m;
	size_t i, j, step = 1;

	(void)state;
#ifdef __SANITIZE_ADDRESS__ /* the shortest and the longest, which go through the code of all */
	if (!getenv("UNSHARD_LONG"))
		step = sizeof(inners) / sizeof(inners[0]) - 1;
#endif
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (j = 0; j < sizeof(inners) / sizeof(inners[0]); j += step) {
			start(&m, rows[i].out, rows[i].factor, rows[i].out, inners[j], 1, 0);
			put_middles(&m, rows[i].out == UNS_BF16 ? 0x1p-7 : 0x1p-10);
			check(&m);
			finish(&m);
		}
}

/* Numbers that fp32 does not hold, or not the product of; infinities, NaN, zeros with a sign. */
static void knows_what_fp32_does_not_hold(void **state)
{
	static const double odd[] = { 0.0,    -0.0,     INFINITY, -INFINITY, NAN,   3e38,    -3e38, 1e-45,
				      -1e-40, 0x1p-133, 0x1p-126, 1e20,      -1e30, 0x1p-75, 1,     0x1p-60 };
	const size_t n = sizeof(odd) / sizeof(odd[0]);
	static const struct {
		uint64_t inner;
		enum uns_dtype factor;
	} rows[] = { { 1, UNS_F32 }, { 2, UNS_F32 }, { 20, UNS_F32 }, { 2, UNS_BF16 }, { 20, UNS_BF16 } };
	struct made m;
	size_t i, j;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		start(&m, UNS_BF16, rows[i].factor, UNS_BF16, rows[i].inner, i ? 0.3 : 1, 0);
		for (j = 0; j < ROWS * COLUMNS; j++)
			put(&m, BASE, j, odd[(j / 16 + j) % n]);
		for (j = 0; j < ROWS * rows[i].inner; j++)
			put(&m, LEFT, j, j % 3 == 1 ? 0 : odd[j % n]);
		for (j = 0; j < COLUMNS * rows[i].inner; j++)
			put(&m, RIGHT, j, j % 4 == 1 ? 1 : odd[j / 5 % n]);
		check(&m);
		finish(&m);
	}
}

static int check_bytes(void *ctx, const struct uns_tensor *tensor, uint64_t at, size_t len, struct uns_err *err)
{
	struct made *m = ctx;

	(void)at;
	(void)len;
	assert_ptr_equal(tensor, &m->tensor[RIGHT]);
	m->n_checks++;
	return m->check_code ? uns_fail(err, m->check_code, "changed") : 0;
}

/* All of it by one read, which equals what a read without a cache gives; returns the read's code. */
static int read_kept(struct made *m, struct uns_backing *b, uint8_t *want, uint8_t *got)
{
	const size_t size = (size_t)2 * ROWS * COLUMNS;
	struct uns_sum_reader reader = { .read = read_bytes, .ctx = m };
	struct uns_err err = { 0 };
	int code;

	assert_int_equal(uns_low_rank_bytes(&m->cat, &m->tensor[MADE], &reader, want, 0, size, &err), 0);
	memset(m->n_reads, 0, sizeof(m->n_reads));
	reader.check = check_bytes;
	reader.b = b;
	code = uns_low_rank_bytes(&m->cat, &m->tensor[MADE], &reader, got, 0, size, &err);
	if (code == 0)
		assert_memory_equal(got, want, size);
	return code;
}

/* The second read makes no panels, and looks at the files that they were made of. Also where they stay in a file. */
static void panels_stay(void **state)
{
	static const struct uns_cache_limits limits[] = { { 4 << 20, 0, 0 }, { 0, 4 << 20, 100 } };
	static const enum uns_dtype factors[] = { UNS_F32, UNS_BF16 };
	const size_t size = (size_t)2 * ROWS * COLUMNS;
	uint8_t *want = malloc(size), *got = malloc(size);
	struct uns_engine engine = { 0 };
	struct uns_backing b = { .engine = &engine };
	struct uns_err err = { 0 };
	struct made m;
	size_t i, j;

	(void)state;
	assert_true(want && got);
	for (i = 0; i < 4; i++) {
		start(&m, UNS_BF16, factors[i % 2], UNS_BF16, 16, 1, 0);
		m.cat.tensors = m.tensor;
		m.cat.n_tensors = 3;
		for (j = 0; j < ROWS * 16; j++)
			put(&m, LEFT, j, uniform());
		for (j = 0; j < COLUMNS * 16; j++)
			put(&m, RIGHT, j, uniform());
		assert_int_equal(uns_cache_new(&limits[i / 2], NULL, &engine.count, NULL, &engine.cache, &err), 0);
		assert_int_equal(read_kept(&m, &b, want, got), 0);
		assert_true(m.n_reads[RIGHT] > 0);
		assert_int_equal(m.n_checks, 0);
		assert_int_equal(read_kept(&m, &b, want, got), 0);
		assert_int_equal(m.n_reads[RIGHT], 0);
		assert_true(m.n_checks > 0);
		m.term[1].right.first = COLUMNS * 16; /* other columns are not taken for these */
		assert_int_equal(read_kept(&m, &b, want, got), 0);
		assert_true(m.n_reads[RIGHT] > 0);
		m.check_code = -ESTALE;
		assert_int_equal(read_kept(&m, &b, want, got), -ESTALE);
		uns_cache_free(engine.cache); /* nothing is held */
		finish(&m);
	}
	free(want);
	free(got);
}

/* Without room for them they are made each time. */
static void panels_need_no_room(void **state)
{
	const size_t size = (size_t)2 * ROWS * COLUMNS;
	uint8_t *want = malloc(size), *got = malloc(size);
	struct uns_engine engine = { 0 };
	struct uns_backing b = { .engine = &engine };
	struct uns_err err = { 0 };
	struct made m;

	(void)state;
	assert_true(want && got);
	start(&m, UNS_BF16, UNS_F32, UNS_BF16, 16, 1, 0);
	m.cat.tensors = m.tensor;
	m.cat.n_tensors = 3;
	assert_int_equal(
		uns_cache_new(&(struct uns_cache_limits){ 100, 0, 0 }, NULL, &engine.count, NULL, &engine.cache, &err),
		0);
	assert_int_equal(read_kept(&m, &b, want, got), 0);
	assert_int_equal(read_kept(&m, &b, want, got), 0);
	assert_true(m.n_reads[RIGHT] > 0);
	uns_cache_free(engine.cache);
	finish(&m);
	free(want);
	free(got);
}

/* Such sums are made in fp64 from the start. */
static void knows_its_kind(void **state)
{
	struct made m;

	(void)state;
	start(&m, UNS_BF16, UNS_F32, UNS_BF16, 256, 1, 0);
	m.term[1].inner = 257;
	assert_false(uns_low_rank_is(&m.cat, &m.tensor[MADE]));
	m.term[1].inner = 256;
	m.sum.divisor = 2;
	assert_false(uns_low_rank_is(&m.cat, &m.tensor[MADE]));
	m.sum.divisor = 1;
	m.sum.n = 1;
	assert_false(uns_low_rank_is(&m.cat, &m.tensor[MADE]));
	m.sum.n = 2;
	m.tensor[MADE].dtype = UNS_F32;
	assert_false(uns_low_rank_is(&m.cat, &m.tensor[MADE]));
	m.tensor[MADE].dtype = UNS_F16;
	m.tensor[LEFT].dtype = UNS_F64;
	assert_false(uns_low_rank_is(&m.cat, &m.tensor[MADE]));
	finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_the_sum_in_fp64),
		cmocka_unit_test(decides_middles),
		cmocka_unit_test(knows_what_fp32_does_not_hold),
		cmocka_unit_test(panels_stay),
		cmocka_unit_test(panels_need_no_room),
		cmocka_unit_test(knows_its_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

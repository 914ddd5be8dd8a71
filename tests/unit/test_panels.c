/* engine/panels.c, in the form of each kind of processor that this one can run, against sums in fp64: no element is
 * further from it than the bound that engine/low_rank.c relies on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "../../lib/engine/panels.c"
#include "engine/cast.h"

enum { MOST_ROWS = 23, MOST_INNER = 256, STEP = 40 };

typedef void multiply_form(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
			   size_t step);
typedef double dot_form(const float *a, const float *b, size_t n);

static float left[MOST_ROWS * MOST_INNER], panel[MOST_INNER * UNS_PANEL], tile[MOST_ROWS * STEP];
static uint16_t left_bf16[MOST_ROWS * MOST_INNER], rows_bf16[UNS_PANEL * MOST_INNER];

static float uniform(void)
{
	static uint64_t seed = 35;

	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (float)((double)(seed >> 11) * 0x1p-52 - 1);
}

static void element_check(size_t row, size_t column, size_t inner)
{
	const double found = tile[row * STEP + column];
	double sum = 0, sizes = 0, product;
	size_t k;

	for (k = 0; k < inner; k++) {
		product = (double)left[row * inner + k] * panel[k * UNS_PANEL + column];
		sum += product;
		sizes += fabs(product);
	}
	if (!(fabs(found - sum) <= 1.001 * (double)(uns_panels_additions(inner) + 1) * 0x1p-24 * sizes))
		fail_msg("%zu products, row %zu, column %zu: expected %.9g, found %.9g", inner, row, column, sum,
			 found);
}

static void form_check(multiply_form *multiply)
{
	static const size_t inners[] = { 1, 2, 15, 16, 17, 63, 64, 65, 100, 255, 256 };
	size_t i, n, row, column;

	for (i = 0; i < sizeof(inners) / sizeof(*inners); i++)
		for (n = 1; n <= MOST_ROWS; n++) {
			for (row = 0; row < MOST_ROWS * STEP; row++)
				tile[row] = 35;
			multiply(left, n, inners[i], panel, tile, STEP);
			for (row = 0; row < n; row++)
				for (column = 0; column < UNS_PANEL; column++)
					element_check(row, column, inners[i]);
			for (row = 0; row < MOST_ROWS * STEP; row++) /* nothing else was written */
				if (row >= n * STEP || row % STEP >= UNS_PANEL)
					assert_true(tile[row] == 35);
		}
}

static void numbers_make(void)
{
	size_t i;

	for (i = 0; i < MOST_ROWS * MOST_INNER; i++)
		left[i] = uniform();
	for (i = 0; i < MOST_INNER * UNS_PANEL; i++)
		panel[i] = 1 + uniform() / 2; /* of one sign, so that errors add up */
}

static void by_this_processor(const number *of_left, size_t n_rows, size_t inner, const number *of_panel, float *out,
			      size_t step)
{
	uns_panels_multiply(UNS_PANELS_OF_FP32, (const uns_word *)of_left, n_rows, inner, (const uns_word *)of_panel,
			    out, step);
}

static void each_form_keeps_to_the_bound(void **state)
{
	(void)state;
	numbers_make();
	form_check(eight_all);
	form_check(sixteen_all);
	form_check(by_this_processor);
#if defined(__x86_64__)
	if (uns_has_avx2_fma())
		form_check(multiply_by_avx2);
#endif
}

/* The same numbers, rounded to bf16; `left` and `panel` are what they are then. */
static void bf16_numbers_make(size_t inner)
{
	size_t i, k;

	numbers_make();
	uns_cast(UNS_F32, left, UNS_BF16, left_bf16, MOST_ROWS * inner);
	uns_cast(UNS_BF16, left_bf16, UNS_F32, left, MOST_ROWS * inner);
	for (i = 0; i < UNS_PANEL; i++)
		for (k = 0; k < inner; k++) {
			uns_cast(UNS_F32, &panel[k * UNS_PANEL + i], UNS_BF16, &rows_bf16[i * inner + k], 1);
			uns_cast(UNS_BF16, &rows_bf16[i * inner + k], UNS_F32, &panel[k * UNS_PANEL + i], 1);
		}
}

/* Where the processor multiplies bf16. Panels are made of what is there, and have the numbers that they are made of. */
static void pairs_keep_to_the_bound(void **state)
{
	static const size_t inners[] = { 2, 14, 16, 18, 62, 64, 100, 254, 256 };
	static uns_word pairs[UNS_PANEL * MOST_INNER / 2];
	uns_word words[MOST_INNER / 2];
	float numbers[MOST_INNER];
	size_t i, n, row, column, k, inner;

	(void)state;
	assert_int_equal(uns_panels_of(UNS_BF16, UNS_BF16, 3), UNS_PANELS_OF_FP32);
	assert_int_equal(uns_panels_of(UNS_BF16, UNS_F32, 16), UNS_PANELS_OF_FP32);
	for (i = 0; i < sizeof(inners) / sizeof(*inners); i++) {
		inner = inners[i];
		bf16_numbers_make(inner);
		uns_panels_make((const uns_word *)rows_bf16, UNS_PANEL, inner / 2, pairs);
		for (column = 0; column < UNS_PANEL; column++) {
			uns_panels_column(pairs, inner / 2, column, words);
			uns_panels_numbers(UNS_PANELS_OF_BF16, words, inner / 2, numbers);
			for (k = 0; k < inner; k++)
				assert_true(numbers[k] == panel[k * UNS_PANEL + column]);
		}
		uns_panels_numbers(UNS_PANELS_OF_BF16, (const uns_word *)left_bf16, inner / 2, numbers);
		assert_memory_equal(numbers, left, inner * sizeof(*numbers));
		for (n = 1; n <= MOST_ROWS && uns_panels_of(UNS_BF16, UNS_BF16, inner) == UNS_PANELS_OF_BF16; n++) {
			uns_panels_multiply(UNS_PANELS_OF_BF16, (const uns_word *)left_bf16, n, inner / 2, pairs, tile,
					    STEP);
			for (row = 0; row < n; row++)
				for (column = 0; column < UNS_PANEL; column++)
					element_check(row, column, inner);
		}
	}
}

static void a_panel_of_few_columns_ends_with_zeros(void **state)
{
	static const uns_word rows[] = { 1, 2, 3, 4, 5, 6 };
	uns_word made[2 * UNS_PANEL];
	size_t j;

	(void)state;
	uns_panels_make(rows, 3, 2, made);
	for (j = 0; j < UNS_PANEL; j++) {
		assert_int_equal(made[j], j < 3 ? rows[2 * j] : 0);
		assert_int_equal(made[UNS_PANEL + j], j < 3 ? rows[2 * j + 1] : 0);
	}
}

static void dot_check(dot_form *form)
{
	double sum = 0, sizes = 0;
	size_t n;

	for (n = 0; n <= MOST_INNER; n++) {
		assert_true(fabs(form(left, panel, n) - sum) <= (double)n * 0x1p-53 * sizes);
		if (n < MOST_INNER) {
			sum += (double)left[n] * panel[n];
			sizes += fabs((double)left[n] * panel[n]);
		}
	}
}

static void sums_in_fp64(void **state)
{
	(void)state;
	numbers_make();
	dot_check(dot);
	dot_check(uns_panels_dot);
#if defined(__x86_64__)
	if (uns_has_avx2_fma())
		dot_check(dot_by_avx2);
#endif
}

typedef double pairs_form(const uns_word *a, const uns_word *b, size_t words);

/* Of the left rows of bf16, each with the first. */
static void pairs_check(pairs_form *form)
{
	double sum, sizes;
	size_t n, k;

	for (n = 0; n <= MOST_INNER; n += 2) {
		bf16_numbers_make(n);
		sum = sizes = 0;
		for (k = 0; k < n; k++) {
			sum += (double)left[k] * left[n + k];
			sizes += fabs((double)left[k] * left[n + k]);
		}
		assert_true(fabs(form((const uns_word *)left_bf16, (const uns_word *)(left_bf16 + n), n / 2) - sum) <=
			    (double)n * 0x1p-53 * sizes);
	}
}

static void sums_of_bf16_in_fp64(void **state)
{
	(void)state;
	pairs_check(pairs_dot);
#if defined(__x86_64__)
	if (uns_has_avx2_fma())
		pairs_check(pairs_dot_by_avx2);
	if (has_avx512())
		pairs_check(pairs_dot_by_avx512);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_form_keeps_to_the_bound),
		cmocka_unit_test(pairs_keep_to_the_bound),
		cmocka_unit_test(a_panel_of_few_columns_ends_with_zeros),
		cmocka_unit_test(sums_in_fp64),
		cmocka_unit_test(sums_of_bf16_in_fp64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

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

enum { MOST_ROWS = 23, MOST_INNER = 256, STEP = 40 };

typedef void multiply_form(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile,
			   size_t step);
typedef double dot_form(const float *a, const float *b, size_t n);

static float left[MOST_ROWS * MOST_INNER], panel[MOST_INNER * UNS_PANEL], tile[MOST_ROWS * STEP];

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

static void each_form_keeps_to_the_bound(void **state)
{
	(void)state;
	numbers_make();
	form_check(eight_all);
	form_check(sixteen_all);
	form_check(uns_panels_multiply);
#if defined(__x86_64__)
	if (has_avx2())
		form_check(multiply_by_avx2);
#endif
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
	if (has_avx2())
		dot_check(dot_by_avx2);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_form_keeps_to_the_bound),
		cmocka_unit_test(sums_in_fp64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

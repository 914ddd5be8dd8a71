/* engine/intervals.c, in the form of each kind of processor that this one can run: what is decided is what the exact
 * sum is rounded to, wherever in the interval it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../lib/engine/intervals.c"

enum { N = 251 };

typedef void bf16_form(const struct uns_intervals *of, const uint8_t *base, size_t n, uint16_t *made, uint16_t *differ);

static float sum[N], norm[N];
static uint16_t base[N];

static double uniform(void)
{
	static uint64_t seed = 35;

	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(seed >> 11) * 0x1p-52 - 1;
}

/* Of a number that is none of fp32, which is in the middle of nothing. */
static uint16_t rounded(double x, enum uns_dtype to)
{
	const float f = (float)x;
	uint16_t code;

	uns_cast(UNS_F32, &f, to, &code, 1);
	return code;
}

static void element_check(const struct uns_intervals *of, size_t i, enum uns_dtype to, uint16_t made, uint16_t differ)
{
	const double e = (double)of->of_row * norm[i] + (double)of->least;
	double exact;
	float wide;
	int j;

	if (differ)
		return;
	uns_cast(UNS_BF16, &base[i], UNS_F32, &wide, 1);
	exact = wide + (double)of->times * sum[i];
	for (j = -8; j <= 8; j++)
		assert_int_equal(rounded(exact + e * j / 8, to), made);
}

static void numbers_make(double size)
{
	size_t i;
	float x;

	for (i = 0; i < N; i++) {
		x = (float)uniform();
		uns_cast(UNS_F32, &x, UNS_BF16, &base[i], 1);
		sum[i] = (float)(uniform() * size);
		norm[i] = (float)(1 + uniform());
	}
}

static void bf16_check(bf16_form *form)
{
	static const struct {
		float width;
		size_t least, most; /* so many are decided */
	} rows[] = { { 0, N - 2, N }, { 1e-6f, N - 4, N }, { 1e-4f, N / 2, N - 1 }, { 1e-2f, 0, N / 2 } };
	struct uns_intervals of = { sum, norm, 0.3f, 0, 0x1p-140f };
	uint16_t made[N], differ[N];
	size_t i, j, decided;

	for (j = 0; j < sizeof(rows) / sizeof(*rows); j++) {
		of.of_row = rows[j].width;
		numbers_make(0.1);
		form(&of, (const uint8_t *)base, N, made, differ);
		for (i = decided = 0; i < N; i++) {
			element_check(&of, i, UNS_BF16, made[i], differ[i]);
			decided += differ[i] == 0;
		}
		assert_in_range(decided, rows[j].least, rows[j].most);
	}
}

/* Of a base and a sum, neither infinities nor NaN are decided, nor what has a bound that is none. */
static void not_finite_check(bf16_form *form)
{
	static const float odd[] = { INFINITY, -INFINITY, NAN, -NAN, 3.4e38f, -3.4e38f, 0 };
	enum { N_ODD = sizeof(odd) / sizeof(*odd) };
	struct uns_intervals of = { sum, norm, 1, 0x1p-20f, 0x1p-140f };
	uint16_t made[N], differ[N];
	size_t i;
	float v;

	for (i = 0; i < N; i++) {
		uns_cast(UNS_F32, &odd[i % N_ODD], UNS_BF16, &base[i], 1);
		sum[i] = odd[i / N_ODD % N_ODD];
		norm[i] = i % 3 ? 1 : i % 2 ? NAN : INFINITY;
	}
	form(&of, (const uint8_t *)base, N, made, differ);
	for (i = 0; i < N; i++) {
		uns_cast(UNS_BF16, &base[i], UNS_F32, &v, 1);
		if (!isfinite(v + sum[i]) || !isfinite(norm[i]))
			assert_int_not_equal(differ[i], 0);
	}
}

/* Next to the middle between two numbers of bf16, on either side, and of either sign. */
static void middles_check(bf16_form *form)
{
	struct uns_intervals of = { sum, norm, 1, 0, 0x1p-140f };
	uint16_t made[N], differ[N], below;
	size_t i;
	float x;

	for (i = 0; i < N; i++) {
		x = (float)((i % 2 ? -1 : 1) * (1 + (double)(i % 100) * 0x1p-7));
		uns_cast(UNS_F32, &x, UNS_BF16, &base[i], 1);
		sum[i] = (float)((i % 2 ? -1 : 1) * (0x1p-8 + (double)((int)(i % 5) - 2) * 0x1p-21));
		norm[i] = 1;
	}
	form(&of, (const uint8_t *)base, N, made, differ);
	for (i = 0; i < N; i++) {
		below = base[i];
		assert_int_equal(differ[i] != 0, i % 5 == 2);
		if (i % 5 != 2)
			assert_int_equal(made[i], i % 5 < 2 ? below : below + 1);
	}
}

static void each_form_decides(void **state)
{
	(void)state;
	bf16_check(bf16_all);
	not_finite_check(bf16_all);
	middles_check(bf16_all);
#if defined(__x86_64__)
	if (uns_has_avx2_fma()) {
		bf16_check(bf16_by_avx2);
		not_finite_check(bf16_by_avx2);
		middles_check(bf16_by_avx2);
	}
	if (has_avx512()) {
		bf16_check(bf16_by_avx512);
		not_finite_check(bf16_by_avx512);
		middles_check(bf16_by_avx512);
	}
#endif
}

static void to_fp16(const struct uns_intervals *of, const uint8_t *from, size_t n, uint16_t *made, uint16_t *differ)
{
	uns_intervals_round(of, UNS_BF16, from, UNS_F16, n, made, differ);
}

static void other_dtypes(void **state)
{
	const struct uns_intervals of = { sum, norm, 0.3f, 1e-5f, 0x1p-140f };
	uint16_t made[N], differ[N];
	size_t i;

	(void)state;
	not_finite_check(to_fp16);
	numbers_make(0.1);
	to_fp16(&of, (const uint8_t *)base, N, made, differ);
	for (i = 0; i < N; i++)
		element_check(&of, i, UNS_F16, made[i], differ[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_form_decides),
		cmocka_unit_test(other_dtypes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

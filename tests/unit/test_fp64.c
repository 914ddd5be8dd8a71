/* engine/fp64.c, in the form of each kind of processor that this one can run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../lib/engine/fp64.c"

enum { N = 4099 };

static double from[N], sum[N], want[N];

static double uniform(void)
{
	static uint64_t seed = 35;

	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(seed >> 11) * 0x1p-52 - 1;
}

/* -- rounding -- */

static double value(enum uns_dtype type, uint16_t code)
{
	double v;

	uns_cast(type, &code, UNS_F64, &v, 1);
	return v;
}

/* The magnitude's code, found by halving: codes have the order of what they are. The middle between the largest number
 * and infinity is as if one more number came after the former. */
static uint16_t nearest(enum uns_dtype type, double x)
{
	const uint16_t inf = type == UNS_BF16 ? 0x7f80 : 0x7c00;
	uint16_t low = 0, high = inf, middle;
	double above;

	x = fabs(x);
	while (high - low > 1) {
		middle = (uint16_t)((low + high) / 2);
		if (value(type, middle) <= x)
			low = middle;
		else
			high = middle;
	}
	above = high < inf ? value(type, high) : 2 * value(type, low) - value(type, (uint16_t)(low - 1));
	if (x - value(type, low) == above - x)
		return low & 1 ? high : low;
	return x - value(type, low) < above - x ? low : high;
}

/* Numbers of all sizes, many of them next to the middle between two numbers of the dtype, closer than fp32 can say. */
static void numbers_make(enum uns_dtype type)
{
	static const double next[] = { 0, 0x1p-60, -0x1p-60, 0x1p-40, -0x1p-40, 0x1p-26, -0x1p-26, 0x1p-20 };
	const uint16_t inf = type == UNS_BF16 ? 0x7f80 : 0x7c00;
	uint16_t code;
	size_t i;

	for (i = 0; i < N; i++) {
		code = (uint16_t)((uniform() + 1) / 2 * (inf - 2));
		from[i] = (value(type, code) + value(type, (uint16_t)(code + 1))) / 2;
		from[i] *= (i % 2 ? -1 : 1) * (1 + next[i / 2 % 8]);
		if (i % 3 == 2)
			from[i] = uniform() * ldexp(1, (int)(i % 300) - 150);
	}
	from[0] = (type == UNS_BF16 ? 0x1.ffp127 : 65520) * (1 - 0x1p-50); /* to the largest number */
	from[1] = type == UNS_BF16 ? 0x1.ffp127 : 65520; /* to infinity */
	from[2] = INFINITY;
	from[3] = -1e300;
	from[4] = 1e-320;
	from[5] = -0.0;
}

static void rounds_once(void **state)
{
	static const enum uns_dtype types[] = { UNS_BF16, UNS_F16 };
	uint16_t made[N];
	size_t i, j;

	(void)state;
	for (j = 0; j < 2; j++) {
		numbers_make(types[j]);
		uns_fp64_round(from, types[j], (uint8_t *)made, N);
		for (i = 0; i < N; i++) {
			assert_int_equal(made[i] & 0x7fff, nearest(types[j], from[i]));
			assert_int_equal(made[i] >> 15, signbit(from[i]) != 0);
		}
		from[0] = NAN;
		uns_fp64_round(from, types[j], (uint8_t *)made, 1);
		assert_true(isnan(value(types[j], made[0])));
	}
}

/* -- forms -- */

static void add_check(void (*form)(double times, const double *x, double *to, size_t n))
{
	volatile double product;
	size_t i;

	for (i = 0; i < N; i++) {
		from[i] = uniform();
		sum[i] = uniform();
		product = 0.3 * from[i]; /* rounded */
		want[i] = sum[i] + product;
	}
	form(0.3, from, sum, N);
	assert_memory_equal(sum, want, sizeof(sum));
}

static void divide_check(void (*form)(double *to, double divisor, size_t n))
{
	size_t i;

	for (i = 0; i < N; i++) {
		sum[i] = uniform();
		want[i] = sum[i] / 3;
	}
	form(sum, 3, N);
	assert_memory_equal(sum, want, sizeof(sum));
}

static void forms_are_alike(void **state)
{
	static float odd[N], odd_by[N];

	(void)state;
	add_check(add_all);
	add_check(uns_fp64_add);
	divide_check(divide_all);
	divide_check(uns_fp64_divide);
	numbers_make(UNS_BF16);
	from[6] = NAN;
	to_odd_all(from, odd, N);
	to_odd_make(from, odd_by, N);
	assert_memory_equal(odd, odd_by, sizeof(odd));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_once),
		cmocka_unit_test(forms_are_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

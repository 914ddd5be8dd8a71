/* Once for any processor and once for those with AVX2, by the compiler's vectors. The latter has no fma, which rounds
 * once where a multiplication and an addition round twice. */
#include "engine/fp64.h"

#include <math.h>
#include <string.h>

#include "base/vectors.h"
#include "engine/cast.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { BLOCK = 1024 }; /* numbers at a time, as fp32: they stay in the first cache */

/* The bits of the fp32 number next to x in the direction of zero, with the last one set if it is not x: rounding it
 * again, to 22 bits of mantissa or less, then gives what rounding x once gives. What is rounded to infinity goes back
 * to the largest number. A NaN stays one: its last bits are not kept. */
UNS_INLINE uint32_t to_odd(double x)
{
	const float f = (float)x;
	const double near = f;
	const uint32_t bits = uns_bits_of(f) - (fabs(near) > fabs(x) ? 1 : 0);

	return bits | (near != x ? 1 : 0);
}

UNS_INLINE void to_odd_all(const double *src, float *dst, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		dst[i] = uns_float_of(to_odd(src[i]));
}

UNS_INLINE void add_all(double times, const double *x, double *sum, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		sum[i] += times * x[i];
}

UNS_INLINE void divide_all(double *sum, double divisor, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		sum[i] /= divisor;
}

UNS_AVX2 static void to_odd_by_avx2(const double *src, float *dst, size_t n)
{
	to_odd_all(src, dst, n);
}

UNS_AVX2 static void add_by_avx2(double times, const double *x, double *sum, size_t n)
{
	add_all(times, x, sum, n);
}

UNS_AVX2 static void divide_by_avx2(double *sum, double divisor, size_t n)
{
	divide_all(sum, divisor, n);
}

static void to_odd_make(const double *src, float *dst, size_t n)
{
	if (uns_has_avx2())
		to_odd_by_avx2(src, dst, n);
	else
		to_odd_all(src, dst, n);
}

void uns_fp64_add(double times, const double *x, double *sum, size_t n)
{
	if (uns_has_avx2())
		add_by_avx2(times, x, sum, n);
	else
		add_all(times, x, sum, n);
}

void uns_fp64_divide(double *sum, double divisor, size_t n)
{
	if (uns_has_avx2())
		divide_by_avx2(sum, divisor, n);
	else
		divide_all(sum, divisor, n);
}

void uns_fp64_round(const double *src, enum uns_dtype to, uint8_t *dst, size_t n)
{
	const size_t size = uns_dtype_size(to);
	float odd[BLOCK];
	size_t m;

	if (size > 2) {
		uns_cast(UNS_F64, src, to, dst, n);
		return;
	}
	for (; n; n -= m, src += m, dst += m * size) {
		m = n < BLOCK ? n : BLOCK;
		to_odd_make(src, odd, m);
		uns_cast(UNS_F32, odd, to, dst, m);
	}
}

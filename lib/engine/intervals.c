/* Once for any processor, once for those with AVX2 and, of bf16, once for those with AVX-512. */
#include "engine/intervals.h"

#include <math.h>
#include <string.h>

#include "base/vectors.h"
#include "engine/cast.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

/* Of the sum's magnitude: the addition of the base rounds once, and those that make the interval. */
#define OF_THE_RESULT 0x3p-24f
#define MOST_BF16     0x1.fep127f

/* The i-th sum, and how far from it the one in fp64 is at most. Where e is not finite, nothing is known of that. */
UNS_INLINE float sum_make(const struct uns_intervals *r, size_t i, float base, float *e)
{
	const float v = base + r->times * r->sum[i];

	*e = r->of_row * r->norm[i] + (fabsf(v) * OF_THE_RESULT + r->least);
	return v;
}

/* Of a base of bf16: the low ends of the intervals rounded to bf16, and the bits in which the high ends differ. Both
 * are rounded away from zero in the middle between two numbers, as the sum is within the interval, and not at its ends.
 * Where e is not finite, low is infinite or NaN, and high is neither -infinity nor NaN: they differ. */
UNS_INLINE void bf16_all(const struct uns_intervals *of, const uint8_t *base, size_t n, uint16_t *made,
			 uint16_t *differ)
{
	const struct uns_intervals r = *of;
	float v, e, high;
	uint16_t code;
	uint32_t bits;
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(&code, base + i * sizeof(code), sizeof(code));
		v = sum_make(&r, i, uns_float_of((uint32_t)code << 16), &e);
		high = v + e > -MOST_BF16 ? v + e : -MOST_BF16;
		bits = uns_bits_of(v - e) + 0x8000;
		made[i] = (uint16_t)(bits >> 16);
		differ[i] = (uint16_t)((bits ^ (uns_bits_of(high) + 0x8000)) >> 16);
	}
}

/* Of any base and dtype, the ends of the intervals. Where e is not finite, two numbers that are rounded to different
 * ones. */
UNS_INLINE void ends_all(const struct uns_intervals *of, const float *base, size_t n, float *low, float *high)
{
	const struct uns_intervals r = *of;
	float v, e;
	size_t i;

	for (i = 0; i < n; i++) {
		v = sum_make(&r, i, base[i], &e);
		low[i] = e < INFINITY ? v - e : 0;
		high[i] = e < INFINITY ? v + e : 1;
	}
}

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

UNS_AVX2_FMA static void ends_by_avx2(const struct uns_intervals *of, const float *base, size_t n, float *low,
				      float *high)
{
	ends_all(of, base, n, low, high);
}

UNS_AVX2_FMA static void bf16_by_avx2(const struct uns_intervals *of, const uint8_t *base, size_t n, uint16_t *made,
				      uint16_t *differ)
{
	bf16_all(of, base, n, made, differ);
}

AVX512 static void bf16_by_avx512(const struct uns_intervals *of, const uint8_t *base, size_t n, uint16_t *made,
				  uint16_t *differ)
{
	bf16_all(of, base, n, made, differ);
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && uns_has_avx2_fma();
}
#endif

static void ends_find(const struct uns_intervals *of, const float *base, size_t n, float *low, float *high)
{
	if (uns_has_avx2_fma())
		ends_by_avx2(of, base, n, low, high);
	else
		ends_all(of, base, n, low, high);
}

static void bf16_make(const struct uns_intervals *of, const uint8_t *base, size_t n, uint16_t *made, uint16_t *differ)
{
#if defined(__x86_64__)
	if (has_avx512()) {
		bf16_by_avx512(of, base, n, made, differ);
		return;
	}
	if (uns_has_avx2_fma()) {
		bf16_by_avx2(of, base, n, made, differ);
		return;
	}
#endif
	bf16_all(of, base, n, made, differ);
}

void uns_intervals_round(const struct uns_intervals *of, enum uns_dtype is, const uint8_t *base, enum uns_dtype to,
			 size_t n, uint16_t *made, uint16_t *differ)
{
	float wide[UNS_INTERVALS], low[UNS_INTERVALS], high[UNS_INTERVALS];
	size_t i;

	if (is == UNS_BF16 && to == UNS_BF16) {
		bf16_make(of, base, n, made, differ);
		return;
	}
	uns_cast(is, base, UNS_F32, wide, n);
	ends_find(of, wide, n, low, high);
	uns_cast(UNS_F32, low, to, made, n);
	uns_cast(UNS_F32, high, to, differ, n);
	for (i = 0; i < n; i++)
		differ[i] ^= made[i];
}

/* Once for any processor, once for those with AVX2 and once for those with AVX-512, by the compiler's vectors.
 *
 * Products are added in parts of PART, in registers; parts in groups of PARTS, groups in the tile. So a number goes
 * through few additions, and the bound on the error is small. */
#include "engine/panels.h"

#include <stdbool.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { PART = 16, PARTS = 4 };
_Static_assert(UNS_PANEL == 16, "a vector of AVX-512, two of AVX2");

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

/* -- half a panel, in vectors of eight -- */

/* n_rows, known to the compiler: what is added up stays in registers. */
INLINE void eight_part(const float *left, size_t n_rows, size_t inner, const float *panel, size_t from, size_t end,
		       eight *a, eight *b)
{
	size_t i, k;

	for (i = 0; i < n_rows; i++)
		a[i] = b[i] = (eight){ 0 };
	for (k = from; k < end; k++) {
		const eight x = *(const eight *)(panel + k * UNS_PANEL);
		const eight y = *(const eight *)(panel + k * UNS_PANEL + 8);

		for (i = 0; i < n_rows; i++) {
			a[i] += left[i * inner + k] * x;
			b[i] += left[i * inner + k] * y;
		}
	}
}

enum { EIGHT_DOWN = 6 };

INLINE void eight_rows(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile, size_t step)
{
	float group[EIGHT_DOWN * UNS_PANEL];
	eight a[EIGHT_DOWN], b[EIGHT_DOWN];
	size_t i, k, first, end, to;

	for (i = 0; i < n_rows; i++)
		memset(tile + i * step, 0, UNS_PANEL * sizeof(*tile));
	for (first = 0; first < inner; first = to) {
		to = inner - first < PART * PARTS ? inner : first + PART * PARTS;
		memset(group, 0, sizeof(group));
		for (k = first; k < to; k = end) {
			end = to - k < PART ? to : k + PART;
			eight_part(left, n_rows, inner, panel, k, end, a, b);
			for (i = 0; i < n_rows; i++) {
				eight *ga = (eight *)(group + i * UNS_PANEL),
				      *gb = (eight *)(group + i * UNS_PANEL + 8);

				*ga += a[i];
				*gb += b[i];
			}
		}
		for (i = 0; i < n_rows; i++) {
			eight *ta = (eight *)(tile + i * step), *tb = (eight *)(tile + i * step + 8);
			const eight *ga = (eight *)(group + i * UNS_PANEL), *gb = (eight *)(group + i * UNS_PANEL + 8);

			*ta += *ga;
			*tb += *gb;
		}
	}
}

INLINE void eight_all(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile, size_t step)
{
	size_t i;

	for (i = 0; i + EIGHT_DOWN <= n_rows; i += EIGHT_DOWN)
		eight_rows(left + i * inner, EIGHT_DOWN, inner, panel, tile + i * step, step);
	for (; i + 2 <= n_rows; i += 2)
		eight_rows(left + i * inner, 2, inner, panel, tile + i * step, step);
	if (i < n_rows)
		eight_rows(left + i * inner, 1, inner, panel, tile + i * step, step);
}

/* -- a panel, in vectors of sixteen -- */

enum { SIXTEEN_DOWN = 8 };

INLINE void sixteen_rows(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile, size_t step)
{
	sixteen a[SIXTEEN_DOWN], group[SIXTEEN_DOWN];
	size_t i, k, first, from, end, to;

	for (i = 0; i < n_rows; i++)
		memset(tile + i * step, 0, UNS_PANEL * sizeof(*tile));
	for (first = 0; first < inner; first = to) {
		to = inner - first < PART * PARTS ? inner : first + PART * PARTS;
		for (i = 0; i < n_rows; i++)
			group[i] = (sixteen){ 0 };
		for (from = first; from < to; from = end) {
			end = to - from < PART ? to : from + PART;
			for (i = 0; i < n_rows; i++)
				a[i] = (sixteen){ 0 };
			for (k = from; k < end; k++) {
				const sixteen x = *(const sixteen *)(panel + k * UNS_PANEL);

				for (i = 0; i < n_rows; i++)
					a[i] += left[i * inner + k] * x;
			}
			for (i = 0; i < n_rows; i++)
				group[i] += a[i];
		}
		for (i = 0; i < n_rows; i++) {
			sixteen *t = (sixteen *)(tile + i * step);

			*t += group[i];
		}
	}
}

INLINE void sixteen_all(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile, size_t step)
{
	size_t i;

	for (i = 0; i + SIXTEEN_DOWN <= n_rows; i += SIXTEEN_DOWN)
		sixteen_rows(left + i * inner, SIXTEEN_DOWN, inner, panel, tile + i * step, step);
	for (; i + 4 <= n_rows; i += 4)
		sixteen_rows(left + i * inner, 4, inner, panel, tile + i * step, step);
	for (; i < n_rows; i++)
		sixteen_rows(left + i * inner, 1, inner, panel, tile + i * step, step);
}

/* -- in fp64 -- */

INLINE double dot(const float *a, const float *b, size_t n)
{
	enum { AT_ONCE = 16 };
	double sum[AT_ONCE] = { 0 }, all = 0;
	size_t i, k;

	for (k = 0; k + AT_ONCE <= n; k += AT_ONCE)
		for (i = 0; i < AT_ONCE; i++)
			sum[i] += (double)a[k + i] * b[k + i];
	for (; k < n; k++)
		all += (double)a[k] * b[k];
	for (i = 0; i < AT_ONCE; i++)
		all += sum[i];
	return all;
}

/* -- by processor -- */

#if defined(__x86_64__)
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))

AVX2 static void multiply_by_avx2(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile,
				  size_t step)
{
	eight_all(left, n_rows, inner, panel, tile, step);
}

AVX512 static void multiply_by_avx512(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile,
				      size_t step)
{
	sixteen_all(left, n_rows, inner, panel, tile, step);
}

AVX2 static double dot_by_avx2(const float *a, const float *b, size_t n)
{
	return dot(a, b, n);
}

AVX512 static double dot_by_avx512(const float *a, const float *b, size_t n)
{
	return dot(a, b, n);
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && has_avx2();
}
#endif

void uns_panels_multiply(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile, size_t step)
{
#if defined(__x86_64__)
	if (has_avx512()) {
		multiply_by_avx512(left, n_rows, inner, panel, tile, step);
		return;
	}
	if (has_avx2()) {
		multiply_by_avx2(left, n_rows, inner, panel, tile, step);
		return;
	}
#endif
	eight_all(left, n_rows, inner, panel, tile, step);
}

double uns_panels_dot(const float *a, const float *b, size_t n)
{
#if defined(__x86_64__)
	if (has_avx512())
		return dot_by_avx512(a, b, n);
	if (has_avx2())
		return dot_by_avx2(a, b, n);
#endif
	return dot(a, b, n);
}

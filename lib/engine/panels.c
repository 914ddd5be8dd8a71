/* Once for any processor, once for those with AVX2 and once for those with AVX-512, by the compiler's vectors. For bf16
 * there is one instruction, of AVX512_BF16, which the compiler knows by its name only.
 *
 * Products are added in parts of PART, in registers; parts in groups of PARTS, groups in the tile. So a number goes
 * through few additions, and the bound on the error is small. */
#include "engine/panels.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { PART = UNS_PANELS_PART, PARTS = UNS_PANELS_PARTS, PAIRS = UNS_PANELS_PAIRS };
_Static_assert(UNS_PANEL == 16, "a vector of AVX-512, two of AVX2");

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias));
typedef float number __attribute__((may_alias));
#define INLINE static inline __attribute__((always_inline))

/* -- half a panel, in vectors of eight -- */

/* n_rows, known to the compiler: what is added up stays in registers. */
INLINE void eight_part(const number *left, size_t n_rows, size_t inner, const number *panel, size_t from, size_t end,
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

INLINE void eight_rows(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile, size_t step)
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

INLINE void eight_all(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile, size_t step)
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

INLINE void sixteen_rows(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile, size_t step)
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

INLINE void sixteen_all(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile, size_t step)
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

/* -- words -- */

void uns_panels_make(const uns_word *rows, size_t n, size_t words, uns_word *panel)
{
	size_t j, k;

	if (n < UNS_PANEL)
		memset(panel, 0, UNS_PANEL * words * sizeof(*panel));
	for (j = 0; j < n; j++)
		for (k = 0; k < words; k++)
			panel[k * UNS_PANEL + j] = rows[j * words + k];
}

INLINE void numbers(enum uns_panels_of of, const uns_word *word, size_t words, size_t step, float *out)
{
	uns_word *bits = (uns_word *)out;
	size_t k;

	for (k = 0; k < words && of == UNS_PANELS_OF_FP32; k++)
		bits[k] = word[k * step];
	for (k = 0; k < words && of == UNS_PANELS_OF_BF16; k++) {
		bits[2 * k] = word[k * step] << 16;
		bits[2 * k + 1] = word[k * step] & 0xffff0000;
	}
}

void uns_panels_row(enum uns_panels_of of, const uns_word *row, size_t words, float *out)
{
	numbers(of, row, words, 1, out);
}

void uns_panels_column(enum uns_panels_of of, const uns_word *panels, size_t words, size_t column, float *out)
{
	numbers(of, panels + column / UNS_PANEL * UNS_PANEL * words + column % UNS_PANEL, words, UNS_PANEL, out);
}

/* -- by processor -- */

#if defined(__x86_64__)
#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))
#define BF16   __attribute__((target("avx512bf16,avx512f,avx512vl,avx2,fma")))

AVX2 static void multiply_by_avx2(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
				  size_t step)
{
	eight_all(left, n_rows, inner, panel, tile, step);
}

AVX512 static void multiply_by_avx512(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
				      size_t step)
{
	sixteen_all(left, n_rows, inner, panel, tile, step);
}

/* As sixteen_rows, but that parts are not added up in groups. */
BF16 INLINE void pairs_rows(const uns_word *left, size_t n_rows, size_t words, const uns_word *panel, float *tile,
			    size_t step)
{
	__m512 a[SIXTEEN_DOWN], all[SIXTEEN_DOWN];
	size_t i, k, from, end;

	for (i = 0; i < n_rows; i++)
		all[i] = _mm512_setzero_ps();
	for (from = 0; from < words; from = end) {
		end = words - from < PAIRS ? words : from + PAIRS;
		for (i = 0; i < n_rows; i++)
			a[i] = _mm512_setzero_ps();
		for (k = from; k < end; k++) {
			const __m512bh x = (__m512bh)_mm512_loadu_si512(panel + k * UNS_PANEL);

			for (i = 0; i < n_rows; i++)
				a[i] = _mm512_dpbf16_ps(a[i], (__m512bh)_mm512_set1_epi32((int)left[i * words + k]), x);
		}
		for (i = 0; i < n_rows; i++)
			all[i] = _mm512_add_ps(all[i], a[i]);
	}
	for (i = 0; i < n_rows; i++)
		_mm512_storeu_ps(tile + i * step, all[i]);
}

BF16 static void multiply_pairs(const uns_word *left, size_t n_rows, size_t words, const uns_word *panel, float *tile,
				size_t step)
{
	size_t i;

	for (i = 0; i + SIXTEEN_DOWN <= n_rows; i += SIXTEEN_DOWN)
		pairs_rows(left + i * words, SIXTEEN_DOWN, words, panel, tile + i * step, step);
	for (; i + 4 <= n_rows; i += 4)
		pairs_rows(left + i * words, 4, words, panel, tile + i * step, step);
	for (; i < n_rows; i++)
		pairs_rows(left + i * words, 1, words, panel, tile + i * step, step);
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

static bool has_pairs(void)
{
	return has_avx512() && __builtin_cpu_supports("avx512bf16");
}
#endif

enum uns_panels_of uns_panels_of(enum uns_dtype left, enum uns_dtype right, size_t inner)
{
#if defined(__x86_64__)
	if (left == UNS_BF16 && right == UNS_BF16 && inner % 2 == 0 && has_pairs())
		return UNS_PANELS_OF_BF16;
#endif
	(void)left;
	(void)right;
	(void)inner;
	return UNS_PANELS_OF_FP32;
}

void uns_panels_multiply(enum uns_panels_of of, const uns_word *left, size_t n_rows, size_t words,
			 const uns_word *panel, float *tile, size_t step)
{
#if defined(__x86_64__)
	if (of == UNS_PANELS_OF_BF16) {
		multiply_pairs(left, n_rows, words, panel, tile, step);
		return;
	}
	if (has_avx512()) {
		multiply_by_avx512((const number *)left, n_rows, words, (const number *)panel, tile, step);
		return;
	}
	if (has_avx2()) {
		multiply_by_avx2((const number *)left, n_rows, words, (const number *)panel, tile, step);
		return;
	}
#endif
	(void)of;
	eight_all((const number *)left, n_rows, words, (const number *)panel, tile, step);
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

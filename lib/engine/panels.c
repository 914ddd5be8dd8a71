/* Once for any processor, once for those with AVX2 and once for those with AVX-512, by the compiler's vectors. For bf16
 * there is one instruction, of AVX512_BF16, which the compiler knows by its name only.
 *
 * Products are added in parts of PART, parts in groups of PARTS, and groups in the tile. So few additions round a
 * number, and the bound on the error is small. With AVX-512 all of these are in registers. */
#include "engine/panels.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/vectors.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { PART = UNS_PANELS_PART, PARTS = UNS_PANELS_PARTS, PAIRS = PART / 2 };
_Static_assert(UNS_PANEL == 16, "a vector of AVX-512, two of AVX2");

typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias));
typedef float number __attribute__((may_alias));

/* -- half a panel, in vectors of eight -- */

/* n_rows, known to the compiler: what is added up stays in registers. */
UNS_INLINE void eight_part(const number *left, size_t n_rows, size_t inner, const number *panel, size_t from,
			   size_t end, eight *a, eight *b)
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

UNS_INLINE void eight_rows(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
			   size_t step)
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

UNS_INLINE void eight_all(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
			  size_t step)
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

/* Of a whole part, n is known to the compiler, too. */
UNS_INLINE void sixteen_part(const number *left, size_t n_rows, size_t inner, const number *panel, size_t n,
			     sixteen *group)
{
	sixteen a[SIXTEEN_DOWN];
	size_t i, k;

	for (i = 0; i < n_rows; i++)
		a[i] = (sixteen){ 0 };
	for (k = 0; k < n; k++) {
		const sixteen x = *(const sixteen *)(panel + k * UNS_PANEL);

		for (i = 0; i < n_rows; i++)
			a[i] += left[i * inner + k] * x;
	}
	for (i = 0; i < n_rows; i++)
		group[i] += a[i];
}

UNS_INLINE void sixteen_rows(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
			     size_t step)
{
	sixteen group[SIXTEEN_DOWN], all[SIXTEEN_DOWN];
	size_t i, first, from, to;

	for (i = 0; i < n_rows; i++)
		all[i] = (sixteen){ 0 };
	for (first = 0; first < inner; first = to) {
		to = inner - first < PART * PARTS ? inner : first + PART * PARTS;
		for (i = 0; i < n_rows; i++)
			group[i] = (sixteen){ 0 };
		for (from = first; from + PART <= to; from += PART)
			sixteen_part(left + from, n_rows, inner, panel + from * UNS_PANEL, PART, group);
		if (from < to)
			sixteen_part(left + from, n_rows, inner, panel + from * UNS_PANEL, to - from, group);
		for (i = 0; i < n_rows; i++)
			all[i] += group[i];
	}
	for (i = 0; i < n_rows; i++)
		*(sixteen *)(tile + i * step) = all[i];
}

UNS_INLINE void sixteen_all(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
			    size_t step)
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

enum { AT_ONCE = 16 };

UNS_INLINE double added(double *sum)
{
	size_t i, n;

	for (n = AT_ONCE / 2; n; n /= 2)
		for (i = 0; i < n; i++)
			sum[i] += sum[i + n];
	return sum[0];
}

UNS_INLINE double dot(const float *a, const float *b, size_t n)
{
	double sum[AT_ONCE] = { 0 }, all = 0;
	size_t i, k;

	for (k = 0; k + AT_ONCE <= n; k += AT_ONCE)
		for (i = 0; i < AT_ONCE; i++)
			sum[i] += (double)a[k + i] * b[k + i];
	for (; k < n; k++)
		all += (double)a[k] * b[k];
	return all + added(sum);
}

/* -- words -- */

/* Of bf16, the first and the second number of a word. */
#define LOW(w)  ((w) << 16)
#define HIGH(w) ((w) & 0xffff0000)

void uns_panels_make(const uns_word *rows, size_t n, size_t words, uns_word *panel)
{
	size_t j, k;

	if (n < UNS_PANEL)
		memset(panel, 0, UNS_PANEL * words * sizeof(*panel));
	for (j = 0; j < n; j++)
		for (k = 0; k < words; k++)
			panel[k * UNS_PANEL + j] = rows[j * words + k];
}

void uns_panels_column(const uns_word *panels, size_t words, size_t column, uns_word *row)
{
	const uns_word *first = panels + column / UNS_PANEL * UNS_PANEL * words + column % UNS_PANEL;
	size_t k;

	for (k = 0; k < words; k++)
		row[k] = first[k * UNS_PANEL];
}

void uns_panels_numbers(enum uns_panels_of of, const uns_word *row, size_t words, float *out)
{
	uns_word *bits = (uns_word *)out;
	size_t k;

	for (k = 0; k < words && of == UNS_PANELS_OF_FP32; k++)
		bits[k] = row[k];
	for (k = 0; k < words && of == UNS_PANELS_OF_BF16; k++) {
		bits[2 * k] = LOW(row[k]);
		bits[2 * k + 1] = HIGH(row[k]);
	}
}

/* The product of two numbers of bf16 is exact in fp32, but for those below the normal ones. */
UNS_INLINE double pairs_dot(const uns_word *a, const uns_word *b, size_t words)
{
	double sum[AT_ONCE] = { 0 }, all = 0;
	size_t i, k;

	for (k = 0; k + AT_ONCE <= words; k += AT_ONCE)
		for (i = 0; i < AT_ONCE; i++)
			sum[i] += (double)(uns_float_of(LOW(a[k + i])) * uns_float_of(LOW(b[k + i]))) +
				  (double)(uns_float_of(HIGH(a[k + i])) * uns_float_of(HIGH(b[k + i])));
	for (; k < words; k++)
		all += (double)(uns_float_of(LOW(a[k])) * uns_float_of(LOW(b[k]))) +
		       (double)(uns_float_of(HIGH(a[k])) * uns_float_of(HIGH(b[k])));
	return all + added(sum);
}

/* -- by processor -- */

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))
#define BF16   __attribute__((target("avx512bf16,avx512f,avx512vl,avx2,fma")))

UNS_AVX2_FMA static void multiply_by_avx2(const number *left, size_t n_rows, size_t inner, const number *panel,
					  float *tile, size_t step)
{
	eight_all(left, n_rows, inner, panel, tile, step);
}

AVX512 static void multiply_by_avx512(const number *left, size_t n_rows, size_t inner, const number *panel, float *tile,
				      size_t step)
{
	sixteen_all(left, n_rows, inner, panel, tile, step);
}

/* As sixteen_part. */
BF16 UNS_INLINE void pairs_part(const uns_word *left, size_t n_rows, size_t words, const uns_word *panel, size_t n,
				__m512 *group)
{
	__m512 a[SIXTEEN_DOWN];
	size_t i, k;

	for (i = 0; i < n_rows; i++)
		a[i] = _mm512_setzero_ps();
	for (k = 0; k < n; k++) {
		const __m512bh x = (__m512bh)_mm512_loadu_si512(panel + k * UNS_PANEL);

		for (i = 0; i < n_rows; i++)
			a[i] = _mm512_dpbf16_ps(a[i], (__m512bh)_mm512_set1_epi32((int)left[i * words + k]), x);
	}
	for (i = 0; i < n_rows; i++)
		group[i] = _mm512_add_ps(group[i], a[i]);
}

/* As sixteen_rows. */
BF16 UNS_INLINE void pairs_rows(const uns_word *left, size_t n_rows, size_t words, const uns_word *panel, float *tile,
				size_t step)
{
	__m512 group[SIXTEEN_DOWN], all[SIXTEEN_DOWN];
	size_t i, first, from, to;

	for (i = 0; i < n_rows; i++)
		all[i] = _mm512_setzero_ps();
	for (first = 0; first < words; first = to) {
		to = words - first < PAIRS * PARTS ? words : first + PAIRS * PARTS;
		for (i = 0; i < n_rows; i++)
			group[i] = _mm512_setzero_ps();
		for (from = first; from + PAIRS <= to; from += PAIRS)
			pairs_part(left + from, n_rows, words, panel + from * UNS_PANEL, PAIRS, group);
		if (from < to)
			pairs_part(left + from, n_rows, words, panel + from * UNS_PANEL, to - from, group);
		for (i = 0; i < n_rows; i++)
			all[i] = _mm512_add_ps(all[i], group[i]);
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

UNS_AVX2_FMA static double dot_by_avx2(const float *a, const float *b, size_t n)
{
	return dot(a, b, n);
}

AVX512 static double dot_by_avx512(const float *a, const float *b, size_t n)
{
	return dot(a, b, n);
}

UNS_AVX2_FMA static double pairs_dot_by_avx2(const uns_word *a, const uns_word *b, size_t words)
{
	return pairs_dot(a, b, words);
}

AVX512 static double pairs_dot_by_avx512(const uns_word *a, const uns_word *b, size_t words)
{
	return pairs_dot(a, b, words);
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && uns_has_avx2_fma();
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
	if (uns_has_avx2_fma()) {
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
	if (uns_has_avx2_fma())
		return dot_by_avx2(a, b, n);
#endif
	return dot(a, b, n);
}

double uns_panels_product(enum uns_panels_of of, const uns_word *a, const uns_word *b, size_t words)
{
	if (of == UNS_PANELS_OF_FP32)
		return uns_panels_dot((const float *)a, (const float *)b, words);
#if defined(__x86_64__)
	if (has_avx512())
		return pairs_dot_by_avx512(a, b, words);
	if (uns_has_avx2_fma())
		return pairs_dot_by_avx2(a, b, words);
#endif
	return pairs_dot(a, b, words);
}

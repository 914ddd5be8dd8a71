/* The product of two numbers of fp32 is exact in fp64, so that it does not matter whether it is added by one
 * instruction (fma) or two. */
#include "engine/products.h"

#include "base/vectors.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

typedef double numbers __attribute__((vector_size(32), aligned(8), may_alias));
enum { ACROSS = sizeof(numbers) / sizeof(double), DOWN = 4 };

/* n_rows, DOWN at most and known to the compiler, of two vectors of columns: what is added up stays in registers. */
UNS_INLINE void add_rows(const double *left, size_t n_rows, size_t inner, const double *right, size_t n_columns,
			 size_t step, double *sum)
{
	numbers a[DOWN], b[DOWN];
	size_t i, j, k;

	for (j = 0; j < n_columns; j += UNS_PRODUCTS_COLUMNS) {
		for (i = 0; i < n_rows; i++) {
			a[i] = *(const numbers *)(sum + i * step + j);
			b[i] = *(const numbers *)(sum + i * step + j + ACROSS);
		}
		for (k = 0; k < inner; k++) {
			const numbers x = *(const numbers *)(right + k * step + j);
			const numbers y = *(const numbers *)(right + k * step + j + ACROSS);

			for (i = 0; i < n_rows; i++) {
				a[i] += left[i * inner + k] * x;
				b[i] += left[i * inner + k] * y;
			}
		}
		for (i = 0; i < n_rows; i++) {
			*(numbers *)(sum + i * step + j) = a[i];
			*(numbers *)(sum + i * step + j + ACROSS) = b[i];
		}
	}
}

UNS_INLINE void add_all(const double *left, size_t n_rows, size_t inner, const double *right, size_t n_columns,
			size_t step, double *sum)
{
	size_t i;

	for (i = 0; i + DOWN <= n_rows; i += DOWN)
		add_rows(left + i * inner, DOWN, inner, right, n_columns, step, sum + i * step);
	for (; i < n_rows; i++)
		add_rows(left + i * inner, 1, inner, right, n_columns, step, sum + i * step);
}

UNS_AVX2_FMA static void add_by_avx2(const double *left, size_t n_rows, size_t inner, const double *right,
				     size_t n_columns, size_t step, double *sum)
{
	add_all(left, n_rows, inner, right, n_columns, step, sum);
}

void uns_products_add(const double *left, size_t n_rows, size_t inner, const double *right, size_t n_columns,
		      size_t step, double *sum)
{
	if (uns_has_avx2_fma())
		add_by_avx2(left, n_rows, inner, right, n_columns, step, sum);
	else
		add_all(left, n_rows, inner, right, n_columns, step, sum);
}

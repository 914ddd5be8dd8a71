/* Products of two matrices of few columns in fp32, with a bound on their error; sums of products in fp64. */
#ifndef UNS_ENGINE_PANELS_H
#define UNS_ENGINE_PANELS_H

#include <stddef.h>

/* A panel is so many columns of a product's right matrix, of each product's number COLUMNS behind each other. */
enum { UNS_PANEL = 16 };

/* Through how many additions a number goes at most in a sum of n products. */
static inline size_t uns_panels_additions(size_t n)
{
	enum { PART = 16, PARTS = 4 };
	const size_t parts = (n + PART - 1) / PART;

	return PART + PARTS + (parts + PARTS - 1) / PARTS;
}

/* tile[i * step + j] = the sum of the products of row i of `left` (n_rows rows of `inner`) and of column j of the
 * panel. */
void uns_panels_multiply(const float *left, size_t n_rows, size_t inner, const float *panel, float *tile, size_t step);

/* The sum of a[i] * b[i] in fp64, in any order. */
double uns_panels_dot(const float *a, const float *b, size_t n);

#endif

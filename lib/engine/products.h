/* Sums of products in fp64. Pure. */
#ifndef UNS_ENGINE_PRODUCTS_H
#define UNS_ENGINE_PRODUCTS_H

#include <stddef.h>

/* Columns are added up by so many at once: n_columns is a multiple. */
enum { UNS_PRODUCTS_COLUMNS = 8 };

/* sum[i * step + j] += left[i * inner + k] * right[k * step + j], for i below n_rows, j below n_columns, and each k
 * below inner in order. */
void uns_products_add(const double *left, size_t n_rows, size_t inner, const double *right, size_t n_columns,
		      size_t step, double *sum);

#endif

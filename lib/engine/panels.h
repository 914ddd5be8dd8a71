/* Products of two matrices of few columns in fp32, with a bound on their error; sums of products in fp64.
 *
 * Numbers lie in words of four bytes: one of fp32, or two of bf16, which some processors multiply and add at once
 * (AVX512_BF16). */
#ifndef UNS_ENGINE_PANELS_H
#define UNS_ENGINE_PANELS_H

#include <stddef.h>
#include <stdint.h>

#include "wire/dtype.h"

/* A panel is so many columns of a product's right matrix: the first word of each, then the second word of each, .. */
enum { UNS_PANEL = 16 };

typedef uint32_t uns_word __attribute__((may_alias));

enum uns_panels_of { UNS_PANELS_OF_FP32, UNS_PANELS_OF_BF16 };

/* How this processor multiplies fastest what has these dtypes (bf16, fp16 or fp32), `inner` numbers of each row. */
enum uns_panels_of uns_panels_of(enum uns_dtype left, enum uns_dtype right, size_t inner);

static inline size_t uns_panels_words(enum uns_panels_of of, size_t inner)
{
	return of == UNS_PANELS_OF_BF16 ? inner / 2 : inner;
}

/* In parts of how many products a sum is added up, and in groups of how many parts. */
enum { UNS_PANELS_PART = 8, UNS_PANELS_PARTS = 4 };

/* How many additions round a number at most in a sum of n products. The first addition of a part, of a group and of the
 * sum is to zero, and exact. */
static inline size_t uns_panels_additions(size_t n)
{
	const size_t in_part = n < UNS_PANELS_PART ? n : UNS_PANELS_PART;
	const size_t parts = (n + UNS_PANELS_PART - 1) / UNS_PANELS_PART;
	const size_t in_group = parts < UNS_PANELS_PARTS ? parts : UNS_PANELS_PARTS;
	const size_t groups = (parts + UNS_PANELS_PARTS - 1) / UNS_PANELS_PARTS;

	return in_part + in_group + groups - 3;
}

/* n rows of words, which are the right matrix's columns, as a panel; n = UNS_PANEL at most. The rest is zero. */
void uns_panels_make(const uns_word *rows, size_t n, size_t words, uns_word *panel);

/* tile[i * step + j] = the sum of the products of row i of `left` (n_rows rows of so many words) and of column j of the
 * panel. Of bf16, numbers below the normal ones may count as zero. */
void uns_panels_multiply(enum uns_panels_of of, const uns_word *left, size_t n_rows, size_t words,
			 const uns_word *panel, float *tile, size_t step);

/* The sum of a[i] * b[i] in fp64, in any order. */
double uns_panels_dot(const float *a, const float *b, size_t n);

/* The same of the numbers of two rows of words. */
double uns_panels_product(enum uns_panels_of of, const uns_word *a, const uns_word *b, size_t words);

/* A column of panels that lie one behind the other, as a row of words; a row's numbers as fp32. */
void uns_panels_column(const uns_word *panels, size_t words, size_t column, uns_word *row);
void uns_panels_numbers(enum uns_panels_of of, const uns_word *row, size_t words, float *out);

#endif

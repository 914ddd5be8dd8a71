/* What the elements of a tensor are: figures of a block, and how they add up. Pure. Private to lib/measure.
 *
 * Elements are widened to binary64, complex ones to their absolute values. Sums are made in one order, whatever the
 * number of threads: in a block in 8 sums of every eighth element, blocks one after the other (base/long_sum.h). */
#ifndef UNS_MEASURE_TALLY_H
#define UNS_MEASURE_TALLY_H

#include "base/long_sum.h"
#include "unshard.h"
#include "wire/dtype.h"

enum { TALLY_BLOCK_ELEMS = 64 << 10 };

/* Adds up. All zeros: of no element. */
struct tally {
	uint64_t n_elems, n_zero, n_negative, n_nan, n_infinite;
	uint64_t n_finite; /* what the rest is made of */
	double min, max;
	struct uns_sum sum, square;
	uint64_t magnitude[UNSHARD_MAGNITUDES];
	uint64_t n_small_rows;
	bool has_large; /* of a part of a row: one of its elements is not small */
};

/* A block: n elements, at most TALLY_BLOCK_ELEMS, which need no alignment. */
struct tally_block {
	enum uns_dtype dtype;
	const void *elems;
	size_t n;
	size_t row; /* elements of a row: the block is whole rows, or a part of one; 0 = there are no rows */
	double small; /* a row is small if the absolute value of each of its elements is at most this */
};

void tally_make(const struct tally_block *block, struct tally *out);
void tally_add(struct tally *to, const struct tally *t);

/* Adam's rule. */
struct adam {
	double rate; /* lr / (1 - beta1^step) */
	double root; /* sqrt(1 - beta2^step) */
	double eps;
};

/* Sum of the squares of n elements of rate * m / (sqrt(v) / root + eps); those that are not finite are left out. */
double adam_squares(const struct adam *adam, enum uns_dtype of_m, const void *m, enum uns_dtype of_v, const void *v,
		    size_t n);

#endif

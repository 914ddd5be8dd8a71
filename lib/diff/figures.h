/* Figures of two tensors, element by element. Pure: bytes in, numbers out. Private to lib/diff.
 *
 * Every value is widened exactly: to binary64, or to long double if a dtype is int64 or uint64. Sums are made in one
 * order, whatever the number of threads: of DIFF_BLOCK_ELEMS elements, in chunks of 2048; in a chunk 8 sums of every
 * eighth element, which are then added; chunks one after the other; blocks one after the other, with the error of each
 * addition kept (Neumaier). No term is negative, so that a sum's relative error is below 1e-13 for every length: 256
 * additions in a row in a chunk, 8 sums, 32 chunks, and at most 2^-53 for each. */
#ifndef UNS_DIFF_FIGURES_H
#define UNS_DIFF_FIGURES_H

#include "base/long_sum.h"
#include "wire/dtype.h"

enum { DIFF_BLOCK_ELEMS = 64 << 10 };

struct diff_tolerance {
	double absolute, relative; /* of B's element; both 0: an element that changed at all is beyond */
};

/* Adds up. All zeros: of no element. */
struct diff_tally {
	uint64_t n_elems;
	uint64_t n_changed; /* equal dtypes: the bits differ; else the widened values (two NaN are equal) */
	uint64_t n_beyond; /* of them, by more than the tolerance; or one of the two is not finite */
	uint64_t n_not_finite_a, n_not_finite_b;
	uint64_t n_not_finite_changed; /* of those that changed, one or both elements are not finite */
	uint64_t n_finite; /* both elements are finite: what the next two sums and max_abs are made of */
	double max_abs;
	struct uns_sum abs, square; /* of A - B */
	struct uns_sum square_a, square_b; /* of finite elements */
};

/* n elements, at most DIFF_BLOCK_ELEMS; need no alignment. */
void diff_tally_block(enum uns_dtype of_a, const void *a, enum uns_dtype of_b, const void *b, size_t n,
		      const struct diff_tolerance *tolerance, struct diff_tally *out);
void diff_tally_add(struct diff_tally *to, const struct diff_tally *t);

#endif

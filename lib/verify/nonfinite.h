/* NaN and infinity among the elements of a tensor. Pure. */
#ifndef UNS_VERIFY_NONFINITE_H
#define UNS_VERIFY_NONFINITE_H

#include <stddef.h>
#include <stdint.h>

#include "wire/dtype.h"

struct uns_nonfinite {
	uint64_t n_nan, n_inf;
	uint64_t first; /* element; only where one of the two is not 0 */
};

/* Count n elements, which need no alignment, into *seen; the first of them is element `at` of what it counts. A complex
 * number is NaN or infinite when one of its parts is; integers never are. In no order: `first` is the least. */
void uns_nonfinite_count(enum uns_dtype dtype, const void *src, size_t n, uint64_t at, struct uns_nonfinite *seen);

#endif

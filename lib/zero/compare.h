/* Whether a weight may be an fp32 copy rounded, by their first elements. */
#ifndef UNS_ZERO_COMPARE_H
#define UNS_ZERO_COMPARE_H

#include "zero/file.h"

/* A tensor that lies in one piece of a file. */
struct uns_zero_sample {
	const struct uns_reader *reader;
	const struct uns_piece *piece;
};

/* *out = no element of those compared (256 at most, of `elems`) shows that it is not. dtype: of
 * `rounded`, at most 32 bits wide; `exact` is fp32. Strided tensors are not compared: false. */
int uns_zero_may_be_copy(const struct uns_zero_sample *exact, const struct uns_zero_sample *rounded,
			 enum uns_dtype dtype, uint64_t elems, bool *out, struct uns_err *err);

#endif

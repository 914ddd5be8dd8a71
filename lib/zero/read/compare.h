/* Whether a weight may be an fp32 copy rounded, by their first elements. */
#ifndef UNS_ZERO_READ_COMPARE_H
#define UNS_ZERO_READ_COMPARE_H

#include "zero/file.h"

/* A tensor that is one piece of a file. */
struct uns_zero_sample {
	const struct uns_reader *reader;
	const struct uns_piece *piece;
};

/* Compares at most 256 of `elems` elements. Sets *out to false if one of them shows that `rounded` is no copy of
 * `exact`, or if a tensor is strided; else to true. `exact` is fp32; dtype, that of `rounded`, has at most 32 bits. */
int uns_zero_may_be_copy(const struct uns_zero_sample *exact, const struct uns_zero_sample *rounded,
			 enum uns_dtype dtype, uint64_t elems, bool *out, struct uns_err *err);

/* The same for a master that is a piece of another file of the catalog, which is opened for it. *out is true if that
 * file is missing. */
int uns_zero_may_be_copy_of(const struct uns_catalog *cat, const struct uns_piece *exact,
			    const struct uns_zero_sample *rounded, enum uns_dtype dtype, uint64_t elems, bool *out,
			    struct uns_err *err);

#endif

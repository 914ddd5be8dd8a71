/* Where the elements of a parameter that tensor parallelism cut are, given where those of its slices are, and the other
 * way round. */
#ifndef UNS_ZERO_SLICE_PIECES_H
#define UNS_ZERO_SLICE_PIECES_H

#include "parallel/slices.h"

/* Add to the catalog's last tensor, the parameter, the pieces that `piece` of a slice is: those of its elements that
 * belong to the slice's rank. slice NULL: the piece is one of the parameter already. */
int uns_zero_slice_add(struct uns_catalog *cat, const struct uns_zero_slice *slice, const struct uns_piece *piece,
		       enum uns_dtype dtype, struct uns_err *err);

/* The slice as a tensor that is in no catalog, whose pieces are the parameter's. It lives in the arena. NULL = out of
 * memory. */
const struct uns_tensor *uns_zero_slice_of(const struct uns_catalog *cat, const struct uns_tensor *whole,
					   const struct uns_zero_slice *slice, struct uns_arena *arena);

#endif

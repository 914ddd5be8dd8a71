/* Element type conversion on read, as torch's Tensor.to() does it: round to nearest even, infinities
 * kept, a NaN stays a NaN, f64 by way of f32 to the 16-bit types. */
#ifndef UNS_ENGINE_CAST_H
#define UNS_ENGINE_CAST_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/dtype.h"

/* A cast exists between any two real floating types; from == to always exists (copies). */
bool uns_cast_exists(enum uns_dtype from, enum uns_dtype to);

/* n elements; src and dst do not overlap and need no alignment. The pair must exist. */
void uns_cast(enum uns_dtype from, const void *src, enum uns_dtype to, void *dst, size_t n);

#endif

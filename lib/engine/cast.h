/* Element type conversion on read, as torch's Tensor.to() does it: round to nearest even, overflow to infinity,
 * infinities and subnormals kept, a NaN stays a NaN (its payload may differ), f64 by way of f32 to the 16-bit types. */
#ifndef UNS_ENGINE_CAST_H
#define UNS_ENGINE_CAST_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/dtype.h"

/* From any real floating type to f64, f32, f16 and bf16; from == to always exists (copies). The 8-bit
 * types are no targets: what torch does with values out of their range depends on its version. */
bool uns_cast_exists(enum uns_dtype from, enum uns_dtype to);

/* n elements; src and dst do not overlap and need no alignment. The pair must exist. */
void uns_cast(enum uns_dtype from, const void *src, enum uns_dtype to, void *dst, size_t n);

#endif

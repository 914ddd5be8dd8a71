/* Elements of any dtype as doubles: to compute with, not to serve. */
#ifndef UNS_ENGINE_WIDEN_H
#define UNS_ENGINE_WIDEN_H

#include <stddef.h>

#include "wire/dtype.h"

/* n elements at p, which need no alignment; exactly, but for 64-bit integers above 2^53, which are rounded. Not for
 * complex numbers. */
void uns_widen(enum uns_dtype dtype, const uint8_t *p, size_t n, double *out);

#endif

/* Elements of any dtype as doubles: to compute with, not to serve. */
#ifndef UNS_ENGINE_WIDEN_H
#define UNS_ENGINE_WIDEN_H

#include <stddef.h>

#include "wire/dtype.h"

/* How elements of one dtype are widened: of floats of 8 bits, what each code is. */
struct uns_widening {
	enum uns_dtype dtype;
	double of_code[256];
};

/* Not for complex numbers. Costs as much as to widen a few hundred elements. */
void uns_widening_init(struct uns_widening *w, enum uns_dtype dtype);
/* n elements at p, which need no alignment; exactly, but for 64-bit integers above 2^53, which are rounded. */
void uns_widen(const struct uns_widening *w, const uint8_t *p, size_t n, double *out);

#endif

/* Numbers of fp64: added up, and rounded once. Pure. */
#ifndef UNS_ENGINE_FP64_H
#define UNS_ENGINE_FP64_H

#include <stddef.h>
#include <stdint.h>

#include "wire/dtype.h"

/* sum[i] += times * x[i]; the product is rounded, then the sum. */
void uns_fp64_add(double times, const double *x, double *sum, size_t n);

/* sum[i] /= divisor */
void uns_fp64_divide(double *sum, double divisor, size_t n);

/* n numbers as elements of `to`, each rounded once, to nearest even: torch goes by way of fp32 to the 16-bit types,
 * which rounds twice. `to` is a floating dtype of at least 2 bytes. */
void uns_fp64_round(const double *src, enum uns_dtype to, uint8_t *dst, size_t n);

#endif

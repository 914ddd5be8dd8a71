/* Sums of which it is known how far they are from the exact ones at most, rounded to 16 bits. Pure. */
#ifndef UNS_ENGINE_INTERVALS_H
#define UNS_ENGINE_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

#include "wire/dtype.h"

/* The i-th sum is base[i] + times * sum[i]. times * sum[i] is within of_row * norm[i] + least of the exact product.
 * That is not exceeded, also if it is computed in fp32 and these numbers are rounded; least is not 0. */
struct uns_intervals {
	const float *sum, *norm;
	float times, of_row, least;
};

/* So many at once. */
enum { UNS_INTERVALS = 256 };

/* made[i] = the exact sum rounded to `to`, a 16-bit dtype, if differ[i] is 0. Else that is not known. The base has
 * dtype `is`, n elements: bf16, fp16 or fp32. */
void uns_intervals_round(const struct uns_intervals *of, enum uns_dtype is, const uint8_t *base, enum uns_dtype to,
			 size_t n, uint16_t *made, uint16_t *differ);

#endif

/* Which data-parallel rank holds which elements of a parameter. Pure arithmetic.
 *
 *   flat (stages 1, 2)   the parameters of a group one behind the other, cut into W parts of P elements
 *   sliced (stage 3)     each parameter cut into W slices of ceil(n / W) elements; a rank's slices one
 *                        behind the other */
#ifndef UNS_ZERO_PLACE_H
#define UNS_ZERO_PLACE_H

#include <stdbool.h>
#include <stdint.h>

struct uns_zero_place {
	bool sliced;
	uint64_t world;      /* ranks; never 0 */
	uint64_t part_elems; /* flat: of each rank's part, padding included */
};

/* A stretch of a parameter that one rank holds. */
struct uns_zero_run {
	uint64_t rank;
	uint64_t first, count; /* elements of the parameter */
	uint64_t local;        /* where it starts in the rank's part */
};

/* ceil(a / b) */
static inline uint64_t uns_zero_ceil(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* What the parameter advances its group by: its elements, or those of one slice. */
static inline uint64_t uns_zero_advance(const struct uns_zero_place *place, uint64_t elems)
{
	return place->sliced ? uns_zero_ceil(elems, place->world) : elems;
}

/* Of the parameter of `elems` elements that starts at `at` in its group: the stretch of the first rank
 * >= out->rank that holds any. Call with out->rank = 0, then out->rank + 1, ... false: none left. */
bool uns_zero_run_next(const struct uns_zero_place *place, uint64_t at, uint64_t elems,
		       struct uns_zero_run *out);

#endif

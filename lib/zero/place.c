/* Intersections of parameters with partitions. Sums cannot overflow: elements are below 2^60
 * (checked where shapes are parsed), parts are as large as files, ranks are below 2^20. */
#include "zero/place.h"

#include "base/checked.h"

static bool next_slice(const struct uns_zero_place *place, uint64_t at, uint64_t elems,
		       struct uns_zero_run *out)
{
	uint64_t slice = uns_zero_ceil(elems, place->world);

	out->first = out->rank * slice;
	if (out->rank >= place->world || out->first >= elems)
		return false;
	out->count = uns_u64_min(slice, elems - out->first);
	out->local = at;
	return true;
}

static bool next_part(const struct uns_zero_place *place, uint64_t at, uint64_t elems,
		      struct uns_zero_run *out)
{
	uint64_t part = place->part_elems, lo, hi;

	if (!part || !elems)
		return false;
	out->rank = uns_u64_max(out->rank, at / part);
	lo = uns_u64_max(at, out->rank * part);
	hi = uns_u64_min(at + elems, (out->rank + 1) * part);
	if (out->rank >= place->world || lo >= hi)
		return false;
	out->first = lo - at;
	out->count = hi - lo;
	out->local = lo - out->rank * part;
	return true;
}

bool uns_zero_run_next(const struct uns_zero_place *place, uint64_t at, uint64_t elems,
		       struct uns_zero_run *out)
{
	return place->sliced ? next_slice(place, at, elems, out) :
			       next_part(place, at, elems, out);
}

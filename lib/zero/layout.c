/* The arithmetic of ZeRO's cuts, which reader and writer share. Sums cannot overflow: elements are below 2^60 (checked
 * where shapes are parsed), parts are as large as files, ranks are below 2^20. */
#include "zero/layout.h"

#include <stdio.h>

#include "base/checked.h"

/* -- settings -- */

const struct uns_value *uns_zero_setting(const struct uns_value *config, const char *name)
{
	return uns_value_get(uns_value_get(config, "zero_optimization"), name);
}

bool uns_zero_is_round_robin(const struct uns_value *config)
{
	const struct uns_value *v = uns_zero_setting(config, "round_robin_gradients");

	return v && v->kind == UNS_VALUE_BOOL && v->b;
}

bool uns_zero_obeys_round_robin(const struct uns_value *config, const char *version)
{
	unsigned major = 0, minor = 0;
	int64_t stage = 0;

	uns_value_int(uns_zero_setting(config, "stage"), &stage);
	return uns_zero_is_round_robin(config) &&
	       (stage == 2 ||
		(stage == 1 && version && sscanf(version, "%u.%u", &major, &minor) == 2 && (major > 0 || minor >= 13)));
}

uint64_t uns_zero_sub_group_size(const struct uns_value *config)
{
	enum { UNLESS_SET = 1000000000 };
	const double most = 1e18; /* more than any group has */
	double size;

	/* Written as 1e9 as often as not. */
	if (!uns_value_float(uns_zero_setting(config, "sub_group_size"), &size) || !(size >= 0))
		return UNLESS_SET;
	return (uint64_t)(size < most ? size : most);
}

/* -- order -- */

void uns_zero_deal(size_t n, uint64_t world, size_t *order)
{
	size_t rank, i, k = 0;

	for (rank = 0; rank < n && rank < world; rank++)
		for (i = rank; i < n; i += world)
			order[k++] = i;
}

/* -- where -- */

static bool next_slice(const struct uns_zero_layout *layout, uint64_t at, uint64_t elems, struct uns_zero_stretch *out)
{
	uint64_t slice = uns_zero_slice(elems, layout->world);

	out->first = out->rank * slice;
	if (out->rank >= layout->world || out->first >= elems)
		return false;
	out->count = uns_u64_min(slice, elems - out->first);
	out->local = at;
	return true;
}

static bool next_part(const struct uns_zero_layout *layout, uint64_t at, uint64_t elems, struct uns_zero_stretch *out)
{
	uint64_t part = layout->part_elems, lo, hi;

	if (!part || !elems)
		return false;
	out->rank = uns_u64_max(out->rank, at / part);
	lo = uns_u64_max(at, out->rank * part);
	hi = uns_u64_min(at + elems, (out->rank + 1) * part);
	if (out->rank >= layout->world || lo >= hi)
		return false;
	out->first = lo - at;
	out->count = hi - lo;
	out->local = lo - out->rank * part;
	return true;
}

bool uns_zero_stretch_next(const struct uns_zero_layout *layout, uint64_t at, uint64_t elems,
			   struct uns_zero_stretch *out)
{
	return layout->sliced ? next_slice(layout, at, elems, out) : next_part(layout, at, elems, out);
}

bool uns_zero_stretch_of(const struct uns_zero_layout *layout, uint64_t at, uint64_t elems, uint64_t rank,
			 struct uns_zero_stretch *out)
{
	out->rank = rank;
	return uns_zero_stretch_next(layout, at, elems, out) && out->rank == rank;
}

uint64_t uns_zero_held(const struct uns_zero_layout *layout, uint64_t end, uint64_t rank)
{
	uint64_t first = rank * layout->part_elems;

	if (layout->sliced)
		return end;
	return first < end ? uns_u64_min(layout->part_elems, end - first) : 0;
}

/* -- recorded padding -- */

uint64_t uns_zero_padding(const struct uns_zero_layout *layout, uint64_t end, uint64_t rank, bool all_with_last)
{
	if (!all_with_last)
		return layout->part_elems - uns_zero_held(layout, end, rank);
	return rank + 1 == layout->world ? layout->part_elems * layout->world - end : 0;
}

bool uns_zero_alignment(const struct uns_value *paddings, size_t g, size_t i, uint64_t *out)
{
	*out = 0;
	return !paddings || paddings->kind == UNS_VALUE_NONE ||
	       (uns_value_u64(uns_value_at(uns_value_at(paddings, g), i), out) && *out <= UINT32_MAX);
}

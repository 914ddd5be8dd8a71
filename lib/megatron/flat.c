/* Cuts a flat range into boxes: a range that begins or ends within a row is several. */
#include "megatron/flat.h"

#include <string.h>

#include "base/array.h"

void uns_megatron_flat_fini(struct uns_megatron_flat *flat)
{
	uns_box_pool_fini(&flat->boxes);
}

int uns_megatron_flat_add(struct uns_megatron_flat *flat, const struct uns_megatron_range *range,
			  struct uns_megatron_chunks *out, struct uns_err *err)
{
	struct uns_dcp_chunk chunk = { .storage = range->storage };
	struct uns_shape part = { .n = range->of->n };
	struct uns_box box;
	uint64_t at, elems, item;
	uint32_t d;

	memcpy(part.dim, range->of->len, part.n * sizeof(*part.dim));
	for (at = 0; at < range->count; at += elems) {
		elems = uns_box_at(&part, range->first + at, range->first + range->count, &box);
		for (d = 0; d < part.n; d++)
			box.lo[d] += range->of->lo[d];
		item = range->first_item + at;
		if (!flat->last || flat->last->first_elem != item || flat->last->n_elems != range->n_item) {
			UNS_TRY_ALLOC(flat->last = UNS_NEW(flat->parts, struct uns_item_part), err);
			*flat->last = (struct uns_item_part){ item, range->n_item };
		}
		chunk.part = flat->last;
		UNS_TRY_ALLOC(chunk.box = uns_box_keep(&flat->boxes, flat->arena, &box), err);
		UNS_TRY_ALLOC(UNS_ARENA_ROOM(flat->arena, out->v, out->n, out->cap), err);
		out->v[out->n++] = chunk;
	}
	return 0;
}

/* A range of the flattened elements of a part of a tensor, as boxes of that tensor. Megatron-Core's optimizers save
 * such ranges: a rank has a part of a parameter, and ranks of data parallelism share the part's elements. */
#ifndef UNS_MEGATRON_FLAT_H
#define UNS_MEGATRON_FLAT_H

#include "dcp/metadata.h"
#include "model/box_pool.h"

/* What is made of all ranges of a checkpoint: equal boxes and places are kept once. */
struct uns_megatron_flat {
	struct uns_arena *arena; /* of boxes */
	struct uns_arena *parts; /* of parts of items: the catalog's */
	struct uns_box_pool boxes;
	struct uns_item_part *last;
};

void uns_megatron_flat_fini(struct uns_megatron_flat *flat);

struct uns_megatron_chunks {
	struct uns_dcp_chunk *v;
	size_t n, cap;
};

/* A range of the part `of` (a box of the tensor), and where it was saved: in an item of n_item elements, from
 * first_item on. */
struct uns_megatron_range {
	const struct uns_box *of;
	uint64_t first, count; /* elements of the part, in C order */
	const struct uns_dcp_storage *storage;
	uint64_t first_item, n_item;
};

/* Adds the boxes that the range is. */
int uns_megatron_flat_add(struct uns_megatron_flat *flat, const struct uns_megatron_range *range,
			  struct uns_megatron_chunks *out, struct uns_err *err);

#endif

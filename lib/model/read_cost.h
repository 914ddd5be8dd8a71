/* What a view's tensors cost to read. Pure. */
#ifndef UNS_MODEL_READ_COST_H
#define UNS_MODEL_READ_COST_H

#include "model/tree.h"

struct uns_read_cost {
	size_t n_computed; /* tensors that are sums, scaled in blocks, or put in another order */
	uint64_t shown_bytes, read_bytes; /* of all tensors; what is kept, as the factors of a product, counts once */
};

struct uns_read_cost uns_read_cost_of(const struct uns_vtree *tree, const struct uns_catalog *cat);

#endif

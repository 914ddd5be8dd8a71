/* Adds up what each tensor is made of. */
#include "model/read_cost.h"

#include "model/scaled_tensor.h"
#include "model/sum_tensor.h"

static uint64_t read_for(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	const struct uns_scaled *scaled = t->scaled;

	return scaled ? scaled->rows * scaled->columns * uns_dtype_size(scaled->dtype) : uns_sum_tensor_reads(cat, t);
}

struct uns_read_cost uns_read_cost_of(const struct uns_vtree *tree, const struct uns_catalog *cat)
{
	const struct uns_named_tensor *t = tree->tensor, *end = t + tree->n_tensors;
	struct uns_read_cost cost = { 0 };

	for (; t < end; t++) {
		cost.n_computed += t->tensor->sum || t->tensor->scaled;
		cost.shown_bytes += uns_shape_elems(uns_named_shape(t)) * uns_dtype_size(t->out);
		cost.read_bytes += read_for(cat, t->tensor);
	}
	return cost;
}

/* Adds up what each tensor is made of. */
#include "model/read_cost.h"

#include "model/scaled_tensor.h"
#include "model/sum_tensor.h"

static uint64_t stored_bytes(const struct uns_catalog *cat, const struct uns_tensor *t, uint64_t n_elems)
{
	return t ? n_elems * uns_dtype_size(uns_tensor_with_bytes(cat, t)->dtype) : 0;
}

static uint64_t all_of(const struct uns_catalog *cat, const struct uns_tensor *t)
{
	return t ? stored_bytes(cat, t, uns_shape_elems(&t->shape)) : 0;
}

static uint64_t read_for(const struct uns_catalog *cat, const struct uns_named_tensor *t)
{
	const struct uns_sum *sum = t->tensor->sum;
	const struct uns_scaled *scaled = t->tensor->scaled;
	uint64_t bytes = 0;
	size_t i;

	if (scaled)
		return scaled->rows * scaled->columns * uns_dtype_size(scaled->dtype);
	for (i = 0; sum && i < sum->n; i++)
		bytes += all_of(cat, sum->term[i].left.tensor) + all_of(cat, sum->term[i].right.tensor);
	return sum ? bytes : stored_bytes(cat, t->tensor, uns_shape_elems(uns_named_shape(t)));
}

struct uns_read_cost uns_read_cost_of(const struct uns_vtree *tree, const struct uns_catalog *cat)
{
	const struct uns_named_tensor *t = tree->tensor, *end = t + tree->n_tensors;
	struct uns_read_cost cost = { 0 };

	for (; t < end; t++) {
		cost.n_computed += t->tensor->sum || t->tensor->scaled;
		cost.shown_bytes += uns_shape_elems(uns_named_shape(t)) * uns_dtype_size(t->out);
		cost.read_bytes += read_for(cat, t);
	}
	return cost;
}

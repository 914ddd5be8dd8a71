/* Adds up what each tensor is made of. */
#include "model/read_cost.h"

#include "model/joined_tensor.h"
#include "model/scaled_tensor.h"
#include "model/sum_tensor.h"

/* For so many of its elements. */
static uint64_t read_for(const struct uns_catalog *cat, const struct uns_tensor *t, uint64_t n_elems)
{
	const struct uns_scaled *scaled = t->scaled;
	const uint64_t all = uns_shape_elems(&t->shape);

	if (scaled)
		return scaled->rows * scaled->columns * uns_dtype_size(scaled->dtype);
	return all == n_elems ? uns_sum_tensor_reads(cat, t)
			      : (uint64_t)((double)uns_sum_tensor_reads(cat, t) * ((double)n_elems / (double)all));
}

/* All planes are read as a whole, for all tensors that are a part of them. */
static uint64_t read_for_joined(const struct uns_catalog *cat, const struct uns_tensor *t, uint64_t n_elems)
{
	const struct uns_segment *s = t->joined->source.segment, *end = s + t->joined->source.n;
	const uint64_t all = uns_shape_elems(&t->shape);
	uint64_t bytes = 0;

	for (; s < end; s++)
		bytes += read_for(cat, s->tensor, s->len_bytes / uns_dtype_size(s->out));
	return n_elems == all ? bytes : (uint64_t)((double)bytes * ((double)n_elems / (double)all));
}

struct uns_read_cost uns_read_cost_of(const struct uns_vtree *tree, const struct uns_catalog *cat)
{
	const struct uns_named_tensor *t = tree->tensor, *end = t + tree->n_tensors;
	struct uns_read_cost cost = { 0 };

	for (; t < end; t++) {
		const struct uns_joined *joined = t->tensor->joined;
		const uint64_t n_elems = uns_shape_elems(uns_named_shape(t));

		cost.n_computed += t->tensor->sum || t->tensor->scaled || (joined && !joined->in_order);
		cost.shown_bytes += n_elems * uns_dtype_size(t->out);
		cost.read_bytes +=
			joined ? read_for_joined(cat, t->tensor, n_elems) : read_for(cat, t->tensor, n_elems);
	}
	return cost;
}

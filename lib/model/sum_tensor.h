/* Tensors whose elements are computed when they are read: a sum of other tensors' elements and of matrix products.
 *
 *     element = times * left                       a term without `right`: left has as many elements, in the same order
 *             + times * (left times right's transpose) + ...
 *
 * For a product the tensor is a matrix of `columns` columns. Then left is [rows, inner], and right [columns, inner], or
 * several such matrices, each for as many rows of the tensor.
 * The sum is made in fp64, term by term and product by product in order, then divided, then `plus` is added, and
 * it is multiplied as its scale has it. The result is rounded once, to the tensor's dtype. */
#ifndef UNS_MODEL_SUM_TENSOR_H
#define UNS_MODEL_SUM_TENSOR_H

#include "model/catalog.h"

struct uns_factor {
	const struct uns_tensor *tensor; /* NULL = there is none */
	enum uns_dtype
		as; /* its elements are rounded to this dtype first; its own dtype = they are taken as they are */
	uint64_t first; /* the first of the tensor's elements that is taken, with as many behind it as are needed */
};

/* All of the tensor, in its own dtype. */
static inline struct uns_factor uns_factor_as_is(const struct uns_tensor *t)
{
	return (struct uns_factor){ t, t->dtype, 0 };
}

struct uns_term {
	double times;
	struct uns_factor left, right;
	uint64_t inner; /* of a product */
	uint64_t batch; /* of a product: so many rows have a right matrix of their own; 0 = all have one */
};

/* Element i of the sum is multiplied by element (i / behind) mod n of the n that `by` has. */
struct uns_scale {
	struct uns_factor by; /* without a tensor = elements stay as they are */
	uint64_t behind;
	bool normed; /* n rows of `behind` elements: each is also divided by its Euclidean norm */
};

struct uns_sum {
	const struct uns_term *term;
	size_t n;
	uint64_t columns;
	double divisor; /* of the whole sum; 1 = it stays as it is */
	double plus; /* added to each element; 0 = it stays as it is */
	struct uns_scale scale;
};

/* A tensor `like` another (its name, shape and role), of dtype `out`, with the sum, which is copied, its terms too.
 * -ENOTSUP if an element's dtype is not real and floating; -EBADMSG if a term or the scale does not have the
 * elements that it needs. Pure. */
int uns_sum_tensor_make(const struct uns_tensor *like, enum uns_dtype out, const struct uns_sum *sum,
			struct uns_arena *arena, const struct uns_tensor **made, struct uns_err *err);

/* How many bytes of other tensors are read for all elements of the tensor, each of a product's factors once; of a
 * tensor that is no sum, its own. */
uint64_t uns_sum_tensor_reads(const struct uns_catalog *cat, const struct uns_tensor *tensor);

#endif

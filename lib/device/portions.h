/* How boxes of tensors are cut and laid into buffers. Arithmetic alone. */
#ifndef UNS_DEVICE_PORTIONS_H
#define UNS_DEVICE_PORTIONS_H

#include "tensors/tensors.h"

/* Begins of portions in a buffer are multiples of it: of every element's size, and good for the GPU's copies. */
enum { UNS_PORTION_ALIGN = 256 };

/* Consecutive elements of one box, as a box, and where they go to. */
struct uns_portion {
	struct tensor_box box;
	char *to;
	size_t at_bytes; /* in its buffer */
};

struct uns_portions {
	size_t buffer_bytes; /* set by the caller, at least UNS_PORTION_ALIGN; all else zero at first */
	struct uns_portion *v;
	size_t n, cap;
	size_t *begin; /* of each buffer's fill: its first portion; it ends where the next one's begins, or at n */
	size_t n_fills, cap_fills;
	size_t filled_bytes; /* of the last fill's buffer */
};

/* Add a box, in order: portions of at most a buffer each. Small boxes share a buffer. An empty one adds nothing. */
int uns_portions_add(struct uns_portions *p, const struct tensor_box *box, void *to, struct uns_err *err);
void uns_portions_fini(struct uns_portions *p);

#endif

/* Where a shard sits in its full tensor: a box (FSDP, TP, DCP chunks) or a range of flat elements
 * (ZeRO, FSDP1 flat parameters). Pure arithmetic on element counts. */
#ifndef UNS_MODEL_BOX_H
#define UNS_MODEL_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/dtype.h" /* UNS_MAX_DIMS */

struct uns_shape {
	uint32_t n;                 /* 0 = a scalar of one element */
	uint64_t dim[UNS_MAX_DIMS]; /* elements */
};

struct uns_box {
	uint32_t n;
	uint64_t lo[UNS_MAX_DIMS], len[UNS_MAX_DIMS]; /* elements */
};

struct uns_range {
	uint64_t first, count; /* elements of the flattened (C order) tensor */
};

/* Product of the dimensions; -EBADMSG on overflow of 2^63. Shapes in a catalog are checked, so later
 * code uses uns_shape_elems, which cannot fail. */
int uns_shape_check(const struct uns_shape *shape, enum uns_dtype dtype, struct uns_err *err);
uint64_t uns_shape_elems(const struct uns_shape *shape);
/* Those behind each index of the first dimension. */
uint64_t uns_shape_row_elems(const struct uns_shape *shape);
bool uns_shape_equal(const struct uns_shape *a, const struct uns_shape *b);
/* "[2, 3]"; buf of any size, result always NUL-terminated. */
const char *uns_shape_text(const struct uns_shape *shape, char *buf, size_t size);

/* From an index to the next, of each dimension: elements, in C order. */
void uns_shape_strides(const struct uns_shape *shape, uint64_t stride[UNS_MAX_DIMS]);
/* Are these the strides of a box of lengths `len` that is stored by itself? Of a length of 1 no stride is asked. */
bool uns_strides_are_c_order(const uint64_t *stride, const uint64_t *len, size_t n);

uint64_t uns_box_elems(const struct uns_box *box);
bool uns_box_inside(const struct uns_box *box, const struct uns_shape *shape);
bool uns_box_overlap(const struct uns_box *a, const struct uns_box *b);
/* *out: what both hold, of one tensor. false: they have no element in common. */
bool uns_box_intersect(const struct uns_box *a, const struct uns_box *b, struct uns_box *out);
bool uns_box_equal(const struct uns_box *a, const struct uns_box *b);

/* The largest box of `shape` that begins with flat element `first`, ends before `end`, and whose elements follow each
 * other; the shape has elements. Returns how many they are. */
uint64_t uns_box_at(const struct uns_shape *shape, uint64_t first, uint64_t end, struct uns_box *out);

/* A box of a tensor is a sequence of stretches: elements that are contiguous both in the
 * flattened full tensor and in the flattened box. Stretch k starts at element uns_stretches_at(k) of the full
 * tensor, which grows with k, and at element k * stretch_elems of the box. */
struct uns_stretches {
	uint64_t n, stretch_elems; /* n == 0 for an empty box */
	uint32_t outer;        /* dimensions iterated over */
	uint64_t base;
	uint64_t len[UNS_MAX_DIMS], stride[UNS_MAX_DIMS]; /* of the outer dimensions */
};
struct uns_stretches uns_stretches_of_box(const struct uns_box *box, const struct uns_shape *shape);
/* The first stretch alone, for boxes by the million: its first element, and its length, 0 for an empty box. Returns
 * whether the box has no other. */
bool uns_box_stretch(const struct uns_box *box, const struct uns_shape *shape, uint64_t *first, uint64_t *n_elems);
uint64_t uns_stretches_at(const struct uns_stretches *stretches, uint64_t k);
/* The first stretch that ends behind element `elem` of the full tensor; stretches->n when none. O(log n). */
uint64_t uns_stretches_find(const struct uns_stretches *stretches, uint64_t elem);

#endif

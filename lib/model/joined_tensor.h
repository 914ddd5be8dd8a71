/* Tensors whose elements are those of other tensors in another arrangement, taken when they are read: the experts of a
 * layer stacked in one tensor, or one expert out of a stack that has rows and columns in the other order.
 *
 *     source   the elements of all parts, one part behind the other
 *     plane    the source is cut into n_planes stretches of plane_elems elements; each makes an equal stretch of the
 *              tensor
 *     loop     within a plane, element [i, j, k] of the loops' lengths is the source's element
 *              first_elem + i * step[0] + j * step[1] + k * step[2]
 *
 * If these are all elements of the planes in their order, the tensor is the source (in_order): it is read without
 * memory. Else a plane is put in order in memory when it is first touched, and kept in the engine's cache: so a plane
 * is one expert's matrix. */
#ifndef UNS_MODEL_JOINED_TENSOR_H
#define UNS_MODEL_JOINED_TENSOR_H

#include "model/tree.h"

enum { UNS_JOINED_LOOPS = 3 };

/* How the elements are taken. A loop of length 0 counts as one of length 1. */
struct uns_joined_order {
	uint64_t n_planes, plane_elems, first_elem;
	struct uns_joined_loop {
		uint64_t n, step_elems;
	} loop[UNS_JOINED_LOOPS]; /* the outermost first */
};

struct uns_joined {
	struct uns_layout source; /* in the tensor's dtype */
	struct uns_joined_order order;
	bool in_order;
	uint64_t id[2]; /* which elements these are: equal for equal ones, in whatever view of the checkpoint */
};

/* How many elements of the tensor a plane makes. */
static inline uint64_t uns_joined_plane(const struct uns_joined *j)
{
	return j->order.loop[0].n * j->order.loop[1].n * j->order.loop[2].n;
}

/* A tensor `name` of `shape` out of n parts, which are tensors of `cat` or made for a view of it. order NULL = one
 * part behind the other. Written in the parts' dtypes. What already lies so in one tensor becomes that tensor, or a
 * slice of it.
 * -EBADMSG if parts differ in dtype, or do not have the elements that the order takes: the sentence names a part.
 * Pure. */
int uns_joined_make(const struct uns_catalog *cat, const char *name, const struct uns_named_tensor *part, size_t n,
		    const struct uns_joined_order *order, const struct uns_shape *shape, struct uns_arena *arena,
		    struct uns_named_tensor *out, struct uns_err *err);

#endif

/* A DTensor as torch.save would pickle it: sharded by rows on a mesh of one dimension, in the spelling of another
 * DTensor that was read (class names, and what a mesh and a spec consist of, differ between versions of torch: see
 * ranks/dtensor.c), so that a program that can load that DTensor can load this one. Pure.
 *
 *   _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor,
 *                         (DTensor, dtype, size, stride, 0, layout, device, requires_grad),
 *                         (None, {_local_tensor, _spec: {mesh, placements, tensor_meta, ..}}))
 *
 * All results live in the arena and borrow from `like`; they are for uns_pickle_emit with uns_dtensor_classes. */
#ifndef UNS_RANKS_DTENSOR_NEW_H
#define UNS_RANKS_DTENSOR_NEW_H

#include "base/arena.h"
#include "base/error.h"
#include "wire/pickle_emit.h"
#include "wire/value.h"

extern const struct uns_pickle_class uns_dtensor_classes[];

/* What is taken over from a DTensor. */
struct uns_dtensor_form {
	const struct uns_value *like, *spec, *mesh;
	enum uns_dtype ranks;   /* of the mesh's tensor of ranks */
	const char *shard;      /* the class of a placement by rows */
};

/* -ENOTSUP for one whose parts are not all known (a ShardedTensor; a later torch), naming what. */
int uns_dtensor_form_of(const struct uns_value *like, struct uns_arena *arena, struct uns_dtensor_form *out,
			struct uns_err *err);

/* The mesh (0 .. world - 1) as `rank` sees it: one object for all tensors of a file. ranks: the value
 * of a tensor of type form->ranks and shape [world]. */
int uns_dtensor_mesh_new(const struct uns_dtensor_form *form, struct uns_arena *arena, uint64_t world, uint64_t rank,
			 const struct uns_value *ranks, const struct uns_value **out, struct uns_err *err);

/* local: the value of the tensor that this rank holds, rows as torch.chunk cuts them. */
int uns_dtensor_new(const struct uns_dtensor_form *form, struct uns_arena *arena, const struct uns_value *mesh,
		    enum uns_dtype dtype, const uint64_t *dims, size_t n_dims, const struct uns_value *local,
		    const struct uns_value **out, struct uns_err *err);

#endif

/* Sharded tensors inside torch.save files: DTensor and ShardedTensor as value trees, from torch 2.0 to
 * today, into a global shape and the boxes held locally. Pure. */
#ifndef UNS_RANKS_DTENSOR_H
#define UNS_RANKS_DTENSOR_H

#include "base/arena.h"
#include "base/error.h"
#include "wire/dtype.h"
#include "wire/torchfile.h"
#include "wire/value.h"

struct uns_local_shard {
	const struct uns_value *tensor; /* for uns_torch_tensor */
	/* The dense boxes that the local tensor's rows map to, in order along its first dimension that
	 * is sharded; more than one only for strided shards without an inner shard. A box may be
	 * empty: a rank that the tensor was too small for. The local tensor must have the boxes'
	 * shape (the sum of their lengths along split_dim): the caller checks, it resolves it. */
	size_t n_boxes;
	uint64_t (*lo)[UNS_MAX_DIMS], (*len)[UNS_MAX_DIMS];
	size_t split_dim; /* dimension of the local tensor along which the boxes follow each other */
};

struct uns_sharded_tensor {
	enum uns_dtype dtype; /* the wrapper's */
	size_t n_dims;
	uint64_t dims[UNS_MAX_DIMS]; /* global */
	struct uns_local_shard *shard;
	size_t n_shards;   /* 0 on a rank without data */
	int64_t mesh_size; /* ranks in the mesh; -1 = not recorded */
	size_t n_mesh;     /* its dimensions; 0 = not recorded */
	uint64_t mesh[UNS_MAX_DIMS];
	int64_t rank;      /* as recorded in the file; -1 = not recorded */
	bool replicated;   /* every rank of some mesh dimension holds the same */
};

/* true when v is a DTensor or ShardedTensor wrapper. */
bool uns_dtensor_is(const struct uns_value *v);

/* file_rank: from the file's name, used where the pickle does not record a coordinate (the mesh's ranks are then read
 * through `file`); -1 = not known. -ENOTSUP for placements that cannot be read (Partial), with the placement's name. */
int uns_dtensor_parse(const struct uns_torchfile *file, const struct uns_value *v, int64_t file_rank,
		      struct uns_arena *arena, struct uns_sharded_tensor *out, struct uns_err *err);

#endif

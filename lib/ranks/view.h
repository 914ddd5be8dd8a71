/* One rank's view of a tensor: dtype, global shape, the boxes that its file holds and their offsets in
 * it. Private to ranks/merge.c, which puts the views together. */
#ifndef UNS_RANKS_VIEW_H
#define UNS_RANKS_VIEW_H

#include "model/catalog.h"
#include "wire/torchfile.h"

/* One rank's file while it is open. */
struct uns_rank_source {
	const char *path;
	uint32_t file; /* in the catalog */
	int32_t rank;  /* by the file's name; -1 = unknown */
	size_t index;  /* among the files of its kind */
	const struct uns_torchfile *torch;
};

struct uns_rank_part {
	struct uns_piece piece;
	struct uns_rank_part *next;
};

struct uns_rank_view {
	struct uns_tensor tensor; /* dtype and shape are filled in */
	struct uns_rank_part *first, **tail;
	bool sharded; /* a wrapper: DTensor, ShardedTensor */
	size_t n_mesh;
	uint64_t mesh[UNS_MAX_DIMS]; /* its device mesh's shape; n_mesh 0 = not recorded */
	int64_t rank;                /* the rank that the content records; -1 = none */
	uint32_t crc;  /* of a plain tensor's whole storage; 0 = cannot be compared */
	bool has_value;
	double value; /* of a plain tensor of one number */
};

/* v: a tensor or a wrapper. Parts live in `scratch`, strides in the catalog's arena. Reads local
 * headers, and a single number. -EBADMSG, -ENOTSUP without file and tensor. */
int uns_rank_view_open(struct uns_catalog *cat, struct uns_arena *scratch, const struct uns_rank_source *source,
		       const struct uns_value *v, struct uns_rank_view *out, struct uns_err *err);

#endif

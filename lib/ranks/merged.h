/* A tensor that several ranks' files hold, while they are read. Private to rank_merge.c, which
 * makes them, and rank_judge.c, which judges them together. */
#ifndef UNS_RANKS_MERGED_H
#define UNS_RANKS_MERGED_H

#include "ranks/view.h"

struct uns_rank_merge;

struct uns_merged {
	struct uns_tensor tensor;
	const char *path;    /* of the file that had it first */
	const char *differs; /* the first file whose plain copy has another CRC; NULL = none */
	bool sharded;
	size_t n_mesh;
	uint64_t mesh[UNS_MAX_DIMS];
	uint32_t crc; /* of the first plain copy's whole storage; 0 = cannot be compared */
	bool has_value;
	double value;  /* of the first plain copy, where it is one number */
	bool *in_file; /* per file: it holds the tensor */
	bool told;     /* a finding reports that something is wrong with it */
	struct uns_rank_part *first, *last;
	struct uns_merged *next;
	uint32_t index; /* in the catalog, once there */
};

/* When all files are read: findings about what they hold together. Fails only when memory is out.
 */
int uns_rank_judge(struct uns_rank_merge *m, struct uns_err *err);

#endif

/* One rank's model, optimizer and extra_state file for another number of ranks, as torch.save files. */
#ifndef UNS_RANKS_SHARD_FILE_H
#define UNS_RANKS_SHARD_FILE_H

#include "model/layout.h"

struct uns_rank_shard {
	const struct uns_catalog *cat;
	uint64_t world, rank;
	const char *stem; /* of the file's name: the records' directory */
};

/* What the reader kept of the files' form (root "rank_files"; see ranks/files.h); NULL = nothing. */
const struct uns_value *uns_rank_shard_value(const struct uns_catalog *cat, const char *name);

/* The layout and all it is made of live in the arena; what is only needed on the way does not.
 * -ENOTSUP: something in it cannot be written, with its name. */
int uns_rank_shard_model(const struct uns_rank_shard *shard, struct uns_arena *arena, struct uns_layout *out,
			 struct uns_err *err);
int uns_rank_shard_optim(const struct uns_rank_shard *shard, struct uns_arena *arena, struct uns_layout *out,
			 struct uns_err *err);
/* The scheduler's state and no random states. */
int uns_rank_shard_extra(const struct uns_rank_shard *shard, struct uns_arena *arena, struct uns_layout *out,
			 struct uns_err *err);

#endif

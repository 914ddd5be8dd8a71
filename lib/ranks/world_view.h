/* veRL's and EasyR1's per-rank files as another number of ranks would have saved them: DTensors sharded
 * by rows on a mesh of one dimension, which the managers' own load_checkpoint takes at that many ranks.
 *
 *   {model,optim,extra_state}_world_size_<N>_rank_<r>.pt    fsdp_config.json where there was one
 *
 * DTensors are written in the spelling of the torch that saved the checkpoint (ranks/dtensor_new.h). */
#ifndef UNS_RANKS_WORLD_VIEW_H
#define UNS_RANKS_WORLD_VIEW_H

#include "model/tree.h"

/* 0; -ENODATA, -EBADMSG: damaged; -ENOTSUP: ShardedTensors, FSDP1's flat optimizer states, too many
 * ranks. Makes the first rank's files to see that they can be written. */
int uns_world_ranks_supports(const struct uns_catalog *cat, uint64_t world, struct uns_err *why);

/* Random states are each rank's own: another number of ranks gets none unless keep_rng asks for those
 * that there are. The managers continue with their own where a file has none. */
struct uns_world_rng {
	bool hide, keep;
};

int uns_world_ranks_add(const struct uns_catalog *cat, uint64_t world, struct uns_world_rng rng,
			struct uns_vtree *out, struct uns_err *err);

#endif

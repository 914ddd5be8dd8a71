/* veRL's and EasyR1's per-rank files as another number of ranks would have saved them: DTensors sharded
 * by rows on a mesh of one dimension, which the managers' own load_checkpoint takes at that many ranks.
 *
 *   {model,optim,extra_state}_world_size_<N>_rank_<r>.pt    fsdp_config.json where there was one
 *
 * DTensors are written in the spelling of the torch that saved the checkpoint (ranks/dtensor_new.h). */
#ifndef UNS_RANKS_WORLD_VIEW_H
#define UNS_RANKS_WORLD_VIEW_H

#include "model/tree.h"

/* Returns 0 if the view can be shown. Fails with -ENODATA or -EBADMSG if the checkpoint is damaged, with -ENOTSUP for
 * ShardedTensors, FSDP1's flat optimizer states, or too many ranks. Makes the first rank's files as a trial. */
int uns_world_ranks_supports(const struct uns_catalog *cat, uint64_t world, struct uns_err *why);

/* Each rank has its own random states. Another number of ranks gets none, unless `keep` is set: then it gets those
 * that were saved. A manager that finds none in a file continues with its own. */
struct uns_world_rng {
	bool hide, keep;
};

int uns_world_ranks_add(const struct uns_catalog *cat, uint64_t world, struct uns_world_rng rng, struct uns_vtree *out,
			struct uns_err *err);

#endif

/* Experts that data-parallel ranks share out (deepspeed.moe, expert parallelism of several ranks). Of a layer of
 * experts each rank has as many as the others, and numbers its own from 0. A group of experts' parameters is one group
 * on every rank, and ZeRO cuts it over those ranks alone that have the same experts:
 *
 *   4 ranks, 2 share 4 experts    rank 0: experts 0 1    rank 1: 2 3    rank 2: 0 1    rank 3: 2 3
 *   the group is cut for 2 ranks  [0, 2] cut that of experts 0 and 1, [1, 3] that of experts 2 and 3
 *
 * With use_data_before_expert_parallelism they are [0, 1] and [2, 3]. Source: deepspeed 0.19, utils/groups.py
 * (_create_expert_and_data_parallel), runtime/engine.py (_save_moe_checkpoint). */
#ifndef UNS_ZERO_EXPERTS_H
#define UNS_ZERO_EXPERTS_H

#include "base/map.h"
#include "parallel/shapes.h"
#include "parallel/slices.h"

/* What the names of groups of experts' parameters begin with: "ep_size_2" are those that 2 ranks share. */
#define UNS_ZERO_EXPERTS "ep_size_"

/* One group's parameters, by the names of the whole model. */
struct uns_zero_spread {
	struct uns_zero_shapes whole; /* in the order in which one rank that has all experts would list them */
	const uint32_t *owner;        /* of each of these: which share; NULL = there is one */
	struct uns_zero_shapes *share; /* n: of the ranks that have the same experts, in their order */
	size_t n;
	const struct uns_zero_slices *slices; /* the shares are slices of the same parameters (AutoEP); NULL = they are
					       * parameters of their own */
};

/* Of each layer of experts in a rank's param_shapes, "LAYER.deepspeed_experts.": the number of the rank's last. */
int uns_zero_experts_count(const struct uns_zero_shapes *shapes, size_t n_shapes, struct uns_arena *arena,
			   struct uns_map *out, struct uns_err *err);

/* A group as one rank's param_shapes list it, if ranks share out its experts n-fold; n = 1: all ranks have all of it.
 * last: of uns_zero_experts_count. Everything lives in the arena, with `of`. -ENOTSUP: a parameter is no expert's. */
int uns_zero_experts_spread(struct uns_zero_shapes *of, const struct uns_map *last, size_t n, struct uns_arena *arena,
			    struct uns_zero_spread *out, struct uns_err *err);

/* The data-parallel ranks that share `e` of n has, of `world`: *first, *first + *stride, .. */
void uns_zero_experts_ranks(const struct uns_value *config, uint64_t world, size_t n, size_t e, uint64_t *first,
			    uint64_t *stride);

/* Splits "LAYER.deepspeed_experts.3.weight" behind "deepspeed_experts."; false = it is no expert's. */
bool uns_zero_expert_of(const char *name, size_t *prefix, uint64_t *number, const char **rest);

/* Whether both are parameters of experts, and of one layer's. */
bool uns_zero_experts_of_one_layer(const char *a, const char *b);

#endif

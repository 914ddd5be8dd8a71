/* What an expert's parameters are called: by Megatron-Core's modules, and in torch_dist. Pure.
 *
 *   mlp.experts.linear_fc1.weightE               TEGroupedMLP, E among the rank's own experts
 *   mlp.experts.local_experts.E.linear_fc1.weight  SequentialMLP
 *   mlp.experts.experts.E.linear_fc1.weight      torch_dist's name of both, E in the whole model */
#ifndef UNS_MEGATRON_EXPERT_NAMES_H
#define UNS_MEGATRON_EXPERT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

/* torch_dist's name; `first`: the number of the first of the rank's experts. Another tensor keeps its name. What
 * follows the name stays ("_w"). In the arena, or `name` itself; NULL = memory is out. */
const char *uns_megatron_expert_name(struct uns_arena *arena, const char *name, uint64_t first);

/* Is it a parameter of one of the experts that ranks share out? */
bool uns_megatron_is_expert(const char *name);

#endif

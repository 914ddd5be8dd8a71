/* The common.pt of a directory that Megatron-Core loads at any parallelism: the saved one's own pickle, continued with
 *
 *   optimizer          {"optimizer": {"param_groups": [..]}, "param_state_sharding_type": "fully_reshardable"}
 *                      or, if experts have an optimizer of their own, {0: the same, 1: the same of experts}
 *   content_metadata   the saved one, but for the form of the optimizer's states
 *
 * Source: megatron-core 0.16.1, optimizer/distrib_optimizer.py (state_dict, load_state_dict, sharded_state_dict) and
 * optimizer.py (ChainedOptimizer). Pure. */
#ifndef UNS_MEGATRON_COMMON_MADE_H
#define UNS_MEGATRON_COMMON_MADE_H

#include "model/tree.h"

/* For which ranks: Megatron-Core gives experts an optimizer of their own if ranks share them (expert parallelism). */
enum uns_megatron_experts { UNS_MG_EXPERTS_TOGETHER, UNS_MG_EXPERTS_APART };

/* Can the file be made? Fails with the reason. */
int uns_megatron_common_check(const struct uns_catalog *cat, enum uns_megatron_experts experts, struct uns_err *why);

/* Adds it. by_layer: names of tensors have the numbers of layers and experts (content_metadata's
 * singleton_local_shards), which the saved content_metadata does not have. */
int uns_megatron_common_add(const struct uns_catalog *cat, enum uns_megatron_experts experts, bool by_layer,
			    struct uns_vtree *out, struct uns_err *err);

#endif

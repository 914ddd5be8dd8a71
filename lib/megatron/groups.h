/* Megatron-Core's common.pt, beside the shards: what is not sharded, the optimizers' param groups among it.
 *
 *   {"optimizer": OPTIMIZER} or, of several, {"optimizer": {0: OPTIMIZER, 1: OPTIMIZER}}
 *   OPTIMIZER = {"param_groups": [..], "state": {"common_step": tensor}} or {"optimizer": the same, ..}
 *   a group has "step" itself if the optimizer is distributed, and never the names of its parameters
 *   {"args": Namespace}: the options of the run, if Megatron-LM saved
 *
 * An optimizer that is saved in buckets (megatron/buckets.h) has its param groups in an item of each group of ranks:
 *
 *   [chained_C.]optimizer.distributed.dp_group_idx_G.optimizer/shard_0_1 = [{"param_groups": [..]}]
 *
 * Source: megatron-core 0.16.1, optimizer/optimizer.py and distrib_optimizer.py (sharded_state_dict). */
#ifndef UNS_MEGATRON_GROUPS_H
#define UNS_MEGATRON_GROUPS_H

#include "model/catalog.h"
#include "megatron/common_file.h"

/* Reads the file once. Adds the arguments that megatron/args.h compares and, if `wants_groups`, the param groups of all
 * optimizers as groups without parameters, each with its "step" if there is one. None if the file does not hold them.
 * What is wrong with the file becomes a finding about the optimizer. */
int uns_megatron_common_read(struct uns_catalog *cat, const struct uns_root *root, const char *dir, bool wants_groups,
			     struct uns_err *err);

/* Adds those of an optimizer that was saved in buckets, of all groups of ranks, equal ones once. Reads their items.
 * What is wrong with an item becomes a finding about the optimizer. */
int uns_megatron_bucket_groups_read(struct uns_catalog *cat, struct uns_err *err);

#endif

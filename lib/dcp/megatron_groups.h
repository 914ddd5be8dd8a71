/* Megatron-Core's common.pt, beside the shards: what is not sharded, the optimizers' param groups among it.
 *
 *   {"optimizer": OPTIMIZER} or, of several, {"optimizer": {0: OPTIMIZER, 1: OPTIMIZER}}
 *   OPTIMIZER = {"param_groups": [..], "state": {"common_step": tensor}} or {"optimizer": the same, ..}
 *   a group has "step" itself if the optimizer is distributed, and never the names of its parameters
 *   {"args": Namespace}: the options of the run, if Megatron-LM saved
 *
 * Source: megatron-core 0.16.1, optimizer/optimizer.py and distrib_optimizer.py (sharded_state_dict). */
#ifndef UNS_DCP_MEGATRON_GROUPS_H
#define UNS_DCP_MEGATRON_GROUPS_H

#include "model/catalog.h"
#include "model/megatron_file.h"

/* Adds the param groups of all optimizers as groups without parameters, each with its "step" if there is one, and
 * UNS_MEGATRON_QK_DECAY as a value below the root UNS_MEGATRON_COMMON if it was on. None if the file does not hold them.
 * What is wrong with the file becomes a finding about the optimizer. */
int uns_megatron_groups_add(struct uns_catalog *cat, const struct uns_root *root, const char *dir, struct uns_err *err);

#endif

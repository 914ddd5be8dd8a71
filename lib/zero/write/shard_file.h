/* One rank's *_optim_states.pt, keys as DeepSpeed's optimizers read them (_load_legacy_checkpoint
 * of stages 1 and 2 and of BF16_Optimizer, _rigid_load_state_dict of stage 3). */
#ifndef UNS_ZERO_WRITE_SHARD_FILE_H
#define UNS_ZERO_WRITE_SHARD_FILE_H

#include "model/tree.h"
#include "zero/write/plan.h"

/* common: what all ranks' optimizer_state_dict begins with (uns_zero_shard_common). */
int uns_zero_shard_common(const struct uns_zero_plan *plan, struct uns_vtree *out, const struct uns_value **common,
			  struct uns_err *err);
int uns_zero_shard_add(const struct uns_zero_plan *plan, const struct uns_value *common, uint64_t rank,
		       const char *path, struct uns_vtree *out, struct uns_err *err);

#endif

/* What DeepSpeed's files record about AutoEP, of the ranks that a plan is for: each rank's place among those that share
 * the experts, which DeepSpeed compares with its own when it loads them. */
#ifndef UNS_ZERO_WRITE_AUTOEP_VALUES_H
#define UNS_ZERO_WRITE_AUTOEP_VALUES_H

#include "zero/write/plan.h"

/* Into a model file's dict: "ds_autoep_layers", also inside "universal_checkpoint_info". The dict has room for both.
 * Ask the arena whether memory was out, after both functions. */
void uns_zero_autoep_put_layers(const struct uns_zero_plan *plan, uint64_t rank, struct uns_arena *arena,
				struct uns_value *dict);

/* "ds_zero_partition_groups" of a rank's shard at stage 3: of each cut the ranks that have a part of it. */
const struct uns_value *uns_zero_autoep_groups(const struct uns_zero_plan *plan, uint64_t rank,
					       struct uns_arena *arena);

#endif

/* Param groups of a ZeRO optimizer: hyper-parameters, and the names of their parameters. */
#ifndef UNS_ZERO_READ_GROUPS_H
#define UNS_ZERO_READ_GROUPS_H

#include "zero/read/world.h"

/* Sets out[i] to the param group of the i-th entry of the world's shapes, or to -1 if it is not known. Stages 1 and 2:
 * entry and group are the same. Stage 3: the group whose "params" number the sub-group; if those do not add up, the
 * group that follows from `sub_group_size`, at which many elements of a rank a sub-group is full. `out` has room
 * for n_shapes. */
void uns_zero_groups_assign(const struct uns_zero_world *w, uint64_t sub_group_size, int32_t *out);

/* Add the groups to the catalog, or, where an earlier pipeline stage did, their parameters to them.
 * Names that `seen` holds are skipped. A group without hyper-parameters, or parameters without a group,
 * is a problem of the optimizer. */
int uns_zero_groups_add(struct uns_zero_world *w, const int32_t *group_of, const struct uns_map *seen,
			struct uns_err *err);

#endif

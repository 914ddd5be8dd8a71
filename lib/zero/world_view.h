/* A DeepSpeed ZeRO checkpoint as another number of data-parallel ranks would have saved it, which an
 * unmodified DeepSpeed or Trainer with an unchanged config loads: optimizer shards, model files and
 * DeepSpeed's own marks beside them. */
#ifndef UNS_ZERO_WORLD_VIEW_H
#define UNS_ZERO_WORLD_VIEW_H

#include "model/tree.h"

/* 0; -ENODATA, -EBADMSG: damaged; -ENOTSUP: no such checkpoint, or not at so many ranks. */
int uns_world_zero_supports(const struct uns_catalog *cat, uint64_t world, struct uns_err *why);

/* It was saved at so many ranks: their random states hold. */
bool uns_world_zero_is_saved(const struct uns_catalog *cat, uint64_t world);

int uns_world_zero_add(const struct uns_catalog *cat, uint64_t world, struct uns_vtree *out,
		       struct uns_err *err);

#endif

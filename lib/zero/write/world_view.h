/* A DeepSpeed ZeRO checkpoint as another number of data-parallel ranks would have saved it, which an
 * unmodified DeepSpeed or Trainer with an unchanged config loads: optimizer shards, model files and
 * DeepSpeed's own marks beside them. */
#ifndef UNS_ZERO_WRITE_WORLD_VIEW_H
#define UNS_ZERO_WRITE_WORLD_VIEW_H

#include "model/tree.h"

/* Returns 0 if the view can be shown. Fails with -ENODATA or -EBADMSG if the checkpoint is damaged, with -ENOTSUP if
 * it is not a ZeRO checkpoint or cannot be cut for `world` ranks. */
int uns_world_zero_supports(const struct uns_catalog *cat, uint64_t world, struct uns_err *why);

/* `world` ranks saved the checkpoint, so that their random states can be used. */
bool uns_world_zero_is_saved(const struct uns_catalog *cat, uint64_t world);

int uns_world_zero_add(const struct uns_catalog *cat, uint64_t world, struct uns_vtree *out, struct uns_err *err);

#endif

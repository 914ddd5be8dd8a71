/* What each rank of the veRL family saves besides tensors: {"lr_scheduler": dict or None, "rng":
 * dict}, a torch.save file a rank. A trainer that resumes from ranks' files needs it. Source: verl 0.9.1 and
 * EasyR1 b44b311, fsdp_checkpoint_manager.py. */
#ifndef UNS_RANKS_EXTRA_H
#define UNS_RANKS_EXTRA_H

#include "ranks/files.h"

/* What is missing, damaged or of another save than the first rank's becomes a problem with scope
 * SHARDED. The scheduler's state becomes the value "lr_scheduler" of root UNS_RANK_FORM. Every
 * file's data.pkl is read. Fails only when memory is out. */
int uns_rank_extra_add(struct uns_catalog *cat, const struct uns_root *root, const struct uns_rank_file *files,
		       size_t n, struct uns_err *err);

#endif

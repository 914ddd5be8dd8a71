/* Reads a torch.distributed.checkpoint (DCP) directory into a catalog, for all formats that are built on DCP: plain
 * DCP, HF Trainer and Accelerate with FSDP, Lightning. What .metadata contains is described in dcp/metadata.h. */
#ifndef UNS_DCP_DIR_H
#define UNS_DCP_DIR_H

#include "dcp/roots.h"
#include "model/catalog.h"

/* Does the directory have metadata: a file .metadata or __0.metadata? Looks at names only. */
bool uns_dcp_dir_is(const struct uns_listing *list);

/* Add every tensor, group and value of directory `path` (below root) to the catalog. `prefix` is the directory's path
 * below the checkpoint ("" or "optimizer_0"), for companions' names: .metadata and the .distcp files are added as
 * companions with shard = true. Param groups and scalars of the optimizer's state are decoded (their BYTE items are
 * read); other values are left as item extents. Damage to one entry becomes a problem with the entry's scope. Groups'
 * params give `group` and `position` to all tensors of the catalog that are in none yet. -ENODATA with a sentence when
 * there is no metadata (the save did not finish). */
int uns_dcp_dir_add(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
		    const struct uns_dcp_roots *roots, struct uns_err *err);

#endif

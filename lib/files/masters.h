/* Which tensor is the most exact that a checkpoint holds of a weight: the optimizer's fp32 copy where
 * the weight itself is rounded to 16 bits, else the weight. */
#ifndef UNS_FILES_MASTERS_H
#define UNS_FILES_MASTERS_H

#include "base/map.h"
#include "model/catalog.h"

/* name -> struct uns_tensor of role MASTER. Values are borrowed from the catalog. */
int uns_masters_find(const struct uns_catalog *cat, struct uns_map *out, struct uns_err *err);

/* The master of t, or t. An empty map: always t. */
const struct uns_tensor *uns_masters_or(const struct uns_map *masters, const struct uns_tensor *t);

/* Every master that would be taken is covered, and none was lost to damage in the optimizer's shards
 * (where they were left out altogether, there are none). Else the sentence. */
int uns_masters_check(const struct uns_catalog *cat, struct uns_err *why);

#endif

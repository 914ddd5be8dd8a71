/* The most exact tensor that a checkpoint holds of a weight: the optimizer's fp32 copy ("master") if the weight itself
 * is rounded to 16 bits, else the weight. */
#ifndef UNS_FILES_MASTERS_H
#define UNS_FILES_MASTERS_H

#include "base/map.h"
#include "model/catalog.h"

/* name -> struct uns_tensor of role MASTER. Values are borrowed from the catalog. */
int uns_masters_find(const struct uns_catalog *cat, struct uns_map *out, struct uns_err *err);

/* The fp32 copy of t, or t if it has none. */
const struct uns_tensor *uns_masters_or(const struct uns_map *masters, const struct uns_tensor *t);

/* Returns 0 if every fp32 copy that a view would use is complete, and none is missing because an optimizer shard is
 * damaged. Otherwise fails with the reason. A checkpoint without any fp32 copies passes. */
int uns_masters_check(const struct uns_catalog *cat, struct uns_err *why);

#endif

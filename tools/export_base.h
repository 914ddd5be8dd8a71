/* What export compares with the base model before it writes. */
#ifndef TOOLS_EXPORT_BASE_H
#define TOOLS_EXPORT_BASE_H

#include "arguments.h"

/* The base model: `named` (--base), or else the directory of -o model=DIR if that holds weights. Compares names, shapes
 * and dtypes of the weights at `path` of `u` with it. Returns 0 if all is well or there is no base model; 1 and the
 * reason in *why (to free) if tensors are missing or have another shape; below 0 and the reason if the comparison could
 * not be made. */
int export_base_compare(struct arguments *a, unshard *u, const char *path, const char *named, char **why);

#endif

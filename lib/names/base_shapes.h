/* The experts of some families are [experts, rows, columns] in memory, and [experts, columns, rows] in published files
 * (uns_name_family.transposed). Pure. */
#ifndef UNS_NAMES_BASE_SHAPES_H
#define UNS_NAMES_BASE_SHAPES_H

#include "names/config.h"
#include "names/published_names.h"
#include "model/tree.h"

/* Transposes those of the n tensors, under their published names, that the base model's files have transposed; `out`
 * gets a note of that. Where the base model has other shapes, or its files are not there, all stay as they are, with a
 * note. Fails with -ENOTSUP if some are transposed and another has as many rows as columns: programs that load it do
 * not agree on its order. Tensors made of blocks (model/block_tensor.h, without a slice) live in out->arena. `base` may
 * be NULL. */
int uns_base_shapes_apply(const struct uns_catalog *cat, const struct uns_config_info *config,
			  const struct uns_base_names *base, struct uns_named_tensor *v, size_t n,
			  struct uns_vtree *out, struct uns_err *err);

#endif

/* Safetensors files into a catalog: one file, several with an index, or the shards that torch's
 * HuggingFaceStorageWriter leaves (DCP_SHARDING_INFO says which box each holds). */
#ifndef UNS_FILES_SAFETENSORS_SET_H
#define UNS_FILES_SAFETENSORS_SET_H

#include "model/catalog.h"

/* Add the tensors of the named files (below root) as role WEIGHT. Without sharding information each
 * tensor is one whole piece; with it the global shape is the maximum of offset + shape over all
 * files and cover is left to the view's proof. A name that two files hold whole is damage. */
int uns_safetensors_set_add(struct uns_catalog *cat, const struct uns_root *root,
			    const char *const *paths, size_t n_paths, struct uns_err *err);

#endif

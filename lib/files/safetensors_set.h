/* Safetensors files into a catalog: one file, several with an index, or the shards of torch's HuggingFaceStorageWriter
 * (DCP_SHARDING_INFO has the box of each). */
#ifndef UNS_FILES_SAFETENSORS_SET_H
#define UNS_FILES_SAFETENSORS_SET_H

#include "model/catalog.h"

/* Add the tensors of the named files (below root) with role WEIGHT. Without sharding information each tensor is one
 * whole piece. With it, the shape is the maximum of offset + shape over all files, and the view proves that the pieces
 * cover it. If two files hold the same tensor whole, that is damage. */
int uns_safetensors_set_add(struct uns_catalog *cat, const struct uns_root *root, const char *const *paths,
			    size_t n_paths, struct uns_err *err);

#endif

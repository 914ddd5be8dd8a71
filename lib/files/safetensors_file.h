/* A set of full tensors as one safetensors file, or as several with an index: layouts only. */
#ifndef UNS_FILES_SAFETENSORS_FILE_H
#define UNS_FILES_SAFETENSORS_FILE_H

#include "model/tree.h"

/* One file, byte-identical to safetensors' save_file of the same tensors with {"format":"pt"}. */
int uns_part_safetensors(const struct uns_catalog *cat, const struct uns_named_tensor *tensors, size_t n,
			 struct uns_arena *arena, struct uns_layout *out, struct uns_err *err);

/* Of so many tensors the index is made by a thread, while the files are. */
enum { UNS_INDEX_IN_A_THREAD = 1 << 15 };

/* As save_pretrained does: "STEM.safetensors" if the tensors fit into max_shard_bytes, else
 * "STEM-00001-of-0000N.safetensors" and "STEM.safetensors.index.json", split in the given order as huggingface_hub
 * splits (a tensor above the limit gets a file of its own; joined slices count as one). Adds files and tensors to the
 * tree. */
int uns_part_safetensors_set(const struct uns_catalog *cat, const struct uns_named_tensor *tensors, size_t n,
			     const char *stem, uint64_t max_shard_bytes, const char *origin, struct uns_vtree *tree,
			     struct uns_err *err);

#endif

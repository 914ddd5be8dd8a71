/* model.safetensors.index.json against the files that it names, both ways. */
#ifndef UNS_FILES_MODEL_INDEX_H
#define UNS_FILES_MODEL_INDEX_H

#include "model/catalog.h"
#include "wire/json.h"

struct uns_model_index {
	const cJSON *json; /* with an object weight_map */
	const char *path;  /* of the index, below the root */
	const char *dir;   /* the directory that it is in */
	const struct uns_listing *list; /* what is in that directory */
	const char *parts; /* a glob: how files of a split model are called */
};

/* Adds findings: tensors that the index names and the file lacks, or has in another file; tensors and files that the
 * index does not name; a total size that is not that of the tensors. Call it when the catalog has all tensors of the
 * files. Fails only if memory is out. */
int uns_model_index_check(struct uns_catalog *cat, const struct uns_model_index *index, struct uns_err *err);

/* The files that a weight_map names, each once, in natural order (which is the model's), as paths in the arena.
 * -EBADMSG if one is not below `dir`, the index's directory. */
int uns_model_index_files(const cJSON *weight_map, const char *dir, struct uns_arena *arena, const char ***paths,
			  size_t *n, struct uns_err *err);

#endif

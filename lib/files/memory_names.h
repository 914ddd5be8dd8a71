/* The names and shapes that a model has in memory, of a checkpoint whose files have those that save_pretrained
 * publishes (files/published_names.h, the other way round): experts stacked in one tensor, gate and up in one. Pure. */
#ifndef UNS_FILES_MEMORY_NAMES_H
#define UNS_FILES_MEMORY_NAMES_H

#include "files/config.h"
#include "model/tree.h"

struct uns_memory_names {
	const struct uns_named_tensor *v; /* every tensor of the model, in natural order of names */
	size_t n;         /* 0 = the files have the names in memory, or nobody knows those */
	size_t n_renamed; /* tensors of the files that are under another name here, or in a larger tensor */
	const char *first; /* in the files, the first of these */
	const char *hole;  /* an expert's tensor without which none of this could be done; n is 0 then */
};

/* The rules are those of transformers 5: of a checkpoint that an older version saved, n is 0. All lives in the arena.
 * Fails only when memory is out. */
int uns_memory_names_find(const struct uns_config_info *config, const struct uns_catalog *cat, struct uns_arena *arena,
			  struct uns_memory_names *out, struct uns_err *err);

#endif

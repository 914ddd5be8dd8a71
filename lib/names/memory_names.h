/* The names and shapes in memory of a model whose files have those that save_pretrained publishes:
 * names/published_names.h in the other direction. In memory, experts are stacked in one tensor, and gate and up are
 * one. Pure. */
#ifndef UNS_NAMES_MEMORY_NAMES_H
#define UNS_NAMES_MEMORY_NAMES_H

#include "names/config.h"
#include "model/tree.h"

struct uns_memory_names {
	const struct uns_named_tensor *v; /* every tensor of the model, in natural order of names */
	size_t n;         /* 0 = the files have the names in memory, or the rules are not known */
	size_t n_renamed; /* tensors of the files that have another name in memory, or are in a larger tensor there */
	const char *first; /* the name in the files of the first such tensor */
	const char *hole;  /* the name of an expert's tensor that is missing or of another shape, so that n is 0 */
};

/* Of what a Trainer saved as save_pretrained writes it; of any other checkpoint n is 0. The rules are those of
 * transformers 5: for a checkpoint that an older version saved, n is 0 too. Everything lives in the arena. Fails only
 * if memory is exhausted. */
int uns_memory_names_find(const struct uns_config_info *config, const struct uns_catalog *cat, struct uns_arena *arena,
			  struct uns_memory_names *out, struct uns_err *err);

/* The same of tensors that are slices of those of `cat` (uns_tensor.of), in their order, of any checkpoint. Parts that
 * follow each other in one tensor, as megatron-core stacks experts, become a slice of it; others become blocks
 * (model/block_tensor.h). A tensor that is no slice keeps its name. */
int uns_memory_names_of_slices(const struct uns_config_info *config, const struct uns_catalog *cat,
			       const struct uns_tensor *const *tensor, size_t n, struct uns_arena *arena,
			       struct uns_memory_names *out, struct uns_err *err);

#endif

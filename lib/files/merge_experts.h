/* LoRA of a parameter that holds the matrices of all experts of a layer (target_parameters), when it is merged. */
#ifndef UNS_FILES_MERGE_EXPERTS_H
#define UNS_FILES_MERGE_EXPERTS_H

#include "files/merge_module.h"
#include "names/config.h"

struct uns_merge_experts {
	struct uns_map stacks; /* name of a parameter in memory -> its weights in the base model */
};
void uns_merge_experts_fini(struct uns_merge_experts *experts);

/* Finds which of the base model's weights are of one parameter in memory: one that has its name, or, by the family's
 * rules, one for each expert. */
int uns_merge_experts_find(const struct uns_merge_sums *sums, const struct uns_config_info *config,
			   struct uns_merge_experts *out, struct uns_err *err);

/* Does the module wrap a parameter that target_parameters names? */
bool uns_merge_experts_wrapped(const struct uns_adapter_settings *settings, const struct uns_merge_module *module);

/* Which parameter a module wraps, and what its two matrices are of. */
struct uns_merge_packing {
	const char *parameter; /* its name in memory */
	uint64_t n_experts, rows, columns; /* its shape; of the base model's weights, if these are split */
	bool a_is_rows; /* lora_A is of the rows, lora_B of the columns; else the other way round */
};

/* Sets out[i] for each of n modules of which uns_merge_experts_wrapped is true: all that the adapter has. -ENOTSUP as
 * uns_merge_experts_add. Names are in the arena of the sums. */
int uns_merge_experts_pack(struct uns_merging *m, const struct uns_merge_experts *experts,
			   const struct uns_merge_module *const *module, size_t n, struct uns_merge_packing *out,
			   struct uns_err *err);

/* Adds what n modules add of which uns_merge_experts_wrapped is true: all that the adapter has. -ENOTSUP with a
 * sentence if it is not certain which parameter, or which order of dimensions, one of them was made for. */
int uns_merge_experts_add(struct uns_merging *m, struct uns_merge_experts *experts,
			  const struct uns_merge_module *const *module, size_t n, struct uns_err *err);

#endif

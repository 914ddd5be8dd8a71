/* An adapter that PEFT stacked over the experts of layers (target_parameters), as one LoRA for each expert and
 * projection: what -o experts=split asks for. */
#ifndef UNS_FILES_SPLIT_ADAPTER_H
#define UNS_FILES_SPLIT_ADAPTER_H

#include "files/expert_forms.h"
#include "files/merged_adapter.h"

struct uns_split_adapter {
	struct uns_named_tensor *v; /* n, malloc'd: the adapter's tensors under their names in PEFT's files, sorted */
	size_t n;
	const char *config; /* adapter_config.json for them */
};

/* Sets *changes: is this form of the trained adapter another one than PEFT saved? Fails with the finding
 * EXPERTS_NOT_CONVERTED, which names a tensor, if it is of experts, has not that form, and cannot be given it. */
int uns_split_adapter_needed(const struct uns_merge_input *in, enum uns_expert_form form, bool *changes,
			     struct uns_err *err);

/* Makes it: of each expert, A as it is, and those rows of B that are of its gate, up or down projection. The base
 * model's shapes decide what each matrix is of, as for a merge. Names, texts and tensors are in the arena. Free out->v
 * whatever this returned. Fails with the same finding if the base model is not there, or something is not certain.
 * Pure. */
int uns_split_adapter_make(const struct uns_merge_input *in, struct uns_arena *arena, struct uns_split_adapter *out,
			   struct uns_err *err);

#endif

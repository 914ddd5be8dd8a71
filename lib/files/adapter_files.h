/* Adapters as PEFT saves them: adapter_model.safetensors for each. */
#ifndef UNS_FILES_ADAPTER_FILES_H
#define UNS_FILES_ADAPTER_FILES_H

#include "model/tree.h"

/* Which tensors, and how they are put together. */
struct uns_adapter_files {
	const struct uns_catalog *catalog; /* summary.adapter is not NONE */
	const struct uns_map *masters;     /* files/masters.h: in a rounded weight's place */
	/* Of several adapters each has a directory of its name, as a Trainer saves them; else the trained one's is the
	 * tree's own, which PeftModel.from_pretrained loads. */
	bool apart;
	const char *origin;
};

/* adapter_model.safetensors of each adapter. */
int uns_adapter_files_add(const struct uns_adapter_files *in, struct uns_vtree *out, struct uns_err *err);

/* Say that PEFT needs an adapter_config.json, unless there is one among these. */
int uns_adapter_note_config(const struct uns_companion *borrowed, size_t n, struct uns_vtree *out,
			    struct uns_err *err);

#endif

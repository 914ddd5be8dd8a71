/* Adapters as PEFT saves them: adapter_model.safetensors for each. */
#ifndef UNS_FILES_ADAPTER_FILES_H
#define UNS_FILES_ADAPTER_FILES_H

#include "files/other_lora.h"

/* The adapters of a catalog, and how to write them. */
struct uns_adapter_files {
	const struct uns_catalog *catalog; /* summary.adapter is not NONE */
	const struct uns_other_lora *other; /* if summary.adapter is OTHER, else NULL */
	const struct uns_map *masters;     /* files/masters.h: fp32 copies to use instead of rounded weights */
	/* True: of several adapters each has a directory of its name, as a Trainer saves them. False: the trained one
	 * is in the tree's own directory, from which PeftModel.from_pretrained loads it. */
	bool apart;
	const char *origin;
};

/* adapter_model.safetensors of each adapter. */
int uns_adapter_files_add(const struct uns_adapter_files *in, struct uns_vtree *out, struct uns_err *err);

#endif

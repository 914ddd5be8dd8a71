/* A Lightning checkpoint as the one file that a Trainer without sharding saves and that every
 * strategy loads: meta.pt's own pickle, continued with state_dict and optimizer_states. Whatever
 * meta.pt holds stays byte for byte what it was. */
#ifndef UNS_FILES_LIGHTNING_FILE_H
#define UNS_FILES_LIGHTNING_FILE_H

#include "model/tree.h"
#include "files/torch_file.h"

struct uns_lightning_input {
	const struct uns_catalog *catalog;
	/* Floating weights are given out as this; UNS_DTYPE_NONE = as stored. */
	enum uns_dtype out;
	/* To resume from: with optimizers, keyed by names, which a plain optimizer takes by
	 * position and FSDP by name. Where none were saved (save_weights_only) empty ones stand in,
	 * and a note says who goes on from them. */
	bool resume;
	/* FSDPStrategy takes absent optimizer_states for none, and refuses an empty list. */
	bool for_fsdp;
	int64_t global_step; /* as for uns_optimizer_state_build */
};

/* Did it save optimizer states? Without them it was saved with save_weights_only. */
bool uns_lightning_has_optimizer(const struct uns_catalog *cat);

/* meta.pt as the front of another file (uns_torch_input): its pickle without STOP, and its storages as the
 * first of that file's, of which there must be none yet. For a checkpoint that uns_lightning_check is content
 * with. */
int uns_lightning_front(const struct uns_catalog *cat, struct uns_span *pickle,
			struct uns_torch_leaves *leaves, struct uns_err *err);

/* What meta.pt holds under this key, or NULL. */
const struct uns_value *uns_lightning_value(const struct uns_catalog *cat, const char *key);

/* Can the file be made: weights, meta.pt and, with `resume`, every optimizer are whole. Else the
 * sentence. */
int uns_lightning_check(const struct uns_catalog *cat, bool resume, struct uns_err *why);

/* As out->whole, or, where the checkpoint is SOURCE itself and cannot be a file, as
 * "checkpoint.ckpt". */
int uns_lightning_add(const struct uns_lightning_input *in, struct uns_vtree *out,
		      struct uns_err *err);

#endif

/* A Lightning checkpoint as the one file that a Trainer without sharding saves and that every strategy loads: meta.pt's
 * own pickle, continued with state_dict and optimizer_states. meta.pt's bytes are kept. */
#ifndef UNS_FILES_LIGHTNING_FILE_H
#define UNS_FILES_LIGHTNING_FILE_H

#include "model/tree.h"
#include "files/torch_file.h"

struct uns_lightning_input {
	const struct uns_catalog *catalog;
	/* Convert floating-point weights to this dtype; UNS_DTYPE_NONE = as stored. */
	enum uns_dtype out;
	/* True: with optimizer states, keyed by names: a plain optimizer uses their order, FSDP their names. If none
	 * were saved (save_weights_only), the file has empty ones, and a note names the strategies that resume from
	 * them. */
	bool resume;
	/* True: without optimizer_states if there are none. FSDPStrategy accepts that, and refuses an empty list. */
	bool for_fsdp;
	int64_t global_step; /* as for uns_optimizer_state_build */
};

/* Were optimizer states saved? If not, the checkpoint was saved with save_weights_only. */
bool uns_lightning_has_optimizer(const struct uns_catalog *cat);

/* meta.pt as the front of another file (uns_torch_input): its pickle without STOP. Its storages become the first of
 * that file, which must have none yet. Call it after uns_lightning_check returned 0. */
int uns_lightning_front(const struct uns_catalog *cat, struct uns_span *pickle, struct uns_torch_leaves *leaves,
			struct uns_err *err);

/* The value of this key in meta.pt, or NULL. */
const struct uns_value *uns_lightning_value(const struct uns_catalog *cat, const char *key);

/* Returns 0 if weights, meta.pt and, with `resume`, every optimizer are complete. Otherwise fails with the reason. */
int uns_lightning_check(const struct uns_catalog *cat, bool resume, struct uns_err *why);

/* As out->whole. If the checkpoint is SOURCE itself, which must be a directory, as the file "checkpoint.ckpt" in it. */
int uns_lightning_add(const struct uns_lightning_input *in, struct uns_vtree *out, struct uns_err *err);

#endif

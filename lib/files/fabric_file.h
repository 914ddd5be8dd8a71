/* What Lightning Fabric saves beside meta.pt, as `fabric consolidate` writes it: each key of the script's own with the
 * state dict of its model or optimizer. Source: lightning 2.6 fabric/strategies/{fsdp,model_parallel}.py,
 * fabric/utilities/load.py (_load_distributed_checkpoint). */
#ifndef UNS_FILES_FABRIC_FILE_H
#define UNS_FILES_FABRIC_FILE_H

#include "files/torch_file.h"

/* The root of an optimizer, from number 0 on in the catalog's order; NULL = there are fewer. */
const char *uns_fabric_optimizer(const struct uns_catalog *cat, size_t number);

/* Returns 0 if every model is complete, whatever its key, and, with `resume`, every optimizer. Otherwise fails with the
 * reason. */
int uns_fabric_check(const struct uns_catalog *cat, bool resume, struct uns_err *why);

/* Adds the models' keys to `root`, and tensors behind those that `leaves` has. Floating-point tensors are converted to
 * `out`; UNS_DTYPE_NONE = as stored. `root` has room for uns_fabric_count_keys keys. */
int uns_fabric_add_models(const struct uns_catalog *cat, enum uns_dtype out, struct uns_arena *arena,
			  struct uns_value *root, struct uns_torch_leaves *leaves, struct uns_err *err);
/* The same of optimizers; global_step as for uns_optimizer_state_build. */
int uns_fabric_add_optimizers(const struct uns_catalog *cat, int64_t global_step, struct uns_arena *arena,
			      struct uns_value *root, struct uns_torch_leaves *leaves, struct uns_err *err);
size_t uns_fabric_count_keys(const struct uns_catalog *cat);

#endif

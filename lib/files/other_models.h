/* Accelerate's save_state with several models: the first is the checkpoint's model, and model k > 0 has tensors of role
 * OTHER under the root "model_<k>"; its optimizer is "optimizer_<k>". */
#ifndef UNS_FILES_OTHER_MODELS_H
#define UNS_FILES_OTHER_MODELS_H

#include "model/tree.h"

/* The highest k; 0 = there is one model. O(tensors), as all of these. */
unsigned uns_other_models(const struct uns_catalog *cat);
bool uns_is_of_other_model(const struct uns_catalog *cat, const struct uns_tensor *t, unsigned k);
/* The root of model k's optimizer, k = 0 for the first; NULL = the state has none. */
const char *uns_optimizer_root_of(const struct uns_catalog *cat, unsigned k);

/* Returns 0 if all tensors of all further models are covered. Otherwise fails as uns_cover_check. */
int uns_other_models_check(const struct uns_catalog *cat, struct uns_err *why);

/* model_<k>/model.safetensors (+ index) of each further model, floating dtypes converted to `dtype` (UNS_DTYPE_NONE:
 * none). A damaged model gets a note instead. Call it before the first model's files are added: the tree lists the
 * tensors of the last set. */
int uns_other_models_add(const struct uns_catalog *cat, enum uns_dtype dtype, uint64_t max_shard_size_bytes,
			 struct uns_vtree *out, struct uns_err *err);

#endif

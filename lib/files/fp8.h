/* A model's linear layers as 8-bit numbers with scales (model/scaled_tensor.h), as DeepSeek-V3 and transformers'
 * FineGrainedFP8Config have them: NAME.weight is F8_E4M3, NAME.weight_scale_inv F32, and config.json has a
 * quantization_config that lists the modules which stay as they are. Pure. */
#ifndef UNS_FILES_FP8_H
#define UNS_FILES_FP8_H

#include "base/text.h"
#include "model/tree.h"

/* Can a model with this config.json be shown so? -ENOTSUP with the reason: there is none, or it is quantised. */
int uns_fp8_check(struct uns_span config, struct uns_err *why);

struct uns_fp8 {
	struct uns_text kept; /* JSON: the modules of tensors that stay as they are, in a list without its brackets */
	size_t n_scaled;
};
void uns_fp8_fini(struct uns_fp8 *fp8);

/* Replaces those tensors of *v, n of them under their published names, that are weights of a decoder layer's linear
 * projections, and adds the scales behind each. *v is malloc'd before and after; what is made lives in the arena.
 * Tensors of the catalog that are left out of *v because they are tied stay as they are too. -ENOTSUP if there are
 * none. */
int uns_fp8_apply(const struct uns_catalog *cat, const struct uns_tensor *const *tied, size_t n_tied,
		  struct uns_named_tensor **v, size_t *n, struct uns_arena *arena, struct uns_fp8 *out,
		  struct uns_err *err);

/* Adds config.json with its quantization_config. */
int uns_fp8_add_config(const struct uns_fp8 *fp8, struct uns_span config, struct uns_vtree *out, struct uns_err *err);

#endif

/* The names under which save_pretrained writes a model whose experts DeepSpeed's AutoEP shared out. AutoEP replaces a
 * layer of experts, MODULE, by one of its own (parallel/autoep.h); transformers knows its parts by other names:
 *
 *   MODULE.experts.w1, w3, w2     halves of experts.gate_up_proj, and experts.down_proj: published one by one
 *   MODULE.router.gate            MODULE.gate, under which the router has a second name in AutoEP's layer
 *   MODULE.shared_experts(_gate)  by family
 *
 * Source: deepspeed 0.19.8, module_inject/auto_ep_presets and auto_ep_layer.py. Pure. */
#ifndef UNS_NAMES_AUTOEP_NAMES_H
#define UNS_NAMES_AUTOEP_NAMES_H

#include "names/config.h"
#include "model/tree.h"

/* Are the names known? NULL-safe. */
bool uns_autoep_knows(const char *model_type);

/* Replaces *v (n tensors under AutoEP's names) by the published experts and by what else transformers has in memory:
 * uns_published_apply does the rest. `out` gets a note of that. If the family is not known, *v stays, and the note
 * reports that. *v is malloc'd before and after; names and slices live in out->arena. */
int uns_autoep_apply(const struct uns_config_info *config, struct uns_named_tensor **v, size_t *n,
		     struct uns_vtree *out, struct uns_err *err);

#endif

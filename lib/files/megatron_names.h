/* The names and shapes under which Hugging Face publishes what a Megatron-Core checkpoint holds: layers and experts
 * stacked, queries, keys and values in one tensor, gate and up in one, a vocabulary with padding. Pure. */
#ifndef UNS_FILES_MEGATRON_NAMES_H
#define UNS_FILES_MEGATRON_NAMES_H

#include "files/config.h"
#include "model/tree.h"

/* Is there a table for the family? NULL-safe. */
bool uns_megatron_knows(const char *model_type);

/* Replaces *v (n tensors under Megatron's names) by what is published, in the order of the model's state dict, and
 * says in a note of `out` by which table. Each tensor of the published model has to come out of *v, each of *v has
 * to be used, and each stored shape has to be what `config` (config.json's text, `info` what was parsed of it)
 * makes of it: -EBADMSG names the tensor that is not so. A family without a table: *v stays, and a note says so.
 * *v is malloc'd before and after; names and slices live in out->arena. */
int uns_megatron_apply(const struct uns_config_info *info, struct uns_span config,
		       struct uns_named_tensor **v, size_t *n, struct uns_vtree *out, struct uns_err *err);

#endif

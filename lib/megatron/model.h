/* A Megatron-Core checkpoint as the model and the optimizer that Hugging Face's frameworks resume: each tensor of model
 * and optimizer cut by the rules of megatron/names.h, under the names that the model has in memory, and param groups
 * that list these names. Pure. */
#ifndef UNS_MEGATRON_MODEL_H
#define UNS_MEGATRON_MODEL_H

#include "names/config.h"
#include "model/tree.h"

/* Has the checkpoint an optimizer whose param groups are known, so that only uns_megatron_model is missing? */
bool uns_megatron_has_optimizer(const struct uns_catalog *cat);

/* For `supports`, which knows no config.json: 0 if all tensors of model and optimizer are there, and what was saved of
 * the optimizer can be resumed from. */
int uns_megatron_check(const struct uns_catalog *cat, struct uns_err *why);

/* *out: the catalog as it would be of such a framework's checkpoint. Its tensors are slices of those of `cat`; it lives
 * in the tree's arena, and shares with `cat` what is in no tensor or group. Notes of `tree` report what was derived. A
 * checkpoint without an optimizer of which the config is not known stays as it is: *out is `cat`. Fails with a finding
 * if the config does not fit or anything is not known that resuming needs. */
int uns_megatron_model(const struct uns_config_info *info, struct uns_span config, const struct uns_catalog *cat,
		       struct uns_vtree *tree, const struct uns_catalog **out, struct uns_err *err);

/* Of a catalog that uns_megatron_model made: the second name of tied embeddings, or NULL. */
const struct uns_tensor *uns_megatron_tied(const struct uns_catalog *model);

#endif

/* The optimizer of a checkpoint that was saved without sharding, with names in place of its numbers. torch numbers an
 * optimizer's parameters in the order in which the model has them, one group after the other; a Trainer has two groups,
 * with and without weight decay (names/parameter_order.h). FSDP and DeepSpeed load optimizers by name. Pure. */
#ifndef UNS_FILES_NAMED_OPTIMIZER_H
#define UNS_FILES_NAMED_OPTIMIZER_H

#include "names/config.h"
#include "model/tree.h"

/* Is it a checkpoint without sharding whose optimizer has numbers? */
bool uns_numbered_has_optimizer(const struct uns_catalog *cat);

/* For `supports`, which knows no config.json: 0 if all that a view with names needs is there but the names. */
int uns_numbered_check(const struct uns_catalog *cat, struct uns_err *why);

/* For `supports_input`: 0 if the names follow, or the optimizer has them. */
int uns_numbered_check_names(const struct uns_config_info *info, struct uns_span config, const struct uns_catalog *cat,
			     struct uns_err *why);

/* *out: the catalog as it would be if the optimizer had been saved by name: weights have their names in memory, tied
 * ones both. It lives in the tree's arena and shares everything else with `cat`. A note of `tree` records that names
 * were derived. Any other checkpoint stays as it is: *out is `cat`. Fails with a finding where the names do not follow.
 */
int uns_numbered_name(const struct uns_config_info *info, struct uns_span config, const struct uns_catalog *cat,
		      struct uns_vtree *tree, const struct uns_catalog **out, struct uns_err *err);

#endif

/* Modules that wrap others leave their attribute in every name below them: torch.compile `_orig_mod.`, activation
 * checkpointing `_checkpoint_wrapped_module.`, FSDP1 `_fsdp_wrapped_module.`, DistributedDataParallel `module.`.
 * torch takes them out of the names that it makes itself (torch/distributed/checkpoint/state_dict.py, _get_fqns;
 * torch/nn/modules/utils.py, consume_prefix_in_state_dict_if_present); model.state_dict() keeps them. */
#ifndef UNS_MODEL_WRAPPERS_H
#define UNS_MODEL_WRAPPERS_H

#include "model/catalog.h"

/* Take them out of the names of tensors, groups' parameters and values: the first three anywhere, `module.` in front
 * where every weight has it. A note reports it, and names that changed count as inferred; keys stay. Nothing where two
 * tensors would then have one name. Before the catalog is sealed. */
int uns_wrappers_clean(struct uns_catalog *cat, struct uns_err *err);

#endif

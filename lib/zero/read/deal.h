/* round_robin_gradients: an optimizer's shards hold a group's parameters dealt out to the ranks, in the order 0 W 2W ..
 * 1 W+1 .., which is also the order of param_shapes. The optimizer numbers them in the order before the deal.
 * Source: deepspeed 0.19, runtime/zero/stage_1_and_2.py (_round_robin_reorder), engine.py
 * (_get_zero_param_shapes). */
#ifndef UNS_ZERO_READ_DEAL_H
#define UNS_ZERO_READ_DEAL_H

#include "zero/read/model.h"
#include "zero/read/world.h"

/* Put the catalog's groups, and the positions of their tensors, into the optimizer's own order. Nothing
 * where the setting is off or had no effect: older versions dropped it at stage 1, which the names in
 * param_slice_mappings show. config: the model file's "ds_config", may be NULL. */
int uns_zero_undeal(struct uns_zero_world *w, const struct uns_value *config, struct uns_err *err);

/* ds_to_universal gives the parameters of such a run the values of others, without a warning. This compares the first
 * elements of each fp32 copy with those of the weight in the model file, both of which must have been added. If one is
 * not the weight's copy, that is a problem of the optimizer. */
int uns_zero_deal_check(struct uns_zero_world *w, const struct uns_zero_file *model, const struct uns_zero_names *names,
			const struct uns_value *config, struct uns_err *err);

#endif

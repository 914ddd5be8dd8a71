/* What else DeepSpeed's files hold: not tensors of the model or its optimizer, but needed to write such
 * files again. Values of the catalog:
 *
 *   root "model_states"   the engine's own keys of the model file: lr_scheduler, global_steps, ds_config
 *   root "client_state"   what the training script added to it, and its tensors: model/client_state.h
 *   root "optim_states"   keys of optimizer_state_dict that are not tensors, and ds_config, ds_version */
#ifndef UNS_ZERO_VALUES_H
#define UNS_ZERO_VALUES_H

#include "zero/file.h"

/* The roots of the catalog's values that have what each pipeline stage records of its own, by the stage's number. */
#define UNS_ZERO_STAGE_SHAPES   "param_shapes of stages"
#define UNS_ZERO_STAGE_PADDINGS "param_alignment_paddings of stages"

/* The keys of a model file that are about the engine's own form; NULL ends them. */
extern const char *const uns_engine_keys[];

int uns_zero_values_add_model(struct uns_catalog *cat, const struct uns_zero_file *file, struct uns_err *err);
/* dict: optimizer_state_dict, in the catalog's arena. */
int uns_zero_values_add_optim(struct uns_catalog *cat, uint32_t file, const struct uns_value *dict,
			      struct uns_err *err);

#endif

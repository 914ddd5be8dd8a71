/* Weights of deepspeed.moe's experts: each expert of each layer of experts is a file of its own, in which it has the
 * names that it has in the whole model, {"LAYER.deepspeed_moe.experts.deepspeed_experts.5.up.weight": tensor, ..}. */
#ifndef UNS_ZERO_READ_EXPERT_FILES_H
#define UNS_ZERO_READ_EXPERT_FILES_H

#include "zero/read/dir.h"
#include "zero/read/model.h"

/* Add them; `model` is the model file's, whose "num_experts" is how many there must be. After the optimizer: what is
 * in names->masters is compared. A file that is missing, or does not fit, is a problem with scope WEIGHTS. */
int uns_zero_expert_files_add(struct uns_catalog *cat, const struct uns_zero_dir *dir,
			      const struct uns_zero_model *model, struct uns_zero_names *names, struct uns_err *err);

#endif

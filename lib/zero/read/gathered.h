/* Stage 3 leaves a model's weights in no file, unless they were gathered for the save
 * (stage3_gather_16bit_weights_on_model_save) and are beside the shards as safetensors. */
#ifndef UNS_ZERO_READ_GATHERED_H
#define UNS_ZERO_READ_GATHERED_H

#include "zero/read/model.h"

/* When model.safetensors, or the files of a split model, in directory `path` hold every parameter of
 * the model under its name and with its shape: add their tensors as weights. Otherwise nothing, with a
 * note when there are such files. (Older trainers wrote empty tensors.) */
int uns_zero_gathered_add(struct uns_catalog *cat, const struct uns_root *root, const char *path,
			  const struct uns_listing *list, const struct uns_zero_model *model,
			  struct uns_zero_names *names, struct uns_err *err);

#endif

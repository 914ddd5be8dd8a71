/* What the files of a model in some directory call its tensors. */
#ifndef UNS_FACTS_BASE_NAMES_H
#define UNS_FACTS_BASE_NAMES_H

#include "files/published_names.h"
#include "io/source.h"

/* Reads the names from model.safetensors.index.json, else from the header of model.safetensors, and the shapes of tensors
 * that this family's files may have transposed from the headers of their files. `list` is the listing of `dir`. If
 * `dir` has no file with names, out->n is 0. `model_type` may be NULL. */
int base_names_read(const struct uns_root *root, const char *dir, const struct uns_listing *list, const char *model_type,
		    struct uns_arena *arena, struct uns_base_names *out, struct uns_err *err);

#endif

/* What the files of a model in some directory call its tensors. */
#ifndef UNS_NAMES_BASE_NAMES_H
#define UNS_NAMES_BASE_NAMES_H

#include "names/published_names.h"
#include "io/seen.h"

/* Reads the names from model.safetensors.index.json, else from the header of model.safetensors, and the shapes of
 * tensors that this family's files may have transposed from the headers of their files. `capture` may be NULL. If `dir`
 * has no file with names, out->n is 0. `model_type` may be NULL. */
int base_names_read(const struct uns_root *root, struct uns_capture *capture, const char *dir, const char *model_type,
		    struct uns_arena *arena, struct uns_base_names *out, struct uns_err *err);

#endif

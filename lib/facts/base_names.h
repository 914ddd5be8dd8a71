/* What the files of a model in some directory call its tensors. */
#ifndef UNS_FACTS_BASE_NAMES_H
#define UNS_FACTS_BASE_NAMES_H

#include "files/published_names.h"
#include "io/source.h"

/* Reads the names from model.safetensors.index.json, else from the header of model.safetensors. `list` is
 * the listing of `dir`. If `dir` has neither file, out->n is 0. */
int base_names_read(const struct uns_root *root, const char *dir, const struct uns_listing *list,
		    struct uns_arena *arena, struct uns_base_names *out, struct uns_err *err);

#endif

/* What the files of a model in some directory call its tensors. */
#ifndef UNS_FACTS_BASE_NAMES_H
#define UNS_FACTS_BASE_NAMES_H

#include "files/published_names.h"
#include "io/source.h"

/* From model.safetensors.index.json, else from the header of model.safetensors; out->n is 0 where the directory
 * (whose listing `list` is) has neither. */
int base_names_read(const struct uns_root *root, const char *dir, const struct uns_listing *list,
		    struct uns_arena *arena, struct uns_base_names *out, struct uns_err *err);

#endif

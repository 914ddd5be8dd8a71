/* Views that convert weights: "weights-bf16". */
#ifndef UNS_FILES_VIEW_DTYPE_H
#define UNS_FILES_VIEW_DTYPE_H

#include "model/tree.h"

/* For a view's `parse`: the parameter as the dtype of its tensors, UNS_DTYPE_NONE = as stored. */
bool uns_view_dtype_parse(const char *parameter, uint64_t *out);

/* Adds the file config.json, whose bytes are `config`, with `dtype` as the dtype that it names. UNS_DTYPE_NONE = as it
 * is. */
int uns_view_dtype_add_config(const struct uns_catalog *cat, const struct uns_companion *file, struct uns_span config,
			      enum uns_dtype dtype, struct uns_vtree *out, struct uns_err *err);

#endif

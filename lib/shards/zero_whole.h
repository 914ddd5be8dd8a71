/* Stage 0: the optimizer is not cut, and lies in the model file, its parameters by number. */
#ifndef UNS_SHARDS_ZERO_WHOLE_H
#define UNS_SHARDS_ZERO_WHOLE_H

#include "shards/zero_model.h"

/* dict: the model file's "optimizer". The weights must have been added. Numbers are not names: a
 * parameter is named when its shape, and its fp32 copy where there is one, fit one weight only.
 * Otherwise a problem with scope OPTIMIZER. */
int uns_zero_whole_add(struct uns_catalog *cat, const struct uns_zero_model *model,
		       const struct uns_zero_file *file, const struct uns_value *dict,
		       struct uns_zero_names *names, struct uns_err *err);

#endif

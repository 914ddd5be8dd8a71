/* The order of a model's parameters, of a family that is known. torch's optimizers number parameters in that order, and
 * no file of a checkpoint records it: safetensors sorts its tensors by name. Pure. */
#ifndef UNS_NAMES_PARAMETER_ORDER_H
#define UNS_NAMES_PARAMETER_ORDER_H

#include "base/error.h"
#include "names/parameter_table.h"

/* NULL if the family is not known. NULL-safe. */
const struct uns_parameter_family *uns_parameter_family_find(const char *model_type);

struct uns_ordered_parameter {
	const char *name;
	const struct uns_parameter_row *row;
};

/* The row of a name in memory; NULL = the family has no such parameter or buffer. */
const struct uns_parameter_row *uns_parameter_row_find(const struct uns_parameter_family *family, const char *name);

/* Sorts parameters of one family, whose rows are set, by the model's order. */
void uns_parameters_sort(struct uns_ordered_parameter *v, size_t n);

#endif

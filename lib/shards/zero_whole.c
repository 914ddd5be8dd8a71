#include "shards/zero_whole.h"

int uns_zero_whole_add(struct uns_catalog *cat, const struct uns_zero_model *model,
		       const struct uns_zero_file *file, const struct uns_value *dict,
		       struct uns_zero_names *names, struct uns_err *err)
{
	(void)model, (void)dict, (void)names, (void)err;
	return uns_catalog_add_problem(cat, UNS_SCOPE_OPTIMIZER, -ENOTSUP,
				       "%s: an optimizer without ZeRO numbers its parameters, and "
				       "nothing records their names",
				       file->open.name);
}

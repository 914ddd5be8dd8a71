/* lr, betas and eps are hyper-parameters of the param group; the step is a state of the parameter, or in the group. */
#include "measure/adam_rule.h"

#include <math.h>

/* The step is one element of any dtype that counts. */
static bool step_of(const unshard_tensors *list, const char *name, const struct uns_value *hyper, double *out)
{
	uint8_t element[8];
	const struct unshard_tensor *t;
	size_t i;

	if (unshard_tensors_find(list, name, "step", &i, NULL) < 0)
		return uns_value_float(uns_value_get(hyper, "step"), out);
	t = unshard_tensors_at(list, i);
	return t->size_bytes == unshard_dtype_size(t->dtype) && uns_dtype_counts((enum uns_dtype)t->dtype) &&
	       unshard_tensor_read(list, i, NULL, NULL, UNSHARD_AS_STORED, element, t->size_bytes, NULL) >= 0 &&
	       uns_dtype_number((enum uns_dtype)t->dtype, element, out);
}

bool adam_rule_of(const unshard_tensors *list, size_t m, struct adam *rule, double *lr)
{
	const struct uns_catalog *cat = tensors_catalog(list);
	const struct uns_tensor *t = tensor_in_catalog(list, m);
	const struct uns_value *hyper, *betas, *amsgrad;
	double beta1, beta2, step;
	int64_t other_rule = 0;

	if (t->group < 0 || (size_t)t->group >= cat->n_groups)
		return false;
	hyper = cat->groups[t->group].hyper;
	betas = uns_value_get(hyper, "betas");
	amsgrad = uns_value_get(hyper, "amsgrad");
	if (amsgrad && uns_value_int(amsgrad, &other_rule) && other_rule)
		return false;
	if (!uns_value_float(uns_value_get(hyper, "lr"), lr) ||
	    !uns_value_float(uns_value_get(hyper, "eps"), &rule->eps) || !betas || betas->n != 2 ||
	    (betas->kind != UNS_VALUE_LIST && betas->kind != UNS_VALUE_TUPLE) ||
	    !uns_value_float(betas->item[0], &beta1) || !uns_value_float(betas->item[1], &beta2))
		return false;
	if (!step_of(list, t->name, hyper, &step) || !(step >= 1))
		return false;
	rule->rate = *lr / (1 - pow(beta1, step));
	rule->root = sqrt(1 - pow(beta2, step));
	return isfinite(rule->rate) && rule->root > 0;
}

/* The trained parameters of a catalog, each with its fp32 copy and Adam's states: what DeepSpeed's universal checkpoint
 * consists of. */
#ifndef UNS_FILES_ADAM_PARAMS_H
#define UNS_FILES_ADAM_PARAMS_H

#include "model/catalog.h"

struct uns_adam_param {
	const char *name;
	/* The optimizer's fp32 copy; if it keeps none, the weight, which a view converts to fp32. */
	const struct uns_tensor *fp32;
	const struct uns_tensor *exp_avg, *exp_avg_sq;
	const struct uns_tensor *step; /* NULL = not saved with the parameter */
	size_t group; /* among the optimizer's own groups */
};

struct uns_adam_params {
	const char *root; /* the optimizer's */
	struct uns_adam_param *v; /* in the order of the groups */
	size_t n;
	const struct uns_group **group; /* groups that have parameters */
	size_t n_groups;
	size_t n_widened; /* weights used in place of an fp32 copy, although their dtype has fewer bits */
	/* Parameters that a group lists and that have no state: frozen, or never used. Not in v. */
	size_t n_stateless;
	const char *stateless; /* the first one's name */
};

/* Everything lives in the arena. -ENOTSUP if the optimizer is not like Adam, or its parameters have no names; -ENODATA
 * or -EBADMSG if a state is missing or damaged. */
int uns_adam_params_find(const struct uns_catalog *cat, struct uns_arena *arena, struct uns_adam_params *out,
			 struct uns_err *err);

/* Returns 0 if every fp32 copy and every state is covered by pieces, otherwise fails with the reason. */
int uns_adam_params_cover(const struct uns_catalog *cat, const struct uns_adam_params *params, struct uns_err *err);

#endif

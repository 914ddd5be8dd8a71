/* The names and shapes under which save_pretrained writes the tensors of a model. In memory, experts are stacked in one
 * tensor, gate and up are one tensor, vision and text models have another prefix. Pure. */
#ifndef UNS_NAMES_PUBLISHED_NAMES_H
#define UNS_NAMES_PUBLISHED_NAMES_H

#include "names/config.h"
#include "names/published_table.h"
#include "names/template.h"

/* The names of the tensors in the base model's files. */
struct uns_base_names {
	const char **name;
	size_t n; /* 0 = no base model was found */
	/* Of each name: NULL if it may not be transposed, or if the file that has it is not there. */
	const struct uns_shape **shape;
	const char *where; /* for sentences */
};

/* May the family's names in memory differ from the published ones? NULL-safe. */
bool uns_published_knows(const char *model_type);

/* Ends of the names of tensors that files of this family may have with rows and columns in the other order; NULL =
 * there are none. NULL-safe. */
const char *const *uns_published_transposed(const char *model_type);
/* Has the name one of these ends? `transposed` may be NULL. */
bool uns_published_may_be_transposed(const char *const *transposed, const char *name);

/* The family's rules. The tail may be that of the text model inside. */
struct uns_naming {
	const struct uns_name_rule *head, *new_head, *tail;
};
/* Returns false if the family has no rules. */
bool uns_published_rules(const struct uns_config_info *config, struct uns_naming *out);
/* Does the name begin with this side of a head's rule, or is the name this side, if it is a whole name? */
bool uns_head_fits(const char *head, const char *name);
/* Adds what a tail's rule makes of t to the list: one tensor, or one for each expert. `name`: the name that t has so
 * far, which ends in rule->from. Returns 1, or 0 if the rule needs another shape. */
int uns_tail_apply(const struct uns_name_rule *rule, const char *name, const struct uns_named_tensor *t,
		   struct uns_name_list *out, struct uns_err *err);

/* Replaces *v (n tensors in the catalog's order, under their names in memory) by the published tensors, in
 * save_pretrained's order: by the candidate whose names the base model has, else by the family's row of the table. A
 * note of `out` names it. If neither is known, or a tensor does not have the shape that a rule needs, *v stays and a
 * note gives the reason. `base` may be NULL. *v is malloc'd before and after; names and slices live in out->arena. */
int uns_published_apply(const struct uns_config_info *config, const struct uns_base_names *base,
			struct uns_named_tensor **v, size_t *n, struct uns_vtree *out, struct uns_err *err);

#endif

/* The names and shapes under which save_pretrained writes what a model holds in memory: experts that lie stacked
 * in one tensor, gate and up in one, towers under another prefix. Pure. */
#ifndef UNS_FILES_PUBLISHED_NAMES_H
#define UNS_FILES_PUBLISHED_NAMES_H

#include "files/config.h"
#include "files/published_table.h"
#include "model/tree.h"

/* What the base model's files call its tensors. */
struct uns_base_names {
	const char **name;
	size_t n;          /* 0 = there is no base model that says */
	const char *where; /* for sentences */
};

/* Is it a family whose names in memory may not be those that are published? NULL-safe. */
bool uns_published_knows(const char *model_type);

/* The family's rules; the tail's may be those of the text model inside. */
struct uns_naming {
	const struct uns_name_rule *head, *new_head, *tail;
};
/* false = it is not such a family. */
bool uns_published_rules(const struct uns_config_info *config, struct uns_naming *out);
/* Does the name begin with this side of a head's rule, or is it that where the side is a whole name? */
bool uns_head_fits(const char *head, const char *name);

/* Replaces *v (n tensors in the catalog's order, under their names in memory) by what is published, in
 * save_pretrained's order: the candidate that the base's names are, else the family's row of the table. Says in
 * notes of `out` which; where nothing is known, or the tensors do not have the shapes that the rules need, *v
 * stays and a note says why. `base` may be NULL. *v is malloc'd before and after; names and slices live in out->arena. */
int uns_published_apply(const struct uns_config_info *config, const struct uns_base_names *base,
			struct uns_named_tensor **v, size_t *n, struct uns_vtree *out,
			struct uns_err *err);

#endif

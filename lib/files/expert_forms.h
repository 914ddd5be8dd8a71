/* The weights of experts in the form that -o experts= asks for: fused, in one tensor for each layer, or split, in one
 * for each expert. */
#ifndef UNS_FILES_EXPERT_FORMS_H
#define UNS_FILES_EXPERT_FORMS_H

#include "model/tree.h"
#include "names/config.h"

enum uns_expert_form {
	UNS_EXPERTS_PUBLISHED, /* as save_pretrained writes them: nothing is changed */
	UNS_EXPERTS_SPLIT,
	UNS_EXPERTS_FUSED,
};

/* Would uns_expert_forms_apply change any tensor that has one of these names, or refuse it? */
bool uns_expert_forms_changes(const struct uns_config_info *config, enum uns_expert_form form, const char *name);

/* Gives *v (n tensors of `cat` under their published names or those in memory) experts in this form. If the model has
 * any, the tensors are sorted by name then, so that equal tensors are in equal files, whatever form they were saved in.
 * Nothing is copied: names, slices and joined tensors live in out->arena, and a note reports it. *v is malloc'd before
 * and after. Fails with the finding EXPERTS_NOT_CONVERTED if the family's names are not known, or if a layer's tensors
 * are not those of all its experts, in shapes that fit each other. */
int uns_expert_forms_apply(const struct uns_catalog *cat, const struct uns_config_info *config,
			   enum uns_expert_form form, struct uns_named_tensor **v, size_t *n, struct uns_vtree *out,
			   struct uns_err *err);

/* For a view that shows an adapter's tensors in the form that they have: the same finding, with the name of one, if
 * they are of experts and a form is asked for. */
int uns_expert_forms_adapter(const struct uns_catalog *cat, enum uns_expert_form form, struct uns_err *err);

#endif

/* Names of tensors by templates with numbers, and lists of tensors on their way from one naming to another. Owns what a
 * template matches, and the proof that no two tensors get one name. A name consists of components with dots between
 * them; in a template '*' is the number of a layer and '#' for that of an expert, each a whole component. Pure.
 */
#ifndef UNS_NAMES_TEMPLATE_H
#define UNS_NAMES_TEMPLATE_H

#include "model/tree.h"

enum {
	UNS_TEMPLATE_NAME = 256, /* longer than any template of a table with its numbers */
	UNS_MAX_EXPERTS = 4096, /* no model has more: a shape with more would only fill memory with names */
};

/* Writes `before`, then the template with the numbers; a number below 0 is left out together with its dot. Returns
 * `out`. */
const char *uns_template_fill(char out[UNS_TEMPLATE_NAME], const char *before, const char *template, int64_t layer,
			      int64_t expert);

/* Does the name end in these components? */
bool uns_name_ends(const char *name, const char *components);

/* The same where '#' may be one of the components: any number of an expert, which goes to *expert (0 without '#').
 * *kept: the length of the name in front of them. */
bool uns_template_ends(const char *name, const char *template, size_t *kept, uint64_t *expert);

/* -- -o strip=: removes a prefix from tensor names ("model." of a LightningModule's model) -- */

/* The prefix to remove from these names: `strip`, or "" if `strip` is NULL or two names would become equal (then
 * `out` gets a note). Borrowed. */
int uns_strip_choose(const char *strip, const char *const *names, size_t n, struct uns_vtree *out, const char **prefix,
		     struct uns_err *err);

/* The name without the prefix; the whole name if nothing else would remain. Borrowed. */
const char *uns_strip_name(const char *prefix, const char *name);

/* -- tensors under their new names -- */

struct uns_name_list {
	struct uns_arena *arena; /* of names and slices */
	struct uns_named_tensor *v;
	size_t n, cap;
};
void uns_name_list_fini(struct uns_name_list *list);

/* t->name NULL = out of memory. */
int uns_name_list_add(struct uns_name_list *list, const struct uns_named_tensor *t, struct uns_err *err);

/* *twice: a name that two tensors of the list have; NULL = there is none. */
int uns_name_list_check(const struct uns_name_list *list, const char **twice, struct uns_err *err);

/* Replaces *v, which is malloc'd, by the tensors of the list, which becomes empty. */
void uns_name_list_take(struct uns_name_list *list, struct uns_named_tensor **v, size_t *n);

#endif

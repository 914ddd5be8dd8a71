/* How many steps the optimizer made, as it keeps it with each parameter or param group. */
#ifndef UNS_FACTS_OPTIMIZER_STEPS_H
#define UNS_FACTS_OPTIMIZER_STEPS_H

#include "facts/collect.h"
#include "facts/steps_found.h"

/* One parameter's step, or a param group's. */
struct optimizer_step {
	const char *name; /* the parameter's; NULL = a group's */
	const char *root; /* which optimizer, of several */
	uint32_t file;    /* of the catalog; UNS_NONE = not one, or not known */
	int64_t step;
};

struct optimizer_steps {
	struct optimizer_step *v; /* in c->scratch */
	size_t n, cap;
	struct optimizer_step most; /* the highest; .step = UNS_UNKNOWN: none was found */
};

/* All that are recorded. -ENOMEM; what cannot be read is passed over, see collect_is_read. */
int optimizer_steps_read(struct collect *c, struct optimizer_steps *out, struct uns_err *err);

/* The number that was saved as a tensor under this key; UNS_UNKNOWN = there is none. */
int64_t saved_number(struct collect *c, const char *key);

/* Adds a finding if the steps of parameters differ, and which file holds a step decides which one it is: a problem
 * where that is certain, else a note. */
int optimizer_steps_compare(struct collect *c, const struct optimizer_steps *steps, struct steps_found *out,
			    struct uns_err *err);

/* The file of another checkpoint of the run that has, byte for byte, what this checkpoint's file of that name has,
 * which is the first that holds states of the optimizer. *out in c->scratch; NULL = there is none. Reads a MiB of each
 * such file, and more of those that begin alike. */
int optimizer_twin_find(struct collect *c, const char **out, struct uns_err *err);

#endif

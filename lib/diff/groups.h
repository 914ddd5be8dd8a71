/* Layers and experts, by the names of tensors; and what was added up for each. Private to lib/diff. */
#ifndef UNS_DIFF_GROUPS_H
#define UNS_DIFF_GROUPS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "diff/figures.h"
#include "unshard.h"

struct diff_group {
	enum unshard_group group;
	const char *name;
	size_t n_tensors, n_different;
	struct diff_tally tally;
};

struct diff_groups {
	struct uns_arena arena;
	struct uns_map layer, expert; /* by name: struct diff_group, in the order of their first tensors */
	struct diff_group all;
};

/* Adds a tensor of the model to all, to its layer and to its expert. */
int diff_groups_add(struct diff_groups *g, const char *name, const struct diff_tally *t, bool different,
		    struct uns_err *err);
/* Adds the part that is expert number `expert` to that expert alone. */
int diff_groups_add_part(struct diff_groups *g, const char *name, uint64_t expert, const struct diff_tally *t,
			 bool different, struct uns_err *err);
void diff_groups_fini(struct diff_groups *g);

#endif

/* Which keys of a DCP directory hold what: a format says it, names.c goes by it. */
#ifndef UNS_DCP_ROOTS_H
#define UNS_DCP_ROOTS_H

#include <stddef.h>

/* How a format reads the root keys (path[0] of planner_data) of the directory. */
struct uns_dcp_roots {
	/* Tensors below this key are weights; NULL = find out: "model", then "state_dict" (at the
	 * top, or below one wrapping key as in ("app", "model", ..)), then every tensor outside
	 * optimizer-like keys ("optimizer*", "optim*", "lr_scheduler*", ...). A key of several path
	 * elements is written with dots: "app.model". */
	const char *const *weights; /* non-NULL with n_weights = 0: nothing here is a weight */
	size_t n_weights;
	/* Recorded as every tensor's and group's root instead of the source's own key; NULL = keep.
	 * For a second model or optimizer, which the source calls "model" or "optimizer" again. */
	const char *as_root;
};

#endif

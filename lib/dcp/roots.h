/* Which keys of a DCP directory hold what. A format fills this in; names.c uses it. */
#ifndef UNS_DCP_ROOTS_H
#define UNS_DCP_ROOTS_H

#include <stdbool.h>
#include <stddef.h>

struct uns_arena;
struct uns_catalog;
struct uns_dcp_metadata;
struct uns_err;

/* How names.c reads the root keys (path[0] of planner_data) of the directory. */
struct uns_dcp_roots {
	/* Tensors below one of these keys are weights. NULL = names.c finds the key: "model", then "state_dict", each
	 * at the top or below one wrapping key, as in ("app", "model", ..). If neither exists, every tensor is a weight
	 * that is not below a key like an optimizer's ("optimizer*", "optim*", "lr_scheduler*", ...). A key of several
	 * path elements is written with dots: "app.model". */
	const char *const *weights; /* non-NULL with n_weights = 0: the directory holds no weights */
	size_t n_weights;
	/* The root that the catalog records for all tensors and groups, in place of the one in the directory; NULL =
	 * that one. For a second model or optimizer, whose root in its directory is "model" or "optimizer" again. */
	const char *as_root;
	/* Each key at the top is one object's state dict (Lightning Fabric): it is the root of its tensors also if
	 * weights of several keys are shown together, and these have it in front of their names. */
	bool keys_are_objects;
	/* Called once with the content of .metadata, before tensors are made of it, for a framework that saves tensors
	 * in another shape than their own (megatron/space.h), or without their names (megatron/buckets.h). NULL =
	 * every tensor has its own. Chunks are put into `arena`, parts of items and findings into the catalog. */
	int (*restore)(struct uns_dcp_metadata *meta, struct uns_arena *arena, struct uns_catalog *cat,
		       struct uns_err *err);
};

#endif

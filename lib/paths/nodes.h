/* Nodes of unshard.h: keys of what was looked up, with the inode number it had. They hold no record and no
 * snapshot. */
#ifndef UNS_PATHS_NODES_H
#define UNS_PATHS_NODES_H

#include "paths/spots.h"

/* Of a spot that was checked; name: its path in the tree; st: its kind and inode number. NULL = out of memory. */
struct unshard_node *node_new(struct unshard *u, const struct spot_key *key, const char *name,
			      const struct unshard_stat *st);
struct unshard *node_session(const struct unshard_node *node);
/* What its path leads to now, looked at so closely. -ESTALE when that is not what the node is of: `moved_on` (may be
 * NULL) allows that, and receives whether it is so. */
int node_spot(const struct unshard_node *node, enum look look, struct spot *out, bool *moved_on, struct uns_err *err);

#endif

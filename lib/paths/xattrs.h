/* Extended attributes: what is known of one name of the tree, as texts. */
#ifndef UNS_PATHS_XATTRS_H
#define UNS_PATHS_XATTRS_H

#include "paths/spots.h"

/* The view's name as the tree spells it ("weights-bf16"); name: the path in the tree. In the arena; NULL = none. */
const char *xattr_view(struct unshard *u, const struct spot *spot, const char *name, struct uns_arena *arena);

#endif

/* Links that lead out of a root, which are not followed. */
#ifndef UNS_IO_UNFOLLOWED_H
#define UNS_IO_UNFOLLOWED_H

#include "io/source.h"

struct uns_unfollowed {
	const char *link;   /* below the root */
	const char *target; /* absolute; nothing was looked at there */
	const char *dir;    /* the directory that would have to be followed */
};

/* Is `rel`, or a directory on the way to it, a link that leads out of the root and of the directories that may be
 * followed? Returns 1 and fills *out, with texts in the arena, or 0; -ENOMEM. */
int uns_unfollowed_find(const struct uns_root *root, const char *rel, struct uns_arena *arena,
			struct uns_unfollowed *out, struct uns_err *err);
/* The same for the entries of directory `rel` whose names begin with one of these (the list with NULL; NULL = all). */
int uns_unfollowed_in(const struct uns_root *root, const char *rel, const struct uns_listing *list,
		      const char *const *prefixes, struct uns_arena *arena, struct uns_unfollowed *out,
		      struct uns_err *err);

#endif

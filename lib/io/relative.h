/* A path as seen from one directory: how many directories up, and what is below that one. It is the same whichever
 * directory above is SOURCE, and wherever that is. */
#ifndef UNS_IO_RELATIVE_H
#define UNS_IO_RELATIVE_H

#include "io/source.h"

struct uns_relative {
	uint32_t up;
	const char *below; /* "" = that directory itself */
};

/* `path` below `other`, which is `root` or one of the roots above it, seen from directory `dir` below `root`. below:
 * the end of `path`. -ENOTSUP: `other` is another root. */
int uns_relative_of(const struct uns_root *root, const char *dir, const struct uns_root *other, const char *path,
		    struct uns_relative *out);
/* The other way: a root, and a path below it in the arena. -ENOENT: that directory is above all roots. -EBADMSG: no
 * such path can have been given. */
int uns_relative_find(const struct uns_root *root, const char *dir, const struct uns_relative *at,
		      struct uns_arena *arena, const struct uns_root **out_root, const char **path);

#endif

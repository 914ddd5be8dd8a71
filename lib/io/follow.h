/* Opens a path component by component and resolves links itself: for kernels without openat2, and
 * for links that lead from the root into a `follow` directory, which openat2 refuses. Private to
 * lib/io. */
#ifndef UNS_IO_FOLLOW_H
#define UNS_IO_FOLLOW_H

#include <stddef.h>

#include "base/error.h"

/* A directory that a path may end in. */
struct uns_base {
	int fd;
	char *given; /* absolute, as the user named it: links spell it like this ... */
	char *real;  /* ... or like this, without links; no trailing slash, "" = the file system's root */
};

/* Open `rel` below base[0] with openat's `flags`. Every directory on the way lies below one of the
 * bases. Nothing outside is even looked at: it might be this very mount, which would then wait for
 * itself. O_NOFOLLOW in flags: a final link is opened, not followed. Returns a descriptor, or a
 * negative errno; -EXDEV names the link that leads outside. */
int uns_follow_open(const struct uns_base *base, size_t n_bases, const char *rel, int flags, struct uns_err *err);

#endif

/* Opening a path one component at a time, links expanded by hand: what io/source.c falls back on
 * where openat2 is missing, and how a link may lead from the root into a `follow` directory.
 * Private to lib/io. */
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
 * bases, so nothing outside is ever looked at (an outside directory may be our own mount: a look at
 * it would wait for ourselves). O_NOFOLLOW in flags keeps a final link from being expanded.
 * Returns a descriptor; -EXDEV names the link that leaves; errno of the failing call. */
int uns_follow_open(const struct uns_base *base, size_t n_bases, const char *rel, int flags,
		    struct uns_err *err);

#endif

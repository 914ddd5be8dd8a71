/* A directory that is made anew: written under another name beside its place, then renamed, so that it appears
 * whole or not at all. */
#ifndef UNS_OUT_TARGET_H
#define UNS_OUT_TARGET_H

#include <limits.h>

#include "base/error.h"

struct uns_target {
	char out[PATH_MAX];     /* absolute */
	char partial[PATH_MAX]; /* beside it: its name and a suffix */
	char parent[PATH_MAX];
};

/* out: as it was given. suffix: of the partial's name. source: absolute, is never written to.
 * -EEXIST: it is there and no empty directory; -EINVAL: it has no name of its own, or lies in the source. */
int uns_target_find(struct uns_target *t, const char *out, const char *suffix, const char *source,
		    struct uns_err *err);
/* The partial, whose content is on disk, takes its place. */
int uns_target_finish(const struct uns_target *t, struct uns_err *err);

#endif

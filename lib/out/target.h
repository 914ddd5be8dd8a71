/* A new directory: written under another name beside its place, then renamed, so that it appears
 * whole or not at all. */
#ifndef UNS_OUT_TARGET_H
#define UNS_OUT_TARGET_H

#include <limits.h>
#include <sys/types.h>

#include "base/error.h"

struct uns_target {
	char out[PATH_MAX];     /* absolute */
	char partial[PATH_MAX]; /* beside it: its name and a suffix */
	char parent[PATH_MAX];
};

/* out: as it was given. suffix: of the partial's name. `path` below `root` (absolute) is the source, which is never
 * written to. Fails with -EEXIST if OUT is there and no empty directory, with -EINVAL if it has no name of its own or
 * lies in the source. */
int uns_target_find(struct uns_target *t, const char *out, const char *suffix, const char *root, const char *path,
		    struct uns_err *err);
/* The partial, whose content is on disk, takes its place. mode: of the directory that it shows or copies. */
int uns_target_finish(const struct uns_target *t, mode_t mode, struct uns_err *err);

#endif

/* A walk over the checkpoints at and below a directory of SOURCE.
 *
 * What cannot be read is treated in one way. A directory that was removed meanwhile is passed over. The directory where
 * the walk begins must be readable, and a failure that is no fault of a directory (no memory, no descriptor left, an
 * interruption) ends the walk. Any other directory that cannot be read is visited as unreadable, and the walk
 * continues. */
#ifndef UNS_SESSION_WALK_H
#define UNS_SESSION_WALK_H

#include "api/caller.h"
#include "session/session.h"

/* A visitor that returns anything but 0 ends the walk, which then returns the same. NULL = nothing is visited. */
struct walk {
	struct unshard *u;
	void *ctx;
	struct caller *caller; /* asked at each directory whether to give up; NULL = it never gives up */
	int (*checkpoint)(void *ctx, struct dir_record *record, struct uns_err *err);
	/* A directory that is no checkpoint, before and after what is in it. `mark` is 0, or what `enter` made of it.
	 */
	int (*enter)(void *ctx, struct dir_record *record, const struct uns_listing *list, size_t *mark,
		     struct uns_err *err);
	int (*leave)(void *ctx, struct dir_record *record, size_t mark, struct uns_err *err);
	int (*unreadable)(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err);

	size_t n_dirs, n_checkpoints; /* found so far */
};

int walk_checkpoints(struct walk *w, const char *path, struct uns_err *err);

/* Fails with -ENOENT because the directory `path` is no checkpoint: how many are below it, or that there is none. */
int walk_no_checkpoint(struct unshard *u, const char *path, struct uns_err *err);
/* The same treatment for a directory that the walk did not read: passes over it, visits it as unreadable, or fails. */
int walk_past(const struct walk *w, const char *path, const struct uns_err *why, struct uns_err *err);

#endif

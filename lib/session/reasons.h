/* All that is known to be wrong with one checkpoint, as values. */
#ifndef UNS_SESSION_REASONS_H
#define UNS_SESSION_REASONS_H

#include "api/findings.h"
#include "io/unfollowed.h"
#include "session/session.h"

/* The catalog's own findings, then what only views found out; or why the checkpoint cannot be opened; or that it
 * is still being saved. */
struct reasons {
	struct uns_arena arena;
	struct reason *v;
	size_t n, cap;
	size_t n_serious; /* of these, and of views that are not shown for one of them */
	bool outside; /* something of it is outside SOURCE and was not read: the one finding reports it */
	bool saving; /* its save may still be running: that note is all there is */
	/* Something could not be read just now (code != 0), which is no fault of the files. */
	struct uns_err moment;
};

/* Fails only when memory is out. */
int reasons_find(struct unshard *u, struct dir_record *record, struct reasons *out, struct uns_err *err);
void reasons_fini(struct reasons *reasons);

/* One of them is about the file at `path` being missing, cut or another one, and concerns what `scope` names. */
bool reasons_tell_of_file(const struct reasons *reasons, const char *path, enum uns_scope scope);

/* That something of the checkpoint or directory at `path` is behind a link that is not followed, as a finding in the
 * arena. NULL = out of memory. */
const struct uns_finding *reason_of_link(const char *path, const struct uns_unfollowed *link, struct uns_arena *arena);

/* Why a snapshot is not available, as a finding of that moment: to be reported, not to be remembered. In the
 * arena; NULL = out of memory. */
const struct uns_finding *reason_of_failure(const struct dir_record *record, const struct uns_err *why,
					    struct uns_arena *arena);
/* A directory that a walk visits as unreadable (walk.h), as a finding in the arena. NULL = out of memory. */
const struct uns_finding *reason_of_directory(const char *path, const struct unshard *u, const struct uns_err *why,
					      struct uns_arena *arena);

#endif

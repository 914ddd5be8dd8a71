/* The file that names the last checkpoint of a run, made where a view needs one (uns_view.run_mark). */
#ifndef UNS_SESSION_LATEST_H
#define UNS_SESSION_LATEST_H

#include "session/spots.h"

/* Does the view need one in a directory with these names? */
bool latest_is_wanted(const struct uns_view *view, const struct uns_listing *list);

/* 1 = `name` of SOURCE's directory `dir` is such a file: the spot's text is its content, its stat that of
 * SOURCE's own mark; *generation: of the checkpoint that it names. 0 = it is not. */
int latest_find(struct unshard *u, struct spot *spot, const char *dir, const char *name,
		uint64_t *generation, struct uns_err *err);

#endif

/* The made name `latest` of a run: a link to the newest checkpoint that a view shows whole. */
#ifndef UNS_PATHS_NEWEST_H
#define UNS_PATHS_NEWEST_H

#include "session/session.h"

#define NEWEST_NAME "latest"

/* *out: the name, in this view, of the newest whole checkpoint in SOURCE's directory `dir`, in the arena. 1 = found,
 * 0 = there is none. Of names that differ in their numbers alone (checkpoint-200, checkpoint-400) the last in natural
 * order is the newest; of others the one whose files changed last. A plain directory that holds checkpoints without a
 * number in their names (global_step_2/actor) is whole if all of these are. Lists `dir`, and examines mostly one
 * checkpoint. */
int newest_find(struct unshard *u, const struct uns_view *view, uint64_t parameter, const char *dir,
		struct uns_arena *arena, const char **out, struct uns_err *err);

#endif

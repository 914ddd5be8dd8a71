/* Is a checkpoint's model whole, by its own names and its config.json? For `check`, and for `export`, which writes no
 * model that lacks a part. */
#ifndef UNS_SESSION_WHOLES_H
#define UNS_SESSION_WHOLES_H

#include "session/session.h"

struct dir_record;
struct snapshot;

/* Adds what the weights lack and what is unlike its siblings, in the arena; nothing where no config.json is known, or
 * for an adapter alone. Reads no tensor data. Fails only if memory is out. */
int wholes_find(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct uns_arena *arena,
		struct uns_findings *out, struct uns_err *err);

#endif

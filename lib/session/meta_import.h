/* What a file that a trainer wrote says about the training: facts out of trainer_state.json,
 * training_args.json or .bin, scheduler.pt. Private to lib/session. */
#ifndef UNS_SESSION_META_IMPORT_H
#define UNS_SESSION_META_IMPORT_H

#include "io/source.h"
#include "store/store.h"

/* The facts of `name` below root: subject and time are left open, origin is `origin`. -ENOTSUP when it
 * is none of these files. */
int meta_import_read(const struct uns_root *root, const char *name, const char *origin,
		     struct uns_arena *arena, struct uns_store_fact **out, size_t *n,
		     struct uns_err *err);

#endif

/* The directories of a checkpoint, itself included, as they were when all of it was looked at. While each is the same,
 * the checkpoint has the files that it had; whether one was written over does not show. */
#ifndef UNS_EXAMINE_OWN_DIRS_H
#define UNS_EXAMINE_OWN_DIRS_H

#include "io/capture.h"

/* Shared, and never changed once it is: `refs` is atomic. */
struct own_dirs;

struct own_dirs *own_dirs_new(void); /* NULL = out of memory */
struct own_dirs *own_dirs_ref(struct own_dirs *dirs);
void own_dirs_put(struct own_dirs *dirs); /* NULL is allowed */

/* `below`: its path below the checkpoint; "" = itself. -ENOMEM. */
int own_dirs_add(struct own_dirs *dirs, const char *below, const struct uns_stat *stat);
/* Each had been as it was for long enough for its times to show any change since. */
bool own_dirs_were_old(const struct own_dirs *dirs);
/* Is each the same now? One system call for each but itself, which the capture has looked at. Returns 1 or 0; fails
 * only in passing. */
int own_dirs_same(const struct own_dirs *dirs, const struct uns_capture *capture, struct uns_err *err);

#endif

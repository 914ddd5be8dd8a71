/* A mark: the text file in a run that names the tag which was saved last. DeepSpeed's engine writes `latest`,
 * its ds_to_universal `latest_universal`. */
#ifndef UNS_ZERO_MARK_H
#define UNS_ZERO_MARK_H

#include "io/source.h"

/* *tag: the text of the mark at `path`, in the arena, without blanks at its end; NULL where that is no plain
 * name. `stat`, which may be NULL, is the mark's own. Returns 1 where the run has the mark and 0 where it has
 * none that can be read; a fault that may pass is an error. A mark above 4 KiB is not read. */
int uns_zero_read_mark(const struct uns_root *root, const char *path, struct uns_arena *arena, const char **tag,
		       struct uns_stat *stat, struct uns_err *err);

#endif

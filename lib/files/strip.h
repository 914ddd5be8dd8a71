/* -o strip=: removes a prefix from tensor names ("model." of a LightningModule's model). */
#ifndef UNS_FILES_STRIP_H
#define UNS_FILES_STRIP_H

#include <stddef.h>

#include "base/error.h"
#include "model/tree.h"

/* The prefix to remove from these names: `strip`, or "" if `strip` is NULL or two names would become equal (a note in
 * `out` says so). Borrowed. */
int uns_strip_choose(const char *strip, const char *const *names, size_t n, struct uns_vtree *out,
		     const char **prefix, struct uns_err *err);

/* The name without the prefix; the whole name if nothing else would remain. Borrowed. */
const char *uns_strip_name(const char *prefix, const char *name);

#endif

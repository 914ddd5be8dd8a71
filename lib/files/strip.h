/* -o strip=: a prefix that is left out in front of names ("model." of a LightningModule's model). */
#ifndef UNS_FILES_STRIP_H
#define UNS_FILES_STRIP_H

#include <stddef.h>

#include "base/error.h"
#include "model/tree.h"

/* The prefix to leave out of these names: `strip`, or "" where that is NULL or, as a note in `out`
 * then says, two names would become one. Borrowed. */
int uns_strip_choose(const char *strip, const char *const *names, size_t n, struct uns_vtree *out,
		     const char **prefix, struct uns_err *err);

/* The name without the prefix; the whole of it where nothing would be left. Borrowed. */
const char *uns_strip_name(const char *prefix, const char *name);

#endif

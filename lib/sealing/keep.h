/* Puts a seal where it is looked for later (seal/place.h). */
#ifndef UNS_SEALING_KEEP_H
#define UNS_SEALING_KEEP_H

#include "seal/place.h"

/* Can seals be kept at all? source: the absolute path of what is sealed, in which nothing is written (-EINVAL).
 * -ENOENT: there is no store. */
int seal_keep_check(const struct uns_seal_place *place, const char *source, struct uns_err *err);
/* The same before the first seal; `directory`, which is to have seals (NULL = the store does), is made. */
int seal_keep_prepare(const struct uns_seal_place *place, const char *directory, const char *source,
		      struct uns_err *err);
/* below: the checkpoint's path from the directory that was asked for, which is its path in the user's directory.
 * *where (in the arena): where it is now. A file appears whole or not at all. */
int seal_keep(const struct uns_seal_place *place, const char *source, const char *path, const char *below,
	      const struct uns_seal *seal, struct uns_arena *arena, const char **where, struct uns_err *err);

#endif

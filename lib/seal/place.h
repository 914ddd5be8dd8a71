/* Where the seals of checkpoints are: in the metadata store, or in files that the user named. */
#ifndef UNS_SEAL_PLACE_H
#define UNS_SEAL_PLACE_H

#include "seal/seal.h"
#include "store/store_link.h"

#define UNS_SEAL_SUFFIX ".sha256" /* of a seal's file, behind the name of its checkpoint */

struct uns_seal_place {
	struct store_link *store;
	const char *seals; /* absolute; NULL = the store. What ends with UNS_SEAL_SUFFIX is the file of one seal */
};

bool uns_seal_is_file(const char *seals);

/* The seal of the checkpoint at `path` below SOURCE. In a directory it is the file whose path is the checkpoint's, or
 * the last names of that, as many as possible. A single file is the seal of checkpoints that have its name, or the name
 * that is in it.
 * *where (in the arena): for sentences. -ENOENT: there is none, or no store. -EEXIST: the single file is the seal of
 * another checkpoint. Other codes: it cannot be used. */
int uns_seal_load(const struct uns_seal_place *place, const char *path, struct uns_arena *arena, struct uns_seal *out,
		  const char **where, struct uns_err *err);

#endif

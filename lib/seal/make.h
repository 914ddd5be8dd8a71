/* A seal of what a checkpoint's files hold now. */
#ifndef UNS_SEAL_MAKE_H
#define UNS_SEAL_MAKE_H

#include "base/pool.h"
#include "model/catalog.h"
#include "seal/digest.h"

/* Files of one checkpoint, as one look found them. */
struct uns_seal_names {
	struct uns_seal_name {
		const char *name; /* relative to the checkpoint */
		const char *path; /* below root */
		struct uns_stat stat;
	} *v; /* by name, in order of bytes */
	size_t n;
	uint64_t size_bytes; /* of all of them */
};

/* Every regular file at `path`, which is a directory (with what is below it) or one file; also behind a link that the
 * root's options follow, but no directory behind a link. -EACCES and the like fail. `hidden` (may be NULL) is a path
 * below root that is not looked at. */
int uns_seal_list(const struct uns_root *root, const char *path, const char *hidden, struct uns_arena *arena,
		  struct uns_seal_names *out, struct uns_err *err);

/* Reads all of them, several at once in the pool; pool NULL: one after the other. The catalog is of the same
 * checkpoint, and lists which pieces are where. -ESTALE: a file changed, came or went meanwhile. -ENODATA: there is no
 * file. Texts live in the arena, or are the catalog's. */
int uns_seal_make(const struct uns_root *root, const struct uns_catalog *cat, const char *hidden,
		  const struct uns_seal_names *names, struct uns_pool *pool, const struct uns_seal_watch *watch,
		  struct uns_arena *arena, struct uns_seal *out, struct uns_err *err);

#endif

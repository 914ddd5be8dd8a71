/* The files of one DeepSpeed tag directory by kind and rank. */
#ifndef UNS_ZERO_READ_DIR_H
#define UNS_ZERO_READ_DIR_H

#include "model/catalog.h"
#include "zero/names.h"

struct uns_zero_entry {
	struct uns_zero_name name;
	const char *path; /* below root; in the catalog's arena */
	uint32_t file;
};

struct uns_zero_dir {
	struct uns_zero_entry *v; /* sorted by kind, mp, layer, expert, dp */
	size_t n;
	int32_t *mp; /* the model-parallel ranks there are, ascending */
	size_t n_mp;
};

/* List the directory `path` (below root) whose listing is `list`; all its shards become companions
 * prefix/NAME with shard = true. */
int uns_zero_dir_list(struct uns_catalog *cat, const struct uns_root *root, const char *path, const char *prefix,
		      const struct uns_listing *list, struct uns_zero_dir *out, struct uns_err *err);

/* The stretch of entries of one kind and mp (mp -1: of any). Borrowed. */
const struct uns_zero_entry *uns_zero_dir_of(const struct uns_zero_dir *dir, enum uns_zero_kind kind, int32_t mp,
					     size_t *n);

/* The files of ranks 0 .. n_ranks - 1, `out`, as the catalog numbers them. `e` are the n >= 1 that are listed, in order
 * of dp; the others get the name that they would have, and are missing in the catalog. */
int uns_zero_dir_ranks(struct uns_catalog *cat, const struct uns_root *root, const struct uns_zero_entry *e, size_t n,
		       uint32_t *out, size_t n_ranks, struct uns_err *err);

#endif

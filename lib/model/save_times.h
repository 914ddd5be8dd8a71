/* Are all shards of the save that ended? A writer that saves into a directory once more writes its shards again,
 * one after another, and at last the file by which readers know that the save has ended. Until then, and for good
 * if it dies, shards of two saves lie under the marks of the first: all sizes are right, and the bytes are mixed.
 * Only the times differ.
 *
 * Copies have times of their own: in whatever order, but one file right after another, each written from its
 * birth on. */
#ifndef UNS_MODEL_SAVE_TIMES_H
#define UNS_MODEL_SAVE_TIMES_H

#include "model/catalog.h"

struct uns_save_end {
	const struct uns_root *root;
	const char *path;  /* the file that the writer writes last; if there is none, nothing is compared */
	const char *below; /* of these shards: those whose paths begin so */
	const char *const
		*all; /* every file that ends the save, up to NULL: `path` is the oldest. Or NULL: `path` alone */
	bool is_state;     /* it holds a part of the training itself, which goes with the shards */
};

/* Compares the files of the catalog's pieces with the one that ends their save. Sets
 * summary.overwritten and weights_overwritten. If the files are of two saves, or may be, there is one finding, however
 * many files end the save: its argument "touch" names all of them that are older than a shard. Before seal. */
int uns_save_times_check(struct uns_catalog *cat, const struct uns_save_end *end, struct uns_err *err);

#endif

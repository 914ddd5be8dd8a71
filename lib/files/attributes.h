/* Owner, mode and time of the files that views compute, from those of their sources. */
#ifndef UNS_FILES_ATTRIBUTES_H
#define UNS_FILES_ATTRIBUTES_H

#include "io/access.h"
#include "model/tree.h"

struct uns_attributes {
	struct uns_access access;
	int64_t mtime_ns;
};

/* What the checkpoint's metadata files allow. Owner and group are those that all files of the checkpoint have, else
 * those of its directory (dir). */
int uns_attributes_base(const struct uns_catalog *cat, const struct uns_stat *dir, struct uns_access *out,
			struct uns_err *err);

/* Of one file of a view's tree. base: uns_attributes_base. O(the file's segments, and the pieces of their tensors). */
struct uns_attributes uns_attributes_of(const struct uns_catalog *cat, const struct uns_vfile *file,
					const struct uns_stat *dir, const struct uns_access *base);

#endif

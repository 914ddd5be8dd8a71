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

/* When the checkpoint's shards were last written; of a checkpoint without any, its directory. rclone and s3fs give a
 * directory another time at each mount, for which rsync would copy all files again. */
int64_t uns_attributes_newest_ns(const struct uns_catalog *cat, const struct uns_stat *dir);

/* Of one file of a view's tree. base: uns_attributes_base; newest_ns: uns_attributes_newest_ns. O(the file's segments,
 * and the pieces of their tensors). */
struct uns_attributes uns_attributes_of(const struct uns_catalog *cat, const struct uns_vfile *file, int64_t newest_ns,
					const struct uns_access *base);

#endif

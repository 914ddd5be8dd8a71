/* What is known of a file, or of anything else in a directory, without reading it. */
#ifndef UNS_IO_STAT_H
#define UNS_IO_STAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* What must stay equal for bytes read earlier to still be the file's bytes. ino is 0 on file systems whose numbers
 * do not last (io/numbers.h): there the rest decides.
 *
 * A change time in nanoseconds is one file's alone, on whatever file system. One of whole seconds is not: images that
 * were made with fixed times (mksquashfs -all-time, SOURCE_DATE_EPOCH) may have other files of equal numbers, sizes and
 * times. So such a file is that of one mount, if it is on a block device, as images are. Networks and FUSE programs
 * often have whole seconds only: there what was learned has to hold over a remount. */
struct uns_identity {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
	uint64_t mount; /* the kernel's number of the mount, if ctime_ns is of whole seconds, on a block device; else 0
			 */
};

static inline bool uns_identity_equal(const struct uns_identity *a, const struct uns_identity *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns && a->mount == b->mount;
}

/* A directory that was changed in the last 5 seconds may change again within the same mtime: until it is old, an equal
 * identity proves nothing. */
static inline bool uns_identity_is_old(const struct uns_identity *id)
{
	return (uns_wall_ns() - id->mtime_ns) / 1000000000 > 5;
}

enum uns_kind { UNS_KIND_FILE, UNS_KIND_DIR, UNS_KIND_LINK, UNS_KIND_OTHER };

struct uns_stat {
	enum uns_kind kind;
	uint32_t mode; /* permission bits only; of what was reached by a link, or below a capture's
			* directory, those that the directories on its way allow, too (io/access.h) */
	uint32_t uid, gid;
	struct uns_identity id;
	uint64_t nlink;
	int64_t born_ns; /* when the inode was made; 0 = the file system does not record it */
};

#endif

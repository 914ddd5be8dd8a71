/* What is known of a file, or of anything else in a directory, without reading it. */
#ifndef UNS_IO_STAT_H
#define UNS_IO_STAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* What must stay equal for bytes read earlier to still be the file's bytes. ino is 0 on file systems whose numbers
 * do not last (io/numbers.h): there the rest has to tell. */
struct uns_identity {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
};

static inline bool uns_identity_equal(const struct uns_identity *a, const struct uns_identity *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
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
	int64_t born_ns; /* when the inode was made; 0 = the file system does not say */
};

#endif

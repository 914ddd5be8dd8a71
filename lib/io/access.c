/* A class of a made file's users (its owner, its group, the others) may hold users of several classes of a
 * source; all of these must be allowed. */
#include "io/access.h"

enum { READ = 4, SEARCH = 1 };

/* The bits, of 0777, of those classes of a file of `uid` and `gid` that `st` grants `bit`. */
static uint32_t granted(uint32_t uid, uint32_t gid, const struct uns_stat *st, uint32_t bit)
{
	const bool owner = st->mode & (bit << 6), group = st->mode & (bit << 3), other = st->mode & bit;
	const bool same_owner = st->uid == uid, same_group = st->gid == gid;
	uint32_t mask = 0;

	if (same_owner ? owner : group && other)
		mask |= 0700;
	if ((same_owner || owner) && group && (same_group || other))
		mask |= 0070;
	if ((same_owner || owner) && (same_group || group) && other)
		mask |= 0007;
	return mask;
}

struct uns_access uns_access_of(const struct uns_stat *file)
{
	return (struct uns_access){ file->uid, file->gid, 0444 };
}

void uns_access_demand(struct uns_access *access, const struct uns_stat *file)
{
	access->mode &= granted(access->uid, access->gid, file, READ);
}

void uns_access_through(struct uns_stat *file, const struct uns_stat *dir)
{
	file->mode &= ~(uint32_t)0777 | granted(file->uid, file->gid, dir, SEARCH);
}

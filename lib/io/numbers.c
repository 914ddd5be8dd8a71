/* What was looked up is kept for the process, and for a second: the kernel gives the number of a file system that was
 * unmounted to the next one, which may be of another type. What does not fit any more takes the place of the oldest. A
 * device of a disk is never looked up. */
#include "io/numbers.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "io/mounts.h"

enum { KEPT = 64 };
static const int64_t kept_ns = 1000000000;

static struct {
	pthread_rwlock_t lock;
	struct {
		unsigned dev_minor;
		bool last;
		int64_t at_ns; /* monotonic: when it was looked up */
	} v[KEPT];
	size_t n; /* ever looked up */
} known = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static bool type_has_numbers(const char *type)
{
	static const char *const without[] = { "fuse", "cifs", "smb3" };
	size_t i;

	for (i = 0; i < sizeof(without) / sizeof(*without); i++)
		if (strcmp(type, without[i]) == 0)
			return false;
	return strncmp(type, "fuse.", strlen("fuse.")) != 0;
}

/* Its index, else where to put it. Lock held. */
static size_t find(unsigned dev_minor, bool *found)
{
	size_t i, n = known.n < KEPT ? known.n : KEPT;

	for (i = 0; i < n && known.v[i].dev_minor != dev_minor; i++)
		;
	*found = i < n;
	return *found ? i : known.n % KEPT;
}

bool uns_inodes_last(unsigned dev_major, unsigned dev_minor)
{
	const int64_t now_ns = uns_now_ns();
	bool found, last;
	char type[64];
	size_t i;

	if (dev_major)
		return true;
	pthread_rwlock_rdlock(&known.lock);
	i = find(dev_minor, &found);
	found = found && now_ns - known.v[i].at_ns < kept_ns;
	last = found && known.v[i].last;
	pthread_rwlock_unlock(&known.lock);
	if (found)
		return last;
	last = !uns_mount_type(0, dev_minor, type, sizeof(type)) || type_has_numbers(type);
	pthread_rwlock_wrlock(&known.lock);
	i = find(dev_minor, &found);
	known.n += !found;
	known.v[i].dev_minor = dev_minor;
	known.v[i].last = last;
	known.v[i].at_ns = now_ns;
	pthread_rwlock_unlock(&known.lock);
	return last;
}

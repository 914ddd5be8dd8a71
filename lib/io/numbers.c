/* What was looked up is kept for the process, as device numbers are the kernel's own: first come, and those that do
 * not fit any more in the place of the oldest. A device of a disk is never looked up. */
#include "io/numbers.h"

#include <pthread.h>
#include <string.h>

#include "io/mounts.h"

enum { KEPT = 64 };

static struct {
	pthread_rwlock_t lock;
	struct {
		unsigned dev_minor;
		bool last;
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

/* -1 = not known. */
static int find(unsigned dev_minor)
{
	size_t i, n = known.n < KEPT ? known.n : KEPT;

	for (i = 0; i < n; i++)
		if (known.v[i].dev_minor == dev_minor)
			return known.v[i].last;
	return -1;
}

bool uns_inodes_last(unsigned dev_major, unsigned dev_minor)
{
	char type[64];
	int last;

	if (dev_major)
		return true;
	pthread_rwlock_rdlock(&known.lock);
	last = find(dev_minor);
	pthread_rwlock_unlock(&known.lock);
	if (last >= 0)
		return last;
	last = !uns_mount_type(0, dev_minor, type, sizeof(type)) || type_has_numbers(type);
	pthread_rwlock_wrlock(&known.lock);
	if (find(dev_minor) < 0) {
		known.v[known.n % KEPT].dev_minor = dev_minor;
		known.v[known.n++ % KEPT].last = last;
	}
	pthread_rwlock_unlock(&known.lock);
	return last;
}

/* What was looked up is kept for the process, and for a second: the kernel gives the number of a file system that was
 * unmounted to the next one, which may be of another type. What does not fit any more takes the place of the oldest. A
 * device of a disk is never looked up. */
#include "io/numbers.h"

#include <pthread.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "io/mounts.h"

enum { KEPT = 64, FIRST_OBJECTS_MINOR = 1 << 20 /* the kernel's minor numbers are less */ };
static const int64_t kept_ns = 1000000000;

struct device {
	unsigned dev_minor;
	bool inodes_last, written_elsewhere;
	int64_t at_ns; /* monotonic: when it was looked up */
};

static struct {
	pthread_rwlock_t lock;
	struct device v[KEPT];
	size_t n; /* ever looked up */
} known = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static bool type_is_one_of(const char *type, const char *const *types)
{
	for (; *types; types++)
		if (strcmp(type, *types) == 0)
			return true;
	return false;
}

static bool type_has_numbers(const char *type)
{
	static const char *const without[] = { "fuse", "cifs", "smb3", NULL };

	return strncmp(type, "fuse.", strlen("fuse.")) != 0 && !type_is_one_of(type, without);
}

/* Of those that have no block device. */
static bool type_is_this_kernels(const char *type)
{
	static const char *const own[] = { "tmpfs", "ramfs",    "hugetlbfs", "overlay", "btrfs",
					   "zfs",   "bcachefs", "rootfs",    "ubifs",   NULL };

	return type_is_one_of(type, own);
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

/* Of a device that is no disk. One that is not in the mount table may be a subvolume of btrfs. */
static struct device look_up(unsigned dev_minor)
{
	struct device d = { dev_minor, .inodes_last = true, .at_ns = uns_now_ns() };
	char type[64];
	bool found;
	size_t i;

	if (uns_mount_type(0, dev_minor, type, sizeof(type))) {
		d.inodes_last = type_has_numbers(type);
		d.written_elsewhere = !type_is_this_kernels(type);
	}
	pthread_rwlock_wrlock(&known.lock);
	i = find(dev_minor, &found);
	known.n += !found;
	known.v[i] = d;
	pthread_rwlock_unlock(&known.lock);
	return d;
}

static struct device device_of(unsigned dev_major, unsigned dev_minor)
{
	struct device d = { .inodes_last = true };
	bool found;
	size_t i;

	if (dev_major)
		return d;
	if (dev_minor >= FIRST_OBJECTS_MINOR) {
		d.written_elsewhere = true;
		return d;
	}
	pthread_rwlock_rdlock(&known.lock);
	i = find(dev_minor, &found);
	found = found && uns_now_ns() - known.v[i].at_ns < kept_ns;
	if (found)
		d = known.v[i];
	pthread_rwlock_unlock(&known.lock);
	return found ? d : look_up(dev_minor);
}

bool uns_inodes_last(unsigned dev_major, unsigned dev_minor)
{
	return device_of(dev_major, dev_minor).inodes_last;
}

bool uns_written_elsewhere(unsigned dev_major, unsigned dev_minor)
{
	return device_of(dev_major, dev_minor).written_elsewhere;
}

uint64_t uns_objects_device(uint64_t hash)
{
	return makedev(0, FIRST_OBJECTS_MINOR | (unsigned)(hash & (FIRST_OBJECTS_MINOR - 1)));
}

#include "store/turn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "io/mounts.h"
#include "store/moment.h"

/* -- the file -- */

/* Beside the file to which a link leads, as SQLite's journal is. */
static char *turn_name(const char *store_path)
{
	UNS_CLEANUP(uns_free_p) char *real = realpath(store_path, NULL);
	char *name;

	return asprintf(&name, "%s-turn", real ? real : store_path) < 0 ? NULL : name;
}

/* Each user that may write the store may take the turn. The file is never removed: one program
 * could then lock the file without a name that it had just opened, and another at the same time a new file. */
static int turn_open(const char *name, const char *store_path, int *fd)
{
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
	struct stat st;

	*fd = open(name, flags);
	if (*fd >= 0 || errno != ENOENT)
		return *fd < 0 ? -errno : 0;
	*fd = open(name, flags | O_CREAT | O_EXCL, 0600);
	if (*fd >= 0 && stat(store_path, &st) == 0)
		(void)fchmod(*fd, st.st_mode & 0666);
	if (*fd < 0 && errno == EEXIST)
		*fd = open(name, flags | O_CREAT, 0600); /* this node may still know that it does not exist */
	return *fd < 0 ? -errno : 0;
}

static int fail_open(int code, const char *name, const char *store_path, struct uns_err *err)
{
	if (code == -EACCES || code == -EPERM)
		code = -EROFS;
	return uns_fail(err, code, "metadata store %s cannot be written: %s, which programs lock to take turns: %s",
			store_path, name, strerror(-code));
}

/* -- the lock -- */

/* A lock of the open file keeps threads of one process apart, too. */
static int set_lock(int fd, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET };

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno == EINVAL && fcntl(fd, F_SETLK, &lock) == 0)
		return 0;
	return -errno;
}

static bool is_taken(int code)
{
	return code == -EAGAIN || code == -EACCES;
}

static bool has_no_locks(int code)
{
	return code == -ENOSYS || code == -EOPNOTSUPP || code == -ENOLCK || code == -EINVAL;
}

/* A lock that is waited for in the kernel cannot be given up on all file systems, so it is asked for again and again.
 */
static int lock_patiently(int fd, unsigned seconds)
{
	const int64_t until_ns = uns_now_ns() + seconds * INT64_C(1000000000);
	unsigned n;
	int code;

	for (n = 0; is_taken(code = set_lock(fd, F_WRLCK)); n++) {
		if (uns_now_ns() >= until_ns)
			return -EBUSY;
		if (!moment_wait(n))
			return -EINTR;
	}
	return code;
}

/* -- what others wrote before -- */

/* Does this node know what an open file holds from up to a second ago? GlusterFS does (quick-read, md-cache), and would
 * have this node change the store as it was before another's turn; so did JuiceFS where a mount has the store open.
 * ceph-fuse does not. From other nodes sshfs has no turns. */
static bool shows_late(int fd)
{
	static const char *const at_once[] = { "fuse.ceph-fuse", "fuse.sshfs" };
	char type[64];
	struct stat st;
	size_t i;

	if (fstat(fd, &st) < 0 || !uns_mount_type(major(st.st_dev), minor(st.st_dev), type, sizeof(type)) ||
	    strncmp(type, "fuse", strlen("fuse")) != 0)
		return false;
	for (i = 0; i < sizeof(at_once) / sizeof(*at_once); i++)
		if (strcmp(type, at_once[i]) == 0)
			return false;
	return true;
}

/* The lock is held: until what is known from before it has expired. -EBUSY: it was not to be waited for. */
static int wait_for_what_was_written(int fd, unsigned seconds)
{
	const struct timespec known_for = { .tv_sec = 1, .tv_nsec = 100000000 };

	if (!shows_late(fd))
		return 0;
	if (!seconds)
		return -EBUSY;
	return nanosleep(&known_for, NULL) < 0 ? -EINTR : 0;
}

static int fail_lock(int code, const char *name, const char *store_path, unsigned seconds, struct uns_err *err)
{
	if (code == -EBUSY)
		return uns_fail(
			err, code,
			"metadata store %s was not changed: others held the lock on %s for all of the %u s that this "
			"program waited: end one that hangs, or try again",
			store_path, name, seconds);
	if (code == -EINTR)
		return uns_fail(err, code, "metadata store %s was not changed: a signal ended the wait for its turn",
				store_path);
	return uns_fail(err, code, "metadata store %s cannot be written: the lock on %s: %s", store_path, name,
			strerror(-code));
}

int turn_take(struct turn *turn, const char *store_path, unsigned seconds, struct uns_err *err)
{
	UNS_CLEANUP(uns_free_p) char *name = NULL;
	int code;

	if (turn->fd >= 0)
		return 0;
	name = turn_name(store_path);
	UNS_TRY_ALLOC(name, err);
	code = turn_open(name, store_path, &turn->fd);
	if (code < 0)
		return fail_open(code, name, store_path, err);
	code = lock_patiently(turn->fd, seconds);
	if (code == 0)
		code = wait_for_what_was_written(turn->fd, seconds);
	if (code == 0)
		return 0;
	turn_give(turn);
	return has_no_locks(code) ? 0 : fail_lock(code, name, store_path, seconds, err);
}

/* Not by close alone: on FUSE the server may not hear of a lock that went with its file. */
void turn_give(struct turn *turn)
{
	if (turn->fd < 0)
		return;
	set_lock(turn->fd, F_UNLCK);
	close(turn->fd);
	turn->fd = -1;
}

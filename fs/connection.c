/* Threads that share a descriptor wait for each other, so each has a clone of its own, where there can be one. */
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fail.h"
#include "fusermount.h"
#include "ops.h"

enum { MISC_MAJOR = 10, FUSE_MINOR = 229 }; /* Linux, Documentation/admin-guide/devices.txt */

#define DESCRIPTORS "/dev/fd"

int fs_passed_fd(const char *mountpoint)
{
	static const char prefix[] = DESCRIPTORS "/";
	const char *number = mountpoint + strlen(prefix);
	char *end;
	long fd;

	if (strncmp(mountpoint, prefix, strlen(prefix)) || *number < '0' || *number > '9')
		return -1;
	errno = 0;
	fd = strtol(number, &end, 10);
	return *end || errno || fd > FS_LARGEST_FD ? -1 : (int)fd;
}

/* The directory itself. */
static bool is_descriptors(const char *mountpoint)
{
	return strcmp(mountpoint, DESCRIPTORS) == 0 || strcmp(mountpoint, DESCRIPTORS "/") == 0;
}

/* 0, or why this process may not have the device. */
static int open_device(void)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* A read into one byte takes no request: the kernel refuses it with EINVAL where there is a connection, and with
 * EPERM where the device was opened but neither mounted nor cloned (fs/fuse/dev.c, fuse_dev_read and
 * fuse_dev_do_read). */
static int passed_check(int fd, const char *what, struct unshard_error *err)
{
	struct stat st;
	char byte;

	if (fstat(fd, &st) < 0)
		return fs_fail(err, -EBADF, "descriptor %d (%s): %s: the parent must pass it on", fd, what,
			       strerror(errno));
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(MISC_MAJOR, FUSE_MINOR))
		return fs_fail(err, -EBADF, "descriptor %d (%s) is not of /dev/fuse", fd, what);
	if (read(fd, &byte, sizeof(byte)) < 0 && errno == EPERM)
		return fs_fail(err, -EBADF,
			       "descriptor %d (%s) is of /dev/fuse, but of no mount: the parent must mount "
			       "with fd=%d first, and clone further ones from it (FUSE_DEV_IOC_CLONE)",
			       fd, what, fd);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

int fs_connection_passed(struct fs_connection *connection, const struct fs_options *o, struct unshard_error *err)
{
	int fd = fs_passed_fd(o->mountpoint), code;
	size_t i;

	if (fd < 0 && is_descriptors(o->mountpoint))
		return fs_fail(err, -EINVAL,
			       "%s is no descriptor: MOUNTPOINT " DESCRIPTORS "/N has a number from 0 to %d",
			       o->mountpoint, FS_LARGEST_FD);
	if (fd < 0)
		return o->n_clones ? fs_fail(err, -EINVAL, "clones= belongs to a mount point /dev/fd/N, and %s is none",
					     o->mountpoint)
				   : 0;
	code = passed_check(fd, o->mountpoint, err);
	connection->fd[connection->n++] = fd;
	for (i = 0; !code && i < o->n_clones; i++) {
		code = passed_check(o->clones[i], "clones=", err);
		connection->fd[connection->n++] = o->clones[i];
	}
	return code;
}

/* By the descriptors that were passed on; else by libfuse; else, without the device, by fusermount3, in whose place
 * containers have programs that ask a privileged one. */
int fs_connection_make(struct fs_connection *connection, struct fuse_session *se, const char *path, const char *opts,
		       int *device)
{
	int fd;

	if (connection->n)
		return fs_session_take(se, connection->fd[0]);
	if (fuse_session_mount(se, path) == 0) {
		connection->may_clone = true;
		return 0;
	}
	*device = open_device();
	fd = *device < 0 ? fs_fusermount_mount(path, opts) : -1;
	return fd < 0 ? -1 : fs_session_take(se, fd);
}

int fs_connection_spread(struct fs *fs)
{
	struct fs_connection *c = &fs->connection;
	size_t i;

	c->at[0] = fs->se;
	for (i = 1; i < c->n; i++) {
		c->at[i] = fs_sessions_add(&fs->sessions, c->fd[i]);
		if (!c->at[i])
			return -1;
	}
	return 0;
}

/* -1 = it is not available. */
static int clone_of(int fd)
{
	uint32_t original = (uint32_t)fd;
	int clone = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (clone >= 0 && ioctl(clone, FUSE_DEV_IOC_CLONE, &original) < 0) {
		close(clone);
		return -1;
	}
	return clone;
}

struct fuse_session *fs_connection_join(struct fs *fs)
{
	struct fs_connection *c = &fs->connection;
	int clone = c->may_clone ? clone_of(fuse_session_fd(fs->se)) : -1;
	struct fuse_session *own = clone >= 0 ? fs_sessions_add(&fs->sessions, clone) : NULL;

	if (own)
		return own;
	return c->n ? c->at[atomic_fetch_add(&c->next, 1) % c->n] : fs->se;
}

/* Neither unmounted nor aborted (fs/fuse/dev.c, fuse_dev_poll). */
static bool is_connected(int fd)
{
	struct pollfd device = { .fd = fd };

	return poll(&device, 1, 0) <= 0 || !(device.revents & POLLERR);
}

void fs_connection_unmount(struct fs *fs)
{
	fs_keeper_unmount(&fs->connection.keeper, is_connected(fuse_session_fd(fs->se)));
}

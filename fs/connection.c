/* libfuse serves one descriptor. Threads that share it wait for each other, so each reads and answers over a clone of
 * its own, by libfuse's custom input and output. The kernel wants the answer where it gave the request, and the
 * thread that read a request answers it: each thread keeps to one descriptor. */
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
#include <sys/uio.h>
#include <unistd.h>

#include "fail.h"
#include "fusermount.h"
#include "ops.h"

enum { MISC_MAJOR = 10, FUSE_MINOR = 229 }; /* Linux, Documentation/admin-guide/devices.txt */

int fs_passed_fd(const char *mountpoint)
{
	static const char prefix[] = "/dev/fd/";
	const char *number = mountpoint + strlen(prefix);
	char *end;
	long fd;

	if (strncmp(mountpoint, prefix, strlen(prefix)) || *number < '0' || *number > '9')
		return -1;
	errno = 0;
	fd = strtol(number, &end, 10);
	return *end || errno || fd > FS_LARGEST_FD ? -1 : (int)fd;
}

/* A read into one byte takes no request: the kernel refuses it with EINVAL where there is a connection, and with
 * EPERM where the device was opened but neither mounted nor cloned (fs/fuse/dev.c, fuse_dev_read and
 * fuse_dev_do_read). */
static int check(int fd, const char *what, struct unshard_error *err)
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

int fs_connection_passed(struct fs_connection *connection, const struct fs_options *o,
			 struct unshard_error *err)
{
	int fd = fs_passed_fd(o->mountpoint), code;
	size_t i;

	if (fd < 0)
		return o->n_clones ? fs_fail(err, -EINVAL,
					     "clones= belongs to a mount point /dev/fd/N, and %s is none",
					     o->mountpoint)
				   : 0;
	code = check(fd, o->mountpoint, err);
	connection->fd[connection->n++] = fd;
	for (i = 0; !code && i < o->n_clones; i++) {
		code = check(o->clones[i], "clones=", err);
		connection->fd[connection->n++] = o->clones[i];
	}
	return code;
}

int fs_connection_ask(struct fs_connection *connection, const char *path, const char *opts)
{
	int fd = fs_fusermount_mount(path, opts);

	if (fd < 0)
		return -1;
	connection->fd[connection->n++] = fd;
	return 0;
}

/* -- a thread's descriptor -- */

static _Thread_local struct {
	const struct fs *fs;
	int fd;
} joined;

static int of_this_thread(const struct fs *fs)
{
	return joined.fs == fs ? joined.fd : fs->connection.fd[0];
}

static ssize_t receive(int fd, void *buf, size_t len, void *userdata)
{
	(void)fd;
	return read(of_this_thread(userdata), buf, len);
}

static ssize_t answer(int fd, struct iovec *iov, int count, void *userdata)
{
	(void)fd;
	return writev(of_this_thread(userdata), iov, count);
}

int fs_connection_use(struct fs_connection *connection, struct fuse_session *se)
{
	static const struct fuse_custom_io io = { .read = receive, .writev = answer };

	if (!connection->n) {
		connection->fd[connection->n++] = fuse_session_fd(se);
		connection->may_clone = true;
	}
	return fuse_session_custom_io(se, &io, connection->fd[0]) < 0 ? -1 : 0;
}

/* -1 = it cannot be had. */
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

int fs_connection_join(struct fs *fs)
{
	struct fs_connection *c = &fs->connection;
	int clone = c->may_clone ? clone_of(c->fd[0]) : -1;

	joined.fs = fs;
	joined.fd = clone >= 0 ? clone : c->fd[atomic_fetch_add(&c->next, 1) % c->n];
	return clone;
}

/* Neither unmounted nor aborted (fs/fuse/dev.c, fuse_dev_poll). */
static bool is_connected(int fd)
{
	struct pollfd device = { .fd = fd };

	return poll(&device, 1, 0) <= 0 || !(device.revents & POLLERR);
}

void fs_connection_unmount(struct fs_connection *connection)
{
	fs_keeper_unmount(&connection->keeper, connection->n && is_connected(connection->fd[0]));
}

void fs_connection_close(struct fs_connection *connection)
{
	size_t i;

	for (i = 1; i < connection->n; i++)
		close(connection->fd[i]);
	connection->n = 0;
}

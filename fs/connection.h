/* The connection to the kernel, and who makes it: libfuse; or a parent that passes descriptors of /dev/fuse on
 * ("/dev/fd/N" in place of a mount point); or fusermount3, or a program in its place, which may open the device
 * where this process may not. */
#ifndef FS_CONNECTION_H
#define FS_CONNECTION_H

#include <stdatomic.h>
#include <stddef.h>

#include "fs.h"
#include "keeper.h"

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

struct fs;

/* Descriptors of one connection. Zeroed = libfuse makes the connection. */
struct fs_connection {
	int fd[1 + FS_MOST_CLONES]; /* the first is the session's */
	size_t n;
	bool may_clone; /* this process opened the device: a thread can have a descriptor of its own */
	atomic_uint next; /* of fd, for the next thread that has none of its own */
	struct fs_keeper keeper; /* started once something is mounted */
};

/* The descriptors that `options` names. -EBADF with a sentence where one is no connection of FUSE's. They become
 * the connection's, and close when a program is run. Without any, n stays 0. */
int fs_connection_passed(struct fs_connection *connection, const struct fs_options *options,
			 struct unshard_error *err);

/* Asks fusermount3 to mount at `path` with mount options `opts`, for the descriptor. 0, or -1 and what it has to
 * say is on stderr. */
int fs_connection_ask(struct fs_connection *connection, const char *path, const char *opts);

/* From here on `se`, which libfuse has mounted if there are no descriptors, reads and answers requests over the
 * connection; the first descriptor is the session's, to close. The session's user data is a struct fs. 0 or -1. */
int fs_connection_use(struct fs_connection *connection, struct fuse_session *se);

/* Gives the calling thread a descriptor, for all that it reads and answers; a thread that never asked has the first.
 * Returns one to be closed when the thread has ended, or -1. */
int fs_connection_join(struct fs *fs);

/* Before the session is destroyed: unmounts, unless somebody did. */
void fs_connection_unmount(struct fs_connection *connection);

/* Once the session is destroyed: closes the other descriptors. */
void fs_connection_close(struct fs_connection *connection);

#endif

/* The connection to the kernel, and what makes it: libfuse; or a parent that passes descriptors of /dev/fuse on
 * ("/dev/fd/N" in place of a mount point); or fusermount3, or a program in its place, which may open the device
 * where this process may not. */
#ifndef FS_CONNECTION_H
#define FS_CONNECTION_H

#include <stdatomic.h>
#include <stddef.h>

#include "fs.h"
#include "keeper.h"

#include "sessions.h"

/* Zeroed = libfuse makes the connection, or fusermount3 does. */
struct fs_connection {
	int fd[1 + FS_MOST_CLONES]; /* passed on by a parent */
	struct fuse_session *at[1 + FS_MOST_CLONES]; /* each of these descriptors, once they are served */
	size_t n;
	bool may_clone; /* this process opened the device: a thread can have a descriptor of its own */
	atomic_uint next; /* of `at`, for the next thread that has none of its own */
	struct fs_keeper keeper; /* started once something is mounted */
};

/* The descriptors that `options` names. -EBADF with a sentence where one is no connection of FUSE's. They close when a
 * program is run. Without any, n stays 0. */
int fs_connection_passed(struct fs_connection *connection, const struct fs_options *options, struct unshard_error *err);

/* Gives `se` the first descriptor: mounts at `path` with mount options `opts`, unless a parent did. 0, or -1 and the
 * reason is on stderr; *device is then a negative errno where this process may not open the device. */
int fs_connection_make(struct fs_connection *connection, struct fuse_session *se, const char *path, const char *opts,
		       int *device);

/* Once the first request is answered: sessions at the other descriptors that were passed on. 0, or -1: no memory. */
int fs_connection_spread(struct fs *fs);

/* The session at which the calling thread reads and answers, of its own where that can be. */
struct fuse_session *fs_connection_join(struct fs *fs);

/* Unmounts what is still mounted. Requests that are being answered, and files that are open, continue. */
void fs_connection_unmount(struct fs *fs);

#endif

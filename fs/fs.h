/* Serve a session as a FUSE mount. */
#ifndef UNSHARD_FS_H
#define UNSHARD_FS_H

#include "unshard.h"

struct fs_options {
	const char *source;        /* for the mount table: fsname */
	const char *mountpoint;
	const char *fuse_options;  /* further -o options for libfuse / the kernel, or NULL */
	bool foreground;
	bool allow_other;          /* forces default_permissions */
	unsigned max_threads;      /* 0 = default 16 */
	unsigned read_ahead_kb;    /* 0 = default 4096; set on the bdi where privileged */
	/* Called once in the process that serves, after mounting and before the first request: the
	 * place to open logs after daemonising. */
	void (*ready)(void *ctx);
	void *ctx;
};

/* Mounts, daemonises unless foreground, serves until unmounted. In the parent returns 0 when the
 * mount is live; negative errno and a sentence when it is not. `u` is open and has started no
 * thread. */
int fs_serve(unshard *u, const struct fs_options *options, struct unshard_error *err);

/* Is there a dead FUSE mount at path ("Transport endpoint is not connected")? */
bool fs_is_stale(const char *path);

#endif

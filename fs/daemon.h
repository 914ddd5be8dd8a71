/* Going to the background: the process that was called waits until the mount is live, so that its
 * exit status is that of the mount. */
#ifndef FS_DAEMON_H
#define FS_DAEMON_H

#include "fs.h"

struct fs_daemon {
	bool is_parent, foreground, is_live;
	int report_fd; /* to the waiting parent; -1 when there is none */
};

/* In the parent: waits, calls options->live, returns 0 or why there is no mount. In the process
 * that is to serve (this one, in the foreground): returns 0 at once with is_parent false. */
int fs_daemon_start(struct fs_daemon *daemon, const struct fs_options *options, struct unshard_error *err);

/* The mount is live: reports that to the parent and leaves the terminal. `hint` may be "". */
void fs_daemon_live(struct fs_daemon *daemon, const struct fs_options *options, const char *hint);

/* Serving has ended. A failure before the mount was live is the parent's to return, then 0 here. */
int fs_daemon_end(struct fs_daemon *daemon, int code, struct unshard_error *err);

#endif

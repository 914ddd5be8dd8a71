/* The process that ends a mount. The process that serves gives up what unmounting takes (confine.h). So it starts
 * this one before, which reads nothing and waits for the order to unmount. It ends when the other ends, however
 * that ends. */
#ifndef FS_KEEPER_H
#define FS_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

#include "fs.h"

struct fs_keeper {
	int fd; /* to it */
	pid_t pid; /* 0 or less = none */
};

/* No thread may run. path: canonical; the keeper unmounts only what has the device number of what is mounted there
 * now. */
int fs_keeper_start(struct fs_keeper *keeper, const char *path, struct unshard_error *err);

/* Unmounts, unless that was done, and returns when the keeper has ended. Programs that have files of the mount open
 * do not hold it up. connected: there is the connection still, so no other mount has the device number. Otherwise the
 * number may be that of the next mount at `path`, and only a mount without a server is unmounted. */
void fs_keeper_unmount(struct fs_keeper *keeper, bool connected);

#endif

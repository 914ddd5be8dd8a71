/* The process that ends a mount. The process that serves gives up what unmounting takes (confine.h). So it starts
 * this one before, which reads nothing and waits until it is told to unmount. It ends when the other ends, however
 * that ends. */
#ifndef FS_KEEPER_H
#define FS_KEEPER_H

#include <sys/types.h>

#include "fs.h"

struct fs_keeper {
	int fd; /* to tell it */
	pid_t pid; /* 0 or less = none */
};

/* No thread may run. path: canonical; what is mounted there now is all that the keeper ever unmounts. */
int fs_keeper_start(struct fs_keeper *keeper, const char *path, struct unshard_error *err);

/* Unmounts, unless that was done, and returns when the keeper has ended. Programs that have files of the mount open
 * do not hold it up. */
void fs_keeper_unmount(struct fs_keeper *keeper);

#endif

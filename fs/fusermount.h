/* The program fusermount3, which mounts and unmounts for users that may not themselves. Its sentences go to stderr. */
#ifndef FS_FUSERMOUNT_H
#define FS_FUSERMOUNT_H

#include "fs.h" /* has fs_fusermount_unmount */

/* Mounts at `path` with options "a,b=c". The descriptor of the connection, or -1. */
int fs_fusermount_mount(const char *path, const char *opts);

#endif

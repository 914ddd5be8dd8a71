/* Which file systems give a file another inode number while it stays the same file. */
#ifndef UNS_IO_NUMBERS_H
#define UNS_IO_NUMBERS_H

#include <stdbool.h>

/* Do inode numbers mean anything on the file system with this device number? Not below a FUSE program (rclone,
 * mountpoint-s3, gcsfuse, sshfs), most of which number files as they are looked up, nor on CIFS, whose server may have
 * no numbers. By the mount table; a file system that is not in it keeps its numbers. Any thread; a device is looked up
 * once. */
bool uns_inodes_last(unsigned dev_major, unsigned dev_minor);

#endif

/* What is known of a file system by its device number: by its type in the mount table. A device is looked up once, a
 * block device never. Any thread. */
#ifndef UNS_IO_NUMBERS_H
#define UNS_IO_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Do inode numbers mean anything, does a file keep its own while it stays the same? Not below a FUSE program (rclone,
 * mountpoint-s3, gcsfuse, sshfs), most of which number files as they are looked up, nor on CIFS, whose server may have
 * no numbers. A file system that is not in the mount table keeps its numbers. */
bool uns_inodes_last(unsigned dev_major, unsigned dev_minor);

/* May others than this kernel write its files, so that what this kernel keeps of their bytes may be old? So it is below
 * FUSE programs, on NFS, CIFS, Lustre and what will be invented. */
bool uns_written_elsewhere(unsigned dev_major, unsigned dev_minor);

/* A device number for a source that is no file system (io/objects.h): one that no kernel gives, the same wherever the
 * hash is. What is stored there lasts, and others may write it. */
uint64_t uns_objects_device(uint64_t hash);

#endif

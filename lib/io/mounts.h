/* The type of a mounted file system, from /proc/self/mountinfo. */
#ifndef UNS_IO_MOUNTS_H
#define UNS_IO_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

/* The type ("ext4", "fuse.rclone") of the file system with this device number. Neither compares paths nor asks the file
 * system, which may hang. false = it is not mounted here, or the table cannot be read. */
bool uns_mount_type(unsigned dev_major, unsigned dev_minor, char *type, size_t size);

#endif

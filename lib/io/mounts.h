/* Mounted file systems. Types and mount points come from /proc/self/mountinfo. */
#ifndef UNS_IO_MOUNTS_H
#define UNS_IO_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"

/* The type ("ext4", "fuse.rclone") of the file system with this device number. Neither compares paths nor asks the file
 * system, which may hang. false = it is not mounted here, or the table cannot be read. */
bool uns_mount_type(unsigned dev_major, unsigned dev_minor, char *type, size_t size);

/* Does it have its files in memory alone, as tmpfs? */
bool uns_mount_in_memory(unsigned dev_major, unsigned dev_minor);

/* Its type and what is mounted ("fuse.rclone remote:"), by which it is known again when it has another number. */
bool uns_mount_name(unsigned dev_major, unsigned dev_minor, char *name, size_t size);

/* Where file systems of this type are mounted below the directory `real` (absolute, without links; not at `real`
 * itself): paths below it, in the arena. None if the table cannot be read. -ENOMEM. */
int uns_mounts_below(const char *real, const char *type, struct uns_arena *arena, const char *const **out, size_t *n,
		     struct uns_err *err);

/* Shared memory and locks are known to work there, and no other host has it. false: NFS, Lustre, FUSE, SMB, 9p and
 * what will be invented. */
bool uns_is_local(const char *path);

#endif

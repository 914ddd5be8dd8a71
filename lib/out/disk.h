/* Files and directories that are written: calls of the system, each with its sentence. */
#ifndef UNS_OUT_DISK_H
#define UNS_OUT_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Right behind a call that has set errno. */
__attribute__((cold)) int uns_fail_errno(const char *path, struct uns_err *err);

/* All of it at byte `off`, however little the system takes at a time; off UNS_AT_CURSOR: where the descriptor
 * is. `path` is the file's, for the sentence. */
#define UNS_AT_CURSOR ((int64_t)-1)
int uns_write(int fd, const void *bytes, size_t len, int64_t off, const char *path, struct uns_err *err);

/* The file at `path`, which is to be written to. A hard link may be in its place, and a
 * write to that would change another file: -EEXIST for a file that has another name. flags: O_WRONLY or O_RDWR, O_CREAT
 * (then `mode`, less the umask). */
int uns_open_to_write(const char *path, int flags, mode_t mode, int *fd, struct uns_err *err);
/* What this process takes from the mode of what it makes. */
mode_t uns_umask(void);

/* A directory's names are on disk. */
int uns_sync_dir(const char *path, struct uns_err *err);
/* A directory with all in it; what cannot be removed stays. */
void uns_remove_tree(const char *path);

/* Share all blocks of a file with an empty one, where the file system can. */
bool uns_share_blocks(int from, int to);
/* Copy bytes [off, off+len) to the same place of another file without reading them here. Returns how many were,
 * from `off` on: fewer where the kernel cannot, or fails. */
uint64_t uns_copy_in_kernel(int from, int to, uint64_t off, uint64_t len);

/* Receives how many bytes were copied. Negative ends the copy. */
struct uns_copied {
	int (*step)(void *ctx, uint64_t n_bytes, struct uns_err *err);
	void *ctx;
};
/* `size` bytes from the start of one file to the start of another, which is empty: shares the blocks, or copies inside
 * the kernel; by hand where it can do neither: then a read or a write of its own shows which file is at fault. */
int uns_copy_file(int from, const char *from_path, int to, const char *to_path, uint64_t size,
		  const struct uns_copied *told, struct uns_err *err);

#endif

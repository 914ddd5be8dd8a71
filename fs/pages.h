/* Pages of the kernel that hold what a reader got: a byte of a shard may be held twice, as SOURCE's and as the
 * mount's (enum fs_cache). */
#ifndef FS_PAGES_H
#define FS_PAGES_H

#include <pthread.h>

#include "connection.h"
#include "fs.h"
#include "handles.h"

struct fs_pages {
	enum fs_cache cache;
	pthread_rwlock_t opening; /* held to read while a node is opened, to write while its pages go */
};

void fs_pages_init(struct fs_pages *pages, enum fs_cache cache);
void fs_pages_fini(struct fs_pages *pages);

/* fs_handles_open for a file; never while the node's pages go. */
struct fs_handle *fs_pages_open(struct fs_pages *pages, struct fs_handles *handles, struct fs_node *node,
				unshard_file *file, bool young);
/* These bytes were read, and are the next answer to the kernel. Not after it: a file may be closed as soon as the
 * kernel has what it asked for. */
void fs_pages_read(const struct fs_pages *pages, const struct fs_handle *handle, const struct fuse_file_info *fi,
		   off_t off, size_t len);
/* A handle of the node was closed; the kernel does not forget the node yet. */
void fs_pages_closed(struct fs_pages *pages, struct fuse_session *se, fuse_ino_t id, struct fs_node *node);

#endif

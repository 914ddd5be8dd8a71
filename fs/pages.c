/* To let go of pages the kernel locks each, and waits for those that are being read: for answers of threads like the
 * one that asks it to. So that is done only while no process has the file open, and an open waits until it has ended.
 */
#include "pages.h"

#include <errno.h>
#include <fcntl.h>

enum { AT_ONCE_BYTES = 256 << 20 }; /* others that open a file wait for it */

void fs_pages_init(struct fs_pages *pages, enum fs_cache cache)
{
	pages->cache = cache;
	pthread_rwlock_init(&pages->opening, NULL);
}

void fs_pages_fini(struct fs_pages *pages)
{
	pthread_rwlock_destroy(&pages->opening);
}

struct fs_handle *fs_pages_open(struct fs_pages *pages, struct fs_handles *handles, struct fs_node *node,
				unshard_file *file, bool young)
{
	struct fs_handle *handle;

	pthread_rwlock_rdlock(&pages->opening);
	handle = fs_handles_open(handles, node, file, young);
	pthread_rwlock_unlock(&pages->opening);
	return handle;
}

void fs_pages_read(const struct fs_pages *pages, const struct fs_handle *handle, const struct fuse_file_info *fi,
		   off_t off, size_t len)
{
	/* O_DIRECT: the kernel keeps nothing of them. */
	if (pages->cache == FS_CACHE_MOUNT && len && !(fi->flags & O_DIRECT))
		unshard_file_kept(handle->file, (uint64_t)off, len);
}

void fs_pages_closed(struct fs_pages *pages, struct fuse_session *se, fuse_ino_t id, struct fs_node *node)
{
	uint64_t at, size = node->stat.size_bytes;
	int code = 0;

	if (pages->cache != FS_CACHE_SOURCES)
		return;
	for (at = 0; at < size && !code; at += AT_ONCE_BYTES) {
		pthread_rwlock_wrlock(&pages->opening);
		code = atomic_load(&node->n_open) ? -EBUSY
						  : fuse_lowlevel_notify_inval_inode(se, id, (off_t)at, AT_ONCE_BYTES);
		pthread_rwlock_unlock(&pages->opening);
	}
}

/* Looks at the files that were opened young: whether each is still what a lookup finds. The kernel waits for pages that
 * are being read before it drops them, and so does the thread that looks, which answers no request. */
#include "settled.h"

#include <errno.h>

#include "ops.h"

enum { MOST_AT_ONCE = 256 };

struct opened {
	fuse_ino_t id;
	uint64_t ino;
	unshard_node *node;
};

/* Those that a reader has open. Returns how many there are, with a reference on each node. */
static size_t young_collect(struct fs *fs, struct opened *v)
{
	const struct fs_handle *handle;
	size_t n = 0;

	pthread_mutex_lock(&fs->handles.lock);
	for (handle = fs->handles.head; handle && n < MOST_AT_ONCE; handle = handle->next)
		if (handle->young)
			v[n++] = (struct opened){ fs_nodes_id(&fs->nodes, handle->node), handle->node->stat.ino,
						  unshard_node_ref(handle->node->node) };
	pthread_mutex_unlock(&fs->handles.lock);
	return n;
}

/* All handles on the inode: what is read through them from now on is kept. */
static void young_forget(struct fs *fs, uint64_t ino)
{
	struct fs_handle *handle;

	pthread_mutex_lock(&fs->handles.lock);
	for (handle = fs->handles.head; handle; handle = handle->next)
		if (handle->node->stat.ino == ino)
			handle->young = false;
	pthread_mutex_unlock(&fs->handles.lock);
}

/* The node's path leads to another inode, or to nothing: the checkpoint has settled, or changed. */
static bool young_is_over(const struct opened *one)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	int code = unshard_node_stat(one->node, &st, NULL);

	return code == -ESTALE || code == -ENOENT || (code == 0 && (!st.young || st.ino != one->ino));
}

void fs_settled_look(struct fs *fs)
{
	struct opened v[MOST_AT_ONCE];
	size_t i, n = young_collect(fs, v);

	for (i = 0; i < n; i++) {
		if (!fuse_session_exited(fs->se) && young_is_over(&v[i])) {
			young_forget(fs, v[i].ino);
			fuse_lowlevel_notify_inval_inode(fs->se, v[i].id, 0, 0);
		}
		unshard_node_unref(v[i].node);
	}
}

/* The inode table: what the kernel's node ids mean. A node is the library's handle of what was looked
 * up, and what it was then. The same path in a later generation has another inode number and is another
 * node, so that old dentries drop. Knows no files and no requests. */
#ifndef FS_NODES_H
#define FS_NODES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "unshard.h"

struct fs_node {
	struct fs_node *next;
	uint64_t n_lookups;       /* what the kernel will forget; under the table's lock */
	_Atomic unsigned n_open;  /* files open on this node */
	struct unshard_stat stat; /* as first looked up; constant */
	uint64_t up_ino;          /* of the directory it was looked up in; constant */
	uint64_t up_id;           /* of the same, when it last was; under the table's lock */
	unshard_node *node;       /* constant */
};

struct fs_nodes {
	pthread_mutex_t lock; /* everything below */
	struct fs_node **bucket;
	size_t n_buckets, n;
	struct fs_node *unused; /* room for directories' nodes */
	struct fs_node_block *blocks; /* in which it is */
	struct fs_node *root; /* constant; not in the buckets, never forgotten */
};

/* `root` and `stat` are the root's; the reference is the table's from here on. 0 or -ENOMEM. */
int fs_nodes_init(struct fs_nodes *nodes, unshard_node *root, const struct unshard_stat *stat);
void fs_nodes_fini(struct fs_nodes *nodes);

/* The table's node for what was looked up in `dir`, with one lookup more, made if need be. The reference
 * is the table's from here on. NULL = out of memory. */
struct fs_node *fs_nodes_ref(struct fs_nodes *nodes, const struct fs_node *dir, unshard_node *node,
			     const struct unshard_stat *stat);
/* One lookup more, of the mount's own: the kernel may forget what a request still works on. */
void fs_nodes_hold(struct fs_nodes *nodes, struct fs_node *node);
/* Undo n lookups; the last one frees the node. */
void fs_nodes_forget(struct fs_nodes *nodes, struct fs_node *node, uint64_t n);

/* A name in a directory, as the kernel keeps it. */
struct fs_name {
	uint64_t dir_id;
	char text[256];
};

size_t fs_nodes_count(struct fs_nodes *nodes);
/* Files and links that no one has open: their names into out[most], from *bucket on (0 at first), which moves on. They
 * may be forgotten, or opened, at any time. Returns how many; 0 = that was all. */
size_t fs_nodes_unused(struct fs_nodes *nodes, size_t *bucket, struct fs_name *out, size_t most);
/* Many were forgotten: the table takes less memory. */
void fs_nodes_shrink(struct fs_nodes *nodes);

/* Node ids are the nodes' addresses; the root's is 1. */
struct fs_node *fs_nodes_of_id(const struct fs_nodes *nodes, uint64_t id);
uint64_t fs_nodes_id(const struct fs_nodes *nodes, const struct fs_node *node);

#endif

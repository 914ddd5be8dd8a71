/* The inode table: what the kernel's node ids stand for. A node is a path together with the inode
 * number it had when it was looked up, so that the same path in a later generation is another node
 * and old dentries drop. Knows no files and no requests; never calls the library. */
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
	char path[];              /* constant */
};

struct fs_nodes {
	pthread_mutex_t lock; /* everything below */
	struct fs_node **bucket;
	size_t n_buckets, n;
	struct fs_node *root; /* constant; not in the buckets, never forgotten */
};

/* `root` describes "". 0 or -ENOMEM. */
int fs_nodes_init(struct fs_nodes *nodes, const struct unshard_stat *root);
void fs_nodes_fini(struct fs_nodes *nodes);

/* The node of (path, stat->ino) with one lookup more, made if need be. NULL = out of memory. */
struct fs_node *fs_nodes_ref(struct fs_nodes *nodes, const char *path,
			     const struct unshard_stat *stat);
/* Undo n lookups; the last one frees the node. */
void fs_nodes_forget(struct fs_nodes *nodes, struct fs_node *node, uint64_t n);

/* Node ids are the nodes' addresses; the root's is 1. */
struct fs_node *fs_nodes_of_id(const struct fs_nodes *nodes, uint64_t id);
uint64_t fs_nodes_id(const struct fs_nodes *nodes, const struct fs_node *node);

#endif

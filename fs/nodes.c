/* A chained hash table over the 64-bit inode number (itself a hash of view, path and generation),
 * grown by doubling. The path is compared too: a collision must not show another file. */
#include "nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 1024, ROOT_ID = 1 };

/* Takes the reference, also when there is no memory. */
static struct fs_node *node_new(unshard_node *handle, const struct unshard_stat *stat, uint64_t up_ino)
{
	struct fs_node *node = calloc(1, sizeof(*node));

	if (!node) {
		unshard_node_unref(handle);
		return NULL;
	}
	node->stat = *stat;
	node->up_ino = up_ino;
	node->node = handle;
	return node;
}

static void node_free(struct fs_node *node)
{
	if (node)
		unshard_node_unref(node->node);
	free(node);
}

int fs_nodes_init(struct fs_nodes *nodes, unshard_node *root, const struct unshard_stat *stat)
{
	memset(nodes, 0, sizeof(*nodes));
	nodes->root = node_new(root, stat, stat->ino);
	nodes->bucket = calloc(FIRST_BUCKETS, sizeof(struct fs_node *));
	if (!nodes->root || !nodes->bucket) {
		node_free(nodes->root);
		free(nodes->bucket);
		return -ENOMEM;
	}
	nodes->n_buckets = FIRST_BUCKETS;
	pthread_mutex_init(&nodes->lock, NULL);
	return 0;
}

/* The kernel does not forget what it held when the mount goes. */
void fs_nodes_fini(struct fs_nodes *nodes)
{
	struct fs_node *node, *next;
	size_t i;

	for (i = 0; i < nodes->n_buckets; i++)
		for (node = nodes->bucket[i]; node; node = next) {
			next = node->next;
			node_free(node);
		}
	free(nodes->bucket);
	node_free(nodes->root);
	pthread_mutex_destroy(&nodes->lock);
}

static struct fs_node **slot_of(struct fs_nodes *nodes, uint64_t ino)
{
	return &nodes->bucket[(ino ^ ino >> 32) & (nodes->n_buckets - 1)];
}

/* Failing to grow costs speed only. */
static void table_grow(struct fs_nodes *nodes)
{
	size_t i, n_old = nodes->n_buckets;
	struct fs_node **old = nodes->bucket, **wide, **slot, *node, *next;

	wide = calloc(2 * n_old, sizeof(struct fs_node *));
	if (!wide)
		return;
	nodes->bucket = wide;
	nodes->n_buckets = 2 * n_old;
	for (i = 0; i < n_old; i++)
		for (node = old[i]; node; node = next) {
			next = node->next;
			slot = slot_of(nodes, node->stat.ino);
			node->next = *slot;
			*slot = node;
		}
	free(old);
}

static struct fs_node *table_find(struct fs_nodes *nodes, const unshard_node *handle, const struct unshard_stat *stat)
{
	const char *path = unshard_node_path(handle);
	struct fs_node *node;

	for (node = *slot_of(nodes, stat->ino); node; node = node->next)
		if (node->stat.ino == stat->ino && node->stat.kind == stat->kind &&
		    !strcmp(unshard_node_path(node->node), path))
			return node;
	return NULL;
}

static void table_add(struct fs_nodes *nodes, struct fs_node *node)
{
	struct fs_node **slot;

	if (nodes->n >= nodes->n_buckets)
		table_grow(nodes);
	slot = slot_of(nodes, node->stat.ino);
	node->next = *slot;
	*slot = node;
	nodes->n++;
}

struct fs_node *fs_nodes_ref(struct fs_nodes *nodes, const struct fs_node *dir, unshard_node *handle,
			     const struct unshard_stat *stat)
{
	struct fs_node *fresh = node_new(handle, stat, dir->stat.ino), *node;

	if (!fresh)
		return NULL;
	pthread_mutex_lock(&nodes->lock);
	node = table_find(nodes, handle, stat);
	if (!node) {
		node = fresh;
		fresh = NULL;
		table_add(nodes, node);
	}
	node->n_lookups++;
	pthread_mutex_unlock(&nodes->lock);
	node_free(fresh);
	return node;
}

void fs_nodes_hold(struct fs_nodes *nodes, struct fs_node *node)
{
	pthread_mutex_lock(&nodes->lock);
	node->n_lookups++;
	pthread_mutex_unlock(&nodes->lock);
}

static void unlink_node(struct fs_nodes *nodes, struct fs_node *node)
{
	struct fs_node **at = slot_of(nodes, node->stat.ino);

	while (*at && *at != node)
		at = &(*at)->next;
	if (*at)
		*at = node->next;
	nodes->n--;
}

void fs_nodes_forget(struct fs_nodes *nodes, struct fs_node *node, uint64_t n)
{
	bool last;

	if (node == nodes->root)
		return;
	pthread_mutex_lock(&nodes->lock);
	node->n_lookups -= n < node->n_lookups ? n : node->n_lookups;
	last = !node->n_lookups;
	if (last)
		unlink_node(nodes, node);
	pthread_mutex_unlock(&nodes->lock);
	if (last)
		node_free(node);
}

struct fs_node *fs_nodes_of_id(const struct fs_nodes *nodes, uint64_t id)
{
	return id == ROOT_ID ? nodes->root : (struct fs_node *)(uintptr_t)id;
}

uint64_t fs_nodes_id(const struct fs_nodes *nodes, const struct fs_node *node)
{
	return node == nodes->root ? ROOT_ID : (uint64_t)(uintptr_t)node;
}

/* A chained hash table over the 64-bit inode number (itself a hash of view, path and generation),
 * grown by doubling. The path is compared too: a collision must not show another file. */
#include "nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 1024, BLOCK_NODES = 128, ROOT_ID = 1 };

/* A mount that rests has the kernel forget files, and no directories. So these lie together: each by itself would keep
 * the page in which the files' nodes were. Blocks are freed in the end. */
struct fs_node_block {
	struct fs_node_block *next;
	struct fs_node node[BLOCK_NODES];
};

static void directory_give_back(struct fs_nodes *nodes, struct fs_node *node)
{
	node->next = nodes->unused;
	nodes->unused = node;
}

static bool block_add(struct fs_nodes *nodes)
{
	struct fs_node_block *block = malloc(sizeof(*block));
	size_t i;

	if (!block)
		return false;
	block->next = nodes->blocks;
	nodes->blocks = block;
	for (i = 0; i < BLOCK_NODES; i++)
		directory_give_back(nodes, &block->node[i]);
	return true;
}

static struct fs_node *directory_take(struct fs_nodes *nodes)
{
	struct fs_node *node = NULL;

	pthread_mutex_lock(&nodes->lock);
	if (nodes->unused || block_add(nodes)) {
		node = nodes->unused;
		nodes->unused = node->next;
		memset(node, 0, sizeof(*node));
	}
	pthread_mutex_unlock(&nodes->lock);
	return node;
}

/* Takes the reference, also when there is no memory. */
static struct fs_node *node_new(struct fs_nodes *nodes, unshard_node *handle, const struct unshard_stat *stat)
{
	struct fs_node *node = stat->kind == UNSHARD_DIR ? directory_take(nodes) : calloc(1, sizeof(*node));

	if (!node) {
		unshard_node_unref(handle);
		return NULL;
	}
	node->stat = *stat;
	node->node = handle;
	return node;
}

static void node_free(struct fs_nodes *nodes, struct fs_node *node)
{
	if (!node)
		return;
	unshard_node_unref(node->node);
	if (node->stat.kind != UNSHARD_DIR) {
		free(node);
		return;
	}
	pthread_mutex_lock(&nodes->lock);
	directory_give_back(nodes, node);
	pthread_mutex_unlock(&nodes->lock);
}

static void blocks_free(struct fs_nodes *nodes)
{
	struct fs_node_block *block;

	while ((block = nodes->blocks)) {
		nodes->blocks = block->next;
		free(block);
	}
	pthread_mutex_destroy(&nodes->lock);
}

int fs_nodes_init(struct fs_nodes *nodes, unshard_node *root, const struct unshard_stat *stat)
{
	memset(nodes, 0, sizeof(*nodes));
	pthread_mutex_init(&nodes->lock, NULL);
	nodes->root = node_new(nodes, root, stat);
	nodes->bucket = calloc(FIRST_BUCKETS, sizeof(struct fs_node *));
	if (!nodes->root || !nodes->bucket) {
		node_free(nodes, nodes->root);
		free(nodes->bucket);
		blocks_free(nodes);
		return -ENOMEM;
	}
	nodes->root->up_ino = stat->ino;
	nodes->root->up_id = ROOT_ID;
	nodes->n_buckets = FIRST_BUCKETS;
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
			node_free(nodes, node);
		}
	free(nodes->bucket);
	node_free(nodes, nodes->root);
	blocks_free(nodes);
}

static struct fs_node **slot_of(struct fs_nodes *nodes, uint64_t ino)
{
	return &nodes->bucket[(ino ^ ino >> 32) & (nodes->n_buckets - 1)];
}

/* If there is no memory, the table stays as it is. */
static void table_resize(struct fs_nodes *nodes, size_t n_buckets)
{
	size_t i, n_old = nodes->n_buckets;
	struct fs_node **old = nodes->bucket, **fresh, **slot, *node, *next;

	fresh = calloc(n_buckets, sizeof(struct fs_node *));
	if (!fresh)
		return;
	nodes->bucket = fresh;
	nodes->n_buckets = n_buckets;
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
		table_resize(nodes, 2 * nodes->n_buckets);
	slot = slot_of(nodes, node->stat.ino);
	node->next = *slot;
	*slot = node;
	nodes->n++;
}

struct fs_node *fs_nodes_ref(struct fs_nodes *nodes, const struct fs_node *dir, unshard_node *handle,
			     const struct unshard_stat *stat)
{
	struct fs_node *fresh = node_new(nodes, handle, stat), *node;

	if (!fresh)
		return NULL;
	fresh->up_ino = dir->stat.ino;
	pthread_mutex_lock(&nodes->lock);
	node = table_find(nodes, handle, stat);
	if (!node) {
		node = fresh;
		fresh = NULL;
		table_add(nodes, node);
	}
	node->n_lookups++;
	node->up_id = fs_nodes_id(nodes, dir);
	pthread_mutex_unlock(&nodes->lock);
	node_free(nodes, fresh);
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
		node_free(nodes, node);
}

size_t fs_nodes_count(struct fs_nodes *nodes)
{
	size_t n;

	pthread_mutex_lock(&nodes->lock);
	n = nodes->n;
	pthread_mutex_unlock(&nodes->lock);
	return n;
}

/* Of one bucket; at most `most`. Lock held. */
static size_t bucket_unused(const struct fs_node *node, struct fs_name *out, size_t most)
{
	const char *path;
	size_t n = 0;

	for (; node && n < most; node = node->next) {
		if (node->stat.kind == UNSHARD_DIR || atomic_load(&node->n_open))
			continue;
		path = unshard_node_path(node->node);
		out[n].dir_id = node->up_id;
		snprintf(out[n].text, sizeof(out[n].text), "%s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
		n++;
	}
	return n;
}

size_t fs_nodes_unused(struct fs_nodes *nodes, size_t *bucket, struct fs_name *out, size_t most)
{
	size_t n = 0;

	pthread_mutex_lock(&nodes->lock);
	for (; *bucket < nodes->n_buckets && n <= most / 2; ++*bucket)
		n += bucket_unused(nodes->bucket[*bucket], out + n, most - n);
	pthread_mutex_unlock(&nodes->lock);
	return n;
}

void fs_nodes_shrink(struct fs_nodes *nodes)
{
	size_t n_buckets = FIRST_BUCKETS;

	pthread_mutex_lock(&nodes->lock);
	while (n_buckets < 2 * nodes->n)
		n_buckets *= 2;
	if (n_buckets < nodes->n_buckets)
		table_resize(nodes, n_buckets);
	pthread_mutex_unlock(&nodes->lock);
}

struct fs_node *fs_nodes_of_id(const struct fs_nodes *nodes, uint64_t id)
{
	return id == ROOT_ID ? nodes->root : (struct fs_node *)(uintptr_t)id;
}

uint64_t fs_nodes_id(const struct fs_nodes *nodes, const struct fs_node *node)
{
	return node == nodes->root ? ROOT_ID : (uint64_t)(uintptr_t)node;
}

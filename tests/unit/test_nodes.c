/* The mount's inode table: same path and generation, same node; forgotten exactly when counts say.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unshard.h"

/* Handles that are nothing but a path, in place of the library's. */
static unsigned n_handles;

static unshard_node *handle(const char *path)
{
	n_handles++;
	return (unshard_node *)strdup(path);
}

static const char *path_of(const unshard_node *node)
{
	return (const char *)node;
}

static void give_back(unshard_node *node)
{
	n_handles--;
	free(node);
}

#define unshard_node_path  path_of
#define unshard_node_unref give_back
#include "../../fs/nodes.c"

static const struct unshard_stat root = { .kind = UNSHARD_DIR, .ino = 1 };

static int init(struct fs_nodes *nodes)
{
	n_handles = 0;
	return fs_nodes_init(nodes, handle(""), &root);
}

static struct fs_node *ref(struct fs_nodes *nodes, const char *path, const struct unshard_stat *st)
{
	return fs_nodes_ref(nodes, nodes->root, handle(path), st);
}

/* All handles were given back. */
static void fini(struct fs_nodes *nodes)
{
	assert_int_equal(n_handles, nodes->n + 1);
	fs_nodes_fini(nodes);
	assert_int_equal(n_handles, 0);
}

static struct unshard_stat file(uint64_t ino)
{
	return (struct unshard_stat){ .kind = UNSHARD_FILE, .ino = ino };
}

static void test_root(void **state)
{
	struct fs_nodes nodes;

	(void)state;
	assert_int_equal(init(&nodes), 0);
	assert_int_equal(fs_nodes_id(&nodes, nodes.root), 1);
	assert_ptr_equal(fs_nodes_of_id(&nodes, 1), nodes.root);
	assert_string_equal(path_of(nodes.root->node), "");
	fs_nodes_forget(&nodes, nodes.root, 100);
	assert_string_equal(path_of(nodes.root->node), "");
	fini(&nodes);
}

static void test_identity(void **state)
{
	struct unshard_stat one = file(7), two = file(8);
	struct fs_node *a, *b;
	struct fs_nodes nodes;

	(void)state;
	assert_int_equal(init(&nodes), 0);
	a = ref(&nodes, "x/y", &one);
	assert_ptr_equal(ref(&nodes, "x/y", &one), a);
	assert_ptr_equal(fs_nodes_of_id(&nodes, fs_nodes_id(&nodes, a)), a);
	b = ref(&nodes, "x/y", &two); /* another generation */
	assert_ptr_not_equal(a, b);
	assert_ptr_not_equal(ref(&nodes, "x/z", &one), a); /* a collision of hashes */
	assert_int_equal(nodes.n, 3);
	fini(&nodes);
}

static void test_forgotten_when_counts_say(void **state)
{
	struct unshard_stat st = file(7);
	struct fs_nodes nodes;
	struct fs_node *a;
	int i;

	(void)state;
	assert_int_equal(init(&nodes), 0);
	for (i = 0; i < 5; i++)
		a = ref(&nodes, "x", &st);
	fs_nodes_forget(&nodes, a, 2);
	assert_int_equal(nodes.n, 1);
	assert_int_equal(a->n_lookups, 3);
	fs_nodes_forget(&nodes, a, 3);
	assert_int_equal(nodes.n, 0);
	fini(&nodes);
}

/* All that are named, in as many steps as it takes: each once. */
static size_t count_unused(struct fs_nodes *nodes, uint64_t dir_id, const char *absent)
{
	struct fs_name name[3];
	size_t bucket = 0, n, i, all = 0;

	while ((n = fs_nodes_unused(nodes, &bucket, name, 3)))
		for (i = 0; i < n; i++, all++) {
			assert_int_equal(name[i].dir_id, dir_id);
			assert_int_equal(strncmp(name[i].text, "file-", 5), 0);
			assert_string_not_equal(name[i].text, absent);
		}
	return all;
}

/* Not directories, and not what is open. When they are forgotten, the table is as small as it was. */
static void test_unused(void **state)
{
	enum { N = 3000 };
	struct unshard_stat dir_stat = { .kind = UNSHARD_DIR, .ino = 5 }, st;
	struct fs_node *dir, *node[N];
	struct fs_nodes nodes;
	char path[32];
	int i;

	(void)state;
	assert_int_equal(init(&nodes), 0);
	dir = ref(&nodes, "view", &dir_stat);
	for (i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "view/file-%d", i);
		st = file((uint64_t)i * 7919 + 2);
		node[i] = fs_nodes_ref(&nodes, dir, handle(path), &st);
	}
	assert_int_equal(count_unused(&nodes, fs_nodes_id(&nodes, dir), ""), N);
	atomic_store(&node[7]->n_open, 1);
	assert_int_equal(count_unused(&nodes, fs_nodes_id(&nodes, dir), "file-7"), N - 1);
	assert_true(nodes.n_buckets > FIRST_BUCKETS);
	for (i = 0; i < N; i++)
		if (i != 7)
			fs_nodes_forget(&nodes, node[i], 1);
	fs_nodes_shrink(&nodes);
	assert_int_equal(nodes.n_buckets, FIRST_BUCKETS);
	assert_int_equal(fs_nodes_count(&nodes), 2);
	assert_int_equal(count_unused(&nodes, 0, ""), 0);
	st = file(7 * 7919 + 2);
	assert_ptr_equal(fs_nodes_ref(&nodes, dir, handle("view/file-7"), &st), node[7]);
	fini(&nodes);
}

/* More than the first buckets hold; inode numbers chosen to share low bits. */
static void test_many(void **state)
{
	enum { N = 5000 };
	struct fs_node **node = calloc(N, sizeof(*node));
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	struct fs_nodes nodes;
	char path[32];
	int i;

	(void)state;
	assert_non_null(node);
	assert_int_equal(init(&nodes), 0);
	for (i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "dir/%d", i);
		st = file((uint64_t)i << 13);
		node[i] = ref(&nodes, path, &st);
		assert_non_null(node[i]);
	}
	assert_int_equal(nodes.n, N);
	assert_true(nodes.n_buckets >= N);
	for (i = 0; i < N; i += 2)
		fs_nodes_forget(&nodes, node[i], 1);
	assert_int_equal(nodes.n, N / 2);
	for (i = 1; i < N; i += 2) {
		snprintf(path, sizeof(path), "dir/%d", i);
		st = file((uint64_t)i << 13);
		assert_ptr_equal(ref(&nodes, path, &st), node[i]);
	}
	fini(&nodes);
	free(node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_forgotten_when_counts_say),
		cmocka_unit_test(test_unused),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

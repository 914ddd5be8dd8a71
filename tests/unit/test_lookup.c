/* Nodes of unshard.h: the same tree as by paths, told when it changes, and holding nothing in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_clock.h"
#include "shell.h"
#include "unshard.h"

struct fixture {
	char dir[32], source[64];
	unshard *u;
	unshard_node *root;
};

static void session_open(struct fixture *f, struct unshard_options options)
{
	options.no_store = true;
	options.no_settling = true;
	assert_int_equal(unshard_open(f->source, &options, &f->u, NULL), 0);
	assert_int_equal(unshard_root(f->u, &f->root, NULL), 0);
}

static void session_close(struct fixture *f)
{
	unshard_node_unref(f->root);
	unshard_close(f->u);
}

static int setup(void **state)
{
	static struct fixture f;

	f = (struct fixture){ .dir = "/tmp/uns_lookup_XXXXXX" };
	assert_non_null(mkdtemp(f.dir));
	snprintf(f.source, sizeof(f.source), "%s/src", f.dir);
	shell(f.dir, "mkdir src && cp -r " UNSHARD_GOLDEN "/run src/runs && chmod -R u+w src && "
		     "ln -s checkpoint-2 src/runs/best && ln -s $PWD/src/runs/checkpoint-2 src/runs/abs");
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	shell(f->dir, "rm -r ../$(basename $PWD)");
	return 0;
}

/* The node of a path, one step a component; NULL and *code when a step fails. */
static unshard_node *find(struct fixture *f, const char *path, int *code)
{
	unshard_node *at = unshard_node_ref(f->root), *next;
	char copy[256], *name;

	snprintf(copy, sizeof(copy), "%s", path);
	for (name = strtok(copy, "/"); name && at; name = strtok(NULL, "/")) {
		*code = unshard_lookup(at, name, &next, NULL, NULL);
		unshard_node_unref(at);
		at = *code < 0 ? NULL : next;
	}
	return at;
}

static unshard_node *must_find(struct fixture *f, const char *path)
{
	int code = 0;
	unshard_node *node = find(f, path, &code);

	if (!node)
		fail_msg("%s: %s", path, strerror(-code));
	return node;
}

static void same_stat(const char *path, const struct unshard_stat *a, const struct unshard_stat *b)
{
	if (a->kind != b->kind || a->mode != b->mode || a->uid != b->uid || a->gid != b->gid || a->nlink != b->nlink ||
	    a->ino != b->ino || a->stable != b->stable || a->live != b->live || a->mtime_ns != b->mtime_ns ||
	    (!a->live && a->size_bytes != b->size_bytes))
		fail_msg("%s: not the same by its path and by its node", path);
}

/* -- the same tree -- */

/* Everything below a node, by nodes and by paths. Returns how much there is. */
static size_t compare(struct fixture *f, unshard_node *dir)
{
	const char *at = unshard_node_path(dir);
	unshard_listing *by_node, *by_path;
	struct unshard_stat st = { UNSHARD_STAT_INIT }, path_st = { UNSHARD_STAT_INIT };
	unshard_node *child, *listed;
	char path[256];
	size_t n = 0, i;

	assert_int_equal(unshard_node_list(dir, &by_node, NULL), 0);
	assert_int_equal(unshard_list(f->u, at, &by_path, NULL), 0);
	assert_int_equal(unshard_listing_count(by_node), unshard_listing_count(by_path));
	for (i = 0; i < unshard_listing_count(by_node); i++) {
		snprintf(path, sizeof(path), "%s%s%s", at, *at ? "/" : "", unshard_listing_at(by_node, i)->name);
		assert_string_equal(unshard_listing_at(by_node, i)->name, unshard_listing_at(by_path, i)->name);
		assert_int_equal(unshard_lookup(dir, unshard_listing_at(by_node, i)->name, &child, &st, NULL), 0);
		assert_int_equal(unshard_stat(f->u, path, &path_st, NULL), 0);
		same_stat(path, &st, &path_st);
		same_stat(path, &st, &unshard_listing_at(by_node, i)->stat);
		assert_int_equal(unshard_node_stat(child, &st, NULL), 0);
		same_stat(path, &st, &path_st);
		assert_string_equal(unshard_node_path(child), path);
		assert_int_equal(unshard_listing_node(by_node, i, &listed, NULL), 0);
		assert_string_equal(unshard_node_path(listed), path);
		assert_int_equal(unshard_node_stat(listed, &st, NULL), 0);
		same_stat(path, &st, &path_st);
		n += 1 + (st.kind == UNSHARD_DIR ? compare(f, listed) : 0);
		unshard_node_unref(listed);
		unshard_node_unref(child);
	}
	unshard_listing_free(by_node);
	unshard_listing_free(by_path);
	return n;
}

static void the_same_tree(void **state)
{
	struct fixture *f = *state;
	unshard_node *info;

	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT });
	assert_true(compare(f, f->root) > 100);
	info = must_find(f, ".unshard");
	assert_true(compare(f, info) == 5);
	unshard_node_unref(info);
	info = must_find(f, "weights/runs/checkpoint-2/.unshard");
	assert_true(compare(f, info) == 4);
	unshard_node_unref(info);
	session_close(f);
}

static void one_view_and_one_checkpoint(void **state)
{
	struct fixture *f = *state;

	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT, .view = "weights" });
	assert_true(compare(f, f->root) > 10);
	session_close(f);
	strcat(f->source, "/runs/checkpoint-2");
	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT, .view = "dcp" });
	assert_true(compare(f, f->root) > 10);
	session_close(f);
	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT });
	assert_true(compare(f, f->root) > 30);
	session_close(f);
}

static void bytes_by_node(void **state)
{
	struct fixture *f = *state;
	unshard_node *node;
	struct unshard_stat st = { UNSHARD_STAT_INIT };
	unshard_file *file;
	char buf[16], *target;

	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT });
	node = must_find(f, "weights/runs/checkpoint-2/config.json");
	assert_int_equal(unshard_node_open(node, NULL, &file, &st, NULL), 0);
	assert_int_equal(unshard_pread(file, buf, 1, 0, NULL), 1);
	assert_int_equal(buf[0], '{');
	unshard_file_close(file);
	unshard_node_unref(node);
	node = must_find(f, "weights/runs/best");
	assert_int_equal(unshard_node_readlink(node, &target, NULL), 0);
	assert_string_equal(target, "checkpoint-2");
	unshard_free(target);
	assert_int_equal(unshard_node_open(node, NULL, &file, NULL, NULL), -ELOOP);
	unshard_node_unref(node);
	node = must_find(f, "weights/runs/abs");
	assert_int_equal(unshard_node_readlink(node, &target, NULL), -EINVAL);
	assert_int_equal(unshard_node_open(node, NULL, &file, NULL, NULL), -EISDIR);
	unshard_node_unref(node);
	session_close(f);
}

static void what_is_no_name(void **state)
{
	static const char *const names[] = { "", ".", "..", "a/b", "/", "runs/" };
	struct fixture *f = *state;
	unshard_node *node, *child;
	size_t i;
	int code;

	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT });
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_int_equal(unshard_lookup(f->root, names[i], &child, NULL, NULL), -EINVAL);
	assert_null(find(f, "weights/runs/checkpoint-2/absent", &code));
	assert_int_equal(code, -ENOENT);
	assert_null(find(f, "weights/runs/config.json/x", &code));
	assert_int_equal(code, -ENOTDIR);
	node = must_find(f, "weights/runs/checkpoint-2/config.json");
	assert_int_equal(unshard_lookup(node, "x", &child, NULL, NULL), -ENOENT);
	unshard_node_unref(node);
	session_close(f);
}

/* -- while things change -- */

static int stat_code(const unshard_node *node)
{
	struct unshard_stat st = { UNSHARD_STAT_INIT };

	return unshard_node_stat(node, &st, NULL);
}

static void a_changed_checkpoint_is_another(void **state)
{
	struct fixture *f = *state;
	unshard_node *dir, *file, *other, *run, *child;
	struct unshard_stat was = { UNSHARD_STAT_INIT }, is = { UNSHARD_STAT_INIT };
	unshard_listing *list;
	int code;

	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT });
	run = must_find(f, "weights/runs");
	dir = must_find(f, "weights/runs/checkpoint-2");
	file = must_find(f, "weights/runs/checkpoint-2/model.safetensors");
	assert_int_equal(unshard_node_stat(file, &was, NULL), 0);
	shell(f->dir, "touch src/runs/checkpoint-2/optimizer_0/.metadata");
	wait_recheck();
	assert_int_equal(stat_code(file), -ESTALE);
	assert_int_equal(stat_code(dir), -ESTALE);
	assert_int_equal(unshard_lookup(dir, "config.json", &child, NULL, NULL), -ESTALE);
	assert_int_equal(unshard_node_list(dir, &list, NULL), 0); /* as it is now */
	assert_true(unshard_listing_count(list) > 2);
	unshard_listing_free(list);
	assert_int_equal(stat_code(run), 0);
	assert_int_equal(stat_code(f->root), 0);
	other = must_find(f, "weights/runs/checkpoint-2/model.safetensors");
	assert_int_equal(unshard_node_stat(other, &is, NULL), 0);
	assert_true(was.ino != is.ino);
	unshard_node_unref(other);

	shell(f->dir, "rm -r src/runs/checkpoint-2/*_0");
	wait_recheck();
	code = stat_code(dir); /* a plain directory now */
	assert_true(code == -ESTALE || code == -ENOENT);
	shell(f->dir, "rm -r src/runs/checkpoint-2");
	wait_recheck();
	assert_int_equal(stat_code(dir), -ENOENT);
	assert_int_equal(stat_code(file), -ENOENT);
	unshard_node_unref(run);
	unshard_node_unref(dir);
	unshard_node_unref(file);
	session_close(f);
}

/* Outside checkpoints: another file of the same size with the same time. */
static void a_file_replaced_in_disguise_is_another(void **state)
{
	struct fixture *f = *state;
	unshard_node *file;
	struct unshard_stat was = { UNSHARD_STAT_INIT }, is = { UNSHARD_STAT_INIT };

	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT });
	file = must_find(f, "weights/runs/config.json");
	assert_int_equal(unshard_node_stat(file, &was, NULL), 0);
	shell(f->dir, "cd src/runs && cp -p config.json keep && "
		      "tr '[a-z]' '[b-za]' < keep > config.json && touch -r keep config.json");
	assert_int_equal(stat_code(file), -ESTALE);
	assert_int_equal(unshard_stat(f->u, "weights/runs/config.json", &is, NULL), 0);
	assert_int_equal(is.size_bytes, was.size_bytes);
	assert_int_equal(is.mtime_ns, was.mtime_ns);
	assert_true(is.ino != was.ino);
	unshard_node_unref(file);
	session_close(f);
}

static void the_root_is_never_stale(void **state)
{
	struct fixture *f = *state;
	struct unshard_stat was = { UNSHARD_STAT_INIT }, is = { UNSHARD_STAT_INIT };

	strcat(f->source, "/runs/checkpoint-2");
	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT, .view = "weights" });
	assert_int_equal(unshard_node_stat(f->root, &was, NULL), 0);
	shell(f->dir, "touch src/runs/checkpoint-2/optimizer_0/.metadata");
	wait_recheck();
	assert_int_equal(unshard_node_stat(f->root, &is, NULL), 0);
	assert_true(was.ino != is.ino);
	unshard_node_unref(must_find(f, "model.safetensors"));
	session_close(f);
}

/* -- memory -- */

static uint64_t figure(struct fixture *f, const char *name)
{
	char text[8192] = "", wanted[64], *at;
	unshard_file *file;

	assert_int_equal(unshard_file_open(f->u, ".unshard/stats.json", NULL, &file, NULL, NULL), 0);
	assert_true(unshard_pread(file, text, sizeof(text) - 1, 0, NULL) > 0);
	unshard_file_close(file);
	snprintf(wanted, sizeof(wanted), "\"%s\": ", name);
	at = strstr(text, wanted);
	assert_non_null(at);
	return strtoull(at + strlen(wanted), NULL, 10);
}

/* Snapshots are pinned by open files only: with nodes of everything held, that of the checkpoint used last is in
 * memory, and no other. */
static void nodes_hold_no_snapshots(void **state)
{
	enum { N = 4 };
	struct fixture *f = *state;
	unshard_node *node[N];
	uint64_t one = 0;
	char path[128];
	int i;

	for (i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "cp -r src/runs/checkpoint-2 src/runs/checkpoint-1%d", i);
		shell(f->dir, path);
	}
	session_open(f, (struct unshard_options){ UNSHARD_OPTIONS_INIT, .mem_bytes = 1 });
	for (i = 0; i < N; i++) {
		snprintf(path, sizeof(path), "weights/runs/checkpoint-1%d/model.safetensors", i);
		node[i] = must_find(f, path);
		one = i ? one : figure(f, "snapshot_bytes");
	}
	assert_in_range(figure(f, "snapshot_bytes"), 1, one);
	for (i = 0; i < N; i++) {
		assert_int_equal(stat_code(node[i]), 0); /* built again, and let go of again */
		unshard_node_unref(node[i]);
	}
	assert_in_range(figure(f, "snapshot_bytes"), 1, one);
	session_close(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(the_same_tree),
		TEST(one_view_and_one_checkpoint),
		TEST(bytes_by_node),
		TEST(what_is_no_name),
		TEST(a_changed_checkpoint_is_another),
		TEST(a_file_replaced_in_disguise_is_another),
		TEST(the_root_is_never_stale),
		TEST(nodes_hold_no_snapshots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

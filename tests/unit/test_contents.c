/* What is kept of a view's files without its tree: all that a listing needs, and within a bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "fake_clock.h"
#include "session/contents_kept.h"

static const struct uns_view view = { .name = "weights" }, other = { .name = "full" };

static void tree_add(struct uns_vtree *tree, const char *path, uint64_t size_bytes)
{
	const struct uns_vfile file = { .path = path, .layout.size_bytes = size_bytes, .source = UNS_NONE };
	struct uns_err err = { 0 };

	assert_int_equal(uns_vtree_add(tree, &file, &err), 0);
}

static struct contents *contents_of(const struct uns_view *of, const struct uns_vtree *tree)
{
	const struct uns_stat dir = { .kind = UNS_KIND_DIR, .mode = 0750, .uid = 7, .gid = 8, .id.mtime_ns = 9 };
	struct uns_catalog *cat;
	struct contents *made;
	struct uns_err err = { 0 };

	assert_int_equal(uns_catalog_new("ckpt", &cat, &err), 0);
	assert_int_equal(contents_new(&(struct contents_source){ of, 3, tree, cat, &dir }, &made, &err), 0);
	uns_catalog_free(cat);
	return made;
}

/* Sizes of one to ten bytes of seven bits; paths that are, or begin with, the one before; the file of all at the end.
 */
static void they_are_what_the_tree_has(void **state)
{
	static const struct uns_vfile whole = { .path = "ckpt.ckpt",
						.layout.size_bytes = UINT64_MAX - 1,
						.source = UNS_NONE };
	static const uint64_t sizes[] = { 0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX };
	static const char *const paths[] = { "a",
					     "a-long-path/with-a-name",
					     "a-long-path/with-a-name-2",
					     "b/\xc3\xbc",
					     "config.json",
					     "config.json.unshard",
					     "x/y/z",
					     "z" };
	struct uns_vtree tree = { .whole = &whole };
	struct contents *contents;
	struct contents_file file;
	struct contents_at at;
	struct uns_err err = { 0 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		tree_add(&tree, paths[i], sizes[i]);
	uns_vtree_seal(&tree);
	contents = contents_of(&view, &tree);
	assert_ptr_equal(contents->view, &view);
	assert_int_equal(contents->parameter, 3);
	assert_int_equal(contents_begin(contents, "", &tree.arena, &at, &err), 0);
	for (i = 0; i < tree.n; i++) {
		assert_true(contents_next(&at, &file));
		assert_string_equal(file.path, tree.v[i].path);
		assert_int_equal(file.size_bytes, tree.v[i].layout.size_bytes);
		assert_int_equal(file.attr.access.uid, 7);
		assert_int_equal(file.attr.access.gid, 8);
		assert_int_equal(file.attr.access.mode & ~0444u, 0);
		assert_int_equal(file.attr.mtime_ns, 9);
	}
	assert_false(contents_next(&at, &file));
	assert_true(contents->has_whole);
	assert_int_equal(contents_whole(contents).size_bytes, UINT64_MAX - 1);
	contents_unref(contents);
	uns_vtree_fini(&tree);
}

static void check_found(const struct contents *contents, const struct uns_vtree *tree, const char *path)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct contents_file file;
	struct contents_at at;
	struct uns_err err = { 0 };
	size_t i;

	assert_int_equal(contents_begin(contents, path, &arena, &at, &err), 0);
	for (i = 0; i < tree->n; i++) {
		if (!uns_path_within(tree->v[i].path, path))
			continue;
		assert_true(contents_next(&at, &file));
		assert_string_equal(file.path, tree->v[i].path);
		assert_int_equal(file.size_bytes, tree->v[i].layout.size_bytes);
	}
	assert_false(contents_next(&at, &file));
}

/* Each path, each directory on its way, and names that are not there, whatever they are next to: numbers with zeros in
 * front, signs that sort before and behind a slash. */
static void each_path_is_found(void **state)
{
	static const char *const dirs[] = {
		"a", "a-", "a0", "a1", "a01", "a001", "a10", "b", "b.c", "b/c", "\xff", "z"
	};
	static const char *const absent[] = {
		"A", "a/", "a00", "a2", "a01/x", "b/", "b/d", "\xff\xff", "zz", "-", "0"
	};
	struct uns_vtree tree = { 0 };
	struct contents *contents;
	char *path;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		for (k = 0; k < 45; k++)
			tree_add(&tree, uns_arena_printf(&tree.arena, "%s/%s%zu/f", dirs[i], k % 3 ? "0" : "", k), k);
	uns_vtree_seal(&tree);
	contents = contents_of(&view, &tree);
	for (i = 0; i < tree.n; i++) {
		path = uns_arena_str(&tree.arena, tree.v[i].path);
		for (; path; path = (char *)uns_path_parent(&tree.arena, path)) {
			check_found(contents, &tree, path);
			check_found(contents, &tree, uns_arena_printf(&tree.arena, "%s-", path));
			if (!*path)
				break;
		}
	}
	for (i = 0; i < sizeof(absent) / sizeof(*absent); i++)
		check_found(contents, &tree, absent[i]);
	contents_unref(contents);
	uns_vtree_fini(&tree);
}

static void nothing_is_nothing(void **state)
{
	struct uns_vtree tree = { 0 };
	struct contents *contents = contents_of(&view, &tree);
	struct contents_file file;
	struct contents_at at;
	struct uns_err err = { 0 };

	(void)state;
	assert_int_equal(contents_begin(contents, "", &tree.arena, &at, &err), 0);
	assert_false(contents_next(&at, &file));
	contents_unref(contents);
	uns_vtree_fini(&tree);
}

/* The names of a DeepSpeed universal directory, 700 parameters: a catalog has hundreds of bytes for each. */
static void a_file_takes_few_bytes(void **state)
{
	static const char *const what[] = { "exp_avg.pt", "exp_avg_sq.pt", "fp32.pt" };
	struct uns_vtree tree = { 0 };
	struct contents *contents;
	size_t i, k;

	(void)state;
	for (i = 0; i < 700; i++)
		for (k = 0; k < 3; k++)
			tree_add(&tree,
				 uns_arena_printf(&tree.arena, "zero/model.layers.%zu.self_attn.q_proj.weight/%s", i,
						  what[k]),
				 1 << 24);
	uns_vtree_seal(&tree);
	contents = contents_of(&view, &tree);
	assert_in_range(contents_bytes(contents), 1, 25 * tree.n);
	contents_unref(contents);
	uns_vtree_fini(&tree);
}

/* -- kept -- */

enum { N = 8 };

struct keeping {
	pthread_mutex_t lock;
	struct contents_kept kept;
	struct dir_record record[N];
	size_t one_bytes;
};

static void keeping_begin(struct keeping *k, size_t room)
{
	struct uns_vtree tree = { 0 };
	struct contents *contents = contents_of(&view, &tree);

	*k = (struct keeping){ .lock = PTHREAD_MUTEX_INITIALIZER, .one_bytes = contents_bytes(contents) };
	k->kept.lock = &k->lock;
	k->kept.most_bytes = room * k->one_bytes;
	TAILQ_INIT(&k->kept.by_use);
	contents_unref(contents);
}

static bool keep(struct keeping *k, size_t i, const struct uns_view *of)
{
	struct uns_vtree tree = { 0 };
	struct contents *contents = contents_of(of, &tree);
	const bool kept = contents_keep(&k->kept, &k->record[i], contents);

	contents_unref(contents);
	return kept;
}

static bool is_kept(struct keeping *k, size_t i, const struct uns_view *of)
{
	struct contents *contents = contents_find(&k->kept, &k->record[i], of, 3);
	const bool found = contents && contents->view == of;

	contents_unref(contents);
	return found;
}

static void keeping_end(struct keeping *k)
{
	size_t i;

	for (i = 0; i < N; i++)
		contents_forget(&k->kept, &k->record[i]);
	assert_int_equal(k->kept.bytes, 0);
	assert_true(TAILQ_EMPTY(&k->kept.by_use));
}

static void what_is_in_use_stays(void **state)
{
	struct keeping k;
	size_t i;

	(void)state;
	keeping_begin(&k, 4);
	for (i = 0; i < N; i++)
		assert_int_equal(keep(&k, i, &view), i < 4);
	assert_false(contents_have_room(&k.kept));
	for (i = 0; i < N; i++)
		assert_int_equal(is_kept(&k, i, &view), i < 4);
	assert_int_equal(k.kept.bytes, 4 * k.one_bytes);
	keeping_end(&k);
}

static void what_is_idle_gives_way(void **state)
{
	struct keeping k;
	size_t i;

	(void)state;
	keeping_begin(&k, 4);
	for (i = 0; i < 3; i++)
		assert_true(keep(&k, i, &view));
	assert_true(keep(&k, 0, &other));
	atomic_fetch_add(&fake_now_ms, 61000);
	assert_true(is_kept(&k, 1, &view)); /* and used by that */
	assert_true(is_kept(&k, 2, &view));
	assert_true(keep(&k, 4, &view)); /* 0 goes, with both views */
	assert_false(is_kept(&k, 0, &view));
	assert_false(is_kept(&k, 0, &other));
	assert_true(is_kept(&k, 1, &view));
	assert_true(is_kept(&k, 2, &view));
	assert_int_equal(k.kept.bytes, 3 * k.one_bytes);
	keeping_end(&k);
}

static void what_is_replaced_is_forgotten(void **state)
{
	struct contents *held;
	struct keeping k;

	(void)state;
	keeping_begin(&k, 4);
	assert_true(keep(&k, 0, &view));
	assert_false(keep(&k, 0, &view)); /* once is enough */
	held = contents_find(&k.kept, &k.record[0], &view, 3);
	assert_null(contents_find(&k.kept, &k.record[0], &view, 4));
	k.record[0].replaced = true;
	contents_forget(&k.kept, &k.record[0]);
	assert_false(is_kept(&k, 0, &view));
	assert_false(keep(&k, 0, &view));
	assert_int_equal(k.kept.bytes, 0);
	assert_ptr_equal(held->view, &view); /* good until its last reference has gone */
	contents_unref(held);
	keeping_end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(they_are_what_the_tree_has),
		cmocka_unit_test(nothing_is_nothing),
		cmocka_unit_test(each_path_is_found),
		cmocka_unit_test(a_file_takes_few_bytes),
		cmocka_unit_test(what_is_in_use_stays),
		cmocka_unit_test(what_is_idle_gives_way),
		cmocka_unit_test(what_is_replaced_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Trees: order, duplicates, files that stand where a directory is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/tree.h"

static void add(struct uns_vtree *tree, const char *path, const char *text)
{
	struct uns_err err = { 0 };

	assert_int_equal(uns_vtree_add_text(tree, path, text, strlen(text), "test", &err), 0);
}

static void check_paths(const struct uns_vtree *tree, const char *const *want, size_t n)
{
	size_t i;

	assert_int_equal(tree->n, n);
	for (i = 0; i < n; i++) {
		assert_string_equal(tree->v[i].path, want[i]);
		assert_ptr_equal(uns_vtree_find(tree, want[i]), &tree->v[i]);
	}
}

static void sorts_naturally(void **state)
{
	static const char *const want[] = { "a-b", "a/9", "a/10", "config.json", "x2", "x10" };
	struct uns_vtree tree = { 0 };

	(void)state;
	add(&tree, "x10", "");
	add(&tree, "a/10", "");
	add(&tree, "config.json", "{}");
	add(&tree, "a-b", "");
	add(&tree, "x2", "");
	add(&tree, "a/9", "");
	uns_vtree_seal(&tree);
	check_paths(&tree, want, 6);
	assert_null(uns_vtree_find(&tree, "a"));
	assert_null(uns_vtree_find(&tree, "zz"));
	assert_null(uns_vtree_find(&tree, ""));
	assert_int_equal(tree.n_notes, 0);
	assert_int_equal(uns_vtree_find(&tree, "config.json")->layout.size_bytes, 2);
	assert_int_equal(uns_vtree_find(&tree, "x2")->layout.n, 0);
	uns_vtree_fini(&tree);
}

/* With a line to paste at its end, which must be whole. */
static void a_note_of_any_length_is_whole(void **state)
{
	char line[4096];
	struct uns_vtree tree = { 0 };
	struct uns_err err = { 0 };

	(void)state;
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	assert_int_equal(uns_vtree_note(&tree, &err, "run `%s`", line), 0);
	assert_int_equal(strlen(tree.note[0]), strlen(line) + strlen("run ``"));
	assert_string_equal(tree.note[0] + strlen(tree.note[0]) - 3, "xx`");
	uns_vtree_fini(&tree);
}

static void first_of_equal_paths_stays(void **state)
{
	static const char *const want[] = { "a", "b" };
	struct uns_vtree tree = { 0 };
	const struct uns_vfile *b;

	(void)state;
	add(&tree, "b", "first");
	add(&tree, "a", "");
	add(&tree, "b", "second");
	add(&tree, "b", "third");
	uns_vtree_seal(&tree);
	check_paths(&tree, want, 2);
	b = uns_vtree_find(&tree, "b");
	assert_memory_equal(b->layout.segment[0].literal, "first", 5);
	assert_int_equal(tree.n_notes, 2);
	assert_string_equal(tree.note[0], "b: two files would have this name; only the first is shown");
	uns_vtree_fini(&tree);
}

static void a_file_is_no_directory(void **state)
{
	static const char *const want[] = { "a", "a-b", "ab/c" };
	struct uns_vtree tree = { 0 };

	(void)state;
	add(&tree, "a/b/c", "");
	add(&tree, "a-b", "");
	add(&tree, "ab/c", "");
	add(&tree, "a", "");
	uns_vtree_seal(&tree);
	check_paths(&tree, want, 3);
	assert_int_equal(tree.n_notes, 1);
	assert_string_equal(tree.note[0], "a/b/c is not shown, because a is a file");
	uns_vtree_fini(&tree);
}

static void missing_files_are_refused(void **state)
{
	struct uns_vtree tree = { 0 };
	struct uns_root *root;
	struct uns_catalog *cat;
	struct uns_err err = { 0 };
	uint32_t file;

	(void)state;
	assert_int_equal(uns_root_open("/", NULL, &root, &err), 0);
	assert_int_equal(uns_catalog_new("x", &cat, &err), 0);
	assert_int_equal(uns_catalog_add_file(cat, root, "no-such/config.json", &file, &err), 0);
	assert_int_equal(uns_vtree_add_file(&tree, cat, "config.json", file, &err), -ENODATA);
	assert_non_null(strstr(err.text, "no-such/config.json is missing"));
	uns_vtree_fini(&tree);
	uns_catalog_free(cat);
	uns_root_close(root);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sorts_naturally),
		cmocka_unit_test(a_note_of_any_length_is_whole),
		cmocka_unit_test(first_of_equal_paths_stays),
		cmocka_unit_test(a_file_is_no_directory),
		cmocka_unit_test(missing_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

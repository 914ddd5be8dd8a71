/* Filling, sealing and asking a catalog. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/catalog.h"
#include "said.h"

struct fixture {
	char dir[32];
	struct uns_root *root;
	struct uns_catalog *cat;
};

static void touch(const struct fixture *p, const char *name, size_t size)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", p->dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	while (size--)
		fputc('x', f);
	fclose(f);
}

static int setup(void **state)
{
	struct fixture *p = calloc(1, sizeof(*p));

	strcpy(p->dir, "/tmp/uns_catalog_XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	assert_int_equal(uns_root_open(p->dir, NULL, &p->root, NULL), 0);
	assert_int_equal(uns_catalog_new("checkpoint-1", &p->cat, NULL), 0);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *p = *state;
	char command[64];

	uns_catalog_free(p->cat);
	uns_root_close(p->root);
	snprintf(command, sizeof(command), "rm -r %s", p->dir);
	assert_int_equal(system(command), 0);
	free(p);
	return 0;
}

static struct uns_tensor tensor_of(const char *name, uint64_t rows)
{
	return (struct uns_tensor){ .name = name,
				    .key = name,
				    .root = "",
				    .dtype = UNS_F32,
				    .shape = { 2, { rows, 3 } },
				    .group = -1,
				    .position = -1,
				    .alias_of = UNS_NONE };
}

/* box: the piece's. */
static struct uns_piece rows_of(uint64_t first, uint64_t n, struct uns_box *box)
{
	*box = (struct uns_box){ 2, { first, 0 }, { n, 3 } };
	return (struct uns_piece){ .box = box, .length_bytes = n * 12 };
}

/* A text that could not be allocated, and that nobody checked, is no part of any catalog. */
static void refuses_all_once_an_allocation_has_failed(void **state)
{
	struct fixture *p = *state;
	struct uns_tensor t = tensor_of("w", 4);
	struct uns_err err = { 0 };
	uint32_t file;

	assert_int_equal(uns_catalog_add_tensor(p->cat, &t, NULL, &err), 0);
	assert_null(uns_arena_alloc(&p->cat->arena, SIZE_MAX / 2, 1));
	t.name = uns_arena_str(&p->cat->arena, NULL);
	assert_null(t.name);
	assert_int_equal(uns_catalog_add_tensor(p->cat, &t, NULL, &err), -ENOMEM);
	assert_string_equal(err.text, "out of memory");
	assert_int_equal(uns_catalog_add_file(p->cat, p->root, NULL, &file, NULL), -ENOMEM);
	assert_int_equal(UNS_ADD_FINDING(p->cat, NULL, FILE_MISSING, .file = NULL), -ENOMEM);
	assert_int_equal(p->cat->n_tensors, 1);
	assert_int_equal(uns_catalog_seal(p->cat, NULL), -ENOMEM);
	uns_arena_fini(&p->cat->arena);
	assert_int_equal(uns_arena_check(&p->cat->arena, NULL), 0);
}

static void lists_a_file_once(void **state)
{
	struct fixture *p = *state;
	uint32_t a, b, again;

	touch(p, "a", 5);
	assert_int_equal(uns_catalog_add_file(p->cat, p->root, "a", &a, NULL), 0);
	assert_int_equal(uns_catalog_add_file(p->cat, p->root, "gone", &b, NULL), 0);
	assert_int_equal(uns_catalog_add_file(p->cat, p->root, "a", &again, NULL), 0);
	assert_int_equal(again, a);
	assert_int_equal(p->cat->n_files, 2);
	assert_int_equal(p->cat->files[a].stat.id.size, 5);
	assert_false(p->cat->files[a].missing);
	assert_true(p->cat->files[b].missing);
	assert_string_equal(p->cat->files[b].path, "gone");
}

static void many_tensors_are_cheap(void **state)
{
	enum { N = 25000 };
	struct fixture *p = *state;
	struct uns_tensor t = tensor_of("w", 4);
	struct uns_box box;
	struct uns_piece piece = rows_of(0, 4, &box);
	uint32_t at;
	int i;

	touch(p, "f", 48);
	for (i = 0; i < N; i++) {
		assert_int_equal(uns_catalog_add_file(p->cat, p->root, "f", &piece.file, NULL), 0);
		assert_int_equal(uns_catalog_add_tensor(p->cat, &t, &at, NULL), 0);
		assert_int_equal(at, i);
		assert_int_equal(uns_catalog_add_piece(p->cat, &piece, NULL), 0);
	}
	assert_int_equal(uns_catalog_seal(p->cat, NULL), 0);
	assert_int_equal(p->cat->tensors[N - 1].first_piece, N - 1);
	/* Exactly sized, whatever growing took; tensors and pieces are there once, and not in the arena. */
	assert_in_range(p->cat->arena.used_bytes, 0, 4096);
	assert_int_equal(p->cat->cap_tensors, N);
	assert_int_equal(p->cat->cap_pieces, N);
	/* What comes later is in the arena. */
	assert_int_equal(uns_catalog_add_tensor(p->cat, &t, &at, NULL), 0);
	assert_int_equal(at, N);
	assert_int_equal(p->cat->tensors[N - 1].first_piece, N - 1);
	assert_true(p->cat->arena.used_bytes > N * sizeof(t));
	assert_int_equal(uns_catalog_add_piece(p->cat, &piece, NULL), -EINVAL);
}

static void equal_boxes_are_one(void **state)
{
	struct fixture *p = *state;
	struct uns_tensor t = tensor_of("w", 6);
	struct uns_box box;
	struct uns_piece piece;
	int i;

	for (i = 0; i < 4; i++) {
		piece = rows_of(i % 2 * 3, 3, &box);
		if (i % 2 == 0)
			assert_int_equal(uns_catalog_add_tensor(p->cat, &t, NULL, NULL), 0);
		assert_int_equal(uns_catalog_add_piece(p->cat, &piece, NULL), 0);
		box.lo[0] = 99; /* the catalog has a copy */
	}
	assert_ptr_equal(p->cat->pieces[0].box, p->cat->pieces[2].box);
	assert_ptr_equal(p->cat->pieces[1].box, p->cat->pieces[3].box);
	assert_int_equal(p->cat->pieces[0].box->lo[0], 0);
	assert_int_equal(p->cat->pieces[1].box->lo[0], 3);
}

static void sorts_pieces(void **state)
{
	struct fixture *p = *state;
	struct uns_tensor t = tensor_of("w", 6);
	struct uns_piece piece;
	struct uns_box box;
	uint32_t gone, here;
	size_t i;
	static const struct {
		uint64_t first, n;
		bool gone;
	} given[] = { { 4, 2, false }, { 0, 2, true }, { 2, 2, false }, { 6, 0, false }, { 0, 2, false } },
	  want[] = { { 0, 2, false }, { 0, 2, true }, { 2, 2, false }, { 4, 2, false }, { 6, 0, false } };

	touch(p, "here", 24);
	assert_int_equal(uns_catalog_add_file(p->cat, p->root, "gone", &gone, NULL), 0);
	assert_int_equal(uns_catalog_add_file(p->cat, p->root, "here", &here, NULL), 0);
	assert_int_equal(uns_catalog_add_tensor(p->cat, &t, NULL, NULL), 0);
	for (i = 0; i < 5; i++) {
		piece = rows_of(given[i].first, given[i].n, &box);
		piece.file = given[i].gone ? gone : here;
		assert_int_equal(uns_catalog_add_piece(p->cat, &piece, NULL), 0);
	}
	assert_int_equal(uns_catalog_seal(p->cat, NULL), 0);
	for (i = 0; i < 5; i++) {
		assert_int_equal(p->cat->pieces[i].box->lo[0], want[i].first);
		assert_int_equal(p->cat->pieces[i].box->len[0], want[i].n);
		assert_int_equal(p->cat->pieces[i].file, want[i].gone ? gone : here);
	}
}

static const struct uns_item_part behind = { 9, 20 }, begin = { 0, 20 };
static const uint64_t wide[UNS_MAX_DIMS] = { 100, 1 }, huge[UNS_MAX_DIMS] = { UINT64_MAX, 1 };

static void should_fail_to_seal(void **state)
{
	static const struct uns_box whole = { 2, { 0, 0 }, { 4, 3 } }, outside = { 2, { 3, 0 }, { 2, 3 } },
				    vector = { 1, { 0 }, { 4 } }, scalar = { 0 };
	static const struct {
		const char *name;
		struct uns_tensor t;
		struct uns_piece piece;
		const char *says;
	} cases[] = {
		{ "box outside",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &outside, .length_bytes = 24 },
		  "f: a shard is outside the tensor's shape [4, 3]" },
		{ "box of other dimensions",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &vector, .length_bytes = 24 },
		  "outside" },
		{ "range outside",
		  { .shape = { 2, { 4, 3 } } },
		  { .kind = UNS_PIECE_RANGE, .range = { 10, 3 }, .length_bytes = 24 },
		  "outside" },
		{ "extent too short",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &whole, .length_bytes = 47 },
		  "needs 48 bytes, only 47 are stored" },
		{ "strided extent too short",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &whole, .length_bytes = 48, .stride_elems = wide },
		  "needs 1212 bytes" },
		{ "strides overflow",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &whole, .length_bytes = 48, .stride_elems = huge },
		  "overflow" },
		{ "part of an item outside",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &whole, .container = UNS_TORCH_ITEM, .part = &behind },
		  "a shard is outside the 20 elements of its item" },
		{ "part of a compressed item",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &whole, .container = UNS_TORCH_ITEM, .codec = UNS_CODEC_ZSTD, .part = &begin },
		  "a shard is outside" },
		{ "offset overflows",
		  { .shape = { 2, { 4, 3 } } },
		  { .box = &whole, .length_bytes = 48, .offset_bytes = -8 },
		  "overflows" },
		{ "shape overflows", { .shape = { 2, { UINT64_MAX, 3 } } }, { .box = &scalar }, "2^63" },
		{ "no such file", { .shape = { 0 } }, { .box = &scalar, .file = 7, .length_bytes = 4 }, "not listed" },
		{ "alias of itself", { .alias_of = 0 }, { .box = &scalar, .length_bytes = 4 }, "share" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_err err = { 0 };
		struct fixture *p;
		struct uns_tensor t = cases[i].t;
		uint32_t file;
		void *own;

		print_message("%s\n", cases[i].name);
		setup(&own);
		p = own;
		t.name = t.key = "some.weight";
		t.dtype = UNS_F32;
		if (strcmp(cases[i].name, "alias of itself") != 0)
			t.alias_of = UNS_NONE;
		touch(p, "f", 48);
		assert_int_equal(uns_catalog_add_file(p->cat, p->root, "f", &file, NULL), 0);
		assert_int_equal(uns_catalog_add_tensor(p->cat, &t, NULL, NULL), 0);
		assert_int_equal(uns_catalog_add_piece(p->cat, &cases[i].piece, NULL), 0);
		assert_int_equal(uns_catalog_seal(p->cat, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "checkpoint-1: tensor some.weight: "));
		assert_non_null(strstr(err.text, cases[i].says));
		teardown(&own);
	}
}

static void assigns_groups(void **state)
{
	static const char *first[] = { "b", "a" }, *second[] = { "a", "c" };
	struct fixture *p = *state;
	const struct uns_group groups[] = {
		{ .param = first, .n_params = 2, .root = "optimizer" },
		{ .param = second, .n_params = 2, .root = "optimizer_1" },
	};
	static const struct {
		const char *name, *root;
		enum uns_role role;
		int group, position;
	} cases[] = {
		{ "a", "model", UNS_ROLE_WEIGHT, 0, 1 },      { "b", "model", UNS_ROLE_WEIGHT, 0, 0 },
		{ "c", "model", UNS_ROLE_WEIGHT, 1, 1 },      { "d", "model", UNS_ROLE_WEIGHT, -1, -1 },
		{ "a", "optimizer", UNS_ROLE_EXP_AVG, 0, 1 }, { "a", "optimizer_1", UNS_ROLE_EXP_AVG, 1, 0 },
		{ "c", "optimizer", UNS_ROLE_STEP, -1, -1 },  { "a", "other", UNS_ROLE_OTHER, -1, -1 },
	};
	struct uns_tensor t;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		t = tensor_of(cases[i].name, 1);
		t.root = cases[i].root;
		t.role = cases[i].role;
		assert_int_equal(uns_catalog_add_tensor(p->cat, &t, NULL, NULL), 0);
	}
	for (i = 0; i < 2; i++)
		assert_int_equal(uns_catalog_add_group(p->cat, &groups[i], NULL), 0);
	assert_int_equal(uns_catalog_assign_groups(p->cat, NULL), 0);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(p->cat->tensors[i].group, cases[i].group);
		assert_int_equal(p->cat->tensors[i].position, cases[i].position);
	}
}

static void finds_what_was_added(void **state)
{
	struct fixture *p = *state;
	struct uns_tensor t = tensor_of("w", 1);
	const struct uns_companion *c;
	uint32_t file;

	touch(p, "f", 3);
	assert_int_equal(uns_catalog_add_file(p->cat, p->root, "f", &file, NULL), 0);
	assert_int_equal(uns_catalog_add_companion(p->cat, "config.json", file, true, NULL), 0);
	assert_int_equal(uns_catalog_add_tensor(p->cat, &t, NULL, NULL), 0);
	assert_int_equal(
		uns_catalog_add_finding(
			p->cat, UNS_FINDING(.id = UNS_FOUND_SHARD_COUNT_UNKNOWN, .arg = { { "n", uns_num(7) } }), NULL),
		0);
	assert_int_equal(uns_catalog_seal(p->cat, NULL), 0);
	c = uns_catalog_companion(p->cat, "config.json");
	assert_non_null(c);
	assert_true(c->shard);
	assert_null(uns_catalog_companion(p->cat, "config"));
	assert_non_null(uns_catalog_find(p->cat, UNS_ROLE_WEIGHT, "w"));
	assert_null(uns_catalog_find(p->cat, UNS_ROLE_STEP, "w"));
	assert_int_equal(p->cat->findings[0].severity, UNS_NOTE);
	assert_string_equal(p->cat->findings[0].checkpoint, "checkpoint-1");
	assert_non_null(strstr(said(&p->cat->findings[0]), ": 7 were found;"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(refuses_all_once_an_allocation_has_failed, setup, teardown),
		cmocka_unit_test_setup_teardown(lists_a_file_once, setup, teardown),
		cmocka_unit_test_setup_teardown(many_tensors_are_cheap, setup, teardown),
		cmocka_unit_test_setup_teardown(equal_boxes_are_one, setup, teardown),
		cmocka_unit_test_setup_teardown(sorts_pieces, setup, teardown),
		cmocka_unit_test(should_fail_to_seal),
		cmocka_unit_test_setup_teardown(assigns_groups, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_what_was_added, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

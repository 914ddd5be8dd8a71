/* The proof that shards cover a tensor, and what it says when they do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/cover.h"

enum { MAX_PIECES = 6, WHOLE = 1000 };

struct shard {
	char file; /* 'a' .. 'c': is there with WHOLE bytes; 'x': is missing */
	int rank;
	struct uns_box box;
	struct uns_range range; /* used when box.n == 9 */
	uint64_t offset, length;
};

#define SCALAR(f, r) { .file = f, .rank = r }
#define VECTOR(f, r, first, n)                                       \
	{                                                            \
		.file = f, .rank = r, .box = { 1, { first }, { n } } \
	}
#define LONG(f, r, first, n, len) { .file = f, .rank = r, .box = { 1, { first }, { n } }, .length = len }
#define BOX(f, r, row, col, rows, cols)                                          \
	{                                                                        \
		.file = f, .rank = r, .box = { 2, { row, col }, { rows, cols } } \
	}
#define CUT(f, r, row, col, rows, cols, at) \
	{ .file = f, .rank = r, .box = { 2, { row, col }, { rows, cols } }, .offset = at }
#define RANGE(f, r, at, count)                                                           \
	{                                                                                \
		.file = f, .rank = r, .box = { 9, { 0 }, { 0 } }, .range = { at, count } \
	}

static const struct {
	const char *name;
	struct uns_shape shape;
	struct shard shard[MAX_PIECES]; /* file 0 ends the list */
	int code;
	const char *says;
} cases[] = {
	{ "one", { 2, { 4, 3 } }, { BOX('a', 0, 0, 0, 4, 3) }, 0, NULL },
	{ "scalar", { 0 }, { SCALAR('a', 0) }, 0, NULL },
	{ "no elements, no shards", { 2, { 0, 3 } }, { { 0 } }, 0, NULL },
	{ "rows, out of order",
	  { 2, { 5, 3 } },
	  { BOX('b', 1, 2, 0, 2, 3), BOX('a', 0, 0, 0, 2, 3), BOX('c', 2, 4, 0, 1, 3) },
	  0,
	  NULL },
	{ "an empty shard in a missing file",
	  { 2, { 1, 3 } },
	  { BOX('a', 0, 0, 0, 1, 3), BOX('x', 1, 1, 0, 0, 3) },
	  0,
	  NULL },
	{ "a grid",
	  { 2, { 4, 6 } },
	  { BOX('a', 0, 0, 0, 2, 4), BOX('a', 0, 0, 4, 2, 2), BOX('b', 1, 2, 0, 2, 4), BOX('b', 1, 2, 4, 2, 2) },
	  0,
	  NULL },
	{ "a pinwheel",
	  { 2, { 3, 3 } },
	  { BOX('a', 0, 0, 0, 1, 2), BOX('a', 1, 0, 2, 2, 1), BOX('a', 2, 2, 1, 1, 2), BOX('a', 3, 1, 0, 2, 1),
	    BOX('a', 4, 1, 1, 1, 1) },
	  0,
	  NULL },
	{ "ranges", { 2, { 3, 3 } }, { RANGE('b', 1, 5, 4), RANGE('a', 0, 0, 5) }, 0, NULL },
	{ "a range and rows", { 2, { 3, 3 } }, { RANGE('b', 1, 3, 6), BOX('a', 0, 0, 0, 1, 3) }, 0, NULL },
	{ "a replica", { 2, { 2, 3 } }, { BOX('a', 0, 0, 0, 2, 3), BOX('b', 1, 0, 0, 2, 3) }, 0, NULL },
	{ "a replica that is missing", { 2, { 2, 3 } }, { BOX('x', 0, 0, 0, 2, 3), BOX('b', 1, 0, 0, 2, 3) }, 0, NULL },

	{ "a missing file",
	  { 2, { 4, 3 } },
	  { BOX('a', 0, 0, 0, 2, 3), BOX('x', 1, 2, 0, 2, 3) },
	  -ENODATA,
	  "x.distcp is missing: it holds rank 1's piece of model.w (shape [4, 3]); copy it back "
	  "from the training machine" },
	{ "nothing at all", { 2, { 4, 3 } }, { { 0 } }, -ENODATA, "model.w: rows 0 to 3 of 4 are in no shard" },
	{ "a cut file",
	  { 2, { 4, 3 } },
	  { BOX('a', 0, 0, 0, 2, 3), CUT('b', 1, 2, 0, 2, 3, 990) },
	  -EBADMSG,
	  "b.distcp is truncated: expected at least 1014 bytes, found 1000; rank 1's piece of "
	  "model.w (shape [4, 3]) is incomplete; copy the file again from the training machine" },
	{ "the last rows",
	  { 2, { 18, 3 } },
	  { BOX('a', 0, 0, 0, 5, 3), BOX('b', 1, 5, 0, 4, 3) },
	  -EBADMSG,
	  "model.w: rows 9 to 17 of 18 are in no shard (found ranks 0, 1; file x.distcp is missing)" },
	{ "one row in the middle",
	  { 2, { 4, 3 } },
	  { BOX('a', 0, 0, 0, 1, 3), BOX('b', 3, 2, 0, 2, 3) },
	  -EBADMSG,
	  "model.w: row 1 of 4 is in no shard (found ranks 0, 3; file x.distcp is missing)" },
	{ "elements of a vector",
	  { 1, { 4 } },
	  { VECTOR('b', 1, 2, 2) },
	  -EBADMSG,
	  "model.w: elements 0 to 1 of 4 are in no shard (found rank 1; file" },
	{ "a hole in a range",
	  { 2, { 4, 3 } },
	  { RANGE('a', 0, 0, 4), RANGE('b', 1, 5, 7) },
	  -EBADMSG,
	  "model.w: element 4 of 12 is in no shard" },
	{ "a hole in a grid",
	  { 2, { 4, 6 } },
	  { BOX('a', 0, 0, 0, 2, 4), BOX('a', 0, 0, 4, 2, 2), BOX('b', 1, 2, 4, 2, 2) },
	  -EBADMSG,
	  "model.w: elements 12 to 15 of 24 are in no shard (found ranks 0, 1; file" },
	{ "columns that nobody has",
	  { 2, { 4, 6 } },
	  { BOX('a', 0, 0, 0, 4, 4) },
	  -EBADMSG,
	  "model.w: elements 4 to 5 of 24 are in no shard" },
	{ "rows twice",
	  { 2, { 4, 3 } },
	  { BOX('a', 0, 0, 0, 3, 3), BOX('b', 1, 2, 0, 2, 3) },
	  -EBADMSG,
	  "model.w: two shards hold the same elements (from row 2 on): one of a.distcp, one of "
	  "b.distcp" },
	{ "one element twice",
	  { 2, { 3, 3 } },
	  { RANGE('a', 0, 0, 5), RANGE('b', 1, 4, 5) },
	  -EBADMSG,
	  "model.w: two shards hold the same elements (from row 1 on)" },
	{ "boxes that overlap while their sizes add up",
	  { 2, { 4, 4 } },
	  { BOX('a', 0, 0, 0, 4, 2), BOX('b', 1, 0, 1, 4, 2) },
	  -EBADMSG,
	  "two shards hold the same elements" },
	{ "columns and a range",
	  { 2, { 4, 4 } },
	  { BOX('a', 0, 0, 0, 4, 2), RANGE('b', 1, 8, 8) },
	  -ENOTSUP,
	  "some of its shards hold boxes and others flat ranges" },
	{ "replicas of other lengths",
	  { 1, { 2 } },
	  { LONG('a', 0, 0, 2, 8), LONG('b', 1, 0, 2, 12) },
	  -EBADMSG,
	  "two copies of one piece have different lengths" },
};

static void add_shard(struct uns_catalog *cat, const struct uns_root *root, const struct shard *s)
{
	struct uns_piece piece = { .rank = s->rank, .offset_bytes = s->offset };
	char path[32];

	snprintf(path, sizeof(path), "ckpt/%c.distcp", s->file);
	if (s->box.n == 9) {
		piece.kind = UNS_PIECE_RANGE;
		piece.range = s->range;
	} else {
		piece.box = &s->box;
	}
	piece.length_bytes = s->length ? s->length : uns_piece_elems(&piece) * 4;
	assert_int_equal(uns_catalog_add_file(cat, root, path, &piece.file, NULL), 0);
	assert_int_equal(uns_catalog_add_piece(cat, &piece, NULL), 0);
}

static void run_case(const struct uns_root *root, size_t i)
{
	struct uns_tensor t = { .name = "w",
				.key = "model.w",
				.root = "model",
				.dtype = UNS_F32,
				.shape = cases[i].shape,
				.alias_of = UNS_NONE };
	const struct shard *s;
	struct uns_catalog *cat;
	struct uns_err err = { 0 };
	uint32_t unused;

	print_message("%s\n", cases[i].name);
	assert_int_equal(uns_catalog_new("ckpt", &cat, NULL), 0);
	assert_int_equal(uns_catalog_add_tensor(cat, &t, NULL, NULL), 0);
	assert_int_equal(uns_catalog_add_file(cat, root, "ckpt/x.distcp", &unused, NULL), 0);
	assert_int_equal(uns_catalog_add_file(cat, root, "other/y.distcp", &unused, NULL), 0);
	for (s = cases[i].shard; s->file; s++)
		add_shard(cat, root, s);
	assert_int_equal(uns_catalog_seal(cat, &err), 0);
	assert_int_equal(uns_cover_check(cat, &cat->tensors[0], &err), cases[i].code);
	if (cases[i].says && !strstr(err.text, cases[i].says))
		fail_msg("said: %s", err.text);
	uns_catalog_free(cat);
}

static void make_files(const char *dir)
{
	char path[64];
	FILE *f;
	int k;

	for (k = 0; k < 3; k++) {
		snprintf(path, sizeof(path), "%s/ckpt/%c.distcp", dir, 'a' + k);
		f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fprintf(f, "%*s", WHOLE, ""), WHOLE);
		fclose(f);
	}
}

static void covers(void **state)
{
	char dir[] = "/tmp/uns_cover_XXXXXX", command[64];
	struct uns_root *root;
	size_t i;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(command, sizeof(command), "mkdir %s/ckpt", dir);
	assert_int_equal(system(command), 0);
	make_files(dir);
	assert_int_equal(uns_root_open(dir, NULL, &root, NULL), 0);
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		run_case(root, i);
	uns_root_close(root);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
}

/* A thousand column shards, and a grid of 64 x 64, are proven in no time. */
static void covers_many(void **state)
{
	enum { GRID = 64 };
	struct uns_tensor t = { .name = "w",
				.key = "w",
				.root = "",
				.dtype = UNS_U8,
				.shape = { 2, { GRID * 2, GRID * 3 } },
				.alias_of = UNS_NONE };
	struct uns_box box = { 2, { 0 }, { 2, 3 } };
	struct uns_piece piece = { .box = &box, .length_bytes = 6 };
	struct uns_catalog *cat;
	struct uns_root *root;
	struct uns_err err = { 0 };
	uint64_t i;

	(void)state;
	assert_int_equal(uns_root_open("/proc/self", NULL, &root, NULL), 0);
	assert_int_equal(uns_catalog_new("", &cat, NULL), 0);
	assert_int_equal(uns_catalog_add_file(cat, root, "gone", &piece.file, NULL), 0);
	cat->files[0].missing = false;
	cat->files[0].stat.id.size = 6;
	assert_int_equal(uns_catalog_add_tensor(cat, &t, NULL, NULL), 0);
	for (i = 0; i < GRID * GRID; i++) {
		box.lo[0] = i * 37 % (GRID * GRID) / GRID * 2;
		box.lo[1] = i * 37 % (GRID * GRID) % GRID * 3;
		assert_int_equal(uns_catalog_add_piece(cat, &piece, NULL), 0);
	}
	assert_int_equal(uns_catalog_seal(cat, &err), 0);
	assert_int_equal(uns_cover_check(cat, &cat->tensors[0], &err), 0);
	cat->tensors[0].n_pieces--; /* the last one in order */
	assert_int_equal(uns_cover_check(cat, &cat->tensors[0], &err), -EBADMSG);
	assert_non_null(strstr(err.text, "in no shard"));
	uns_catalog_free(cat);
	uns_root_close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(covers), cmocka_unit_test(covers_many) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

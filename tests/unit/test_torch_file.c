/* The zip around tensors: read back by the parsers of torch files, from sizes that fit in one page to
 * records beyond 4 GiB, of which only the bytes that matter exist. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>
#include <zlib.h>

#include "base/checked.h"
#include "files/torch_file.h"
#include "wire/torchfile.h"
#include "wire/value_new.h"

enum { MAX_TENSORS = 4 };

struct made {
	struct uns_arena arena;
	struct uns_catalog cat;
	struct uns_tensor tensors[MAX_TENSORS];
	struct uns_piece pieces[MAX_TENSORS];
	struct uns_file file;
	struct uns_torch_leaf leaves[MAX_TENSORS];
	struct uns_value *root;
	struct uns_layout layout;
	struct uns_reader reader;
};

/* Byte i of the file: literals as they are, tensors are 0x55, CRCs 0. */
static int render(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	const struct uns_layout *l = self;
	size_t i = uns_layout_find(l, off), done = 0, n;

	(void)err;
	for (; done < len; i++, done += n) {
		const struct uns_segment *s = &l->segment[i];
		uint64_t skip = off + done - s->at_bytes;

		n = (size_t)uns_u64_min(len - done, s->len_bytes - skip);
		if (s->from == UNS_FROM_LITERAL)
			memcpy((uint8_t *)buf + done, s->literal + skip, n);
		else
			memset((uint8_t *)buf + done, s->from == UNS_FROM_PIECES ? 0x55 : 0, n);
	}
	return 0;
}

static void add(struct made *m, const char *name, enum uns_dtype dtype, struct uns_shape shape)
{
	size_t i = m->cat.n_tensors++;
	uint64_t bytes = uns_shape_elems(&shape) * uns_dtype_size(dtype);

	m->cat.n_pieces = m->cat.n_tensors;
	m->tensors[i] = (struct uns_tensor){ .name = name,
					     .key = name,
					     .root = "",
					     .dtype = dtype,
					     .shape = shape,
					     .first_piece = (uint32_t)i,
					     .n_pieces = 1,
					     .alias_of = UNS_NONE };
	m->pieces[i] = (struct uns_piece){ .kind = UNS_PIECE_RANGE,
					   .range = { 0, uns_shape_elems(&shape) },
					   .length_bytes = bytes };
	m->leaves[i] = (struct uns_torch_leaf){ .tensor = &m->tensors[i], .out = dtype, .shape = shape };
	assert_true(uns_value_put(m->root, uns_value_new_str(&m->arena, name), uns_value_new_tensor(&m->arena, i)));
}

static void start(struct made *m)
{
	memset(m, 0, sizeof(*m));
	m->file = (struct uns_file){ .path = "f", .stat.id.size = UINT64_MAX };
	m->cat = (struct uns_catalog){
		.path = "run", .files = &m->file, .n_files = 1, .tensors = m->tensors, .pieces = m->pieces
	};
	m->root = uns_value_new_dict(&m->arena, MAX_TENSORS);
}

static void build(struct made *m, struct uns_torchfile *out)
{
	const struct uns_torch_leaves leaves = { .v = m->leaves, .n = m->cat.n_tensors };
	const struct uns_torch_input in = { .cat = &m->cat, .root = m->root, .leaves = &leaves, .stem = "model" };
	struct uns_err err = { 0 };

	if (uns_part_torch_file(&in, &m->arena, &m->layout, &err) < 0)
		fail_msg("%s", err.text);
	m->reader = (struct uns_reader){ render, &m->layout, m->layout.size_bytes };
	if (uns_torchfile_open(&m->reader, &m->arena, out, &err) < 0)
		fail_msg("%s", err.text);
}

static const struct {
	const char *name;
	enum uns_dtype dtype;
	struct uns_shape shape;
} tensors[][MAX_TENSORS] = {
	{ { "one", UNS_F32, { 2, { 3, 5 } } } },
	{ { "scalar", UNS_F32, { 0, { 0 } } }, { "empty", UNS_BF16, { 2, { 0, 4 } } } },
	{ { "a", UNS_I64, { 1, { 7 } } }, { "b", UNS_F64, { 3, { 2, 3, 4 } } }, { "c", UNS_BOOL, { 1, { 65 } } } },
	/* Sizes, then offsets, do not fit in 32 bits; the last one stands behind them. */
	{ { "huge", UNS_BF16, { 2, { 70000, 70000 } } }, { "behind", UNS_F32, { 1, { 2 } } } },
	{ { "limit", UNS_U8, { 1, { 0xffffffff } } }, { "under", UNS_U8, { 1, { 0xfffffffe } } } },
};

static void test_read_back(void **state)
{
	struct uns_torch_tensor t;
	struct uns_torchfile file;
	struct made m;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
		start(&m);
		for (k = 0; k < MAX_TENSORS && tensors[i][k].name; k++)
			add(&m, tensors[i][k].name, tensors[i][k].dtype, tensors[i][k].shape);
		build(&m, &file);
		assert_string_equal(file.zip.prefix, "model/");
		for (k = 0; k < m.cat.n_tensors; k++) {
			uint8_t first = 0;

			if (uns_torch_tensor(&file, uns_value_get(file.root, tensors[i][k].name), &t, NULL) < 0)
				fail_msg("%s", tensors[i][k].name);
			assert_int_equal(t.dtype, tensors[i][k].dtype);
			assert_int_equal(t.n_dims, tensors[i][k].shape.n);
			assert_true(t.contiguous && t.data_bytes % 64 == 0);
			assert_true(t.storage_bytes == m.pieces[k].length_bytes);
			if (!t.storage_bytes)
				continue;
			render(&m.layout, &first, 1, t.data_bytes, NULL);
			assert_int_equal(first, 0x55);
			render(&m.layout, &first, 1, t.data_bytes + t.storage_bytes - 1, NULL);
			assert_int_equal(first, 0x55);
			render(&m.layout, &first, 1, t.data_bytes + t.storage_bytes, NULL);
			assert_int_equal(first, 'P');
		}
		uns_arena_fini(&m.arena);
	}
}

static void test_records_that_every_torch_wants(void **state)
{
	static const struct {
		const char *name, *bytes;
	} records[] = { { "version", "3\n" },
			{ "byteorder", "little" },
			{ ".format_version", "1" },
			{ ".storage_alignment", "64" } };
	const struct uns_zip_record *r;
	struct uns_torchfile file;
	struct uns_span bytes;
	struct made m;
	size_t i;

	(void)state;
	start(&m);
	add(&m, "w", UNS_F32, (struct uns_shape){ 1, { 3 } });
	build(&m, &file);
	for (i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		r = uns_zip_find(&file.zip, records[i].name);
		assert_non_null(r);
		assert_int_equal(uns_zip_read(&m.reader, r, 100, &m.arena, &bytes, NULL), 0);
		assert_int_equal(uns_span_left(&bytes), strlen(records[i].bytes));
		assert_memory_equal(bytes.p, records[i].bytes, uns_span_left(&bytes));
		assert_int_equal(r->crc32, (uint32_t)crc32_z(0, bytes.p, uns_span_left(&bytes)));
	}
	uns_arena_fini(&m.arena);
}

/* CRC segments: one behind each tensor's data, one in the directory, none for what is literal. */
static void test_where_crcs_are_asked_for(void **state)
{
	static const float one = 1;
	struct uns_torchfile file;
	struct made m;
	size_t i, n = 0;

	(void)state;
	start(&m);
	add(&m, "w", UNS_F32, (struct uns_shape){ 1, { 3 } });
	add(&m, "step", UNS_F32, (struct uns_shape){ 0, { 0 } });
	m.leaves[1].tensor = NULL;
	m.leaves[1].literal = (const uint8_t *)&one;
	build(&m, &file);
	for (i = 0; i < m.layout.n; i++)
		if (m.layout.segment[i].from == UNS_FROM_CRC32) {
			assert_ptr_equal(m.layout.segment[i].tensor, &m.tensors[0]);
			n++;
		}
	assert_int_equal(n, 2);
	assert_int_equal(uns_zip_find(&file.zip, "data/1")->crc32, (uint32_t)crc32_z(0, (const uint8_t *)&one, 4));
	uns_arena_fini(&m.arena);
}

static void test_equal_content_equal_bytes(void **state)
{
	uint8_t bytes[2][4096];
	struct uns_torchfile file;
	struct made m;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		start(&m);
		add(&m, "w", UNS_F32, (struct uns_shape){ 1, { 3 } });
		build(&m, &file);
		assert_true(m.layout.size_bytes < sizeof(bytes[i]));
		memset(bytes[i], 0, sizeof(bytes[i]));
		render(&m.layout, bytes[i], (size_t)m.layout.size_bytes, 0, NULL);
		uns_arena_fini(&m.arena);
	}
	assert_memory_equal(bytes[0], bytes[1], sizeof(bytes[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_back),
		cmocka_unit_test(test_records_that_every_torch_wants),
		cmocka_unit_test(test_where_crcs_are_asked_for),
		cmocka_unit_test(test_equal_content_equal_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Torch items, also compressed or damaged: bytes, comparison of tensors, values; bounded caches. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "engine/engine.h"
#include "read_made.h"

/* -- items -- */

static void reads_items(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32, UNS_F32, UNS_BF16 };
	struct uns_engine_stats stats;
	struct made m;
	struct file f;
	uint32_t id;
	uint64_t r;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_BF16, shape2(40, 33));
	for (r = 0; r < 40; r += 2)
		add_item_rows(&m, id, r, 2, PLAIN, UNS_CODEC_NONE);
	id = add_tensor(&m, UNS_F32, shape2(30, 21));
	add_item_rows(&m, id, 0, 10, TRANSPOSED, UNS_CODEC_NONE);
	add_item_rows(&m, id, 10, 20, NOT_AT_START, UNS_CODEC_NONE);
	id = add_tensor(&m, UNS_F32, shape2(30, 21));
	add_item_rows(&m, id, 0, 7, PLAIN, UNS_CODEC_ZSTD);
	add_item_rows(&m, id, 7, 9, TRANSPOSED, UNS_CODEC_ZSTD);
	add_item_rows(&m, id, 16, 14, NOT_AT_START, UNS_CODEC_ZSTD);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 16 << 20 });
	f = make_file(&m, out);
	check_window(&m, &f, 0, 13); /* a header needs no item */
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.source_reads, 0);
	check_windows(&m, &f, 500);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.decoded_pieces, 4); /* once each */
	assert_int_equal(stats.items_resolved, 14 + 2 + 1); /* the first third is left out */
	free(f.want);
	finish(&m);
}

/* An item that is not what the metadata says is refused, with what was expected. */
static void checks_items(void **state)
{
	static const struct {
		uint64_t rows;
		enum uns_dtype dtype;
		enum uns_codec codec;
		const char *a, *b;
	} cases[] = {
		{ 4, UNS_F32, UNS_CODEC_NONE, "shape [5, 3], the item has [4, 3]", "rank 7" },
		{ 5, UNS_I32, UNS_CODEC_NONE, "records dtype float32, the item has int32", "shard-0.bin" },
		{ 4, UNS_F32, UNS_CODEC_ZSTD, "shape [5, 3], the item has [4, 3]", "rank 7" },
		{ 5, UNS_I32, UNS_CODEC_ZSTD, "records dtype float32, the item has int32", "shard-0.bin" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct made m;
		struct uns_box box;
		struct file f;
		uint32_t id;

		start(&m);
		id = add_tensor(&m, cases[i].dtype, shape2(5, 3));
		add_item_rows(&m, id, 0, cases[i].rows, PLAIN, cases[i].codec);
		m.cat->tensors[id].dtype = UNS_F32;
		box = *m.cat->pieces[0].box;
		box.len[0] = 5;
		m.cat->pieces[0].box = &box;
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
		f = make_file(&m, NULL);
		check_fails(&m, &f.layout, -EBADMSG, cases[i].a, cases[i].b);
		check_fails(&m, &f.layout, -EBADMSG, "tensor model.w at byte 6", cases[i].b);
		free(f.want);
		finish(&m);
	}
}

/* Compressed bytes that are cut, damaged, or hold far more than the metadata says. */
static void refuses_damaged_zstd(void **state)
{
	static const struct {
		uint64_t rows_claimed;
		long cut, flip;
		const char *why;
	} cases[] = {
		{ 20000, 100, 0, "truncated" },
		{ 20000, 0, 3, "no zstd frame" },
		{ 20000, 0, 200, "zstd data" },
		{ 5, 0, 0, "holds more than the" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct made m;
		struct uns_box box;
		struct file f;
		uint32_t id;

		start(&m);
		id = add_tensor(&m, UNS_F32, shape2(20000, 3));
		add_item_rows(&m, id, 0, 20000, PLAIN, UNS_CODEC_ZSTD);
		m.cat->pieces[0].length_bytes -= cases[i].cut;
		m.cat->pieces[0].offset_bytes += cases[i].flip;
		m.cat->pieces[0].length_bytes -= cases[i].flip;
		box = *m.cat->pieces[0].box;
		box.len[0] = cases[i].rows_claimed;
		m.cat->pieces[0].box = &box;
		m.cat->tensors[0].shape.dim[0] = cases[i].rows_claimed;
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = 16 << 20 });
		f = make_file(&m, NULL);
		check_fails(&m, &f.layout, -EBADMSG, cases[i].why, "shard-0.bin");
		free(f.want);
		finish(&m);
	}
}

/* A sequential pass decompresses each item once, though the memory holds less than one of them. */
static void decodes_once_with_little_memory(void **state)
{
	static const uint64_t budgets[] = { 0, 100, 200 << 10, 700 << 10, 64 << 20 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(*budgets); i++) {
		struct uns_engine_stats stats;
		struct made m;
		struct file f;
		uint64_t at, r;
		uint32_t id;

		start(&m);
		id = add_tensor(&m, UNS_F32, shape2(400, 1000));
		for (r = 0; r < 400; r += 100)
			add_item_rows(&m, id, r, 100, r == 200 ? TRANSPOSED : PLAIN, UNS_CODEC_ZSTD);
		open_engine(&m, (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 1 << 30 });
		f = make_file(&m, NULL);
		for (at = 0; at < f.layout.size_bytes; at += 32 << 10)
			check_window(&m, &f, at, 32 << 10);
		for (at = 0; at < f.layout.size_bytes; at += 100 << 10)
			check_window(&m, &f, at, 32 << 10);
		uns_engine_stats(m.engine, &stats);
		assert_int_equal(stats.decoded_pieces, 3); /* make_file leaves out the first third */
		assert_true(stats.cache_bytes <= budgets[i]);
		free(f.want);
		finish(&m);
	}
}

static void says_when_nothing_fits(void **state)
{
	struct made m;
	struct file f;
	uint32_t id;

	(void)state;
	start(&m);
	id = add_tensor(&m, UNS_F32, shape2(100, 1000));
	add_item_rows(&m, id, 0, 100, PLAIN, UNS_CODEC_ZSTD);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1000, .spill_bytes = 2000 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -ENOSPC, "cache_size", m.dir);
	free(f.want);
	finish(&m);
}

/* -- comparison -- */

static void compares_tensors(void **state)
{
	static const struct {
		size_t a, b;
		bool equal;
		const char *how;
	} cases[] = {
		{ 0, 1, true, "recorded CRCs" }, { 0, 2, true, "comparison" },     { 1, 3, false, "recorded CRCs" },
		{ 2, 3, false, "comparison" },   { 4, 0, true, "comparison" },     { 4, 3, false, "comparison" },
		{ 5, 0, true, "comparison" },    { 6, 0, true, "recorded CRCs" },  { 6, 3, false, "recorded CRCs" },
		{ 7, 8, true, "recorded CRCs" }, { 7, 9, false, "recorded CRCs" }, { 7, 0, true, "comparison" },
	};
	struct made m;
	size_t i, n;
	bool equal;

	(void)state;
	start(&m);
	for (i = 0; i < 10; i++) {
		const bool columns = i >= 7;
		const size_t rows = i == 6 ? 10 : 20;
		uint32_t id = add_tensor(&m, UNS_F32, shape2(40, 25));

		memcpy(m.dense[id], m.dense[0], 4000);
		if (i == 3 || i == 9)
			m.dense[id][3999] ^= 1;
		if (i == 2)
			add_grid(&m, id, 20, 7);
		if (columns) {
			add_item_columns(&m, id, 0, 12);
			add_item_columns(&m, id, 12, 13);
		}
		for (n = 0; n < 40 && i != 2 && !columns; n += rows)
			add_item_rows(&m, id, n, rows, i == 5 && n ? TRANSPOSED : PLAIN,
				      i == 4 ? UNS_CODEC_ZSTD : UNS_CODEC_NONE);
	}
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct uns_err err = { 0 };
		const char *how;

		assert_int_equal(uns_backing_equal(m.backing, &m.cat->tensors[cases[i].a], &m.cat->tensors[cases[i].b],
						   &equal, &how, &err),
				 0);
		assert_int_equal(equal, cases[i].equal);
		assert_string_equal(how, cases[i].how);
	}
	finish(&m);
}

/* What the CRCs of an earlier comparison decide needs no item's header. */
static void compares_by_crcs_found_earlier(void **state)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text bytes = UNS_TEXT_INIT;
	struct uns_backing *again;
	struct uns_engine_stats stats;
	struct uns_err err = { 0 };
	struct made m;
	uint64_t resolved;
	bool equal;
	size_t i;

	(void)state;
	start(&m);
	for (i = 0; i < 2; i++) {
		uint32_t id = add_tensor(&m, UNS_F32, shape2(40, 25));

		memcpy(m.dense[id], m.dense[0], 4000);
		add_item_rows(&m, id, 0, 20, PLAIN, UNS_CODEC_NONE);
		add_item_rows(&m, id, 20, 20, PLAIN, UNS_CODEC_NONE);
	}
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	assert_int_equal(uns_backing_equal(m.backing, &m.cat->tensors[0], &m.cat->tensors[1], &equal, NULL, &err), 0);
	assert_true(equal);
	uns_engine_stats(m.engine, &stats);
	resolved = stats.items_resolved;
	assert_int_equal(resolved, 4);
	uns_backing_crc_export(m.backing, &bytes);

	assert_int_equal(uns_backing_new(m.engine, m.cat, &again, &err), 0);
	uns_backing_crc_import(again, uns_span_of(bytes.p, bytes.len));
	equal = false;
	assert_int_equal(uns_backing_equal(again, &m.cat->tensors[0], &m.cat->tensors[1], &equal, NULL, &err), 0);
	assert_true(equal);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.items_resolved, resolved);
	uns_backing_free(again);
	finish(&m);
}

/* -- values -- */

/* A saved int: a torch.save file whose pickle is K\x2a. */
static void add_value(struct made *m, enum uns_codec codec, bool damaged, struct uns_named_value *v)
{
	struct uns_text item = UNS_TEXT_INIT, dir = UNS_TEXT_INIT;
	struct uns_err err = { 0 };
	char z[1000];

	item_record(&item, &dir, "archive/data.pkl", "\x80\x02K\x2a.", 5);
	item_end(&item, &dir, 1);
	if (damaged)
		item.p[item.len - 22] ^= 1;
	*v = (struct uns_named_value){ .name = "optimizer.step", .root = "", .codec = codec };
	v->length_bytes = item.len;
	if (codec == UNS_CODEC_ZSTD)
		v->length_bytes = ZSTD_compress(z, sizeof(z), item.p, item.len, 1);
	v->file = add_file(m, codec == UNS_CODEC_ZSTD ? z : item.p, (size_t)v->length_bytes);
	assert_int_equal(uns_catalog_add_value(m->cat, v, &err), 0);
	uns_text_fini(&item);
	uns_text_fini(&dir);
}

static void reads_values(void **state)
{
	struct uns_named_value v[4];
	const struct uns_value *found;
	struct uns_err err = { 0 };
	struct made m;
	int64_t n;
	size_t i;

	(void)state;
	start(&m);
	add_value(&m, UNS_CODEC_NONE, false, &v[0]);
	add_value(&m, UNS_CODEC_ZSTD, false, &v[1]);
	add_value(&m, UNS_CODEC_NONE, true, &v[2]);
	add_value(&m, UNS_CODEC_ZSTD, true, &v[3]);
	open_engine(&m, (struct uns_engine_options){ 0 });
	for (i = 0; i < 2; i++) {
		assert_int_equal(uns_backing_value(m.backing, &v[i], &m.arena, &found, &err), 0);
		assert_true(uns_value_int(found, &n) && n == 42);
		v[i].value = found; /* known already: given back */
		assert_int_equal(uns_backing_value(m.backing, &v[i], &m.arena, &found, &err), 0);
		assert_ptr_equal(found, v[i].value);
	}
	for (i = 2; i < 4; i++) {
		err = (struct uns_err){ 0 };
		assert_int_equal(uns_backing_value(m.backing, &v[i], &m.arena, &found, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "optimizer.step at byte 0: truncated"));
	}
	finish(&m);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_items),
		cmocka_unit_test(checks_items),
		cmocka_unit_test(refuses_damaged_zstd),
		cmocka_unit_test(decodes_once_with_little_memory),
		cmocka_unit_test(says_when_nothing_fits),
		cmocka_unit_test(compares_tensors),
		cmocka_unit_test(compares_by_crcs_found_earlier),
		cmocka_unit_test(reads_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Bytes out of layouts, against an oracle that the test builds itself: windows over boxes, ranges, strides, casts and
 * blocks, with bounded descriptors. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "engine/cast.h"
#include "engine/engine.h"
#include "model/block_tensor.h"
#include "read_made.h"

/* -- windows -- */
static void reads_any_window(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	f = make_file(&m, NULL);
	check_windows(&m, &f, 1500);
	free(f.want);
	finish(&m);
}

static void casts_any_window(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32,  UNS_BF16, UNS_U8,  UNS_F16,  UNS_I64,
					      UNS_BF16, UNS_F16,  UNS_F32, UNS_BF16, UNS_F64 };
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_raw_tensors(&m);
	open_engine(&m, (struct uns_engine_options){ .cache_bytes = 1 << 20 });
	f = make_file(&m, out);
	check_windows(&m, &f, 1500);
	free(f.want);
	finish(&m);
}

static void reads_byte_by_byte(void **state)
{
	static const enum uns_dtype out[] = { UNS_F32 };
	struct made m;
	struct file f;
	uint64_t i;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_BF16, shape2(11, 13)), 4, 5);
	open_engine(&m, (struct uns_engine_options){ 0 });
	f = make_file(&m, out);
	for (i = 0; i < f.layout.size_bytes; i++) {
		check_window(&m, &f, i, 1);
		check_window(&m, &f, i, 7);
	}
	free(f.want);
	finish(&m);
}

/* -- blocks -- */

enum { MAX_BLOCKS = 2 };

/* What a tensor is made of; first_elem and len of each of its blocks, sources by their number in the catalog. */
static const struct block_row {
	struct uns_shape shape;
	size_t n;
	struct {
		unsigned n_sources;
		struct {
			size_t tensor;
			uint64_t first_elem;
		} source[2];
		uint64_t len[3];
		bool reversed;
	} block[MAX_BLOCKS];
} block_rows[] = {
	{ { 2, { 53, 37 } }, 1, { { 1, { { 0, 0 } }, { 1, 37, 53 }, true } } },
	/* columns that alternate; each block is a few rows of the tensor */
	{ { 2, { 40, 12 } },
	  2,
	  { { 1, { { 1, 40 } }, { 2, 6, 20 }, true }, { 1, { { 1, 280 } }, { 2, 6, 20 }, true } } },
	{ { 3, { 2, 20, 12 } },
	  2,
	  { { 1, { { 1, 760 } }, { 2, 6, 20 }, true }, { 1, { { 1, 0 } }, { 2, 6, 20 }, true } } },
	/* a source that must be decoded */
	{ { 2, { 18, 24 } }, 1, { { 1, { { 4, 0 } }, { 1, 24, 18 }, true } } },
	/* halves in two tensors, put in order and not */
	{ { 2, { 11, 14 } }, 1, { { 2, { { 2, 0 }, { 2, 100 } }, { 2, 7, 11 }, true } } },
	{ { 2, { 14, 11 } }, 1, { { 2, { { 2, 3 }, { 2, 200 } }, { 1, 14, 11 }, false } } },
	{ { 1, { 14 } }, 1, { { 1, { { 2, 20 } }, { 2, 7, 1 }, true } } },
	{ { 2, { 300000, 3 } }, 1, { { 1, { { 7, 0 } }, { 1, 3, 300000 }, true } } },
	{ { 2, { 130000, 9 } }, 1, { { 1, { { 8, 0 } }, { 1, 9, 130000 }, true } } },
};

static void put_block(const struct made *m, const struct uns_block *b, uint8_t *out)
{
	const uint64_t *len = b->len, share = len[0] * len[1] * len[2] / b->n_sources;
	const size_t es = uns_dtype_size(b->source[0].tensor->dtype);
	uint64_t p, r, c, from, to;

	for (p = 0; p < len[0]; p++)
		for (r = 0; r < len[1]; r++)
			for (c = 0; c < len[2]; c++) {
				from = (p * len[1] + r) * len[2] + c;
				to = b->reversed ? (c * len[1] + r) * len[0] + p : from;
				memcpy(out + to * es,
				       m->dense[b->source[from / share].tensor - m->cat->tensors] +
					       (b->source[from / share].first_elem + from % share) * es,
				       es);
			}
}

static struct file make_block_file(struct made *m, enum uns_dtype out)
{
	struct uns_layout_builder b = { .arena = &m->arena };
	struct uns_text want = UNS_TEXT_INIT;
	const struct uns_tensor *tensor;
	struct uns_err err = { 0 };
	struct file f;
	uint8_t *dense, *cast;
	size_t i, k, n, es;

	for (i = 0; i < sizeof(block_rows) / sizeof(block_rows[0]); i++) {
		const struct block_row *row = &block_rows[i];
		const enum uns_dtype dtype = m->cat->tensors[row->block[0].source[0].tensor].dtype;
		const enum uns_dtype to = uns_cast_exists(dtype, out) ? out : dtype;
		struct uns_block block[MAX_BLOCKS] = { 0 };

		n = (size_t)uns_shape_elems(&row->shape);
		es = uns_dtype_size(dtype);
		dense = malloc(n * es);
		for (k = 0; k < row->n; k++) {
			block[k] = (struct uns_block){ .n_sources = row->block[k].n_sources,
						       .reversed = row->block[k].reversed };
			memcpy(block[k].len, row->block[k].len, sizeof(block[k].len));
			block[k].source[0].tensor = &m->cat->tensors[row->block[k].source[0].tensor];
			block[k].source[0].first_elem = row->block[k].source[0].first_elem;
			block[k].source[1].tensor = &m->cat->tensors[row->block[k].source[1].tensor];
			block[k].source[1].first_elem = row->block[k].source[1].first_elem;
			put_block(m, &block[k], dense + k * (n / row->n) * es);
		}
		assert_int_equal(uns_block_tensor_make(m->cat, &row->shape, block, row->n, &m->arena, &tensor, &err),
				 0);
		cast = malloc(n * uns_dtype_size(to));
		uns_cast(dtype, dense, to, cast, n);
		uns_text_add(&want, cast, n * uns_dtype_size(to));
		uns_layout_tensor(&b, tensor, 0, n, to);
		free(cast);
		free(dense);
	}
	assert_int_equal(uns_layout_build(&b, m->cat, &f.layout, &err), 0);
	assert_int_equal(want.len, f.layout.size_bytes);
	f.want = (uint8_t *)uns_text_take(&want, NULL);
	return f;
}

/* Also where nothing fits into memory, or only one block does at a time. */
static void reads_blocks(void **state)
{
	static const uint64_t budgets[] = { 8 << 20, 2 << 20, 4096, 0 };
	struct made m;
	struct file f;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++)
		for (k = 0; k < 2; k++) {
			start(&m);
			add_raw_tensors(&m);
			open_engine(&m,
				    (struct uns_engine_options){ .cache_bytes = budgets[i], .spill_bytes = 3 << 20 });
			f = make_block_file(&m, k ? UNS_F32 : UNS_U8);
			check_windows(&m, &f, budgets[i] < 1 << 20 ? 40 : 300);
			free(f.want);
			finish(&m);
		}
}

static void refuses_other_casts(void **state)
{
	struct uns_layout_builder b;
	struct uns_err err = { 0 };
	struct uns_layout l;
	struct made m;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_I64, shape2(2, 2)), 2, 2);
	open_engine(&m, (struct uns_engine_options){ 0 });
	b = (struct uns_layout_builder){ .arena = &m.arena };
	uns_layout_tensor(&b, &m.cat->tensors[0], 0, 4, UNS_F32);
	assert_int_equal(uns_layout_build(&b, m.cat, &l, &err), 0);
	check_fails(&m, &l, -ENOTSUP, "model.w", "int64 cannot be converted to float32");
	finish(&m);
}

static void a_hole_is_an_error(void **state)
{
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_raw_range(&m, add_tensor(&m, UNS_F32, shape2(4, 4)), 0, 15);
	open_engine(&m, (struct uns_engine_options){ 0 });
	f = make_file(&m, NULL);
	check_fails(&m, &f.layout, -EBADMSG, "model.w", "40 of the 44 bytes");
	free(f.want);
	finish(&m);
}

static void an_alias_reads_the_other(void **state)
{
	struct uns_tensor alias;
	struct uns_layout_builder b;
	struct uns_err err = { 0 };
	struct uns_layout l;
	uint8_t buf[48];
	struct made m;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_F32, shape2(3, 4)), 2, 4);
	alias = m.cat->tensors[0];
	alias.alias_of = 0;
	assert_int_equal(uns_catalog_add_tensor(m.cat, &alias, NULL, &err), 0);
	open_engine(&m, (struct uns_engine_options){ 0 });
	b = (struct uns_layout_builder){ .arena = &m.arena };
	uns_layout_tensor(&b, &m.cat->tensors[1], 0, 12, UNS_F32);
	assert_int_equal(uns_layout_build(&b, m.cat, &l, &err), 0);
	assert_int_equal(uns_read(m.backing, &l, buf, sizeof(buf), 0, &err), 48);
	assert_memory_equal(buf, m.dense[0], 48);
	finish(&m);
}

static void whole_files_pass_through(void **state)
{
	struct uns_err err = { 0 };
	struct uns_layout l;
	char buf[32];
	uint32_t file;
	struct made m;

	(void)state;
	start(&m);
	file = add_file(&m, "{\"hidden_size\": 64}", 19);
	open_engine(&m, (struct uns_engine_options){ 0 });
	assert_int_equal(uns_layout_of_file(&m.arena, m.cat, file, &l, &err), 0);
	assert_int_equal(uns_read(m.backing, &l, buf, sizeof(buf), 2, &err), 17);
	assert_memory_equal(buf, "hidden_size\": 64}", 17);
	finish(&m);
}

static void descriptors_are_bounded(void **state)
{
	struct uns_engine_stats stats;
	struct made m;
	struct file f;

	(void)state;
	start(&m);
	add_grid(&m, add_tensor(&m, UNS_F32, shape2(60, 10)), 1, 10);
	open_engine(&m, (struct uns_engine_options){ .max_open_files = 4 });
	f = make_file(&m, NULL);
	check_windows(&m, &f, 100);
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.open_files, 4);
	uns_backing_free(m.backing);
	m.backing = NULL;
	uns_engine_stats(m.engine, &stats);
	assert_int_equal(stats.open_files, 0);
	free(f.want);
	finish(&m);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_any_window),
		cmocka_unit_test(casts_any_window),
		cmocka_unit_test(reads_blocks),
		cmocka_unit_test(reads_byte_by_byte),
		cmocka_unit_test(refuses_other_casts),
		cmocka_unit_test(a_hole_is_an_error),
		cmocka_unit_test(an_alias_reads_the_other),
		cmocka_unit_test(whole_files_pass_through),
		cmocka_unit_test(descriptors_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

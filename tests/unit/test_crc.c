/* CRCs of tensors: combined from recorded ones, found out on purpose, and kept once they were served. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "engine/engine.h"

enum { ROWS = 600, COLUMNS = 1000, BYTES = ROWS * COLUMNS * 4 };

/* One F32 tensor in two pieces of one raw file: halves of its rows, or of its columns. */
struct made {
	char dir[64];
	struct uns_root *root;
	struct uns_catalog *cat;
	struct uns_engine *engine;
	struct uns_backing *backing;
	struct uns_arena arena;
	struct uns_layout layout; /* data, 4 bytes, CRC: as a zip record has it */
	uint8_t *dense;
	uint32_t crc;
};

static void piece(struct made *m, uint32_t file, size_t i, bool rows, bool recorded)
{
	size_t half = BYTES / 2;
	struct uns_box box = { .n = 2, .len = { rows ? ROWS / 2 : ROWS, rows ? COLUMNS : COLUMNS / 2 } };
	struct uns_piece p = {
		.box = &box,
		.file = file,
		.offset_bytes = i * half,
		.length_bytes = half,
	};

	box.lo[rows ? 0 : 1] = i * (rows ? ROWS : COLUMNS) / 2;
	if (recorded)
		p.crc32 = (uint32_t)crc32_z(0, m->dense + i * half, half);
	assert_int_equal(uns_catalog_add_piece(m->cat, &p, NULL), 0);
}

/* The file's bytes in the order in which the pieces hold them. */
static void write_file(struct made *m, bool rows)
{
	char path[80];
	size_t r, half = COLUMNS * 2;
	int fd;

	snprintf(path, sizeof(path), "%s/data", m->dir);
	fd = open(path, O_CREAT | O_WRONLY, 0644);
	assert_true(fd >= 0);
	if (rows)
		assert_int_equal(write(fd, m->dense, BYTES), BYTES);
	for (r = 0; !rows && r < 2 * ROWS; r++)
		assert_int_equal(write(fd, m->dense + (r % ROWS) * 2 * half + r / ROWS * half, half), half);
	close(fd);
}

static void start(struct made *m, bool rows, bool recorded)
{
	struct uns_engine_options options = { .n_threads = 4 };
	struct uns_tensor t = { .name = "w",
				.key = "w",
				.root = "",
				.dtype = UNS_F32,
				.shape = { .n = 2, .dim = { ROWS, COLUMNS } },
				.group = -1,
				.position = -1,
				.alias_of = UNS_NONE };
	struct uns_layout_builder b = { .arena = &m->arena };
	uint32_t file, i;

	*m = (struct made){ .dense = malloc(BYTES) };
	for (i = 0; i < BYTES; i++)
		m->dense[i] = (uint8_t)(i * 2654435761u >> 13);
	m->crc = (uint32_t)crc32_z(0, m->dense, BYTES);
	strcpy(m->dir, "/tmp/unshard-crc-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	write_file(m, rows);
	assert_int_equal(uns_root_open(m->dir, NULL, &m->root, NULL), 0);
	assert_int_equal(uns_catalog_new("checkpoint-1", &m->cat, NULL), 0);
	assert_int_equal(uns_catalog_add_file(m->cat, m->root, "data", &file, NULL), 0);
	assert_int_equal(uns_catalog_add_tensor(m->cat, &t, &i, NULL), 0);
	piece(m, file, 0, rows, recorded);
	piece(m, file, 1, rows, recorded);
	assert_int_equal(uns_catalog_seal(m->cat, NULL), 0);
	assert_int_equal(uns_engine_new(&options, &m->engine, NULL), 0);
	assert_int_equal(uns_backing_new(m->engine, m->cat, &m->backing, NULL), 0);
	uns_layout_tensor(&b, m->cat->tensors, 0, ROWS * COLUMNS, UNS_F32);
	uns_layout_literal(&b, "PK\7\10", 4);
	uns_layout_crc32(&b, m->cat->tensors, UNS_F32);
	assert_int_equal(uns_layout_build(&b, m->cat, &m->layout, NULL), 0);
}

static void finish(struct made *m)
{
	char path[80];

	uns_backing_free(m->backing);
	uns_engine_free(m->engine);
	uns_catalog_free(m->cat);
	uns_root_close(m->root);
	uns_arena_fini(&m->arena);
	free(m->dense);
	snprintf(path, sizeof(path), "%s/data", m->dir);
	unlink(path);
	rmdir(m->dir);
}

/* The CRC as a reader of the file sees it. */
static uint32_t shown(struct made *m)
{
	uint8_t b[4];

	assert_int_equal(uns_read(m->backing, &m->layout, b, 4, BYTES + 4, NULL), 4);
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void read_part(struct made *m, uint64_t at, size_t len)
{
	uint8_t *buf = malloc(len);

	assert_int_equal(uns_read(m->backing, &m->layout, buf, len, at, NULL), (ssize_t)len);
	assert_memory_equal(buf, m->dense + at, len);
	free(buf);
}

static struct uns_engine_stats stats(const struct made *m)
{
	struct uns_engine_stats s;

	uns_engine_stats(m->engine, &s);
	return s;
}

static const struct {
	const char *name;
	bool rows, recorded, exact;
	bool right; /* what is shown is the CRC, else 0 */
	bool reads; /* and the data is read for it, when the file is opened */
} kinds[] = {
	{ "whole rows, recorded", true, true, false, true, false },
	{ "whole rows, recorded, exact", true, true, true, true, false },
	{ "not recorded", true, false, false, false, false },
	{ "not recorded, exact", true, false, true, true, true },
	{ "columns, recorded", false, true, false, false, false },
	{ "columns, exact", false, true, true, true, true },
};

static void test_what_is_shown(void **state)
{
	struct made m;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		start(&m, kinds[i].rows, kinds[i].recorded && kinds[i].rows);
		if (kinds[i].exact)
			assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, NULL, NULL), 0);
		assert_int_equal(stats(&m).source_read_bytes, kinds[i].reads ? BYTES : 0);
		assert_int_equal(shown(&m), kinds[i].right ? m.crc : 0);
		assert_int_equal(stats(&m).source_read_bytes, kinds[i].reads ? BYTES : 0);
		assert_int_equal(stats(&m).crc_exact, kinds[i].right);
		assert_int_equal(stats(&m).crc_zero, !kinds[i].right);
		shown(&m);
		assert_int_equal(stats(&m).crc_exact + stats(&m).crc_zero, 1);
		finish(&m);
	}
}

/* In four stretches, out of order, one of them twice. */
static void read_all(struct made *m)
{
	read_part(m, BYTES / 2, BYTES / 4);
	read_part(m, 0, BYTES / 4 + 3);
	read_part(m, 0, BYTES / 4 + 3);
	read_part(m, BYTES / 4 * 3, BYTES / 4);
	read_part(m, BYTES / 4 + 3, BYTES / 4 - 3);
}

/* Whoever asked for no CRC pays for none: data that goes by is read once, and no CRC is made of it. */
static void test_reading_finds_nothing_out(void **state)
{
	struct made m;

	(void)state;
	start(&m, false, false);
	read_all(&m);
	assert_int_equal(stats(&m).source_read_bytes, BYTES + BYTES / 4 + 3);
	assert_int_equal(stats(&m).crc_total_bytes, 0);
	assert_int_equal(uns_backing_crc_changes(m.backing), 0);
	assert_int_equal(shown(&m), 0);
	finish(&m);
}

/* A read looks up: it reads no data for a CRC that was not found before. */
static void test_zero_stays_once_it_was_served(void **state)
{
	struct made m;

	(void)state;
	start(&m, false, false);
	assert_int_equal(shown(&m), 0);
	assert_int_equal(stats(&m).source_read_bytes, 0);
	assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, NULL, NULL), 0);
	assert_int_equal(uns_backing_crc_changes(m.backing), 1); /* it is known now, for the store */
	assert_int_equal(shown(&m), 0);
	finish(&m);
}

/* Each type has a memo of its own: what was served as one does not change what is served as
 * another, nor is it forgotten for that. */
static void test_served_as_two_types(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_layout_builder b = { .arena = &arena };
	struct uns_layout as_bf16;
	uint32_t first, again;
	struct made m;

	(void)state;
	start(&m, false, false);
	uns_layout_tensor(&b, m.cat->tensors, 0, ROWS * COLUMNS, UNS_BF16);
	uns_layout_literal(&b, "PK\7\10", 4);
	uns_layout_crc32(&b, m.cat->tensors, UNS_BF16);
	assert_int_equal(uns_layout_build(&b, m.cat, &as_bf16, NULL), 0);

	assert_int_equal(shown(&m), 0);
	assert_int_equal(uns_backing_crcs_find(m.backing, &as_bf16, NULL, NULL), 0);
	assert_int_equal(uns_backing_crc(m.backing, m.cat->tensors, UNS_BF16, &first, NULL), 0);
	assert_true(first != 0 && first != m.crc);
	assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, NULL, NULL), 0);
	assert_int_equal(shown(&m), 0);
	assert_int_equal(uns_backing_crc(m.backing, m.cat->tensors, UNS_BF16, &again, NULL), 0);
	assert_int_equal(again, first);
	assert_int_equal(stats(&m).crc_exact, 1);
	assert_int_equal(stats(&m).crc_zero, 1);
	finish(&m);
}

/* -- several readers at once: all are served what the first was, while the CRC is found -- */

struct reader {
	struct made *m;
	uint32_t crc[200];
};

static void *read_often(void *arg)
{
	struct reader *r = arg;
	size_t i;

	for (i = 0; i < sizeof(r->crc) / sizeof(*r->crc); i++)
		r->crc[i] = shown(r->m);
	return NULL;
}

static void test_all_readers_agree(void **state)
{
	enum { N = 6 };
	static struct reader r[N];
	pthread_t thread[N];
	struct made m;
	size_t i, k;

	(void)state;
	start(&m, false, false);
	for (i = 0; i < N; i++) {
		r[i].m = &m;
		assert_int_equal(pthread_create(&thread[i], NULL, read_often, &r[i]), 0);
	}
	assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, NULL, NULL), 0);
	for (i = 0; i < N; i++)
		pthread_join(thread[i], NULL);
	for (i = 0; i < N; i++)
		for (k = 0; k < sizeof(r->crc) / sizeof(*r->crc); k++)
			assert_int_equal(r[i].crc[k], r[0].crc[0]);
	finish(&m);
}

static void test_kept_and_brought_back(void **state)
{
	struct uns_text bytes = UNS_TEXT_INIT;
	struct made m;

	(void)state;
	start(&m, false, false);
	assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, NULL, NULL), 0);
	uns_backing_crc_export(m.backing, &bytes);
	finish(&m);
	start(&m, false, false);
	uns_backing_crc_import(m.backing, uns_span_of(bytes.p, bytes.len - 1)); /* cut: nothing of it */
	assert_int_equal(uns_backing_crc_changes(m.backing), 0);
	uns_backing_crc_import(m.backing, uns_span_of(bytes.p, bytes.len));
	assert_int_equal(shown(&m), m.crc);
	finish(&m);
	uns_text_fini(&bytes);
}

static void test_found_all_at_once(void **state)
{
	struct made m;

	(void)state;
	start(&m, false, false);
	assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, NULL, NULL), 0);
	assert_int_equal(stats(&m).crc_done_bytes, BYTES);
	assert_int_equal(stats(&m).crc_total_bytes, BYTES);
	assert_int_equal(shown(&m), m.crc);
	assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, NULL, NULL), 0);
	assert_int_equal(stats(&m).crc_done_bytes, BYTES);
	finish(&m);
}

static bool after_some(void *ctx)
{
	return __atomic_sub_fetch((int *)ctx, 1, __ATOMIC_RELAXED) < 0;
}

static void test_stopped(void **state)
{
	struct uns_err err = { 0 };
	struct made m;
	int left;

	(void)state;
	for (left = 0; left < 3; left++) {
		int n = left;
		const struct uns_stop stop = { after_some, &n };

		start(&m, false, false);
		err = (struct uns_err){ 0 };
		assert_int_equal(uns_backing_crcs_find(m.backing, &m.layout, &stop, &err), -EINTR);
		assert_non_null(strstr(err.text, "interrupted"));
		assert_true(stats(&m).crc_done_bytes < BYTES);
		assert_int_equal(uns_backing_crc_changes(m.backing), 0);
		finish(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_shown),
		cmocka_unit_test(test_reading_finds_nothing_out),
		cmocka_unit_test(test_zero_stays_once_it_was_served),
		cmocka_unit_test(test_served_as_two_types),
		cmocka_unit_test(test_all_readers_agree),
		cmocka_unit_test(test_kept_and_brought_back),
		cmocka_unit_test(test_found_all_at_once),
		cmocka_unit_test(test_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

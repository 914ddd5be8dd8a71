/* wire/zip.c against archives built here byte by byte, so that each lie a directory can tell is one
 * row of a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "wire/zip.h"

#define HOLE (UINT64_C(5) << 30)

/* An archive under construction. A hole stands for gigabytes of zeros that take no memory. */
struct archive {
	uint8_t p[96 * 1024];
	size_t len;
	size_t hole_at;     /* in p; 0 = no hole */
	uint64_t hole_size;
	unsigned reads;
	/* Places in p, for the tables below. */
	size_t local[4], entry[4], end64, locator, end;
	unsigned n;
};

static uint64_t offset_of(const struct archive *a, size_t at)
{
	return at + (a->hole_at && at >= a->hole_at ? a->hole_size : 0);
}

static int archive_pread(void *self, void *buf, size_t len, uint64_t off, struct uns_err *err)
{
	struct archive *a = self;
	uint8_t *out = buf;
	size_t i;

	(void)err;
	a->reads++;
	for (i = 0; i < len; i++, off++) {
		if (!a->hole_at || off < a->hole_at)
			out[i] = a->p[off];
		else if (off < a->hole_at + a->hole_size)
			out[i] = 0;
		else
			out[i] = a->p[off - a->hole_size];
	}
	return 0;
}

static struct uns_reader reader_of(struct archive *a)
{
	return (struct uns_reader){ archive_pread, a, offset_of(a, a->len) };
}

static void set(uint8_t *p, unsigned n_bytes, uint64_t v)
{
	unsigned i;

	for (i = 0; i < n_bytes; i++)
		p[i] = (uint8_t)(i < 8 ? v >> (8 * i) : 0);
}

static void put(struct archive *a, unsigned n_bytes, uint64_t v)
{
	assert_true(a->len + n_bytes <= sizeof(a->p));
	set(a->p + a->len, n_bytes, v);
	a->len += n_bytes;
}

static void put_bytes(struct archive *a, const void *bytes, size_t len)
{
	assert_true(a->len + len <= sizeof(a->p));
	memcpy(a->p + a->len, bytes, len);
	a->len += len;
}

static void put_local(struct archive *a, unsigned k, const char *name, size_t extra)
{
	a->local[k] = a->len;
	put(a, 4, 0x04034b50);
	put(a, 2, 0);
	put(a, 2, 0x0808);
	put(a, 18, 0); /* method, time, crc, sizes: in the descriptor */
	put(a, 2, strlen(name));
	put(a, 2, extra);
	put_bytes(a, name, strlen(name));
	put(a, 2, 0x4246);
	put(a, 2, extra - 4);
	while (extra-- > 4)
		put(a, 1, 'Z');
}

enum { WIDE_SIZES = 1, WIDE_OFFSET = 2 };

static void put_entry(struct archive *a, unsigned k, const char *name, uint64_t size, uint32_t crc, unsigned wide)
{
	uint64_t offset = offset_of(a, a->local[k]);

	a->entry[k] = a->len;
	put(a, 4, 0x02014b50);
	put(a, 4, 0);
	put(a, 2, 0x0808);
	put(a, 2, 0); /* stored */
	put(a, 4, 0);
	put(a, 4, crc);
	put(a, 4, wide & WIDE_SIZES ? 0xffffffff : size);
	put(a, 4, wide & WIDE_SIZES ? 0xffffffff : size);
	put(a, 2, strlen(name));
	put(a, 2, (wide ? 4 : 0) + (wide & WIDE_SIZES ? 16 : 0) + (wide & WIDE_OFFSET ? 8 : 0));
	put(a, 10, 0); /* comment, disk, attributes */
	put(a, 4, wide & WIDE_OFFSET ? 0xffffffff : offset);
	put_bytes(a, name, strlen(name));
	if (wide) {
		put(a, 2, 1);
		put(a, 2, (wide & WIDE_SIZES ? 16 : 0) + (wide & WIDE_OFFSET ? 8 : 0));
	}
	if (wide & WIDE_SIZES) {
		put(a, 8, size);
		put(a, 8, size);
	}
	if (wide & WIDE_OFFSET)
		put(a, 8, offset);
}

static void put_end(struct archive *a, uint64_t n, size_t dir, bool with64, uint16_t comment)
{
	uint64_t dir_off = offset_of(a, dir), dir_size = a->len - dir;

	a->end64 = a->len;
	if (with64) {
		put(a, 4, 0x06064b50);
		put(a, 8, 44);
		put(a, 4, 0);
		put(a, 8, 0); /* disks */
		put(a, 8, n);
		put(a, 8, n);
		put(a, 8, dir_size);
		put(a, 8, dir_off);
		a->locator = a->len;
		put(a, 4, 0x07064b50);
		put(a, 4, 0);
		put(a, 8, offset_of(a, a->end64));
		put(a, 4, 1);
	}
	a->end = a->len;
	put(a, 4, 0x06054b50);
	put(a, 4, 0);
	put(a, 2, n);
	put(a, 2, n);
	put(a, 4, dir_size);
	put(a, 4, dir_off > 0xffffffff ? 0xffffffff : dir_off);
	put(a, 2, comment);
	while (comment--)
		put(a, 1, 'c');
}

static const struct {
	const char *name, *data;
} records[] = {
	{ "archive/data.pkl", "a pickle" },
	{ "archive/data/0", "sixteen bytes..." },
	{ "archive/version", "3\n" },
};

enum { N_RECORDS = 3 };

static uint32_t crc_of(const char *data)
{
	return (uint32_t)crc32(0, (const Bytef *)data, (uInt)strlen(data));
}

static void build(struct archive *a, unsigned wide, bool with64, uint16_t comment)
{
	size_t dir;
	unsigned k;

	memset(a, 0, sizeof(*a));
	for (k = 0; k < N_RECORDS; k++) {
		put_local(a, k, records[k].name, 20);
		put_bytes(a, records[k].data, strlen(records[k].data));
		put(a, 4, 0x08074b50);
		put(a, 4, crc_of(records[k].data));
		put(a, 8, 0);
	}
	dir = a->len;
	for (k = 0; k < N_RECORDS; k++)
		put_entry(a, k, records[k].name, strlen(records[k].data), crc_of(records[k].data), wide);
	put_end(a, N_RECORDS, dir, with64, comment);
}

static void check_content(struct archive *a)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_reader r = reader_of(a);
	struct uns_err err = { 0 };
	struct uns_zip zip;
	unsigned k;

	if (uns_zip_open(&r, &arena, &zip, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(zip.n, N_RECORDS);
	assert_string_equal(zip.prefix, "archive/");
	for (k = 0; k < N_RECORDS; k++) {
		const struct uns_zip_record *rec = uns_zip_find(&zip, records[k].name + 8);
		struct uns_span got;
		uint64_t start = 0;

		assert_non_null(rec);
		assert_string_equal(rec->name, records[k].name);
		assert_int_equal(uns_zip_read(&r, rec, 100, &arena, &got, &err), 0);
		assert_int_equal(uns_span_left(&got), strlen(records[k].data));
		assert_memory_equal(got.p, records[k].data, strlen(records[k].data));
		assert_int_equal(uns_zip_data(&r, rec, &start, &err), 0);
		assert_memory_equal(a->p + start, records[k].data, strlen(records[k].data));
	}
	assert_null(uns_zip_find(&zip, "data"));
	assert_null(uns_zip_find(&zip, "data/00"));
	assert_null(uns_zip_find(&zip, ""));
}

static void test_forms(void **state)
{
	static struct archive a;
	unsigned wide;

	(void)state;
	for (wide = 0; wide <= (WIDE_SIZES | WIDE_OFFSET); wide++) {
		build(&a, wide, true, 0);
		check_content(&a);
		build(&a, wide, false, 0);
		check_content(&a);
		build(&a, wide, true, 65535);
		check_content(&a);
	}
}

static void test_small_archive_takes_one_read(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	static struct archive a;
	struct uns_err err = { 0 };
	struct uns_reader r;
	struct uns_span got;
	struct uns_zip zip;

	(void)state;
	build(&a, 0, true, 0);
	r = reader_of(&a);
	assert_int_equal(uns_zip_open(&r, &arena, &zip, &err), 0);
	assert_int_equal(a.reads, 1);
	assert_int_equal(uns_zip_read(&r, uns_zip_find(&zip, "data.pkl"), 100, &arena, &got, &err), 0);
	assert_int_equal(a.reads, 2);
}

static void test_large_directory_takes_two_reads(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	static struct archive a;
	struct uns_err err = { 0 };
	struct uns_reader r;
	struct uns_zip zip;
	char name[32];
	unsigned k, n = 200;
	size_t local[200], dir;

	(void)state;
	memset(&a, 0, sizeof(a));
	for (k = 0; k < n; k++) {
		snprintf(name, sizeof(name), "m/data/%u", k);
		put_local(&a, 0, name, 8);
		local[k] = a.local[0];
	}
	dir = a.len;
	for (k = 0; k < n; k++) {
		snprintf(name, sizeof(name), "m/data/%u", k);
		a.local[0] = local[k];
		put_entry(&a, 0, name, 0, 0, 0);
	}
	put_end(&a, n, dir, true, 0);
	r = reader_of(&a);
	assert_int_equal(uns_zip_open(&r, &arena, &zip, &err), 0);
	assert_int_equal(a.reads, 2);
	assert_int_equal(zip.n, n);
	assert_string_equal(zip.v[10].name, "m/data/10");
	assert_ptr_equal(uns_zip_find(&zip, "data/199"), &zip.v[199]);
}

static void test_records_beyond_4_gib(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	static struct archive a;
	struct uns_err err = { 0 };
	struct uns_span got;
	struct uns_reader r;
	struct uns_zip zip;
	uint64_t start = 0;
	size_t dir;

	(void)state;
	memset(&a, 0, sizeof(a));
	put_local(&a, 0, "archive/data/0", 20);
	a.hole_at = a.len;
	a.hole_size = HOLE;
	put(&a, 4, 0x08074b50);
	put(&a, 20, 0);
	put_local(&a, 1, "archive/version", 20);
	put_bytes(&a, "3\n", 2);
	dir = a.len;
	put_entry(&a, 0, "archive/data/0", HOLE, 0, WIDE_SIZES);
	put_entry(&a, 1, "archive/version", 2, crc_of("3\n"), WIDE_OFFSET);
	put_end(&a, 2, dir, true, 0);
	r = reader_of(&a);
	if (uns_zip_open(&r, &arena, &zip, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(zip.v[0].size_bytes, HOLE);
	assert_int_equal(uns_zip_data(&r, &zip.v[0], &start, &err), 0);
	assert_int_equal(start, a.hole_at);
	assert_true(zip.v[1].header_bytes > HOLE);
	assert_int_equal(uns_zip_read(&r, &zip.v[1], 2, &arena, &got, &err), 0);
	assert_memory_equal(got.p, "3\n", 2);
	assert_int_equal(uns_zip_read(&r, &zip.v[0], 1 << 20, &arena, &got, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "expected at most 1048576"));
}

/* -- hostile archives -- */

enum record { LOCAL, ENTRY, END64, LOCATOR, END };

struct lie {
	enum record record;
	unsigned index, field, width;
	uint64_t value;
};

#define U63 (UINT64_C(1) << 63)

static const struct {
	const char *name;
	struct lie lie[4]; /* width 0 ends */
	int code;
	const char *words;
} lies[] = {
	{ "no end record", { { END, 0, 0, 4, 0 } }, -EBADMSG, "no end record" },
	{ "end claims a comment", { { END, 0, 20, 2, 1 } }, -EBADMSG, "no end record" },
	{ "counts differ", { { END, 0, 10, 2, 2 } }, -EBADMSG, "contradict" },
	{ "sizes differ", { { END, 0, 12, 4, 1 } }, -EBADMSG, "contradict" },
	{ "offsets differ", { { END, 0, 16, 4, 1 } }, -EBADMSG, "contradict" },
	{ "one record too few",
	  { { END, 0, 8, 2, 2 }, { END, 0, 10, 2, 2 }, { END64, 0, 24, 8, 2 }, { END64, 0, 32, 8, 2 } },
	  -EBADMSG,
	  "belong to no record" },
	{ "one record too many",
	  { { END, 0, 8, 2, 4 }, { END, 0, 10, 2, 4 }, { END64, 0, 24, 8, 4 }, { END64, 0, 32, 8, 4 } },
	  -EBADMSG,
	  "4 records do not fit into 183 bytes" },
	{ "2^63 records",
	  { { END, 0, 8, 2, 0xffff }, { END, 0, 10, 2, 0xffff }, { END64, 0, 24, 8, U63 }, { END64, 0, 32, 8, U63 } },
	  -EBADMSG,
	  "records do not fit" },
	{ "directory of 2^63 bytes",
	  { { END, 0, 12, 4, 0xffffffff }, { END64, 0, 40, 8, U63 } },
	  -EBADMSG,
	  "must end at byte" },
	{ "directory at 2^64 - 1",
	  { { END, 0, 16, 4, 0xffffffff }, { END64, 0, 48, 8, UINT64_MAX } },
	  -EBADMSG,
	  "must end at byte" },
	{ "zip64 end record elsewhere", { { LOCATOR, 0, 8, 8, 0 } }, -EBADMSG, "no zip64 end record at byte 0" },
	{ "zip64 end record past the end", { { LOCATOR, 0, 8, 8, U63 } }, -EBADMSG, "past the end" },
	{ "zip64 end record too short", { { END64, 0, 4, 8, 43 } }, -EBADMSG, "no zip64 end" },
	{ "no zip64 end record",
	  { { LOCATOR, 0, 0, 4, 0 }, { END, 0, 16, 4, 0xffffffff } },
	  -EBADMSG,
	  "zip64 end record is missing" },
	{ "several disks", { { END64, 0, 16, 4, 1 } }, -ENOTSUP, "several disks" },
	{ "entry without signature", { { ENTRY, 1, 0, 4, 0 } }, -EBADMSG, "directory is damaged" },
	{ "name past the directory", { { ENTRY, 2, 28, 2, 0xffff } }, -EBADMSG, "directory is damaged" },
	{ "no name", { { ENTRY, 2, 28, 2, 0 } }, -EBADMSG, "without a valid name" },
	{ "NUL in a name", { { ENTRY, 0, 50, 1, 0 } }, -EBADMSG, "without a valid name" },
	{ "end record of another disk", { { END, 0, 4, 2, 1 } }, -EBADMSG, "contradict each other" },
	{ "directory on another disk", { { END, 0, 6, 2, 1 } }, -EBADMSG, "contradict each other" },
	{ "other number on this disk", { { END, 0, 8, 2, 1 } }, -EBADMSG, "contradict each other" },
	{ "two disks", { { LOCATOR, 0, 16, 4, 2 } }, -ENOTSUP, "several disks" },
	{ "record on another disk",
	  { { ENTRY, 1, 34, 2, 1 } },
	  -ENOTSUP,
	  "archive/data/0 is recorded to be on another disk" },
	{ "patched", { { ENTRY, 0, 8, 2, 32 } }, -ENOTSUP, "archive/data.pkl is encrypted" },
	{ "encrypted", { { ENTRY, 0, 8, 2, 1 } }, -ENOTSUP, "archive/data.pkl is encrypted" },
	{ "marked as a directory",
	  { { ENTRY, 0, 38, 4, 0x10 } },
	  -EBADMSG,
	  "archive/data.pkl is marked as a directory" },
	{ "stored sizes differ", { { ENTRY, 1, 24, 4, 17 } }, -EBADMSG, "archive/data/0 has sizes 16 and 17" },
	{ "data into the directory",
	  { { ENTRY, 2, 20, 4, 100 }, { ENTRY, 2, 24, 4, 100 } },
	  -EBADMSG,
	  "archive/version, 100 bytes at" },
	{ "offset past the end", { { ENTRY, 2, 42, 4, 0x7fffffff } }, -EBADMSG, "runs into the directory" },
	{ "data over the next record",
	  { { ENTRY, 0, 20, 4, 60 }, { ENTRY, 0, 24, 4, 60 } },
	  -EBADMSG,
	  "archive/data.pkl and archive/data/0 overlap" },
	{ "two records at one place", { { ENTRY, 1, 42, 4, 0 } }, -EBADMSG, "overlap" },
	{ "wide size without zip64 data",
	  { { ENTRY, 1, 20, 4, 0xffffffff }, { ENTRY, 1, 24, 4, 0xffffffff } },
	  -EBADMSG,
	  "archive/data/0 lacks its zip64 sizes" },
};

static uint8_t *record_of(struct archive *a, const struct lie *lie)
{
	const size_t at[] = { a->local[lie->index], a->entry[lie->index], a->end64, a->locator, a->end };

	return a->p + at[lie->record] + lie->field;
}

static void test_lies(void **state)
{
	static struct archive a;
	size_t i, k;

	(void)state;
	for (i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_err err = { 0 };
		struct uns_reader r;
		struct uns_zip zip;
		int rc;

		build(&a, 0, true, 0);
		for (k = 0; k < 4 && lies[i].lie[k].width; k++)
			set(record_of(&a, &lies[i].lie[k]), lies[i].lie[k].width, lies[i].lie[k].value);
		r = reader_of(&a);
		rc = uns_zip_open(&r, &arena, &zip, &err);
		if (rc != lies[i].code || !strstr(err.text, lies[i].words))
			fail_msg("%s: %d %s", lies[i].name, rc, err.text);
	}
}

static void test_duplicate_names(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	static struct archive a;
	struct uns_err err = { 0 };
	struct uns_reader r;
	struct uns_zip zip;
	size_t dir;

	(void)state;
	memset(&a, 0, sizeof(a));
	put_local(&a, 0, "archive/data/0", 20);
	put_local(&a, 1, "archive/data/0", 20);
	dir = a.len;
	put_entry(&a, 0, "archive/data/0", 0, 0, 0);
	put_entry(&a, 1, "archive/data/0", 0, 0, 0);
	put_end(&a, 2, dir, true, 0);
	r = reader_of(&a);
	assert_int_equal(uns_zip_open(&r, &arena, &zip, &err), -EBADMSG);
	assert_string_equal(err.text, "zip: two records are called archive/data/0");
}

/* What only shows when a record is read. */
static const struct {
	struct lie lie[2];
	int code;
	const char *words;
} record_lies[] = {
	{ { { ENTRY, 1, 10, 2, 8 } }, -ENOTSUP, "archive/data/0 is compressed (method 8)" },
	{ { { LOCAL, 1, 0, 4, 0 } }, -EBADMSG, "record archive/data/0 has no local header" },
	{ { { LOCAL, 1, 26, 2, 13 } }, -EBADMSG, "no local header" },
	{ { { LOCAL, 1, 30, 1, 'b' } }, -EBADMSG, "no local header" },
	{ { { LOCAL, 1, 28, 2, 60000 } }, -EBADMSG, "runs into what starts at" },
	{ { { LOCAL, 1, 28, 2, 37 } }, -EBADMSG, "runs into what starts at" },
	{ { { ENTRY, 1, 16, 4, 1 } }, -EBADMSG, "CRC" },
	{ { { LOCAL, 1, 64, 1, 'S' } }, -EBADMSG, "archive/data/0 is damaged: CRC" },
};

static void test_record_lies(void **state)
{
	static struct archive a;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(record_lies) / sizeof(record_lies[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		const struct lie *lie = &record_lies[i].lie[0];
		struct uns_err err = { 0 };
		struct uns_span got;
		struct uns_reader r;
		struct uns_zip zip;
		int rc;

		build(&a, 0, true, 0);
		set(record_of(&a, lie), lie->width, lie->value);
		r = reader_of(&a);
		assert_int_equal(uns_zip_open(&r, &arena, &zip, &err), 0);
		rc = uns_zip_read(&r, &zip.v[1], 100, &arena, &got, &err);
		if (rc != record_lies[i].code || !strstr(err.text, record_lies[i].words))
			fail_msg("%zu: %d %s", i, rc, err.text);
	}
}

/* An archive cut anywhere is refused, or its records' content still is what it was. */
static void test_every_cut(void **state)
{
	static struct archive a;
	size_t len, cut;

	(void)state;
	build(&a, 0, true, 0);
	len = a.len;
	for (cut = 0; cut < len; cut++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_err err = { 0 };
		struct uns_reader r;
		struct uns_zip zip;

		a.len = cut;
		r = reader_of(&a);
		assert_int_equal(uns_zip_open(&r, &arena, &zip, &err), -EBADMSG);
		assert_non_null(strstr(err.text, "truncated, or not a zip archive"));
	}
}

static void test_unrecorded_crc_is_not_checked(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	static struct archive a;
	struct uns_err err = { 0 };
	struct uns_span got;
	struct uns_reader r;
	struct uns_zip zip;

	(void)state;
	build(&a, 0, true, 0);
	set(a.p + a.entry[1] + 16, 4, 0);
	r = reader_of(&a);
	assert_int_equal(uns_zip_open(&r, &arena, &zip, &err), 0);
	assert_int_equal(uns_zip_read(&r, &zip.v[1], 100, &arena, &got, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_small_archive_takes_one_read),
		cmocka_unit_test(test_large_directory_takes_two_reads),
		cmocka_unit_test(test_records_beyond_4_gib),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_duplicate_names),
		cmocka_unit_test(test_record_lies),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_unrecorded_crc_is_not_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* wire/safetensors.c against files of the real library (golden/safetensors), and against damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/span.h"
#include "wire/safetensors.h"

static uint8_t *read_golden(const char *name, size_t *len)
{
	uint8_t *bytes = malloc(1 << 16);
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/safetensors/%s", UNSHARD_GOLDEN, name);
	f = fopen(path, "rb");
	assert_non_null(f);
	assert_non_null(bytes);
	*len = fread(bytes, 1, 1 << 16, f);
	assert_true(*len > 8 && *len < 1 << 16);
	fclose(f);
	return bytes;
}

static int open_bytes(const void *bytes, size_t len, struct uns_arena *arena, struct uns_st_header *h,
		      struct uns_err *err)
{
	struct uns_span span = uns_span_of(bytes, len);
	struct uns_reader r = uns_reader_of_span(&span);

	return uns_st_open(&r, arena, h, err);
}

static void shuffle(struct uns_st_entry *v, size_t n)
{
	struct uns_st_entry tmp;
	size_t i, k;

	srand(1);
	for (i = n; i > 1; i--) {
		k = (size_t)rand() % i;
		tmp = v[i - 1];
		v[i - 1] = v[k];
		v[k] = tmp;
	}
}

/* Whatever order entries come in, the header is the library's, byte for byte. */
static void test_golden(void **state)
{
	static const struct {
		const char *name;
		size_t n;
	} files[] = { { "dtypes.safetensors", 57 }, { "names.safetensors", 11 }, { "empty.safetensors", 0 } };
	size_t i, len;

	(void)state;
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		UNS_CLEANUP(uns_free_p) uint8_t *bytes = read_golden(files[i].name, &len);
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_err err = { 0 };
		struct uns_st_header h;
		struct uns_span head;
		uint64_t data_bytes;

		assert_int_equal(open_bytes(bytes, len, &arena, &h, &err), 0);
		assert_int_equal(h.n, files[i].n);
		assert_string_equal(uns_st_meta(&h, "format"), "pt");
		assert_null(uns_st_meta(&h, "formats"));
		shuffle(h.v, h.n);
		assert_int_equal(uns_st_emit(h.v, h.n, &arena, &head, &data_bytes, &err), 0);
		assert_int_equal(uns_span_left(&head), h.data_bytes);
		assert_memory_equal(head.p, bytes, h.data_bytes);
		assert_int_equal(data_bytes, len - h.data_bytes);
	}
}

static void test_golden_entries(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	UNS_CLEANUP(uns_free_p) uint8_t *bytes = NULL;
	const struct uns_st_entry *e = NULL;
	struct uns_st_header h;
	size_t i, len;

	(void)state;
	bytes = read_golden("names.safetensors", &len);
	assert_int_equal(open_bytes(bytes, len, &arena, &h, NULL), 0);
	for (i = 0; i < h.n; i++)
		if (strcmp(h.v[i].name, "layers.9.bias") == 0)
			e = &h.v[i];
	assert_non_null(e);
	assert_int_equal(e->dtype, UNS_F32);
	assert_int_equal(e->n_dims, 8);
	assert_int_equal(e->dims[7], 2);
	assert_int_equal(e->end_bytes - e->begin_bytes, 8);
}

/* A file with this header and that many bytes of data. */
static int open_text(const char *text, size_t data, struct uns_arena *arena, struct uns_st_header *h,
		     struct uns_err *err)
{
	size_t len = strlen(text), i;
	UNS_CLEANUP(uns_free_p) uint8_t *bytes = calloc(1, 8 + len + data);

	assert_non_null(bytes);
	for (i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(len >> (8 * i));
	memcpy(bytes + 8, text, len);
	return open_bytes(bytes, 8 + len + data, arena, h, err);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_accepts(void **state)
{
	static const struct {
		const char *text;
		size_t data, n;
		const char *first;
	} good[] = {
		{ "{}", 0, 0, NULL },
		{ "{\"__metadata__\":null}  ", 0, 0, NULL },
		{ "{\"b\":" T("U8", "[2]", "[3,5]") ",\"a\":" T("U8", "[3]", "[0,3]") "}", 5, 2, "a" },
		{ " { \"s\" : { \"data_offsets\" : [ 0 , 4 ] , \"shape\" : [ ] ,\n\"dtype\" : \"F32\" } } ", 4, 1,
		  "s" },
		{ "{\"x\":{\"future\":{\"k\":[1,-2e5,\"s\",null,true,{}]},\"dtype\":\"U8\",\"shape\":[0],"
		  "\"data_offsets\":[0,0]}}",
		  0, 1, "x" },
		{ "{\"\\u00e4\\ud83d\\ude00\\/\\n\":" T("BOOL", "[1]", "[0,1]") "}", 1, 1,
		  "\xc3\xa4\xf0\x9f\x98\x80/\n" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_err err = { 0 };
		struct uns_st_header h;

		assert_int_equal(open_text(good[i].text, good[i].data, &arena, &h, &err), 0);
		assert_int_equal(h.n, good[i].n);
		if (h.n)
			assert_string_equal(h.v[0].name, good[i].first);
	}
}

static const struct {
	const char *text;
	size_t data;
	int code;
	const char *says;
} bad[] = {
	{ "", 0, -EBADMSG, "expected '{'" },
	{ "[]", 0, -EBADMSG, "expected '{'" },
	{ "{} {}", 0, -EBADMSG, "expected the end" },
	{ "{\"a\":1}", 0, -EBADMSG, "expected '{'" },
	{ "{\"a\":" T("F32", "[2]", "[0,8]") "}", 7, -EBADMSG, "truncated" },
	{ "{\"a\":" T("F32", "[2]", "[0,8]") "}", 9, -EBADMSG, "describes 8" },
	{ "{\"a\":" T("F32", "[2]", "[0,4]") "}", 4, -EBADMSG, "'a' needs 8 bytes" },
	{ "{\"a\":" T("F32", "[2]", "[8,0]") "}", 8, -EBADMSG, "[8, 0]" },
	{ "{\"a\":" T("F32", "[1]", "[4,8]") "}", 8, -EBADMSG, "begins at byte 4" },
	{ "{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", 3, -EBADMSG,
	  "'b' begins at byte 1 of the data, expected 2" },
	{ "{\"a\":" T("U8", "[1]", "[0,1]") ",\"a\":" T("U8", "[1]", "[1,2]") "}", 2, -EBADMSG, "'a' twice" },
	{ "{\"a\":" T("F64", "[4294967296,4294967296]", "[0,0]") "}", 0, -EBADMSG, "overflows" },
	{ "{\"a\":" T("U8", "[18446744073709551616]", "[0,0]") "}", 0, -EBADMSG, "below 2^64" },
	{ "{\"a\":" T("U8", "[-1]", "[0,0]") "}", 0, -EBADMSG, "whole number" },
	{ "{\"a\":" T("U8", "[1.0]", "[0,1]") "}", 1, -EBADMSG, "expected ']'" },
	{ "{\"a\":" T("U8", "[01]", "[0,1]") "}", 1, -EBADMSG, "whole number" },
	{ "{\"a\":" T("F4", "[2]", "[0,1]") "}", 1, -ENOTSUP, "'F4', which is not known" },
	{ "{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, -ENOTSUP, "more than 8" },
	{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 0, -EBADMSG, "lacks" },
	{ "{\"a\":{}}", 0, -EBADMSG, "lacks" },
	{ "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, -EBADMSG, "a field twice" },
	{ "{\"a\\u0000\":" T("U8", "[1]", "[0,1]") "}", 1, -ENOTSUP, "NUL" },
	{ "{\"a\\ud800\":" T("U8", "[1]", "[0,1]") "}", 1, -EBADMSG, "surrogates" },
	{ "{\"a\\x\":1}", 0, -EBADMSG, "known escape" },
	{ "{\"a\n\":1}", 0, -EBADMSG, "control character" },
	{ "{\"\xff\":1}", 0, -EBADMSG, "UTF-8" },
	{ "{\"a", 0, -EBADMSG, "expected '\"'" },
	{ "{\"a\\", 0, -EBADMSG, "end of a string" },
	{ "{\"__metadata__\":{\"a\":1}}", 0, -EBADMSG, "expected '\"'" },
};

static void test_refuses(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_err err = { 0 };
		struct uns_st_header h;

		assert_int_equal(open_text(bad[i].text, bad[i].data, &arena, &h, &err), bad[i].code);
		if (!strstr(err.text, bad[i].says))
			fail_msg("case %zu says '%s', not '%s'", i, err.text, bad[i].says);
	}
}

static void test_refuses_length(void **state)
{
	UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
	struct uns_err err = { 0 };
	struct uns_st_header h;

	(void)state;
	assert_int_equal(open_bytes("\2\0\0\0\0\0\0", 7, &arena, &h, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "too short"));
	err.code = 0;
	assert_int_equal(open_bytes("\3\0\0\0\0\0\0\0{}", 10, &arena, &h, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "header of 3 bytes does not fit"));
	err.code = 0;
	assert_int_equal(open_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, &arena, &h, &err), -EBADMSG);
}

static void test_emit_refuses(void **state)
{
	static const struct {
		struct uns_st_entry v[2];
		size_t n;
		int code;
		const char *says;
	} cases[] = {
		{ { { .name = "a", .dtype = UNS_F32 }, { .name = "a", .dtype = UNS_BF16 } },
		  2,
		  -EBADMSG,
		  "two tensors are named 'a'" },
		{ { { .name = "a", .dtype = UNS_C128 } }, 1, -ENOTSUP, "complex128" },
		{ { { .name = "\xff", .dtype = UNS_F32 } }, 1, -ENOTSUP, "not UTF-8" },
		{ { { .name = "__metadata__", .dtype = UNS_F32 } }, 1, -ENOTSUP, "__metadata__" },
		{ { { .name = "a", .dtype = UNS_F64, .n_dims = 1, .dims = { UINT64_C(1) << 61 } } },
		  1,
		  -EBADMSG,
		  "overflows" },
		{ { { .name = "a", .dtype = UNS_U8, .n_dims = 1, .dims = { UINT64_MAX } },
		    { .name = "b", .dtype = UNS_U8 } },
		  2,
		  -EBADMSG,
		  "2^64" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_st_entry v[2] = { cases[i].v[0], cases[i].v[1] };
		struct uns_err err = { 0 };
		struct uns_span head;
		uint64_t size;

		assert_int_equal(uns_st_emit(v, cases[i].n, &arena, &head, &size, &err), cases[i].code);
		assert_non_null(strstr(err.text, cases[i].says));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),         cmocka_unit_test(test_golden_entries),
		cmocka_unit_test(test_accepts),        cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_refuses_length), cmocka_unit_test(test_emit_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

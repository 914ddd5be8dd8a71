/* wire/torchfile.c against files written by torch (golden/torchfile/make.py), and against the same
 * files with a few bytes changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/torchfile.h"

struct file {
	uint8_t bytes[16 * 1024];
	struct uns_span span;
	struct uns_reader r;
	struct uns_arena arena;
	struct uns_torchfile torch;
};

static void load(struct file *f, const char *name)
{
	char path[512];
	FILE *in;

	snprintf(path, sizeof(path), "%s/torchfile/%s", UNSHARD_GOLDEN, name);
	in = fopen(path, "rb");
	if (!in)
		fail_msg("%s is missing", path);
	f->span = uns_span_of(f->bytes, fread(f->bytes, 1, sizeof(f->bytes), in));
	fclose(in);
	f->r = uns_reader_of_span(&f->span);
	f->arena = UNS_ARENA_INIT;
}

static void fini(struct file *f)
{
	uns_arena_fini(&f->arena);
}

static void open_good(struct file *f, const char *name)
{
	struct uns_err err = { 0 };

	load(f, name);
	if (uns_torchfile_open(&f->r, &f->arena, &f->torch, &err) < 0)
		fail_msg("%s: %s", name, err.text);
}

static const struct {
	const char *name;
	enum uns_dtype dtype;
	size_t n_dims;
	uint64_t dims[3], strides[3], first;
	uint64_t storage_bytes;
	bool contiguous;
	const char *first_bytes; /* of the first element, in hexadecimal */
} cases[] = {
	{ "f32", UNS_F32, 2, { 2, 3 }, { 3, 1 }, 0, 24, true, "0000803f" },
	{ "bf16", UNS_BF16, 1, { 5 }, { 1 }, 0, 10, true, "803f" },
	{ "f16", UNS_F16, 1, { 3 }, { 1 }, 0, 6, true, "003c" },
	{ "f64", UNS_F64, 1, { 2 }, { 1 }, 0, 16, true, "000000000000f03f" },
	{ "i64", UNS_I64, 1, { 4 }, { 1 }, 0, 32, true, "0100000000000000" },
	{ "u8", UNS_U8, 1, { 3 }, { 1 }, 0, 3, true, "01" },
	{ "bool", UNS_BOOL, 1, { 3 }, { 1 }, 0, 3, true, "01" },
	{ "c64", UNS_C64, 1, { 2 }, { 1 }, 0, 16, true, "0000803f00000040" },
	{ "f8", UNS_F8_E4M3, 1, { 7 }, { 1 }, 0, 7, true, "38" },
	{ "u16", UNS_U16, 1, { 3 }, { 1 }, 0, 6, true, "0100" },
	{ "scalar", UNS_F32, 0, { 0 }, { 0 }, 0, 4, true, "00002040" },
	{ "empty", UNS_F32, 2, { 0, 3 }, { 3, 1 }, 0, 0, true, "" },
	{ "transposed", UNS_F32, 2, { 3, 2 }, { 1, 3 }, 0, 24, false, "0000803f" },
	{ "expanded", UNS_F32, 1, { 4 }, { 0 }, 0, 4, false, "0000e040" },
	{ "whole", UNS_F32, 1, { 12 }, { 1 }, 0, 48, true, "0000803f" },
	{ "middle", UNS_F32, 1, { 4 }, { 1 }, 4, 48, true, "0000a040" },
	{ "column", UNS_F32, 2, { 3, 2 }, { 4, 1 }, 1, 48, false, "00000040" },
	{ "parameter", UNS_F32, 1, { 3 }, { 1 }, 0, 12, true, "0000803f" },
	{ "attributed", UNS_F32, 1, { 2 }, { 1 }, 0, 8, true, "0000803f" },
};

static void check_bytes(const struct file *f, const struct uns_torch_tensor *t, const char *hex)
{
	size_t at = t->data_bytes + t->first_elem * uns_dtype_size(t->dtype), i;
	char got[3];

	for (i = 0; hex[2 * i]; i++) {
		snprintf(got, sizeof(got), "%02x", f->bytes[at + i]);
		assert_memory_equal(got, hex + 2 * i, 2);
	}
}

static void test_tensors(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	size_t i;

	(void)state;
	open_good(&f, "tensors.pt");
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct uns_value *v = uns_value_get(f.torch.root, cases[i].name);
		struct uns_err err = { 0 };
		struct uns_torch_tensor t;

		assert_true(uns_torch_is_tensor(v));
		if (uns_torch_tensor(&f.torch, v, &t, &err) < 0)
			fail_msg("%s: %s", cases[i].name, err.text);
		assert_int_equal(t.dtype, cases[i].dtype);
		assert_int_equal(t.n_dims, cases[i].n_dims);
		assert_memory_equal(t.dims, cases[i].dims, t.n_dims * sizeof(t.dims[0]));
		assert_memory_equal(t.stride_elems, cases[i].strides, t.n_dims * sizeof(t.stride_elems[0]));
		assert_int_equal(t.first_elem, cases[i].first);
		assert_int_equal(t.storage_bytes, cases[i].storage_bytes);
		assert_int_equal(t.contiguous, cases[i].contiguous);
		assert_int_equal(t.data_bytes % 64, 0);
		check_bytes(&f, &t, cases[i].first_bytes);
	}
}

static void test_shared_storage(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_torch_tensor a, b;
	struct uns_err err = { 0 };

	(void)state;
	open_good(&f, "tensors.pt");
	assert_int_equal(uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "whole"), &a, &err), 0);
	assert_int_equal(uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "column"), &b, &err), 0);
	assert_string_equal(a.key, b.key);
	assert_int_equal(a.data_bytes, b.data_bytes);
	assert_int_equal(a.crc32, b.crc32);
	assert_int_not_equal(a.crc32, 0);
}

static void test_refused(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_torch_tensor t;
	struct uns_err err = { 0 };

	(void)state;
	open_good(&f, "tensors.pt");
	assert_int_equal(uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "nine"), &t, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "more than 8 dimensions"));
	err.code = 0;
	assert_int_equal(uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "conj"), &t, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "conjugate"));
	err.code = 0;
	assert_false(uns_torch_is_tensor(uns_value_get(f.torch.root, "text")));
	assert_false(uns_torch_is_tensor(f.torch.root));
	assert_false(uns_torch_is_tensor(NULL));
	assert_int_equal(uns_torch_tensor(&f.torch, f.torch.root, &t, &err), -EBADMSG);
	f.torch.big_endian = true;
	err.code = 0;
	assert_int_equal(uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "f32"), &t, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "big-endian"));
}

static void test_crc_may_be_absent(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_torch_tensor t;
	struct uns_err err = { 0 };

	(void)state;
	open_good(&f, "no_crc.pt");
	assert_int_equal(uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "f32"), &t, &err), 0);
	assert_int_equal(t.crc32, 0);
	check_bytes(&f, &t, "0000803f");
}

static void test_legacy_format(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_err err = { 0 };

	(void)state;
	load(&f, "legacy.pt");
	assert_int_equal(uns_torchfile_open(&f.r, &f.arena, &f.torch, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "not a zip archive"));
}

/* -- changed files: no_crc.pt records no CRC, so a change reaches the pickle machine -- */

static uint8_t *find(struct file *f, const void *bytes, size_t len)
{
	uint8_t *p = memmem(f->bytes, uns_span_left(&f->span), bytes, len);

	assert_non_null(p);
	return p;
}

/* The tensor is [2, 3] with strides [3, 1] at offset 0 of a storage of 6 elements: in the pickle,
 * "Q" (persistent id) and then K\0 K\2 K\3 \x86 (the size) ... K\3 K\1 \x86 (the stride). */
static const struct {
	const char *name, *from, *to;
	size_t len;
	const char *words;
} changes[] = {
	{ "offset", "QK\0K\2K\3\x86", "QK\1K\2K\3\x86", 8, "past the end of its storage data/0" },
	{ "rows", "QK\0K\2K\3\x86", "QK\0K\3K\3\x86", 8, "past the end of its storage" },
	{ "columns", "QK\0K\2K\3\x86", "QK\0K\2K\4\x86", 8, "past the end of its storage" },
	{ "stride", "K\3K\1\x86", "K\4K\1\x86", 5, "past the end of its storage" },
	{ "numel", "cpuq\6K\6tq", "cpuq\6K\7tq", 9, "has 24 bytes; expected 7 elements of 4" },
	{ "key",
	  "X\1\0\0\0"
	  "0q",
	  "X\1\0\0\0"
	  "9q",
	  7, "data/9 is missing" },
	{ "type", "FloatStorage", "FlotaStorage", 12, "unknown dtype torch.FlotaStorage" },
	{ "not a tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v9", 18,
	  "a tensor of a form that unshard does not know" },
	{ "not a storage", "storageq", "etorageq", 8, "without a valid storage" },
};

static void test_changed(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		UNS_CLEANUP(fini) struct file f;
		struct uns_torch_tensor t;
		struct uns_err err = { 0 };

		load(&f, "no_crc.pt");
		memcpy(find(&f, changes[i].from, changes[i].len), changes[i].to, changes[i].len);
		if (uns_torchfile_open(&f.r, &f.arena, &f.torch, &err) == 0 &&
		    uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "f32"), &t, &err) == 0)
			fail_msg("%s: accepted", changes[i].name);
		if (!strstr(err.text, changes[i].words))
			fail_msg("%s: %s", changes[i].name, err.text);
	}
}

static void test_byteorder(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_err err = { 0 };

	(void)state;
	load(&f, "no_crc.pt");
	memcpy(find(&f, "little", 6), "middle", 6);
	assert_int_equal(uns_torchfile_open(&f.r, &f.arena, &f.torch, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "byteorder"));
}

static void test_damaged_pickle(void **state)
{
	UNS_CLEANUP(fini) struct file f;
	struct uns_err err = { 0 };

	(void)state;
	load(&f, "tensors.pt");
	memcpy(find(&f, "FloatStorage", 12), "FlotaStorage", 12);
	assert_int_equal(uns_torchfile_open(&f.r, &f.arena, &f.torch, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "data.pkl is damaged: CRC"));
}

/* Whatever single byte is wrong, no tensor may reach past its record. */
static void test_every_byte(void **state)
{
	struct file f;
	size_t i, len;

	(void)state;
	load(&f, "no_crc.pt");
	len = uns_span_left(&f.span);
	for (i = 0; i < len; i++) {
		UNS_CLEANUP(uns_arena_fini) struct uns_arena arena = UNS_ARENA_INIT;
		struct uns_torch_tensor t;
		struct uns_err err = { 0 };

		f.bytes[i] ^= 0xff;
		if (uns_torchfile_open(&f.r, &arena, &f.torch, &err) == 0 &&
		    uns_torch_tensor(&f.torch, uns_value_get(f.torch.root, "f32"), &t, &err) == 0)
			assert_true(t.data_bytes + t.storage_bytes <= len && t.first_elem < 6);
		f.bytes[i] ^= 0xff;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tensors),       cmocka_unit_test(test_shared_storage),
		cmocka_unit_test(test_refused),       cmocka_unit_test(test_crc_may_be_absent),
		cmocka_unit_test(test_legacy_format), cmocka_unit_test(test_changed),
		cmocka_unit_test(test_byteorder),     cmocka_unit_test(test_damaged_pickle),
		cmocka_unit_test(test_every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

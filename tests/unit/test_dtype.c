/* wire/dtype.c: every spelling leads to the type and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "wire/dtype.h"

static void test_round_trip(void **state)
{
	const struct uns_dtype_info *info;
	unsigned t;

	(void)state;
	for (t = 0; t < UNS_N_DTYPES; t++) {
		info = uns_dtype_info((enum uns_dtype)t);
		assert_true(info->size_bytes >= 1 && info->size_bytes <= 16);
		assert_int_equal(uns_dtype_of_torch(info->torch), t);
		if (info->safetensors)
			assert_int_equal(uns_dtype_of_safetensors(info->safetensors, strlen(info->safetensors)), t);
		if (info->storage)
			assert_int_equal(uns_dtype_of_storage(info->storage), t);
	}
}

static const struct {
	enum uns_dtype dtype;
	const char *safetensors, *torch, *storage;
	size_t size_bytes;
	bool is_float;
} dtypes[] = {
	{ UNS_BOOL, "BOOL", "torch.bool", "torch.BoolStorage", 1, false },
	{ UNS_U8, "U8", "torch.uint8", "torch.ByteStorage", 1, false },
	{ UNS_I8, "I8", "torch.int8", "torch.CharStorage", 1, false },
	{ UNS_F8_E4M3, "F8_E4M3", "torch.float8_e4m3fn", NULL, 1, true },
	{ UNS_F8_E5M2, "F8_E5M2", "torch.float8_e5m2", NULL, 1, true },
	{ UNS_F8_E8M0, "F8_E8M0", "torch.float8_e8m0fnu", NULL, 1, true },
	{ UNS_I16, "I16", "torch.int16", "torch.ShortStorage", 2, false },
	{ UNS_F16, "F16", "torch.float16", "torch.HalfStorage", 2, true },
	{ UNS_BF16, "BF16", "torch.bfloat16", "torch.BFloat16Storage", 2, true },
	{ UNS_I32, "I32", "torch.int32", "torch.IntStorage", 4, false },
	{ UNS_F32, "F32", "torch.float32", "torch.FloatStorage", 4, true },
	{ UNS_C64, "C64", "torch.complex64", "torch.ComplexFloatStorage", 8, false },
	{ UNS_F64, "F64", "torch.float64", "torch.DoubleStorage", 8, true },
	{ UNS_I64, "I64", "torch.int64", "torch.LongStorage", 8, false },
	{ UNS_U64, "U64", "torch.uint64", NULL, 8, false },
};

static void test_spellings(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		assert_int_equal(uns_dtype_of_safetensors(dtypes[i].safetensors, strlen(dtypes[i].safetensors)),
				 dtypes[i].dtype);
		assert_int_equal(uns_dtype_of_torch(dtypes[i].torch), dtypes[i].dtype);
		if (dtypes[i].storage)
			assert_int_equal(uns_dtype_of_storage(dtypes[i].storage), dtypes[i].dtype);
		assert_int_equal(uns_dtype_size(dtypes[i].dtype), dtypes[i].size_bytes);
		assert_int_equal(uns_dtype_info(dtypes[i].dtype)->is_float, dtypes[i].is_float);
	}
}

static void test_unknown(void **state)
{
	(void)state;
	assert_int_equal(uns_dtype_of_torch("float99"), UNS_DTYPE_NONE);
	assert_int_equal(uns_dtype_of_torch(""), UNS_DTYPE_NONE);
	assert_int_equal(uns_dtype_of_safetensors("F3", 2), UNS_DTYPE_NONE);
	assert_int_equal(uns_dtype_of_safetensors("F32", 2), UNS_DTYPE_NONE);
	assert_int_equal(uns_dtype_of_safetensors("BF16x", 4), UNS_BF16);
	assert_int_equal(uns_dtype_of_storage("UntypedStorage"), UNS_DTYPE_NONE);
	assert_int_equal(uns_dtype_size(UNS_DTYPE_NONE), 0);
	assert_string_equal(uns_dtype_info((enum uns_dtype)1000)->torch, "(unknown)");
	assert_null(uns_dtype_info(UNS_C128)->safetensors);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

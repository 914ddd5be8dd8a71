/* NaN and infinity of every type: counted, and the first found, wherever they lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "verify/nonfinite.h"

enum { MANY = 10001 };

static const struct {
	const char *name;
	enum uns_dtype dtype;
	uint64_t bits;
	uint64_t n_nan, n_inf;
} cases[] = {
	{ "f16 one", UNS_F16, 0x3c00, 0, 0 },
	{ "f16 largest", UNS_F16, 0x7bff, 0, 0 },
	{ "f16 infinity", UNS_F16, 0x7c00, 0, 1 },
	{ "f16 -infinity", UNS_F16, 0xfc00, 0, 1 },
	{ "f16 NaN", UNS_F16, 0x7c01, 1, 0 },
	{ "bf16 largest", UNS_BF16, 0x7f7f, 0, 0 },
	{ "bf16 infinity", UNS_BF16, 0x7f80, 0, 1 },
	{ "bf16 NaN", UNS_BF16, 0xffc0, 1, 0 },
	{ "f32 largest", UNS_F32, 0xff7fffff, 0, 0 },
	{ "f32 smallest", UNS_F32, 0x00000001, 0, 0 },
	{ "f32 infinity", UNS_F32, 0x7f800000, 0, 1 },
	{ "f32 NaN", UNS_F32, 0x7f800001, 1, 0 },
	{ "f64 largest", UNS_F64, 0x7fefffffffffffff, 0, 0 },
	{ "f64 -infinity", UNS_F64, 0xfff0000000000000, 0, 1 },
	{ "f64 NaN", UNS_F64, 0x7ff8000000000000, 1, 0 },
	{ "c64 finite", UNS_C64, 0x7f7fffff7f7fffff, 0, 0 },
	{ "c64 NaN in its second part", UNS_C64, 0x7fc000003f800000, 1, 0 },
	{ "c64 NaN and infinity are one", UNS_C64, 0x7fc000007f800000, 1, 0 },
	{ "c64 infinity", UNS_C64, 0x000000007f800000, 0, 1 },
	{ "e5m2 largest", UNS_F8_E5M2, 0x7b, 0, 0 },
	{ "e5m2 infinity", UNS_F8_E5M2, 0xfc, 0, 1 },
	{ "e5m2 NaN", UNS_F8_E5M2, 0x7d, 1, 0 },
	{ "e4m3fn largest", UNS_F8_E4M3, 0x7e, 0, 0 },
	{ "e4m3fn NaN", UNS_F8_E4M3, 0xff, 1, 0 },
	{ "e8m0 NaN", UNS_F8_E8M0, 0xff, 1, 0 },
	{ "e8m0 largest", UNS_F8_E8M0, 0xfe, 0, 0 },
	{ "e4m3fnuz NaN", UNS_F8_E4M3FNUZ, 0x80, 1, 0 },
	{ "e4m3fnuz 0x7f", UNS_F8_E4M3FNUZ, 0x7f, 0, 0 },
	{ "e5m2fnuz NaN", UNS_F8_E5M2FNUZ, 0x80, 1, 0 },
	{ "i32 of all ones", UNS_I32, 0x7fffffff, 0, 0 },
	{ "i64 of a NaN's bits", UNS_I64, 0x7ff8000000000000, 0, 0 },
	{ "u8", UNS_U8, 0xff, 0, 0 },
	{ "bool", UNS_BOOL, 1, 0, 0 },
};

/* Alone, and anywhere in a long tensor that starts at an odd address. */
static void every_type(void **state)
{
	static const size_t places[] = { 0, 1, 4095, 4096, MANY - 1 };
	uint8_t *bytes = calloc(MANY + 1, 16), le[8];
	struct uns_nonfinite seen;
	size_t i, k, size;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size = uns_dtype_size(cases[i].dtype);
		for (k = 0; k < 8; k++)
			le[k] = (uint8_t)(cases[i].bits >> (8 * k));
		for (k = 0; k < sizeof(places) / sizeof(*places); k++) {
			memcpy(bytes + 1 + places[k] * size, le, size);
			seen = (struct uns_nonfinite){ 0 };
			uns_nonfinite_count(cases[i].dtype, bytes + 1, MANY, 100, &seen);
			memset(bytes + 1 + places[k] * size, 0, size);
			if (seen.n_nan != cases[i].n_nan || seen.n_inf != cases[i].n_inf)
				fail_msg("%s at %zu: %d NaN, %d infinite", cases[i].name, places[k], (int)seen.n_nan,
					 (int)seen.n_inf);
			if (seen.n_nan + seen.n_inf)
				assert_int_equal(seen.first, 100 + places[k]);
		}
	}
	free(bytes);
}

static void many_and_in_parts(void **state)
{
	uint16_t v[9] = { 0x3f80, 0x7f80, 0x7fc0, 0, 0xff80, 0xffc1, 0, 0, 0x7f80 };
	struct uns_nonfinite seen = { 0 };

	(void)state;
	uns_nonfinite_count(UNS_BF16, v + 4, 5, 4, &seen); /* the later part first */
	assert_int_equal(seen.first, 4);
	uns_nonfinite_count(UNS_BF16, v, 4, 0, &seen);
	assert_int_equal(seen.n_nan, 2);
	assert_int_equal(seen.n_inf, 3);
	assert_int_equal(seen.first, 1);
	uns_nonfinite_count(UNS_BF16, v, 0, 0, &seen);
	assert_int_equal(seen.n_inf, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type),
		cmocka_unit_test(many_and_in_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

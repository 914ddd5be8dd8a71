/* engine/cast.c against what torch made of the same values (golden/cast.bin, see make_cast.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/span.h"
#include "engine/cast.h"

static uint8_t *read_golden(size_t *len)
{
	FILE *f = fopen(UNSHARD_GOLDEN "/cast.bin", "rb");
	uint8_t *bytes;

	assert_non_null(f);
	bytes = malloc(1 << 20);
	*len = fread(bytes, 1, 1 << 20, f);
	assert_true(*len > 0 && *len < 1 << 20);
	fclose(f);
	return bytes;
}

static bool is_nan(enum uns_dtype type, const uint8_t *p)
{
	uint64_t v = uns_le(p, uns_dtype_size(type));

	switch (type) {
	case UNS_F64:
		return (v & INT64_MAX) > UINT64_C(0x7ff0000000000000);
	case UNS_F32:
		return (v & 0x7fffffff) > 0x7f800000;
	case UNS_F16:
		return (v & 0x7fff) > 0x7c00;
	default:
		return (v & 0x7fff) > 0x7f80;
	}
}

static void check_elements(enum uns_dtype from, enum uns_dtype to, const uint8_t *src, const uint8_t *want,
			   const uint8_t *got, size_t n)
{
	size_t in = uns_dtype_size(from), out = uns_dtype_size(to), i;

	for (i = 0; i < n; i++)
		if (memcmp(want + i * out, got + i * out, out) != 0 &&
		    !(is_nan(to, want + i * out) && is_nan(to, got + i * out)))
			fail_msg("%s %llx to %s: expected %llx, found %llx", uns_dtype_info(from)->torch,
				 (unsigned long long)uns_le(src + i * in, (unsigned)in), uns_dtype_info(to)->torch,
				 (unsigned long long)uns_le(want + i * out, (unsigned)out),
				 (unsigned long long)uns_le(got + i * out, (unsigned)out));
}

/* All at once, and one by one at an odd address: loops have other paths for few elements. */
static void check_record(enum uns_dtype from, enum uns_dtype to, const uint8_t *src, const uint8_t *want, size_t n)
{
	size_t in = uns_dtype_size(from), out = uns_dtype_size(to), i;
	uint8_t *got = malloc(n * out + 1);

	assert_true(uns_cast_exists(from, to));
	uns_cast(from, src, to, got + 1, n);
	check_elements(from, to, src, want, got + 1, n);
	memset(got, 0, n * out + 1);
	for (i = 0; i < n; i++)
		uns_cast(from, src + i * in, to, got + i * out, 1);
	check_elements(from, to, src, want, got, n);
	free(got);
}

static void casts_as_torch(void **state)
{
	const uint8_t *from, *to, *src, *want;
	struct uns_span s;
	unsigned records = 0;
	uint8_t *bytes;
	uint32_t n;
	size_t len;

	(void)state;
	bytes = read_golden(&len);
	for (s = uns_span_of(bytes, len); uns_span_left(&s); records++) {
		enum uns_dtype a, b;

		assert_true(uns_span_take(&s, 16, &from) && uns_span_take(&s, 16, &to));
		assert_true(uns_take_u32le(&s, &n));
		a = uns_dtype_of_torch((const char *)from);
		b = uns_dtype_of_torch((const char *)to);
		assert_true(a != UNS_DTYPE_NONE && b != UNS_DTYPE_NONE);
		assert_true(uns_span_take(&s, (size_t)n * uns_dtype_size(a), &src));
		assert_true(uns_span_take(&s, (size_t)n * uns_dtype_size(b), &want));
		check_record(a, b, src, want, n);
	}
	assert_int_equal(records, 5 + 4 * 3);
	free(bytes);
}

static void knows_its_pairs(void **state)
{
	static const struct {
		enum uns_dtype from, to;
		bool exists;
	} cases[] = {
		{ UNS_BF16, UNS_F32, true },        { UNS_F32, UNS_BF16, true },
		{ UNS_F64, UNS_F16, true },         { UNS_F8_E8M0, UNS_BF16, true },
		{ UNS_I64, UNS_I64, true },         { UNS_C128, UNS_C128, true },
		{ UNS_I64, UNS_F32, false },        { UNS_F32, UNS_I64, false },
		{ UNS_BOOL, UNS_F32, false },       { UNS_C64, UNS_F32, false },
		{ UNS_F32, UNS_C64, false },        { UNS_F32, UNS_F8_E4M3, false },
		{ UNS_DTYPE_NONE, UNS_F32, false }, { UNS_DTYPE_NONE, UNS_DTYPE_NONE, false },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(uns_cast_exists(cases[i].from, cases[i].to), cases[i].exists);
}

static void copies_equal_types(void **state)
{
	uint8_t out[16];

	(void)state;
	uns_cast(UNS_I64, "0123456789abcdef", UNS_I64, out, 2);
	assert_memory_equal(out, "0123456789abcdef", 16);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(casts_as_torch),
		cmocka_unit_test(knows_its_pairs),
		cmocka_unit_test(copies_equal_types),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

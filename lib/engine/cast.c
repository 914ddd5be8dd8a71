/* Conversions between floating types. Everything goes through f32, which holds every value of every
 * smaller type; the loops have no branches, so that compilers vectorise them. The bit tricks for f16
 * are Fabian Giesen's (float_to_half_fast3_rtne, half_to_float_fast5; public domain). */
#include "engine/cast.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/vectors.h"

/* gcc at -O2 does not vectorise loops of unknown length, nor float arithmetic that might trap. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

enum { BLOCK = 1024 }; /* elements converted at a time; 4 KiB of f32 stay in the first cache */

#define F32_BITS_INF UINT32_C(0x7f800000)
#define F32_EXP(e)   ((uint32_t)(e) << 23)

/* dst[i] = convert(src[i]), of which neither need be aligned. */
#define FOR_EACH_ELEMENT(name, from, to, convert)                        \
	UNS_INLINE void name(const uint8_t *src, uint8_t *dst, size_t n) \
	{                                                                \
		from x;                                                  \
		to y;                                                    \
		size_t i;                                                \
                                                                         \
		for (i = 0; i < n; i++) {                                \
			memcpy(&x, src + sizeof(x) * i, sizeof(x));      \
			y = (convert);                                   \
			memcpy(dst + sizeof(y) * i, &y, sizeof(y));      \
		}                                                        \
	}

/* -- to f32 bits -- */

static inline uint32_t f32_of_f16(uint16_t h)
{
	uint32_t magnitude = (h & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
	uint32_t normal = magnitude + F32_EXP(127 - 15);
	uint32_t special = normal + F32_EXP(128 - 16);
	uint32_t tiny = uns_bits_of(uns_float_of(normal + F32_EXP(1)) - uns_float_of(F32_EXP(113)));
	uint32_t r = exponent == 0x0f800000u ? special : normal;

	r = exponent == 0 ? tiny : r;
	return r | (uint32_t)(h & 0x8000u) << 16;
}

FOR_EACH_ELEMENT(load_f16, uint16_t, uint32_t, f32_of_f16(x))
FOR_EACH_ELEMENT(load_bf16, uint16_t, uint32_t, (uint32_t)x << 16)
FOR_EACH_ELEMENT(load_f64, double, float, (float)x)

/* The 8-bit types. */
struct minifloat {
	int mantissa_bits, bias;
	bool has_inf;       /* as IEEE: the highest exponent is for infinity and NaN */
	bool unsigned_zero; /* "fnuz": the code of -0 is the only NaN */
};

static float value_of_f8(const struct minifloat *m, unsigned code)
{
	int exponent = (int)(code & 0x7f) >> m->mantissa_bits;
	int mantissa = (int)(code & ((1u << m->mantissa_bits) - 1));
	float sign = code & 0x80 ? -1.0f : 1.0f;

	if (m->unsigned_zero ? code == 0x80 : !m->has_inf && (code & 0x7f) == 0x7f)
		return NAN;
	if (m->has_inf && exponent == 0x7f >> m->mantissa_bits)
		return mantissa ? NAN : sign * INFINITY;
	if (exponent)
		mantissa += 1 << m->mantissa_bits;
	else
		exponent = 1;
	return sign * ldexpf((float)mantissa, exponent - m->bias - m->mantissa_bits);
}

/* Only a scale: powers of two from 2^-127, no sign, no zero. */
static float value_of_e8m0(unsigned code)
{
	return code == 0xff ? NAN : ldexpf(1.0f, (int)code - 127);
}

static void table_of(enum uns_dtype type, float table[256])
{
	static const struct minifloat e5m2 = { 2, 15, true, false };
	static const struct minifloat e4m3 = { 3, 7, false, false };
	static const struct minifloat e4m3fnuz = { 3, 8, false, true };
	static const struct minifloat e5m2fnuz = { 2, 16, false, true };
	const struct minifloat *m = type == UNS_F8_E5M2       ? &e5m2
				    : type == UNS_F8_E4M3     ? &e4m3
				    : type == UNS_F8_E4M3FNUZ ? &e4m3fnuz
							      : &e5m2fnuz;
	unsigned code;

	for (code = 0; code < 256; code++)
		table[code] = type == UNS_F8_E8M0 ? value_of_e8m0(code) : value_of_f8(m, code);
}

static void load_f8(const float table[256], const uint8_t *src, uint8_t *dst, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		memcpy(dst + 4 * i, &table[src[i]], 4);
}

/* -- from f32 bits -- */

static inline uint16_t f16_of_f32(uint32_t f)
{
	const uint32_t magic = F32_EXP(127 - 15 + 23 - 10 + 1);
	uint32_t magnitude = f & 0x7fffffffu;
	uint32_t odd = magnitude >> 13 & 1;
	uint32_t normal = (magnitude - F32_EXP(127 - 15) + 0xfff + odd) >> 13;
	uint32_t tiny = uns_bits_of(uns_float_of(magnitude) + uns_float_of(magic)) - magic;
	uint32_t huge = magnitude > F32_BITS_INF ? 0x7e00 : 0x7c00;
	uint32_t r = magnitude < F32_EXP(113) ? tiny : normal;

	r = magnitude >= F32_EXP(127 + 16) ? huge : r;
	return (uint16_t)(r | (f >> 16 & 0x8000u));
}

static inline uint16_t bf16_of_f32(uint32_t f)
{
	uint32_t rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;
	uint32_t nan = f >> 16 | 0x40;

	return (uint16_t)((f & 0x7fffffffu) > F32_BITS_INF ? nan : rounded);
}

FOR_EACH_ELEMENT(store_f16, uint32_t, uint16_t, f16_of_f32(x))
FOR_EACH_ELEMENT(store_bf16, uint32_t, uint16_t, bf16_of_f32(x))
FOR_EACH_ELEMENT(store_f64, float, double, (double)x)

/* -- any to any -- */

bool uns_cast_exists(enum uns_dtype from, enum uns_dtype to)
{
	if (from == to)
		return from < UNS_N_DTYPES;
	return from < UNS_N_DTYPES && uns_dtype_info(from)->is_float &&
	       (to == UNS_F64 || to == UNS_F32 || to == UNS_F16 || to == UNS_BF16);
}

UNS_INLINE void to_f32_all(enum uns_dtype from, const float *table, const uint8_t *src, uint8_t *dst, size_t n)
{
	if (from == UNS_BF16)
		load_bf16(src, dst, n);
	else if (from == UNS_F16)
		load_f16(src, dst, n);
	else if (from == UNS_F64)
		load_f64(src, dst, n);
	else
		load_f8(table, src, dst, n);
}

UNS_INLINE void of_f32_all(enum uns_dtype to, const uint8_t *src, uint8_t *dst, size_t n)
{
	if (to == UNS_BF16)
		store_bf16(src, dst, n);
	else if (to == UNS_F16)
		store_f16(src, dst, n);
	else
		store_f64(src, dst, n);
}

/* Once for any processor, once for those with AVX2. */

UNS_AVX2 static void to_f32_by_avx2(enum uns_dtype from, const float *table, const uint8_t *src, uint8_t *dst, size_t n)
{
	to_f32_all(from, table, src, dst, n);
}

UNS_AVX2 static void of_f32_by_avx2(enum uns_dtype to, const uint8_t *src, uint8_t *dst, size_t n)
{
	of_f32_all(to, src, dst, n);
}

static void to_f32(enum uns_dtype from, const float *table, const uint8_t *src, uint8_t *dst, size_t n)
{
	if (uns_has_avx2())
		to_f32_by_avx2(from, table, src, dst, n);
	else
		to_f32_all(from, table, src, dst, n);
}

static void of_f32(enum uns_dtype to, const uint8_t *src, uint8_t *dst, size_t n)
{
	if (uns_has_avx2())
		of_f32_by_avx2(to, src, dst, n);
	else
		of_f32_all(to, src, dst, n);
}

static void cast_blocks(enum uns_dtype from, const uint8_t *src, enum uns_dtype to, uint8_t *dst, size_t n)
{
	size_t in = uns_dtype_size(from), out = uns_dtype_size(to), m;
	uint8_t block[BLOCK * sizeof(float)];
	float table[256];

	if (in == 1)
		table_of(from, table);
	for (; n; n -= m, src += m * in, dst += m * out) {
		m = n < BLOCK ? n : BLOCK;
		to_f32(from, table, src, to == UNS_F32 ? dst : block, m);
		if (to != UNS_F32)
			of_f32(to, block, dst, m);
	}
}

void uns_cast(enum uns_dtype from, const void *src, enum uns_dtype to, void *dst, size_t n)
{
	if (from == to)
		memcpy(dst, src, n * uns_dtype_size(from));
	else if (from == UNS_F32)
		of_f32(to, src, dst, n);
	else
		cast_blocks(from, src, to, dst, n);
}

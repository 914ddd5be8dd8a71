/* A quick loop finds out whether a block holds a NaN or an infinity at all, which is rare. Only if
 * it does, each element is looked at. */
#include "verify/nonfinite.h"

#include <stdbool.h>
#include <string.h>

#include "base/span.h"

/* gcc at -O2 does not vectorise loops of unknown length. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif

enum { BLOCK = 4096 }; /* elements */

/* What a number of some type looks like: all bits of `exponent` set = not finite, and then infinite
 * where `mantissa` is 0. */
struct pattern {
	uint64_t exponent, mantissa;
	size_t size_bytes; /* 0 = not such a type */
	unsigned parts;    /* 2 = complex */
};

static const struct pattern patterns[UNS_N_DTYPES + 1] = {
	[UNS_F16] = { 0x7c00, 0x03ff, 2, 1 },         [UNS_BF16] = { 0x7f80, 0x007f, 2, 1 },
	[UNS_F32] = { 0x7f800000, 0x007fffff, 4, 1 }, [UNS_F64] = { 0x7ff0000000000000, 0x000fffffffffffff, 8, 1 },
	[UNS_C64] = { 0x7f800000, 0x007fffff, 4, 2 }, [UNS_C128] = { 0x7ff0000000000000, 0x000fffffffffffff, 8, 2 },
	[UNS_F8_E5M2] = { 0x7c, 0x03, 1, 1 },
};

/* The other 8-bit types have no infinity, and one or two bytes that are NaN: those that are `value`
 * under `mask`. A mask of 0 = not such a type. */
static const struct {
	uint8_t mask, value;
} nans[UNS_N_DTYPES + 1] = {
	[UNS_F8_E4M3] = { 0x7f, 0x7f },
	[UNS_F8_E8M0] = { 0xff, 0xff },
	[UNS_F8_E4M3FNUZ] = { 0xff, 0x80 },
	[UNS_F8_E5M2FNUZ] = { 0xff, 0x80 },
};

/* -- is there one? -- */

static bool any8(const uint8_t *p, size_t n, uint8_t mask, uint8_t value)
{
	unsigned hits = 0;
	size_t i;

	for (i = 0; i < n; i++)
		hits |= (unsigned)((p[i] & mask) == value);
	return hits;
}

/* Does one of n numbers of so many bits have all bits of the mask? */
#define ANY(bits)                                                              \
	static bool any##bits(const uint8_t *p, size_t n, uint##bits##_t mask) \
	{                                                                      \
		uint##bits##_t v, hits = 0;                                    \
		size_t i;                                                      \
                                                                               \
		for (i = 0; i < n; i++) {                                      \
			memcpy(&v, p + bits / 8 * i, bits / 8);                \
			hits |= (uint##bits##_t)((v & mask) == mask);          \
		}                                                              \
		return hits;                                                   \
	}
ANY(16)
ANY(32)
ANY(64)
#undef ANY

static bool any_nonfinite(const struct pattern *f, const uint8_t *p, size_t n)
{
	switch (f->size_bytes) {
	case 1:
		return any8(p, n, (uint8_t)f->exponent, (uint8_t)f->exponent);
	case 2:
		return any16(p, n, (uint16_t)f->exponent);
	case 4:
		return any32(p, n, (uint32_t)f->exponent);
	default:
		return any64(p, n, f->exponent);
	}
}

/* -- which -- */

static void seen_add(struct uns_nonfinite *seen, uint64_t at, bool nan)
{
	if (seen->n_nan + seen->n_inf == 0 || at < seen->first)
		seen->first = at;
	if (nan)
		seen->n_nan++;
	else
		seen->n_inf++;
}

static void count_each(const struct pattern *f, const uint8_t *p, size_t n, uint64_t at, struct uns_nonfinite *seen)
{
	bool nan, inf;
	uint64_t v;
	unsigned k;
	size_t i;

	for (i = 0; i < n; i++) {
		nan = inf = false;
		for (k = 0; k < f->parts; k++, p += f->size_bytes) {
			v = uns_le(p, (unsigned)f->size_bytes);
			if ((v & f->exponent) != f->exponent)
				continue;
			nan |= (v & f->mantissa) != 0;
			inf |= (v & f->mantissa) == 0;
		}
		if (nan || inf)
			seen_add(seen, at + i, nan);
	}
}

static void count_each_nan(const uint8_t *p, size_t n, uint8_t mask, uint8_t value, uint64_t at,
			   struct uns_nonfinite *seen)
{
	size_t i;

	for (i = 0; i < n; i++)
		if ((p[i] & mask) == value)
			seen_add(seen, at + i, true);
}

void uns_nonfinite_count(enum uns_dtype dtype, const void *src, size_t n, uint64_t at, struct uns_nonfinite *seen)
{
	const struct pattern *f = &patterns[dtype];
	uint8_t mask = nans[dtype].mask, value = nans[dtype].value;
	const uint8_t *p = src;
	size_t m;

	if (mask && any8(p, n, mask, value))
		count_each_nan(p, n, mask, value, at, seen);
	if (!f->size_bytes)
		return;
	for (; n; n -= m, p += m * f->parts * f->size_bytes, at += m) {
		m = n < BLOCK ? n : BLOCK;
		if (any_nonfinite(f, p, m * f->parts))
			count_each(f, p, m, at, seen);
	}
}

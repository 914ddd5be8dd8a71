/* A quick loop finds out whether a block holds a NaN or an infinity at all, which is rare. Only if
 * it does, each element is looked at. */
#include "engine/nonfinite.h"

#include <stdbool.h>
#include <string.h>

/* gcc at -O2 does not vectorise loops of unknown length. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif

enum { BLOCK = 4096 }; /* elements */

/* What a number of some type looks like: all bits of `exponent` set = not finite, and then infinite
 * where `mantissa` is 0. */
struct pattern {
	uint64_t exponent, mantissa;
	size_t size_bytes;
	unsigned parts; /* 2 = complex */
};

static bool pattern_of(enum uns_dtype t, struct pattern *out)
{
	static const struct pattern f16 = { 0x7c00, 0x03ff, 2, 1 }, bf16 = { 0x7f80, 0x007f, 2, 1 },
				    f32 = { 0x7f800000, 0x007fffff, 4, 1 },
				    c64 = { 0x7f800000, 0x007fffff, 4, 2 },
				    f64 = { 0x7ff0000000000000, 0x000fffffffffffff, 8, 1 },
				    c128 = { 0x7ff0000000000000, 0x000fffffffffffff, 8, 2 },
				    e5m2 = { 0x7c, 0x03, 1, 1 };

	switch (t) {
	case UNS_F16:
		*out = f16;
		return true;
	case UNS_BF16:
		*out = bf16;
		return true;
	case UNS_F32:
		*out = f32;
		return true;
	case UNS_F64:
		*out = f64;
		return true;
	case UNS_C64:
		*out = c64;
		return true;
	case UNS_C128:
		*out = c128;
		return true;
	case UNS_F8_E5M2:
		*out = e5m2;
		return true;
	default:
		return false;
	}
}

/* The other 8-bit types have no infinity, and one or two bytes that are NaN. */
static bool nan_of(enum uns_dtype t, uint8_t *mask, uint8_t *value)
{
	switch (t) {
	case UNS_F8_E4M3:
		*mask = 0x7f, *value = 0x7f;
		return true;
	case UNS_F8_E8M0:
		*mask = 0xff, *value = 0xff;
		return true;
	case UNS_F8_E4M3FNUZ:
	case UNS_F8_E5M2FNUZ:
		*mask = 0xff, *value = 0x80;
		return true;
	default:
		return false;
	}
}

/* -- is there one? -- */

static bool any8(const uint8_t *p, size_t n, uint8_t mask, uint8_t value)
{
	unsigned hits = 0;
	size_t i;

	for (i = 0; i < n; i++)
		hits |= (unsigned)((p[i] & mask) == value);
	return hits;
}

static bool any16(const uint8_t *p, size_t n, uint16_t mask)
{
	uint16_t v, hits = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(&v, p + 2 * i, 2);
		hits |= (uint16_t)((v & mask) == mask);
	}
	return hits;
}

static bool any32(const uint8_t *p, size_t n, uint32_t mask)
{
	uint32_t v, hits = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(&v, p + 4 * i, 4);
		hits |= (uint32_t)((v & mask) == mask);
	}
	return hits;
}

static bool any64(const uint8_t *p, size_t n, uint64_t mask)
{
	uint64_t v, hits = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		memcpy(&v, p + 8 * i, 8);
		hits |= (uint64_t)((v & mask) == mask);
	}
	return hits;
}

static bool any(const struct pattern *f, const uint8_t *p, size_t n)
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

static void see(struct uns_nonfinite *seen, uint64_t at, bool nan)
{
	if (seen->n_nan + seen->n_inf == 0 || at < seen->first)
		seen->first = at;
	if (nan)
		seen->n_nan++;
	else
		seen->n_inf++;
}

static uint64_t little(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

static void each(const struct pattern *f, const uint8_t *p, size_t n, uint64_t at,
		 struct uns_nonfinite *seen)
{
	bool nan, inf;
	uint64_t v;
	unsigned k;
	size_t i;

	for (i = 0; i < n; i++) {
		nan = inf = false;
		for (k = 0; k < f->parts; k++, p += f->size_bytes) {
			v = little(p, f->size_bytes);
			if ((v & f->exponent) != f->exponent)
				continue;
			nan |= (v & f->mantissa) != 0;
			inf |= (v & f->mantissa) == 0;
		}
		if (nan || inf)
			see(seen, at + i, nan);
	}
}

static void each_nan(const uint8_t *p, size_t n, uint8_t mask, uint8_t value, uint64_t at,
		     struct uns_nonfinite *seen)
{
	size_t i;

	for (i = 0; i < n; i++)
		if ((p[i] & mask) == value)
			see(seen, at + i, true);
}

void uns_nonfinite_count(enum uns_dtype dtype, const void *src, size_t n, uint64_t at,
			 struct uns_nonfinite *seen)
{
	const uint8_t *p = src;
	uint8_t mask, value;
	struct pattern f;
	size_t m;

	if (nan_of(dtype, &mask, &value)) {
		if (any8(p, n, mask, value))
			each_nan(p, n, mask, value, at, seen);
		return;
	}
	if (!pattern_of(dtype, &f))
		return;
	for (; n; n -= m, p += m * f.parts * f.size_bytes, at += m) {
		m = n < BLOCK ? n : BLOCK;
		if (any(&f, p, m * f.parts))
			each(&f, p, m, at, seen);
	}
}

#include "engine/widen.h"

#include <stdint.h>
#include <string.h>

#include "base/vectors.h"
#include "engine/cast.h"

/* gcc at -O2 does not vectorise loops of unknown length. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif

#define WIDEN_EACH(type, value)                              \
	for (i = 0; i < n; i++) {                            \
		type x;                                      \
                                                             \
		memcpy(&x, p + i * sizeof(type), sizeof(x)); \
		out[i] = (double)(value);                    \
	}                                                    \
	break

static bool has_codes(enum uns_dtype dtype)
{
	return uns_dtype_size(dtype) == 1 && uns_dtype_info(dtype)->is_float;
}

void uns_widening_init(struct uns_widening *w, enum uns_dtype dtype)
{
	uint8_t code[256];
	unsigned i;

	w->dtype = dtype;
	if (!has_codes(dtype))
		return;
	for (i = 0; i < 256; i++)
		code[i] = (uint8_t)i;
	uns_cast(dtype, code, UNS_F64, w->of_code, 256);
}

UNS_INLINE void widen_all(const struct uns_widening *w, const uint8_t *p, size_t n, double *out)
{
	size_t i;

	switch (w->dtype) {
	case UNS_BOOL:
	case UNS_U8:
		WIDEN_EACH(uint8_t, x);
	case UNS_I8:
		WIDEN_EACH(int8_t, x);
	case UNS_I16:
		WIDEN_EACH(int16_t, x);
	case UNS_U16:
		WIDEN_EACH(uint16_t, x);
	case UNS_I32:
		WIDEN_EACH(int32_t, x);
	case UNS_U32:
		WIDEN_EACH(uint32_t, x);
	case UNS_BF16:
		WIDEN_EACH(uint16_t, uns_float_of((uint32_t)x << 16));
	case UNS_F32:
		WIDEN_EACH(float, x);
	case UNS_I64:
		WIDEN_EACH(int64_t, x);
	case UNS_U64:
		WIDEN_EACH(uint64_t, x);
	default:
		if (has_codes(w->dtype))
			for (i = 0; i < n; i++)
				out[i] = w->of_code[p[i]];
		else
			uns_cast(w->dtype, p, UNS_F64, out, n);
	}
}

UNS_AVX2 static void widen_by_avx2(const struct uns_widening *w, const uint8_t *p, size_t n, double *out)
{
	widen_all(w, p, n, out);
}

void uns_widen(const struct uns_widening *w, const uint8_t *p, size_t n, double *out)
{
	if (uns_has_avx2())
		widen_by_avx2(w, p, n, out);
	else
		widen_all(w, p, n, out);
}

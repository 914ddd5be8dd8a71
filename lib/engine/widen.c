#include "engine/widen.h"

#include <stdint.h>
#include <string.h>

#include "engine/cast.h"

/* gcc at -O2 does not vectorise loops of unknown length. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif

#define WIDEN_EACH(type)                                     \
	for (i = 0; i < n; i++) {                            \
		type x;                                      \
                                                             \
		memcpy(&x, p + i * sizeof(type), sizeof(x)); \
		out[i] = (double)x;                          \
	}                                                    \
	break

void uns_widen(enum uns_dtype dtype, const uint8_t *p, size_t n, double *out)
{
	size_t i;

	switch (dtype) {
	case UNS_BOOL:
	case UNS_U8:
		WIDEN_EACH(uint8_t);
	case UNS_I8:
		WIDEN_EACH(int8_t);
	case UNS_I16:
		WIDEN_EACH(int16_t);
	case UNS_U16:
		WIDEN_EACH(uint16_t);
	case UNS_I32:
		WIDEN_EACH(int32_t);
	case UNS_U32:
		WIDEN_EACH(uint32_t);
	case UNS_F32:
		WIDEN_EACH(float);
	case UNS_I64:
		WIDEN_EACH(int64_t);
	case UNS_U64:
		WIDEN_EACH(uint64_t);
	default:
		uns_cast(dtype, p, UNS_F64, out, n);
	}
}

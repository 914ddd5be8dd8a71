/* Arithmetic on numbers that were read from a file. Each is checked once, where it is read; later
 * code may then add and multiply as it likes. */
#ifndef UNS_BASE_CHECKED_H
#define UNS_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* true when the sum / product fits; *out is written only then. */
static inline bool uns_u64_add(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

static inline bool uns_u64_mul(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

/* [off, off+len) lies inside [0, size). */
static inline bool uns_inside(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

static inline uint64_t uns_u64_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t uns_u64_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif

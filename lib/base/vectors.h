/* vectors: a loop over numbers is compiled once for any processor and once more for those with AVX2.
 *
 * Such a loop is written once, as UNS_INLINE. A function with UNS_AVX2 that does nothing but call it is its second
 * form, and one `if (uns_has_avx2())` chooses. On other architectures the condition is false, and the compiler leaves
 * the second form out. */
#ifndef UNS_BASE_VECTORS_H
#define UNS_BASE_VECTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define UNS_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define UNS_AVX2             __attribute__((target("avx2")))
#define UNS_AVX2_FMA         __attribute__((target("avx2,fma")))
#define UNS_CPU_HAS(feature) __builtin_cpu_supports(feature)
#else
#define UNS_AVX2
#define UNS_AVX2_FMA
#define UNS_CPU_HAS(feature) 0
#endif

static inline bool uns_has_avx2(void)
{
	return UNS_CPU_HAS("avx2");
}

static inline bool uns_has_avx2_fma(void)
{
	return UNS_CPU_HAS("avx2") && UNS_CPU_HAS("fma");
}

/* The fp32 number with these bits, and the bits of a number. Inlined always: gcc does not inline a function of its own
 * accord into one that has other options of optimisation. */
UNS_INLINE float uns_float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

UNS_INLINE uint32_t uns_bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

#endif

#include "base/sha256.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t round_constant[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void one_block(uint32_t state[8], const uint8_t *p)
{
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
	uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
	uint32_t w[64], t1, t2;
	int i;

	for (i = 0; i < 16; i++)
		w[i] = be32(p + 4 * i);
	for (; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] + (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
	for (i = 0; i < 64; i++) {
		t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + round_constant[i] +
		     w[i];
		t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
		h = g, g = f, f = e, e = d + t1;
		d = c, c = b, b = a, a = t1 + t2;
	}
	state[0] += a, state[1] += b, state[2] += c, state[3] += d;
	state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

static void blocks_by_hand(uint32_t state[8], const uint8_t *p, size_t n)
{
	for (; n; n--, p += UNS_SHA256_BLOCK)
		one_block(state, p);
}

#if defined(__x86_64__)

static int has_sha_instructions(void)
{
	unsigned a, b = 0, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

/* Four rounds, and the message words that the next rounds need. The state is kept as Intel's instructions want
 * it: ABEF and CDGH. */
__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_by_instructions(uint32_t state[8], const uint8_t *p,
									       size_t n)
{
	const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
	__m128i abef, cdgh, abef_before, cdgh_before, w[4], t;
	int i;

	t = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
	cdgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
	abef = _mm_alignr_epi8(t, cdgh, 8);
	cdgh = _mm_blend_epi16(cdgh, t, 0xf0);
	for (; n; n--, p += UNS_SHA256_BLOCK) {
		abef_before = abef;
		cdgh_before = cdgh;
		for (i = 0; i < 4; i++)
			w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), big_endian);
		for (i = 0; i < 16; i++) {
			t = _mm_add_epi32(w[i % 4], _mm_loadu_si128((const __m128i *)(round_constant + 4 * i)));
			cdgh = _mm_sha256rnds2_epu32(cdgh, abef, t);
			abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(t, 0x0e));
			t = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]),
					  _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
			w[i % 4] = _mm_sha256msg2_epu32(t, w[(i + 3) % 4]);
		}
		abef = _mm_add_epi32(abef, abef_before);
		cdgh = _mm_add_epi32(cdgh, cdgh_before);
	}
	t = _mm_shuffle_epi32(abef, 0x1b);
	cdgh = _mm_shuffle_epi32(cdgh, 0xb1);
	_mm_storeu_si128((__m128i *)state, _mm_blend_epi16(t, cdgh, 0xf0));
	_mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(cdgh, t, 8));
}

static void blocks(uint32_t state[8], const uint8_t *p, size_t n)
{
	/* To ask the processor takes longer than one block. */
	if (n > 1 && has_sha_instructions())
		blocks_by_instructions(state, p, n);
	else
		blocks_by_hand(state, p, n);
}

#else

static void blocks(uint32_t state[8], const uint8_t *p, size_t n)
{
	blocks_by_hand(state, p, n);
}

#endif

void uns_sha256_init(struct uns_sha256 *h)
{
	*h = (struct uns_sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
					     0x1f83d9ab, 0x5be0cd19 } };
}

void uns_sha256_add(struct uns_sha256 *h, const void *bytes, size_t len)
{
	size_t waiting = h->n_bytes % UNS_SHA256_BLOCK, n = UNS_SHA256_BLOCK - waiting;
	const uint8_t *p = bytes;

	h->n_bytes += len;
	if (waiting && len >= n) {
		memcpy(h->rest + waiting, p, n);
		blocks(h->state, h->rest, 1);
		p += n;
		len -= n;
		waiting = 0;
	}
	if (!waiting) {
		blocks(h->state, p, len / UNS_SHA256_BLOCK);
		p += len - len % UNS_SHA256_BLOCK;
		len %= UNS_SHA256_BLOCK;
	}
	if (len)
		memcpy(h->rest + waiting, p, len);
}

void uns_sha256_end(struct uns_sha256 *h, uint8_t out[UNS_SHA256_BYTES])
{
	uint64_t bits = h->n_bytes * 8;
	uint8_t end[2 * UNS_SHA256_BLOCK] = { 0x80 };
	size_t waiting = h->n_bytes % UNS_SHA256_BLOCK, n = (waiting < 56 ? 56 : 120) - waiting;
	int i;

	for (i = 0; i < 8; i++)
		end[n + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
	uns_sha256_add(h, end, n + 8);
	for (i = 0; i < UNS_SHA256_BYTES; i++)
		out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* SipHash with one round a word and three at the end (J.-P. Aumasson and D. J. Bernstein, 2012): what
 * Rust's and Python's tables use. */
#include "base/keyed_hash.h"

#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>

#include "base/span.h"

static uint64_t process_key[2]; /* constant once drawn */
static pthread_once_t drawn = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
	/* Before the kernel's generator is ready (a mount at boot) the kernel's 16 bytes for this
	 * process have to do: waiting could take minutes. */
	if (getrandom(process_key, sizeof(process_key), GRND_NONBLOCK) != sizeof(process_key))
		memcpy(process_key, (const void *)getauxval(AT_RANDOM), sizeof(process_key));
}

static inline uint64_t rotate(uint64_t v, unsigned by)
{
	return v << by | v >> (64 - by);
}

static inline void mix(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] = rotate(v[2], 32);
}

static inline void absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	mix(v);
	v[0] ^= word;
}

uint64_t uns_siphash_1_3(const uint64_t key[2], const void *bytes, size_t len)
{
	uint64_t v[4] = { key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
			  key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573) };
	const uint8_t *p = bytes, *end = p + len / 8 * 8;

	for (; p < end; p += 8)
		absorb(v, uns_le(p, 8));
	absorb(v, uns_le(p, len % 8) | (uint64_t)len << 56);
	v[2] ^= 0xff;
	mix(v);
	mix(v);
	mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t uns_keyed_hash(const void *bytes, size_t len)
{
	pthread_once(&drawn, draw_key);
	return uns_siphash_1_3(process_key, bytes, len);
}

/* The stable 64-bit hash: equal in every process, on every machine and in every version, as inode
 * numbers, generations and the keys of memos must be. Inputs that collide are easy to make, so
 * tables whose keys come from files use base/keyed_hash.h instead. */
#ifndef UNS_BASE_HASH_H
#define UNS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UNS_HASH_INIT UINT64_C(0xcbf29ce484222325)

/* FNV-1a over the bytes, continuing from h. */
static inline uint64_t uns_hash_bytes(uint64_t h, const void *bytes, size_t len)
{
	const unsigned char *p = bytes;

	while (len--) {
		h ^= *p++;
		h *= UINT64_C(0x100000001b3);
	}
	return h;
}

static inline uint64_t uns_hash_u64(uint64_t h, uint64_t v)
{
	unsigned char b[8];
	int i;

	for (i = 0; i < 8; i++)
		b[i] = (unsigned char)(v >> (8 * i));
	return uns_hash_bytes(h, b, sizeof(b));
}

/* The terminating NUL is hashed too, so that "ab","c" and "a","bc" differ. */
static inline uint64_t uns_hash_str(uint64_t h, const char *s)
{
	return uns_hash_bytes(h, s, strlen(s) + 1);
}

/* Final avalanche: FNV's low bits are weak. */
static inline uint64_t uns_hash_end(uint64_t h)
{
	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	return h;
}

#endif

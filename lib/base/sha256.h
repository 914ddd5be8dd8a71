/* SHA-256 (FIPS 180-4), for checksums that others compare; by the processor's instructions where it has them. */
#ifndef UNS_BASE_SHA256_H
#define UNS_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { UNS_SHA256_BYTES = 32, UNS_SHA256_BLOCK = 64 };

struct uns_sha256 {
	uint32_t state[8];
	uint64_t n_bytes;
	uint8_t rest[UNS_SHA256_BLOCK]; /* n_bytes % 64 of them wait for a whole block */
};

void uns_sha256_init(struct uns_sha256 *h);
void uns_sha256_add(struct uns_sha256 *h, const void *bytes, size_t len);
void uns_sha256_end(struct uns_sha256 *h, uint8_t out[UNS_SHA256_BYTES]);

#endif

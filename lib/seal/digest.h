/* Checksums of a file, read from its first byte to its last. */
#ifndef UNS_SEAL_DIGEST_H
#define UNS_SEAL_DIGEST_H

#include "io/source.h"
#include "seal/seal.h"

/* Called for each n bytes that were read, by any thread. Negative ends the reading: its sentence is the reader's. */
struct uns_seal_watch {
	int (*step)(void *ctx, uint64_t n_bytes, struct uns_err *err);
	void *ctx;
};

/* Fill in sha256, sample and crc of each piece of `f`, whose size and pieces are set. fd is of a file that has that
 * size; path: for sentences. Memory: 1 MiB. */
int uns_seal_read(int fd, const char *path, struct uns_seal_file *f, const struct uns_seal_watch *watch,
		  struct uns_err *err);
/* The sample alone: reads 64 KiB at most. */
int uns_seal_sample(int fd, const char *path, uint64_t size_bytes, uint64_t *out, struct uns_err *err);

#endif

/* Pieces that no file has as they are (struct uns_block): put in order in memory, as entries of the cache. */
#ifndef UNS_ENGINE_REORDERED_H
#define UNS_ENGINE_REORDERED_H

#include "engine/backing.h"

/* Reads bytes [off, off+len) of the block's elements as they lie in its sources. If a source must be decoded, it fails
 * with UNS_MUST_DECODE unless it may do so: decoding takes room in the cache. */
enum { UNS_MUST_DECODE = -EDEADLK };
struct uns_block_reader {
	int (*read)(void *ctx, bool may_decode, void *buf, size_t len, uint64_t off, struct uns_err *err);
	void *ctx;
};

/* The piece's bytes as a pinned entry. `tensor`: whose piece it is. */
int uns_block_get(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
		  const struct uns_block_reader *reader, struct uns_cached **out, struct uns_err *err);

#endif

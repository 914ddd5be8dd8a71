/* Pieces that cannot be read in place, because they are compressed or have gaps or another order of
 * dimensions, into the cache as dense C-order bytes. Private to lib/engine. */
#ifndef UNS_ENGINE_DECODE_H
#define UNS_ENGINE_DECODE_H

#include "engine/backing.h"

/* true when the piece's bytes can be read in place at spot->data_bytes. */
static inline bool uns_reads_in_place(const struct uns_piece *piece, const struct uns_spot *spot)
{
	return piece->codec == UNS_CODEC_NONE && spot->dense;
}

/* The piece's dense bytes as a pinned cache entry; its source file is checked to be unchanged. */
int uns_decode(struct uns_backing *b, const struct uns_tensor *tensor,
	       const struct uns_piece *piece, struct uns_cached **out, struct uns_err *err);

/* Decompress zstd frames that fill [offset, offset+length) of a file, at most max_bytes:
 * -EBADMSG beyond. `sink` receives the bytes in order. */
typedef int uns_zstd_sink(void *ctx, const void *bytes, size_t len, uint64_t off,
			  struct uns_err *err);
int uns_zstd_read(struct uns_backing *b, uint32_t file, uint64_t offset_bytes,
		  uint64_t length_bytes, uint64_t max_bytes, uns_zstd_sink *sink, void *ctx,
		  uint64_t *out_bytes, struct uns_err *err);

#endif

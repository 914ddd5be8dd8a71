/* Some pieces cannot be read where they lie: they are compressed, or have gaps or another order of
 * dimensions. These are decoded into the cache, as dense bytes in C order. */
#ifndef UNS_ENGINE_DECODE_H
#define UNS_ENGINE_DECODE_H

#include "engine/resolve.h"

/* The piece's bytes can be read where they lie, at at->data_bytes. */
static inline bool uns_reads_in_place(const struct uns_piece *piece, const struct uns_location *at)
{
	return piece->codec == UNS_CODEC_NONE && at->dense;
}

/* The piece's dense bytes as a pinned cache entry; its source file is checked to be unchanged. */
int uns_decode(struct uns_backing *b, const struct uns_tensor *tensor, const struct uns_piece *piece,
	       struct uns_cached **out, struct uns_err *err);

/* Where a file holds zstd frames and nothing else. */
struct uns_zstd_part {
	uint32_t file;
	uint64_t offset_bytes, length_bytes;
	uint64_t max_bytes; /* of what they hold */
	const char *name;   /* of what they hold, for messages */
};

/* Decompress them; `sink` receives the bytes in order. -EBADMSG beyond max_bytes, -ENOTSUP when the
 * window is larger than the engine's budget. */
typedef int uns_zstd_sink(void *ctx, const void *bytes, size_t len, uint64_t off, struct uns_err *err);
int uns_zstd_read(struct uns_backing *b, const struct uns_zstd_part *part, uns_zstd_sink *sink, void *ctx,
		  uint64_t *out_bytes, struct uns_err *err);

#endif

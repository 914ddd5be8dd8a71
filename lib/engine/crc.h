/* CRC-32 of pieces and whole tensors, as zip records hold them. Private to lib/engine. */
#ifndef UNS_ENGINE_CRC_H
#define UNS_ENGINE_CRC_H

#include "engine/gather.h"

/* The CRC of exactly the piece's bytes as its container recorded it; 0 = not recorded. */
int uns_crc_recorded(const struct uns_gather *g, const struct uns_piece *piece, uint32_t *out,
		     struct uns_err *err);

/* What is known without reading data; false = nothing. */
int uns_crc_find(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		 uint32_t *crc, bool *known, struct uns_err *err);
/* Not in memory, and there is a place for it. */
bool uns_crc_wanted(const struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out);
void uns_crc_learn(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
		   uint32_t crc);

/* A layout of all of one tensor and nothing else; `segment` must outlive it. */
struct uns_layout uns_crc_layout(const struct uns_backing *b, const struct uns_tensor *t,
				 enum uns_dtype out, struct uns_segment *segment);

/* -- crc_stream.c: CRCs of tensors that are read whole anyway, in whatever order -- */
struct uns_crc_stream;
struct uns_crc_stream *uns_crc_stream_new(void);
void uns_crc_stream_free(struct uns_crc_stream *stream);
/* Bytes [at, at+len) of the tensor given out as `out` went by. */
void uns_crc_stream_add(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out,
			uint64_t at, const uint8_t *bytes, size_t len);

#endif

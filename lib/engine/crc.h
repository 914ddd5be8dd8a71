/* CRC-32 of pieces and of whole tensors, as zip records hold them. */
#ifndef UNS_ENGINE_CRC_H
#define UNS_ENGINE_CRC_H

#include "engine/gather.h"

/* The CRC of exactly the piece's bytes as its container recorded it; 0 = not recorded. */
int uns_crc_recorded(const struct uns_gather *g, const struct uns_piece *piece, uint32_t *out, struct uns_err *err);

/* What was found earlier, or follows from what containers recorded; reads headers at most. false in
 * *known = nothing, and *crc is 0. */
int uns_crc_look_up(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out, uint32_t *crc, bool *known,
		    struct uns_err *err);

/* Remember what was found. */
int uns_crc_keep(struct uns_backing *b, const struct uns_tensor *t, enum uns_dtype out, uint32_t crc,
		 struct uns_err *err);

#endif

/* CRC-32 of pieces and whole tensors, as zip records hold them. Private to lib/engine. */
#ifndef UNS_ENGINE_CRC_H
#define UNS_ENGINE_CRC_H

#include "engine/gather.h"

/* The CRC of exactly the piece's bytes as its container recorded it; 0 = not recorded. */
int uns_crc_recorded(const struct uns_gather *g, const struct uns_piece *piece, uint32_t *out,
		     struct uns_err *err);

#endif
